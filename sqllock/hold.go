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
	granted  instant         // when the attempt was begun that brought the grant, which may have had holders before
	first    int64           // the grant's first token
	ctx      context.Context //nolint:containedctx // it is what Lock.Context returns: its end is the news of a loss
	cancel   context.CancelCauseFunc

	mu        sync.Mutex
	handles   int
	lease     time.Duration // of the last confirmed renewal
	confirmed instant       // when that renewal was begun
	extended  time.Duration // lease of renewals to come
	asked     time.Duration // longest lease that an Extend asked for; whether it runs is not known
	failure   error         // of the last try to renew, since that renewal
	releasing bool          // ReleaseTx put the release into a transaction
	pinned    bool          // it is not handed on
	ended     error         // nil while held; else an ErrReleased or a *LostError

	leaving  sync.Once // gives the turn in this process to the next
	releaser sync.Once
	released error

	schedule schedule // of the keeper, under its mutex
}

// open makes the lock's context.
func (h *hold) open(ctx context.Context) {
	h.ctx, h.cancel = context.WithCancelCause(
		context.WithValue(context.WithoutCancel(ctx), reentry{h.locker, h.request.Name}, h))
}

// left is how long the lock can be trusted from the instant n on.
func (h *hold) left(n instant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.leftLocked(n)
}

// trustedLocked is what is left of the trust window.
func (h *hold) trustedLocked(n instant) time.Duration {
	return h.settings.trust(h.lease) - n.since(h.confirmed)
}

func (h *hold) leftLocked(n instant) time.Duration {
	left := h.trustedLocked(n)

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
// back what a later one gave, nor revives a hold whose window is over: the name
// may have been somebody else's meanwhile, and this owner's again since, by an
// attempt to acquire that was held up on its way.
func (h *hold) confirm(start instant, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.leftLocked(now()) <= 0 {
		return // whoever looks next ends the hold
	}

	// Both instants are read on both clocks, so the later window is compared
	// on the monotonic one only, where order is certain.
	if start.mono+lease >= h.confirmed.mono+h.lease {
		h.confirmed, h.lease, h.failure = start, lease, nil
	}
}

// expire ends a hold whose trust window is over.
func (h *hold) expire() error {
	h.mu.Lock()
	releasing := h.releasing
	overheld := h.settings.maxHold > 0 && now().since(h.acquired) >= h.settings.maxHold
	lease, failure := h.lease, h.failure
	h.mu.Unlock()

	switch {
	case releasing:
		defer h.leave()

		return h.end(ErrReleased)
	case overheld:
		return h.lose(ReasonMaxHold, h.settings.maxHold.String(), nil)
	default:
		return h.lose(ReasonExpired, fmt.Sprintf("no renewal was confirmed within the lease of %s", lease), failure)
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

	if h.handOff() {
		h.locker.note(h.settings, eventReleased, Event{
			Name: h.request.Name, Token: h.grant.Token(), HeldFor: now().since(h.acquired),
		})

		return nil
	}

	// First the work is told to stop, then others may have the lock.
	if state := h.end(ErrReleased); errors.Is(state, ErrLost) {
		h.goOn(ctx)

		return state
	}

	defer h.leave()

	h.handedOn()

	err := h.giveBack(ctx)

	if c, ok := h.grant.(Crowder); ok && err == nil {
		h.locker.queue.crowd(h.request.Name, c.Crowded())
	}

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
// that it returns may run, or a connection is held.
func (h *hold) goOn(ctx context.Context) time.Duration {
	h.mu.Lock()
	lease := max(h.lease, h.extended, h.asked)
	h.mu.Unlock()

	bound := lease
	if h.locker.features.ConnectionHeld {
		bound = 0
	}

	h.locker.inBackground(ctx, bound, h.grant.Release)

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

	// Others may wait for a name that is waited for here, which not every batch
	// can tell.
	together := h.batched() && !h.locker.queue.waits(h.request.Name)

	for try := range releaseTries {
		// What a batch could not do is done alone, at once.
		if try > 0 && !errors.Is(err, ErrAlone) {
			sleep(ctx, backoff(try, defaultPollMin, defaultPollMax))
		}

		err = h.freeGrant(ctx, releaseTimeout/releaseTries, together && try == 0)

		switch {
		case try > 0 && h.followed(err):
			return nil
		case err == nil, errors.Is(err, ErrLost):
			return err
		}
	}

	return err
}

// freeGrant makes one try to release the grant, together with others or alone.
func (h *hold) freeGrant(ctx context.Context, timeout time.Duration, together bool) error {
	if !together {
		return bounded(ctx, timeout, h.grant.Release)
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	_, err := h.locker.releases.ride(ctx, h.grant, nil)

	return err
}

// batched says whether calls about the hold may go together with others.
func (h *hold) batched() bool { return h.locker.batches(h.settings) }

// followed says whether an earlier try released the lock though its answer was
// lost: somebody has been granted it since, which the lease would not have let
// happen yet.
func (h *hold) followed(err error) bool {
	var lost *LostError

	return errors.As(err, &lost) && lost.Reason == ReasonTakenOver && !h.locker.features.ConnectionHeld && h.left(now()) > 0
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
	case h.releasing, h.handles == 0:
		return nil, ErrReleased
	}

	h.handles++

	return &Lock{hold: h}, nil
}

var errOtherHandles = fmt.Errorf("%w while other handles of it are open", ErrUnsupported)

// beginReleaseTx notes that a transaction has the release in it, or may have. It
// refuses when the hold has ended, whose grant somebody else in this process may
// have, and while there are other handles.
func (h *hold) beginReleaseTx() error {
	h.mu.Lock()
	defer h.mu.Unlock()

	switch {
	case h.ended != nil:
		return h.ended
	case h.handles > 1:
		return errOtherHandles
	}

	h.releasing, h.pinned = true, true

	return nil
}

// endReleaseTx takes that back: the transaction has no release in it.
func (h *hold) endReleaseTx() {
	h.mu.Lock()
	h.releasing = false
	h.mu.Unlock()

	// The renewal may have been due meanwhile.
	h.locker.keeper.again(h)
}

// drop takes a handle away and says whether it was the last.
func (h *hold) drop() bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.handles--

	return h.handles == 0
}
