// Package detour has who waits for a new connection of a pool take one that has become idle meanwhile.
package detour

import (
	"context"
	"sync/atomic"
	"time"
)

// slow is how long a pool may take before it is asked once more, if it has an idle connection.
const slow = 100 * time.Millisecond

// Acquire gets a connection of a pool. Both pgxpool and database/sql open one for whoever finds none idle, and that
// caller has it or none: he waits for as long as the server does not answer, beside connections that work.
func Acquire[C any](ctx context.Context, acquire func(context.Context) (C, error), idle func() bool, release func(C)) (C, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var answer atomic.Pointer[C] // the connection that came first, or none if the caller's wait ended before

	ask := func() {
		conn, err := acquire(ctx)

		switch {
		case err != nil:
		case answer.CompareAndSwap(nil, &conn):
			cancel() // the caller waits for no other
		default:
			release(conn)
		}
	}

	// Another may take the one that is idle, so that who asks for it waits for a new one, too: as often as the pool may open one.
	look := func() {
		for tick := time.Tick(slow); ctx.Err() == nil; {
			if idle() {
				go ask()
			}

			select {
			case <-tick:
			case <-ctx.Done():
			}
		}
	}

	defer time.AfterFunc(slow, look).Stop()

	conn, err := acquire(ctx)
	if answer.CompareAndSwap(nil, &conn) {
		return conn, err
	}

	if err == nil {
		release(conn)
	}

	return *answer.Load(), nil
}
