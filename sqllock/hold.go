package sqllock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// hold is one grant and what is known of it here. The handles of a reentrant
// lock share one.
type hold struct {
	locker   *Locker
	settings *settings
	request  Request
	grant    Grant
	acquired instant
	ctx      context.Context //nolint:containedctx // it is what Lock.Context returns: its end is the news of a loss
	cancel   context.CancelCauseFunc

	mu        sync.Mutex
	handles   int
	lease     time.Duration // of the last confirmed renewal
	confirmed instant       // when that renewal was begun
	extended  time.Duration // lease of renewals to come
	releasing bool          // ReleaseTx put the release into a transaction
	ended     error         // nil while held; else an ErrReleased or a *LostError

	leaving  sync.Once // gives the turn in this process to the next
	releaser sync.Once
	released error

	schedule schedule // of the keeper, under its mutex
}

// left is how long the lock can be trusted from the instant n on.
func (h *hold) left(n instant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.leftLocked(n)
}

func (h *hold) leftLocked(n instant) time.Duration {
	left := h.settings.trust(h.lease) - n.since(h.confirmed)

	if h.settings.maxHold > 0 {
		left = min(left, h.settings.maxHold-n.since(h.acquired))
	}

	return left
}

// err is nil while the lock is held and trusted. It ends the hold itself if
// the window has passed and the keeper did not get to it yet.
func (h *hold) err() error {
	h.mu.Lock()
	ended := h.ended
	left := h.leftLocked(now())
	h.mu.Unlock()

	if ended != nil || left > 0 {
		return ended
	}

	return h.expire()
}

// confirm notes a renewal that was begun at start. A late answer never takes
// back what a later one gave.
func (h *hold) confirm(start instant, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()

	// Both instants are read on both clocks, so the later window is compared
	// on the monotonic one only, where order is certain.
	if start.mono+lease >= h.confirmed.mono+h.lease {
		h.confirmed, h.lease = start, lease
	}
}

// expire ends a hold whose trust window is over.
func (h *hold) expire() error {
	h.mu.Lock()
	releasing := h.releasing
	overheld := h.settings.maxHold > 0 && now().since(h.acquired) >= h.settings.maxHold
	lease := h.lease
	h.mu.Unlock()

	switch {
	case releasing:
		defer h.leave()

		return h.end(ErrReleased)
	case overheld:
		return h.lose(ReasonMaxHold, h.settings.maxHold.String(), nil)
	default:
		return h.lose(ReasonExpired, fmt.Sprintf("no renewal was confirmed within the lease of %s", lease), nil)
	}
}

// isLoss says whether an answer is that this hold is lost. A context that ended
// because another lock was lost may be told of by an error, too.
func (h *hold) isLoss(err error) bool {
	var known *LostError
	if errors.As(err, &known) {
		return known.Name == h.request.Name && known.Token == h.grant.Token()
	}

	return errors.Is(err, ErrLost)
}

// lost ends the hold because of an error that isLoss.
func (h *hold) lost(err error) error {
	h.mu.Lock()
	releasing := h.releasing
	h.mu.Unlock()

	if releasing {
		// The transaction that released it has committed.
		defer h.leave()

		return h.end(ErrReleased)
	}

	var known *LostError
	if errors.As(err, &known) {
		return h.lose(known.Reason, known.Detail, known.Err)
	}

	return h.lose(ReasonUnknown, "", err)
}

func (h *hold) lose(reason Reason, detail string, cause error) error {
	return h.end(&LostError{
		Name: h.request.Name, Token: h.grant.Token(), Reason: reason, Detail: detail, Err: cause,
	})
}

// end moves the hold to its last state, once, and returns that state.
func (h *hold) end(state error) error {
	h.mu.Lock()

	if h.ended != nil {
		defer h.mu.Unlock()

		return h.ended
	}

	h.ended = state
	h.mu.Unlock()

	h.cancel(state)
	h.locker.keeper.forget(h)

	if errors.Is(state, ErrLost) {
		h.leave()

		if h.locker.features.ConnectionHeld {
			// Its connection goes back, also if nobody calls Release.
			h.goOn(h.ctx)
		}

		h.locker.note(h.settings, eventLost, Event{
			Name: h.request.Name, Token: h.grant.Token(), HeldFor: now().since(h.acquired), Err: state,
		})
	}

	return state
}

// leave lets those who wait in this process go and ask the database.
func (h *hold) leave() {
	h.leaving.Do(func() { h.locker.queue.leave(h.request.Name) })
}

// release ends the hold and frees the lock in the database, once.
func (h *hold) release(ctx context.Context) error {
	h.releaser.Do(func() { h.released = h.releaseNow(ctx) })

	return h.released
}

func (h *hold) releaseNow(ctx context.Context) error {
	h.mu.Lock()
	releasing := h.releasing
	h.mu.Unlock()

	// First the work is told to stop, then others may have the lock.
	if state := h.end(ErrReleased); errors.Is(state, ErrLost) {
		h.goOn(ctx)

		return state
	}

	defer h.leave()

	err := h.giveBack(ctx)
	if errors.Is(err, ErrLost) && releasing {
		// The transaction that released it has committed.
		err = nil
	}

	h.locker.note(h.settings, eventReleased, Event{
		Name: h.request.Name, Token: h.grant.Token(), HeldFor: now().since(h.acquired), Err: err,
	})

	switch {
	case err == nil, errors.Is(err, ErrLost):
		return err
	default:
		lease := h.goOn(ctx)

		return fmt.Errorf("release lock %q: %w (tried again in the background; it is free when its lease of %s ends, at the latest)",
			h.request.Name, err, lease)
	}
}

// goOn goes on with the release in the background, for as long as the lease
// that it returns may run.
func (h *hold) goOn(ctx context.Context) time.Duration {
	h.mu.Lock()
	lease := max(h.lease, h.extended)
	h.mu.Unlock()

	h.locker.inBackground(ctx, lease, h.grant.Release)

	return lease
}

const (
	releaseTimeout = 5 * time.Second
	releaseTries   = 3
)

// giveBack runs the release, also though ctx has ended, and repeats it while
// its outcome is unknown.
func (h *hold) giveBack(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)

	var err error

	for try := range releaseTries {
		if try > 0 {
			sleep(ctx, backoff(try, defaultPollMin, defaultPollMax))
		}

		if err = bounded(ctx, releaseTimeout/releaseTries, h.grant.Release); err == nil || errors.Is(err, ErrLost) {
			return err
		}
	}

	return err
}

// share adds a handle, if the hold is alive.
func (h *hold) share() (*Lock, error) {
	if err := h.err(); err != nil {
		return nil, err
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	switch {
	case h.ended != nil:
		return nil, h.ended
	case h.releasing:
		return nil, ErrReleased
	}

	h.handles++

	return &Lock{hold: h}, nil
}

// setReleasing notes that the release is, or is not, part of a transaction. It
// refuses while there are other handles.
func (h *hold) setReleasing(releasing bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	if releasing && h.handles > 1 {
		return false
	}

	h.releasing = releasing

	return true
}

// drop takes a handle away and says whether it was the last.
func (h *hold) drop() bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.handles--

	return h.handles == 0
}
