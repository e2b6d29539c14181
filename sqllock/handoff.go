package sqllock

import "time"

// handOffTime is how long a grant goes from one holder to the next in this
// process before it goes back to the database, and crowdedTime if other
// processes waited for the name last time.
const (
	handOffTime = 25 * time.Millisecond
	crowdedTime = 10 * time.Millisecond
)

// handOff gives the grant to the next who waits for it in this process, and says
// whether it did. The hold has ended then.
func (h *hold) handOff() bool {
	reserver, ok := h.grant.(Reserver)
	if !ok || !h.settings.handsOff {
		return false
	}

	l := h.locker

	// Close takes stock under the same mutex.
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.closed {
		return false
	}

	return l.queue.handOff(h.request.Name, func(w *waiter, crowded bool) *hold {
		if !h.settings.like(w.set) {
			return nil
		}

		bound := handOffTime
		if crowded {
			bound = crowdedTime
		}

		next := h.next(reserver, w, bound)
		if next == nil {
			return nil
		}

		// First the work is told to stop, then the next has the lock.
		h.cancel(ErrReleased)
		h.leaving.Do(func() {}) // the turn goes with the lock
		next.open(w.ctx)
		l.keeper.replace(h, next)

		return next
	})
}

// like says whether a lock with these settings can be that of somebody who asked
// for the others, as far as the database knows of them.
func (s *settings) like(other *settings) bool {
	return s == other || s.handsOff && other.handsOff && s.renew && other.renew && s.lease == other.lease &&
		s.lockDelay == other.lockDelay && s.minHold == other.minHold && s.alone == other.alone && s.durable == other.durable &&
		s.holder == other.holder
}

// next ends the hold for the next one, nil if it can not be handed on.
func (h *hold) next(reserver Reserver, w *waiter, bound time.Duration) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()

	n := now()

	switch {
	case h.ended != nil, h.releasing, h.pinned, h.settings.minHold > 0, !h.settings.renew:
		return nil
	case n.since(h.granted) >= bound:
		return nil
	case h.trustedLocked(n) < h.settings.trust(h.settings.lease)/2:
		// The next holder gets what is left of the trust window, and nothing more
		// until a renewal is confirmed.
		return nil
	}

	grant := reserver.Next()
	if grant == nil {
		return nil
	}

	h.ended = ErrReleased

	return &hold{
		locker: h.locker, settings: w.set, request: h.request, grant: grant, acquired: n, granted: h.granted, first: h.first,
		confirmed: h.confirmed, lease: h.lease, extended: w.set.lease, handles: 1, schedule: schedule{index: -1},
	}
}

// pin keeps the lock from being handed on: a transaction may guard it from now on,
// so that it has to be released where that transaction is known of, or its lease
// becomes one of its own. It refuses when the lock has ended.
func (h *hold) pin() error {
	if err := h.err(); err != nil {
		return err
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	h.pinned = h.pinned || h.ended == nil

	return h.ended
}

// handedOn tells the queue how many tokens the grant's holders used up.
func (h *hold) handedOn() {
	if tokens := h.request.Tokens; tokens > 1 {
		used := h.grant.Token() - h.first
		h.locker.queue.used(h.request.Name, used, used == tokens-1)
	}
}
