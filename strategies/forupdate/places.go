package forupdate

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/sqllock/sqllock/strategies"
)

// places are those connections of the pool that hold a lock or try to get one: all
// but one, which renewals and releases need. Waiters get one first come,
// first served; otherwise chance would decide, and names that are free could starve.
type places struct {
	conns func() int // of the pool; zero is no limit

	mu      sync.Mutex
	taken   int
	holders map[string]struct{} // owners of locks that have a place
	line    list.List           // of *waiter
}

// waiter waits for a place while it holds what these owners have.
type waiter struct {
	holding []string
	turn    chan struct{} // closed when the place is there
}

func newPlaces(conns func() int) *places {
	return &places{conns: conns, holders: make(map[string]struct{})}
}

// take takes a place if there is one that nobody waits for.
func (p *places) take() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.line.Len() > 0 || !p.freeLocked() {
		return p.none()
	}

	p.taken++

	return nil
}

// wait waits for a place until ctx ends, and calls waits if it has to. It does not wait if nobody could give one up: all
// places have locks under which one is waited for.
func (p *places) wait(ctx context.Context, holding []string, waits func(error)) error {
	p.mu.Lock()

	if p.line.Len() == 0 && p.freeLocked() {
		p.taken++
		p.mu.Unlock()

		return nil
	}

	w := &waiter{holding, make(chan struct{})}
	mine := p.line.PushBack(w)

	if len(holding) > 0 && p.stuckLocked() {
		p.line.Remove(mine)
		p.mu.Unlock()

		return p.stuck()
	}

	p.mu.Unlock()

	waits(p.none())

	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	select {
	case <-w.turn: // at the same moment
		p.leaveLocked()
	default:
		p.line.Remove(mine)
	}

	return p.none()
}

// keep notes the owner of the lock that a place has.
func (p *places) keep(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.holders[owner] = struct{}{}
}

// leave gives the place of an owner, or of an attempt, to the first of those who wait.
func (p *places) leave(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.holders, owner)
	p.leaveLocked()
}

func (p *places) leaveLocked() {
	p.taken--

	for first := p.line.Front(); first != nil && p.freeLocked(); first = p.line.Front() {
		p.taken++

		if w, ok := p.line.Remove(first).(*waiter); ok {
			close(w.turn)
		}
	}
}

// stuckLocked says whether each place has a lock under which somebody waits for one.
func (p *places) stuckLocked() bool {
	kept := map[string]struct{}{}

	for at := p.line.Front(); at != nil; at = at.Next() {
		w, _ := at.Value.(*waiter)
		for _, owner := range w.holding {
			if _, ok := p.holders[owner]; ok {
				kept[owner] = struct{}{}
			}
		}
	}

	return len(kept) >= p.taken
}

func (p *places) freeLocked() bool {
	conns := p.conns()

	return conns == 0 || p.taken < conns-1
}

func (p *places) none() error {
	return fmt.Errorf("%w: all but one of the pool's %d connections hold locks or are asked for them", strategies.ErrTooManyConnections, p.conns())
}

func (p *places) stuck() error {
	return fmt.Errorf("%w, %w: all but one of the pool's %d connections hold locks under which another connection is waited for; "+
		"allow the pool more", strategies.ErrNotAcquired, strategies.ErrDeadlock, p.conns())
}
