package forupdate

import (
	"context"
	"fmt"
	"slices"
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
	line    []*waiter
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

	if !p.takeLocked() {
		return p.none()
	}

	return nil
}

func (p *places) takeLocked() (taken bool) {
	if taken = len(p.line) == 0 && p.freeLocked(); taken {
		p.taken++
	}

	return taken
}

// wait waits for a place until ctx ends, and calls waits if it has to. It does not wait if nobody could give one up: all
// places have locks under which one is waited for.
func (p *places) wait(ctx context.Context, holding []string, waits func(error)) error {
	w := &waiter{holding, make(chan struct{})}

	p.mu.Lock()

	if p.takeLocked() {
		p.mu.Unlock()

		return nil
	}

	p.line = append(p.line, w)

	if len(holding) > 0 && p.stuckLocked() {
		p.line = p.line[:len(p.line)-1]
		p.mu.Unlock()

		return fmt.Errorf("%w, %w: all but one of the pool's %d connections hold locks under which another connection is waited for; "+
			"allow the pool more", strategies.ErrNotAcquired, strategies.ErrDeadlock, p.conns())
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

	if i := slices.Index(p.line, w); i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	} else {
		p.leaveLocked() // it came at the same moment
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

	for len(p.line) > 0 && p.freeLocked() {
		p.taken++
		close(p.line[0].turn)
		p.line = slices.Delete(p.line, 0, 1)
	}
}

// stuckLocked says whether each place has a lock under which somebody waits for one.
func (p *places) stuckLocked() bool {
	kept := 0

	for owner := range p.holders {
		if slices.ContainsFunc(p.line, func(w *waiter) bool { return slices.Contains(w.holding, owner) }) {
			kept++
		}
	}

	return kept >= p.taken
}

func (p *places) freeLocked() bool {
	conns := p.conns()

	return conns == 0 || p.taken < conns-1
}

func (p *places) none() error {
	return fmt.Errorf("%w: all but one of the pool's %d connections hold locks or are asked for them", strategies.ErrTooManyConnections, p.conns())
}
