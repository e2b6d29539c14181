package sqllock

import "time"

// handOffTime is how long a grant goes from one holder to the next in this
// process before it goes back to the database, and crowdedTime if other
// processes waited for the name last time.
const (
	handOffTime = 25 * time.Millisecond
	crowdedTime = 10 * time.Millisecond
)

// handOff gives the grant to the next waiter in this process, and says whether it
// did. The hold has ended then.
func (h *hold) handOff() bool {
	l := h.locker
	t, k := &l.turns, &l.keeper

	if h.grant.Token >= h.grant.Last || l.inTxs.Load() {
		return false
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	n := t.names[h.request.Name]
	if n == nil || n.waiters.Len() == 0 {
		return false
	}

	first := n.waiters.Front()
	w, _ := first.Value.(*waiter)

	bound := handOffTime
	if n.contended {
		bound = crowdedTime
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	if k.closed || !h.settings.like(w.set) {
		return false
	}

	if w.hold = h.next(w, bound); w.hold == nil {
		return false
	}

	k.replaceLocked(h, w.hold)

	// The turn goes with the lock. Nobody is in leave, which locks turns inside that Once: next has ended the hold.
	h.leaving.Do(func() {})
	n.set(w.hold, nil)
	n.waiters.Remove(first)
	close(w.turn)

	return true
}

// handsOn says whether a lock with these settings may go to the next waiter in this process.
func (s *settings) handsOn() bool { return s.handsOff && s.renew && s.minHold == 0 && !s.manyHolders() }

// like says whether a lock with these settings can be that of somebody who asked
// for the others, as far as the database knows of them.
func (s *settings) like(other *settings) bool {
	return s == other || other.handsOn() && s.lease == other.lease && s.lockDelay == other.lockDelay &&
		s.unbatched == other.unbatched && s.commits == other.commits && s.holder == other.holder
}

// next ends the hold for the next one, nil if it cannot be handed on.
func (h *hold) next(w *waiter, bound time.Duration) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()

	n := now()

	// The next holder gets what is left of the trust window, and nothing more until a renewal is confirmed.
	if h.errLocked(n) != nil || h.releasing || h.pinned || n.since(h.grantedAt) >= bound ||
		h.trustedLocked(n) < h.settings.trust(h.settings.lease)/2 {
		return nil
	}

	h.ended = ErrReleased

	// First the work is told to stop, then the next has the lock.
	h.cancel(ErrReleased)

	grant := h.grant
	grant.Token++

	next := &hold{
		locker: h.locker, settings: w.set, request: h.request, grant: grant, acquired: n, grantedAt: h.grantedAt, first: h.first,
		state: state{handles: 1, confirmed: h.confirmed, lease: h.lease, extended: w.set.lease, from: n, doubt: h.doubt},
	}
	next.open(w.ctx)

	return next
}

// pin keeps the lock from being handed on: a transaction may guard it from now on,
// so that it has to be released where that transaction is known of, or its lease
// becomes one of its own. It refuses when the lock has ended.
func (h *hold) pin() error {
	h.mu.Lock()
	defer h.mu.Unlock()

	err := h.errLocked(now())
	h.pinned = h.pinned || err == nil

	return err
}
