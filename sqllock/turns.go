package sqllock

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// turns let one goroutine of this locker at a time deal with a name: the one
// that holds the lock, or else the first of those who wait for it. The others
// wait here, first come, first served, without the database.
type turns struct {
	mu    sync.Mutex
	names map[string]*turn
	past  recent[struct{}] // names that others waited for when they were released here
}

// turn is that of one name, and who waits for it. It exists while somebody has it.
type turn struct {
	known

	waiters   list.List // of *waiter, first come, first served; many may leave at once
	reserve   int64     // tokens to reserve for those who wait here
	contended bool      // other processes waited for the name at the last release here
}

// known is what is known in this process of who has a name.
type known struct {
	holder  *hold         // of this process; nil if it has not got the lock
	held    *HeldError    // what the database answered last; nil if not that somebody has it
	noPlace error         // why the database was not asked: the strategy has no place; else nil
	before  *hold         // of this process, whose lock it was before
	since   time.Time     // when that ended
	changed chan struct{} // closed when the rest has changed; nil if nobody waits for that
}

// set is a change.
func (k *known) set(holder *hold, held *HeldError) {
	if k.holder != nil {
		k.before, k.since = k.holder, time.Now()
	}

	k.holder, k.held = holder, held
	k.tell()
}

// tell wakes those who wait for a change.
func (k *known) tell() {
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

// waiter waits for its turn.
type waiter struct {
	set  *settings
	ctx  context.Context //nolint:containedctx // the caller's, from which the lock's is made
	turn chan struct{}   // closed when it is its turn
	hold *hold           // the lock, if its holder handed it on with the turn
	last known           // who had the name when the turn came
	left *waiting        // the place in line of who gave up when it was its turn, for this one
}

// enter waits for the turn until wait ends, and returns who had the name last. The lock
// may come with the turn, for a caller with ctx and these settings; or the place in line of
// who had the turn before, which then is the caller's, also with an error.
func (t *turns) enter(wait, ctx context.Context, name string, set *settings) (*waiter, error) {
	w := &waiter{set: set, ctx: ctx, turn: make(chan struct{})}

	t.mu.Lock()

	n, busy := t.names[name]
	if !busy {
		t.openLocked(name)
		t.mu.Unlock()

		return w, nil
	}

	place := n.waiters.PushBack(w)
	t.mu.Unlock()

	select {
	case <-w.turn:
		return w, nil
	case <-wait.Done():
	}

	t.mu.Lock()
	last := n.known
	n.waiters.Remove(place)
	t.mu.Unlock()

	select {
	case <-w.turn:
		// It came at the same moment. With the lock it is taken, without it goes to the next.
		if w.hold != nil {
			return w, nil
		}

		if t.leave(name, w.left) {
			w.left = nil
		}
	default:
	}

	w.last = last

	return w, context.Cause(wait)
}

// The tokens that are reserved for those who wait in this process: as many as
// the last holders used up, so that tokens do not run ahead of the clock.
const (
	leastReserve = 16
	mostReserve  = 8192
)

// advise says how many tokens an acquisition should ask for, and whether other processes
// waited for the name when it was released here.
func (t *turns) advise(name string) (tokens int64, crowded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	n := t.names[name]
	if n.waiters.Len() == 0 {
		return 1, n.contended
	}

	if n.reserve == 0 {
		n.reserve = leastReserve
	}

	return n.reserve, n.contended
}

// with does something with the turn of a name, if somebody has it.
func (t *turns) with(name string, do func(n *turn)) (busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	n, busy := t.names[name]
	if busy {
		do(n)
	}

	return busy
}

// busy says whether somebody has the turn.
func (t *turns) busy(name string) bool { return t.with(name, func(*turn) {}) }

// hasWaiters says whether somebody waits for the name here.
func (t *turns) hasWaiters(name string) (some bool) {
	t.with(name, func(n *turn) { some = n.waiters.Len() > 0 })

	return some
}

// learnTokens takes from a grant that goes back to the database how many tokens the
// next one needs.
func (t *turns) learnTokens(h *hold) {
	tokens, used := h.request.Tokens, h.grant.Token-h.first
	if tokens <= 1 {
		return
	}

	t.with(h.request.Name, func(n *turn) {
		switch {
		case used == tokens-1:
			n.reserve = min(2*n.reserve, mostReserve)
		case used < n.reserve/2:
			n.reserve = max(2, n.reserve/2) // with one nothing would be learned any more
		}
	})
}

// tryEnter takes the turn if nobody has it. Otherwise it returns who has the name as
// far as that is known, and a channel that is closed when more is.
func (t *turns) tryEnter(name string) (known, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	n, busy := t.names[name]
	if !busy {
		t.openLocked(name)

		return known{}, true
	}

	if n.changed == nil {
		n.changed = make(chan struct{})
	}

	return n.known, false
}

// known returns who has a name as far as that is known.
func (t *turns) known(name string) (of known) {
	t.with(name, func(n *turn) { of = n.known })

	return of
}

// recordAnswer notes what the database told the one who has the turn: that somebody has
// the name, or nil.
func (t *turns) recordAnswer(name string, held *HeldError) {
	t.with(name, func(n *turn) {
		// The turn may have ended with the lock by now.
		if n.holder == nil && (held != nil || n.held != nil) {
			n.set(nil, held)
		}
	})
}

// noPlace notes why the one who has the turn cannot ask yet; nil when it can.
func (t *turns) noPlace(name string, err error) {
	t.with(name, func(n *turn) {
		if n.holder == nil {
			n.noPlace = err
			n.tell()
		}
	})
}

// rememberCrowd is for how long it is known that others wait.
const rememberCrowd = 20 * time.Millisecond

// openLocked makes the turn of a name that nobody has to do with.
func (t *turns) openLocked(name string) {
	_, left := t.past.get(name)
	t.names[name] = &turn{contended: left > 0}
}

// hold notes that the one whose turn it is has the lock now.
func (t *turns) hold(name string, h *hold) { t.with(name, func(n *turn) { n.set(h, nil) }) }

// leave gives the turn to the next, and the place in line, if there is one. It says whether there is
// a next.
func (t *turns) leave(name string, place *waiting) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	n := t.names[name]
	last := n.known

	if n.holder != nil {
		n.set(nil, nil)
	}

	first := n.waiters.Front()
	if first == nil {
		n.set(nil, nil)
		delete(t.names, name)

		if n.contended {
			t.past.put(name, struct{}{}, time.Now().Add(rememberCrowd))
		}

		return false
	}

	w, _ := n.waiters.Remove(first).(*waiter)
	w.last, w.left = last, place
	close(w.turn)

	return true
}

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
