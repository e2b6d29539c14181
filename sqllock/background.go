package sqllock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// background is what Close waits for: calls of others that are under way, and
// grants that nobody has any more and that are to be ended in the database.
type background struct {
	mu       sync.Mutex
	closed   bool
	underWay map[string]int          // by the lock's name
	idle     chan struct{}           // closed when nothing is under way; nil if nobody waits for that
	ends     map[*acquisition]func() // what ends the acquisitions under way

	endings map[*ending]struct{}
	due     []*ending // of them those that are to be tried now
	workers int       // at work on others
}

// begin counts a call that Close waits for; false if it is too late.
func (b *background) begin(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.closed {
		return false
	}

	b.underWay[name]++

	return true
}

// count is begin for what goes on although the locker is closed.
func (b *background) count(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.underWay[name]++
}

// finish ends what begin or count counted.
func (b *background) finish(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.finishLocked(name)
}

func (b *background) finishLocked(name string) {
	if b.underWay[name]--; b.underWay[name] == 0 {
		delete(b.underWay, name)
	}

	if len(b.underWay) == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// endsBy says what ends an acquisition when the locker is closed, at once if it is; nil: nothing.
func (b *background) endsBy(a *acquisition, end func()) {
	b.mu.Lock()

	closed := b.closed
	if end == nil {
		delete(b.ends, a)
	} else {
		b.ends[a] = end
	}

	b.mu.Unlock()

	if closed && end != nil {
		end()
	}
}

// close lets no acquisition begin any more, has what waits for the end of a lease ended now, and returns what ends the
// acquisitions under way.
func (b *background) close() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.closed = true

	for e := range b.endings {
		if e.overdue && len(e.looks) > 0 {
			e.looks[0] = later(time.Now(), e.soonest)

			if e.timer.Stop() {
				e.timer.Reset(time.Until(e.looks[0]))
			}
		}
	}

	return slices.Collect(maps.Values(b.ends))
}

// settled returns a channel that is closed when nothing is under way.
func (b *background) settled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.idle == nil {
		b.idle = make(chan struct{})
	}

	idle := b.idle

	if len(b.underWay) == 0 {
		close(b.idle)
		b.idle = nil
	}

	return idle
}

// unfinished says of which locks something may be left in the database.
func (b *background) unfinished() error {
	const most = 5

	b.mu.Lock()
	defer b.mu.Unlock()

	names := slices.Sorted(maps.Keys(b.underWay))
	if len(names) == 0 {
		return nil
	}

	var quoted []string

	for _, name := range names[:min(len(names), most)] {
		quoted = append(quoted, fmt.Sprintf("%q", strings.TrimPrefix(name, "\x00")))
	}

	if more := len(names) - len(quoted); more > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", more))
	}

	failed := error(nil)

	for e := range b.endings {
		if e.failed != nil {
			failed = e.failed
		}
	}

	text := "the database has not confirmed that it is free of " + strings.Join(quoted, ", ") +
		"; what may be left ends with its lease, at the latest"
	if failed != nil {
		return fmt.Errorf("%s: %w", text, failed)
	}

	return errors.New(text)
}

// ending is a grant, or an attempt that may have brought one, that nobody has any
// more. It is to be ended in the database.
type ending struct {
	name  string
	ctx   context.Context //nolint:containedctx // the values of the call that it comes from, without its end
	end   func(ctx context.Context) error
	looks []time.Time // when to end it, the next first; more than one if it may still be on its way
	until time.Time   // when its lease has ended it; zero: never
	tries int         // in vain, since the last look that was answered
	stuck sync.Mutex  // one try at a time, also of those that do not return

	overdue bool      // it waits for the end of a lease, which ends it, or for Close, which does not wait for that
	soonest time.Time // before which not even Close has it ended: it may still be on its way

	failed error       // of the last try
	timer  *time.Timer // until the next
}

const (
	// enders is how many endings of a locker are tried at a time, and endTime how
	// long one try may take.
	enders  = 8
	endTime = time.Second
)

// lookTimes are when to look for such an attempt.
func lookTimes(lost time.Time) []time.Time {
	return []time.Time{lost, lost.Add(100 * time.Millisecond), lost.Add(time.Second), lost.Add(lastLook)}
}

// newEnding returns an ending that is tried at once, until its lease has ended it.
func newEnding(ctx context.Context, name string, lease time.Duration, end func(context.Context) error) *ending {
	now := time.Now()
	name, _ = strategies.SplitSlot(name)

	return &ending{
		name: name, ctx: context.WithoutCancel(ctx), end: end, looks: []time.Time{now}, until: now.Add(max(lease, time.Second)),
	}
}

// start has the ending tried until the database has answered as often as there
// are looks.
func (b *background) start(e *ending) *ending {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.closed && e.overdue {
		e.looks[0] = later(time.Now(), e.soonest)
	}

	b.underWay[e.name]++
	b.endings[e] = struct{}{}
	e.timer = time.AfterFunc(time.Until(e.looks[0]), func() { b.work(e) })

	return e
}

// drop ends an ending that there is no need for any more.
func (b *background) drop(e *ending) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if e == nil {
		return
	}

	e.looks = nil

	// Otherwise whoever is at work on it finds that, or it is done.
	if e.timer.Stop() {
		b.nextLocked(e)
	}
}

// nextLocked has an ending tried again that has more looks, or finishes it.
func (b *background) nextLocked(e *ending) {
	if len(e.looks) > 0 {
		e.timer.Reset(time.Until(e.looks[0]))
	} else {
		delete(b.endings, e)
		b.finishLocked(e.name)
	}
}

var errStuck = errors.New("the try before has not returned")

// work tries an ending, and what is due by then, unless others are at work on that.
func (b *background) work(e *ending) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.due = append(b.due, e)

	if b.workers == enders {
		return
	}

	for b.workers++; len(b.due) > 0; {
		e, b.due = b.due[0], b.due[1:]
		b.mu.Unlock()

		started := time.Now()
		err := e.try(started)

		b.mu.Lock()

		switch {
		case err == nil, errors.Is(err, ErrLost):
			e.failed, e.tries = nil, 0
			e.looks = slices.DeleteFunc(e.looks, func(at time.Time) bool { return !at.After(started) })
		case !e.until.IsZero() && time.Now().After(e.until):
			e.looks = nil
		case len(e.looks) > 0:
			e.failed = outOfTime(err)
			e.looks[0] = time.Now().Add(backoff(e.tries, firstRetry, lastRetry))
			e.tries++
		}

		b.nextLocked(e)
	}

	b.workers--
}

// try makes one, unless the lease has ended meanwhile that is to end it.
func (e *ending) try(started time.Time) error {
	if e.overdue && !started.Before(e.until) {
		return nil
	}

	return call.Bounded(e.ctx, endTime, func(ctx context.Context) error {
		if !e.stuck.TryLock() {
			return errStuck
		}

		defer e.stuck.Unlock()

		return e.end(ctx)
	})
}

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

const (
	// idleTime is how long ago a name was acquired that is removed. It is longer than any call of the locker looks for
	// what became of an earlier one.
	idleTime = time.Minute
	// idlePage is how many names are removed at a time, and idleLimit how long that may take.
	idlePage  = 2000
	idleLimit = 5 * time.Second
	// reaping is what Close calls it. No lock has a name with a NUL.
	reaping = "\x00the removal of idle names"
	// idleShare is how much of the time a locker removes names: one part of so many.
	idleShare = 10
)

// reaper removes what the database keeps of names that are not in use, in the background. A locker that has released locks
// looks for some a while later, at a random moment, as others do the same: mostly it finds nothing, or goes on page by page with
// pauses. It looks once more if others were released meanwhile, which were not idle yet, and then no more. Between two pages there is a timer
// and no goroutine.
type reaper struct {
	locker *Locker

	mu    sync.Mutex
	used  bool        // a lock was released since the last look
	awake bool        // a look is due or under way
	timer *time.Timer // nil before the first look
}

// page is how many names one look has removed, and whether there may be more.
type page struct {
	removed int
	more    bool
}

// released lets a look follow.
func (r *reaper) released() {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.used = true; !r.awake && r.locker.life.Err() == nil {
		r.awake = true
		r.afterLocked(idleTime + jitter(idleTime))
	}
}

// afterLocked has a page removed after a pause.
func (r *reaper) afterLocked(pause time.Duration) {
	if r.timer == nil {
		r.timer = time.AfterFunc(pause, r.look)
	} else {
		r.timer.Reset(pause)
	}
}

// look removes a page.
func (r *reaper) look() {
	if !r.locker.background.begin(reaping) {
		return
	}

	defer r.locker.background.finish(reaping)

	started := time.Now()
	done, err := call.Limited(r.locker.life, idleLimit, func(ctx context.Context) (done page, err error) {
		done.removed, done.more, err = r.locker.strategy.ReapIdle(ctx, idleTime, idlePage)

		return done, err
	})
	pause := idleTime + jitter(idleTime)

	logger, ctx := r.locker.logger, context.Background() //nolint:forbidigo // as for every event

	switch {
	case r.locker.life.Err() != nil:
		return
	case err != nil:
		logger.LogAttrs(ctx, slog.LevelDebug, "removal of idle names failed", slog.Any("error", err))
	case done.removed > 0:
		logger.LogAttrs(ctx, slog.LevelDebug, "idle names removed", slog.Int("removed", done.removed))
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	switch {
	case r.locker.life.Err() != nil:
		return
	case done.more && err == nil:
		pause = max(time.Millisecond, (idleShare-1)*time.Since(started))
	default:
		// Some errors come again: of a user who may not remove rows, for example.
		r.awake = r.used && !isAny(err, ErrNotAllowed, ErrUnsupported, ErrNoSchema)
		r.used = false
	}

	if r.awake {
		r.afterLocked(pause)
	}
}

// stop ends it, after the locker's life has ended. Close waits for a page that is under way.
func (r *reaper) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.timer != nil {
		r.timer.Stop()
	}
}
