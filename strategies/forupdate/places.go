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

	mu    sync.Mutex
	taken int
	line  list.List // of chan struct{}, closed when the place is there
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

// wait waits for a place until ctx ends, and calls waits if it has to.
func (p *places) wait(ctx context.Context, waits func(error)) error {
	p.mu.Lock()

	if p.line.Len() == 0 && p.freeLocked() {
		p.taken++
		p.mu.Unlock()

		return nil
	}

	turn := make(chan struct{})
	mine := p.line.PushBack(turn)
	p.mu.Unlock()

	waits(p.none())

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	select {
	case <-turn: // at the same moment
		p.leaveLocked()
	default:
		p.line.Remove(mine)
	}

	return p.none()
}

// leave gives a place to the first of those who wait.
func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.leaveLocked()
}

func (p *places) leaveLocked() {
	p.taken--

	for first := p.line.Front(); first != nil && p.freeLocked(); first = p.line.Front() {
		p.taken++

		if turn, ok := p.line.Remove(first).(chan struct{}); ok {
			close(turn)
		}
	}
}

func (p *places) freeLocked() bool {
	conns := p.conns()

	return conns == 0 || p.taken < conns-1
}

func (p *places) none() error {
	return fmt.Errorf("%w: all but one of the pool's %d connections hold locks or are asked for them", strategies.ErrTooManyConnections, p.conns())
}
