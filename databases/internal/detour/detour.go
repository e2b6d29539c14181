// Package detour has who waits for a new connection of a pool take one that has become idle meanwhile.
package detour

import (
	"context"
	"sync"
	"time"
)

// slow is how long a pool may take before it is asked once more, if it has an idle connection.
const slow = 100 * time.Millisecond

// Acquire gets a connection of a pool. Both pgxpool and database/sql open one for whoever finds none idle, and that
// caller has it or none: he waits for as long as the server does not answer, beside connections that work.
func Acquire[C any](ctx context.Context, acquire func(context.Context) (C, error), idle func() bool, release func(C)) (C, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	d := &detour[C]{acquire: acquire, idle: idle, release: release, cancel: cancel}

	d.mu.Lock()
	d.timer = time.AfterFunc(slow, func() { d.look(ctx) })
	d.mu.Unlock()

	conn, err := acquire(ctx)

	other, found := d.end()

	switch {
	case !found:
		return conn, err
	case err == nil:
		release(other)

		return conn, nil
	}

	return other, nil
}

type detour[C any] struct {
	acquire func(context.Context) (C, error)
	idle    func() bool
	release func(C)
	cancel  context.CancelFunc // ends the wait for the first

	mu    sync.Mutex
	timer *time.Timer
	ended bool
	found bool
	other C // if found
}

// look asks again if there is an idle connection. Another may take that, so that this waits for a new one, too: as often
// as the pool may open one.
func (d *detour[C]) look(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.ended || d.found {
		return
	}

	if d.idle() {
		go d.ask(ctx)
	}

	d.timer.Reset(slow)
}

func (d *detour[C]) ask(ctx context.Context) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return
	}

	d.mu.Lock()
	wanted := !d.ended && !d.found

	if wanted {
		d.found, d.other = true, conn
	}
	d.mu.Unlock()

	if !wanted {
		d.release(conn)

		return
	}

	d.cancel()
}

// end says whether another connection was found. None is later.
func (d *detour[C]) end() (other C, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.ended = true
	d.timer.Stop()

	return d.other, d.found
}
