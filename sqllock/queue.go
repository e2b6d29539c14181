package sqllock

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// queue lets one goroutine of this locker at a time deal with a name: the one
// that holds the lock, or else the first of those who wait for it. The others
// wait here, first come, first served, without the database.
type queue struct {
	mu    sync.Mutex
	lines map[string]*line
	past  recent[struct{}] // names that others waited for when they were released here
}

// line is the queue of one name. It exists while somebody has the turn.
type line struct {
	standing

	waiters   list.List // of *waiter, first come, first served; many may leave at once
	reserve   int64     // tokens to reserve for those who wait here
	contended bool      // other processes waited for the name at the last release here
}

// standing is what is known in this process of who has a name.
type standing struct {
	holder  *hold         // of this process; nil if it has not got the lock
	held    *HeldError    // what the database answered last; nil if not that somebody has it
	noPlace error         // why the database was not asked: the strategy has no place; else nil
	before  *hold         // of this process, whose lock it was before
	since   time.Time     // when that ended
	changed chan struct{} // closed when the rest has changed; nil if nobody waits for that
}

// set is a change.
func (s *standing) set(holder *hold, held *HeldError) {
	if s.holder != nil {
		s.before, s.since = s.holder, time.Now()
	}

	s.holder, s.held = holder, held
	s.tell()
}

// tell wakes those who wait for a change.
func (s *standing) tell() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// waiter waits for its turn.
type waiter struct {
	set  *settings
	ctx  context.Context //nolint:containedctx // the caller's, from which the lock's is made
	turn chan struct{}   // closed when it is its turn
	hold *hold           // the lock, if its holder handed it on with the turn
	last standing        // who had the name when the turn came
	left *waiting        // the place in line of who gave up when it was its turn, for this one
}

// enter waits for the turn until wait ends, and returns who had the name last. The lock
// may come with the turn, for a caller with ctx and these settings; or the place in line of
// who had the turn before, which then is the caller's, also with an error.
func (q *queue) enter(wait, ctx context.Context, name string, set *settings) (*hold, standing, *waiting, error) {
	q.mu.Lock()

	l, busy := q.lines[name]
	if !busy {
		q.openLocked(name)
		q.mu.Unlock()

		return nil, standing{}, nil, nil
	}

	w := &waiter{set: set, ctx: ctx, turn: make(chan struct{})}
	place := l.waiters.PushBack(w)
	q.mu.Unlock()

	select {
	case <-w.turn:
		return w.hold, w.last, w.left, nil
	case <-wait.Done():
	}

	q.mu.Lock()

	last := l.standing

	select {
	case <-w.turn:
	default:
		l.waiters.Remove(place)
		q.mu.Unlock()

		return nil, last, nil, context.Cause(wait)
	}

	q.mu.Unlock()

	// The turn came at the same moment. With the lock it is taken, without it
	// goes to the next.
	if w.hold != nil {
		return w.hold, standing{}, nil, nil
	}

	if q.leave(name, w.left) {
		w.left = nil
	}

	return nil, last, w.left, context.Cause(wait)
}

// The tokens that are reserved for those who wait in this process: as many as
// the last holders used up, so that tokens do not run ahead of the clock.
const (
	leastReserve = 16
	mostReserve  = 8192
)

// advise says how many tokens an acquisition should ask for, and whether other processes
// waited for the name when it was released here.
func (q *queue) advise(name string) (tokens int64, crowded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[name]
	if l.waiters.Len() == 0 {
		return 1, l.contended
	}

	if l.reserve == 0 {
		l.reserve = leastReserve
	}

	return l.reserve, l.contended
}

// setContended notes whether others waited for the name when it was released here.
func (q *queue) setContended(name string, crowded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if l, ok := q.lines[name]; ok {
		l.contended = crowded
	}
}

// handOff gives the turn and the lock to the first waiter, if give makes one
// for it.
func (q *queue) handOff(name string, give func(w *waiter, crowded bool) *hold) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	l, ok := q.lines[name]
	if !ok || l.waiters.Len() == 0 {
		return false
	}

	first := l.waiters.Front()
	w, _ := first.Value.(*waiter)

	if w.hold = give(w, l.contended); w.hold == nil {
		return false
	}

	l.set(w.hold, nil)
	l.waiters.Remove(first)
	close(w.turn)

	return true
}

// busy says whether somebody has the turn.
func (q *queue) busy(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	_, ok := q.lines[name]

	return ok
}

// hasWaiters says whether somebody waits for the name here.
func (q *queue) hasWaiters(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	l, ok := q.lines[name]

	return ok && l.waiters.Len() > 0
}

// learnTokens takes from a grant that goes back to the database how many tokens the
// next one needs.
func (q *queue) learnTokens(name string, tokens int64, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l, ok := q.lines[name]

	switch {
	case !ok:
	case all:
		l.reserve = min(2*l.reserve, mostReserve)
	case tokens < l.reserve/2:
		l.reserve = max(2, l.reserve/2) // with one nothing would be learned any more
	}
}

// tryEnter takes the turn if nobody has it. Otherwise it returns who has the name as
// far as that is known, and a channel that is closed when more is.
func (q *queue) tryEnter(name string) (standing, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l, busy := q.lines[name]
	if !busy {
		q.openLocked(name)

		return standing{}, true
	}

	if l.changed == nil {
		l.changed = make(chan struct{})
	}

	return l.standing, false
}

// standing returns who has a name as far as that is known.
func (q *queue) standing(name string) standing {
	q.mu.Lock()
	defer q.mu.Unlock()

	if l, busy := q.lines[name]; busy {
		return l.standing
	}

	return standing{}
}

// recordAnswer notes what the database told the one who has the turn: that somebody has
// the name, or nil.
func (q *queue) recordAnswer(name string, held *HeldError) {
	q.mu.Lock()
	defer q.mu.Unlock()

	// The turn may have ended with the lock by now.
	if l, ok := q.lines[name]; ok && l.holder == nil && (held != nil || l.held != nil) {
		l.set(nil, held)
	}
}

// noPlace notes why the one who has the turn cannot ask yet; nil when it can.
func (q *queue) noPlace(name string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if l, ok := q.lines[name]; ok && l.holder == nil {
		l.noPlace = err
		l.tell()
	}
}

// rememberCrowd is for how long it is known that others wait.
const rememberCrowd = 20 * time.Millisecond

// openLocked makes the line of a name that nobody has to do with.
func (q *queue) openLocked(name string) {
	_, left := q.past.get(name)
	q.lines[name] = &line{contended: left > 0}
}

// removeLocked removes a line.
func (q *queue) removeLocked(name string) {
	if q.lines[name].contended {
		q.past.put(name, struct{}{}, time.Now().Add(rememberCrowd))
	}

	delete(q.lines, name)
}

// hold notes that the one whose turn it is has the lock now.
func (q *queue) hold(name string, h *hold) {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.lines[name].set(h, nil)
}

// leave gives the turn to the next, and the place in line, if there is one. It says whether there is
// a next.
func (q *queue) leave(name string, place *waiting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[name]
	last := l.standing

	if l.holder != nil {
		l.set(nil, nil)
	}

	first := l.waiters.Front()
	if first == nil {
		l.set(nil, nil)
		q.removeLocked(name)

		return false
	}

	w, _ := l.waiters.Remove(first).(*waiter)
	w.last, w.left = last, place
	close(w.turn)

	return true
}
