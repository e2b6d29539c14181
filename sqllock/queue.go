package sqllock

import (
	"context"
	"slices"
	"sync"
)

// queue lets one goroutine of this locker at a time deal with a name: the one
// that holds the lock, or else the first of those who wait for it. The others
// wait here, first come, first served, without the database.
type queue struct {
	mu    sync.Mutex
	lines map[string]*line
}

// line is the queue of one name. It exists while somebody has the turn.
type line struct {
	holder  *hold
	waiters []chan struct{}
}

// enter waits for the turn until ctx ends.
func (q *queue) enter(ctx context.Context, name string) error {
	q.mu.Lock()

	l, busy := q.lines[name]
	if !busy {
		q.lines[name] = &line{}
		q.mu.Unlock()

		return nil
	}

	turn := make(chan struct{})
	l.waiters = append(l.waiters, turn)
	q.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}

	q.mu.Lock()

	if i := slices.Index(l.waiters, turn); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
		q.mu.Unlock()

		return context.Cause(ctx)
	}

	// The turn came at the same moment; it goes to the next.
	q.mu.Unlock()
	q.leave(name)

	return context.Cause(ctx)
}

// tryEnter takes the turn if nobody has it. Otherwise it returns the hold that
// this locker has on the name, or nil while it is only being waited for.
func (q *queue) tryEnter(name string) (*hold, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if l, busy := q.lines[name]; busy {
		return l.holder, false
	}

	q.lines[name] = &line{}

	return nil, true
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
		delete(q.lines, name)

		return
	}

	close(l.waiters[0])
	l.waiters = slices.Delete(l.waiters, 0, 1)
}
