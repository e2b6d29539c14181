package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
)

const (
	// closeTime bounds Close, whose context may have no end.
	closeTime = 15 * time.Second
	// giveBackTime bounds what gives a connection back that the strategy keeps.
	giveBackTime = 5 * time.Second
)

var errNotClosed = fmt.Errorf("not done within %s", closeTime)

// Close releases all locks that are held, ends all waits with [ErrClosed], and
// waits for what goes on in the background: until ctx ends, and for 15 seconds
// at most. It does not touch the database pool. The methods of a closed locker return ErrClosed.
//
// When it returns nil, nothing of this locker is left in the database. If the
// answer to an acquisition was lost shortly before, because its connection
// broke, Close looks for a late grant for six more seconds; the lease ends one that
// the network holds up for longer. Where a renewal got no answer and the database does not
// confirm the release either, the lease counts from six seconds later. Errors: [ErrLost], of
// locks that the database says were lost when they were to be released; one that names the
// locks of which something may be left, and until when. Close does not report a loss that the
// holder was already told of.
func (l *Locker) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}

	if err := checkContext(ctx, "close locker"); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, closeTime, errNotClosed)
	defer cancel()

	l.close(ErrClosed)

	for _, end := range l.background.close() {
		end()
	}

	var held []*hold

	// All work is told to stop, then others may have the locks. A lock that has
	// just been lost may still be there; whoever has it was told.
	for _, h := range l.keeper.close() {
		// Also for another call of Close, which does not find it any more.
		l.background.count(h.name)

		if state := h.endCounted(errReleasedByClose); errors.Is(state, ErrLost) {
			l.background.finish(h.name)
		} else {
			held = append(held, h)
		}
	}

	lost := l.releaseAll(ctx, held)

	var left error

	select {
	case <-l.background.settled():
	case <-ctx.Done():
		if left = l.background.unfinished(); left != nil {
			left = fmt.Errorf("close locker: %w: %w", context.Cause(ctx), left)
		}
	}

	l.reaper.stop()
	// It does not wait for a driver that does not return.
	_ = call.Bounded(ctx, giveBackTime, func(ctx context.Context) error {
		l.strategy.Close(ctx)

		return nil
	})

	l.events.last(ctx)
	l.workers.Close()
	wakeUp(l.keeper.wake) // it ends

	return errors.Join(append(lost(), left)...)
}

// releaseAll begins to release locks that are counted as under way, some at a time. It returns what says which were lost, as far as
// that is known. What fails goes on in the background.
func (l *Locker) releaseAll(ctx context.Context, held []*hold) (lost func() []error) {
	losses, next := make(chan error, len(held)), make(chan *hold, len(held))

	for _, h := range held {
		next <- h
	}

	close(next)

	release := func(h *hold) {
		defer l.background.finish(h.name)

		var event Event

		if err := h.release(ctx, &event); errors.Is(err, ErrLost) {
			losses <- err
		}

		if event.Name != "" {
			l.events.add(h.ctx, event)
		}
	}

	most := call.MaxBatch
	if l.features.Unbatched {
		most = renewers
	}

	for range min(most, len(held)) {
		go func() {
			for h := range next {
				release(h)
			}
		}()
	}

	return func() (all []error) {
		for len(losses) > 0 {
			all = append(all, <-losses)
		}

		return all
	}
}

// errReleasedByClose is the state of a lock that Close released.
var errReleasedByClose = fmt.Errorf("%w: %w", ErrReleased, ErrClosed)
