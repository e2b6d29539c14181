package sqllock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// queue lets one goroutine of this locker at a time deal with a name: the one
// that holds the lock, or else the first of those who wait for it. The others
// wait here, first come, first served, without the database.
type queue struct {
	mu    sync.Mutex
	lines map[string]*line
	past  recent[past]
}

// past is what is known of a name that nobody has to do with any more.
type past struct {
	crowded time.Time
	rivals  float64
}

// line is the queue of one name. It exists while somebody has the turn.
type line struct {
	holder  *hold
	waiters []*waiter
	reserve int64     // tokens to reserve for those who wait here
	crowded time.Time // of the last release, if others waited for the name then
	rivals  float64   // how many others contend for it
}

// waiter waits for its turn.
type waiter struct {
	set  *settings
	ctx  context.Context //nolint:containedctx // the caller's, from which the lock's is made
	turn chan struct{}   // closed when it is its turn
	hold *hold           // the lock, if its holder handed it on with the turn
}

// enter waits for the turn until ctx ends. The lock may come with it.
func (q *queue) enter(ctx context.Context, name string, w *waiter) (*hold, error) {
	q.mu.Lock()

	l, busy := q.lines[name]
	if !busy {
		q.beginLocked(name)
		q.mu.Unlock()

		return nil, nil //nolint:nilnil // the turn without the lock
	}

	w.turn = make(chan struct{})
	l.waiters = append(l.waiters, w)
	q.mu.Unlock()

	select {
	case <-w.turn:
		return w.hold, nil
	case <-ctx.Done():
	}

	q.mu.Lock()

	if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
		q.mu.Unlock()

		return nil, context.Cause(ctx)
	}

	q.mu.Unlock()

	// The turn came at the same moment. With the lock it is taken, without it
	// goes to the next.
	if w.hold != nil {
		return w.hold, nil
	}

	q.leave(name)

	return nil, context.Cause(ctx)
}

// The tokens that are reserved for those who wait in this process: as many as
// the last holders used up, so that tokens do not run ahead of the clock.
const (
	leastReserve = 16
	mostReserve  = 8192
)

// politeness is how long those who wait here let others go first after this
// process had the lock.
const politeness = 5 * time.Millisecond

// advise says how many tokens an acquisition should ask for, whether it should let
// others go first, and how many others there are.
func (q *queue) advise(name string) (tokens int64, polite bool, rivals float64) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[name]
	if len(l.waiters) == 0 {
		return 1, !l.crowded.IsZero(), l.rivals
	}

	if l.reserve == 0 {
		l.reserve = leastReserve
	}

	return l.reserve, !l.crowded.IsZero(), l.rivals
}

// learn learns from a wait how many others contend for the name. It comes before
// the turn can end.
func (q *queue) learn(name string, changes int) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[name]
	l.rivals = learned(l.rivals, changes)
}

// crowd notes whether others waited for the name when it was released here.
func (q *queue) crowd(name string, crowded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if l, ok := q.lines[name]; ok {
		l.crowded = time.Time{}
		if crowded {
			l.crowded = time.Now()
		}
	}
}

// handOff gives the turn and the lock to the first who waits, if give makes one
// for it.
func (q *queue) handOff(name string, give func(w *waiter, crowded bool) *hold) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	l, ok := q.lines[name]
	if !ok || len(l.waiters) == 0 {
		return false
	}

	w := l.waiters[0]
	if w.hold = give(w, !l.crowded.IsZero()); w.hold == nil {
		return false
	}

	l.holder = w.hold
	l.waiters = slices.Delete(l.waiters, 0, 1)
	close(w.turn)

	return true
}

// waits says whether somebody waits for the name here.
func (q *queue) waits(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	l, ok := q.lines[name]

	return ok && len(l.waiters) > 0
}

// used learns from a grant that goes back to the database how many tokens the
// next one needs.
func (q *queue) used(name string, tokens int64, all bool) {
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

// tryEnter takes the turn if nobody has it. Otherwise it returns the hold that
// this locker has on the name, or nil while it is only being waited for.
func (q *queue) tryEnter(name string) (*hold, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if l, busy := q.lines[name]; busy {
		return l.holder, false
	}

	q.beginLocked(name)

	return nil, true
}

const (
	// rememberRivals is for how long their number is known, and rememberCrowd for
	// how long that they waited: who comes back at once lets them go first, too.
	rememberRivals = 10 * time.Second
	rememberCrowd  = 20 * time.Millisecond
)

// beginLocked makes the line of a name that nobody has to do with.
func (q *queue) beginLocked(name string) {
	l := &line{}

	if p, known := q.past.get(name); known > 0 {
		l.rivals = p.rivals

		if time.Since(p.crowded) < rememberCrowd {
			l.crowded = p.crowded
		}
	}

	q.lines[name] = l
}

// endLocked removes a line.
func (q *queue) endLocked(name string) {
	l := q.lines[name]
	delete(q.lines, name)

	if l.crowded.IsZero() && l.rivals < 1 {
		q.past.remove(name)
	} else {
		q.past.put(name, past{l.crowded, l.rivals}, time.Now().Add(rememberRivals))
	}
}

// hold notes that the one whose turn it is has the lock now.
func (q *queue) hold(name string, h *hold) {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.lines[name].holder = h
}

// leave gives the turn to the next.
func (q *queue) leave(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[name]
	l.holder = nil

	if len(l.waiters) == 0 {
		q.endLocked(name)

		return
	}

	close(l.waiters[0].turn)
	l.waiters = slices.Delete(l.waiters, 0, 1)
}
