package main

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/sqllock"
)

// acquire waits for all locks, in the order of their names, so that two that
// want the same ones never wait for each other. If one is not to be had, none
// is kept.
func (f *runFlags) acquire(ctx context.Context, locker *sqllock.Locker) (*held, error) {
	h := newHeld(ctx, f.free)
	begun := time.Now()

	for _, s := range f.shares {
		h.share(s)
	}

	// A lock that is lost while another is waited for ends the wait.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	defer stop()

	names := slices.Sorted(slices.Values(f.names))

	for i, name := range names {
		wait := time.Duration(f.wait)
		if i > 0 {
			wait = max(0, wait-time.Since(begun)).Round(waitStep)
		}

		lock, err := f.ask(ctx, locker, name, wait)
		if lost := context.Cause(h.ctx); lost != nil {
			err = lost
		}

		if lock != nil {
			h.add(lock)
		}

		if err != nil {
			_ = h.giveBack(ctx)

			return nil, err
		}
	}

	return h, nil
}

// waitStep is what is left of --wait for further locks rounded to, because it is shown.
const waitStep = 10 * time.Millisecond

// ask waits for one lock, so long at most with --wait.
func (f *runFlags) ask(ctx context.Context, locker *sqllock.Locker, name string, wait time.Duration) (*sqllock.Lock, error) {
	if f.noWait {
		return locker.TryAcquire(ctx, name)
	}

	defer tell(ctx, locker, name, f.conns.lately)()

	if f.waits {
		return locker.Acquire(ctx, name, sqllock.WithMaxWait(wait))
	}

	return locker.Acquire(ctx, name)
}

// stepTime is how long an interrupted step may take to end by itself.
const stepTime = 2 * time.Second

// interruptible runs a step until a signal ends it. What the step has got by
// then comes with the signalError, unless it did not end in time.
func interruptible[T any](
	ctx context.Context, signals <-chan os.Signal, step func(context.Context) (T, error),
) (T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	type result struct {
		value T
		err   error
	}

	results := make(chan result, 1)

	go func() {
		value, err := step(ctx)
		results <- result{value, err}
	}()

	for {
		select {
		case r := <-results:
			return r.value, r.err
		case sig := <-signals:
			if !process.Ending(sig) {
				continue
			}

			caught := signalError{sig}
			cancel(caught)

			select {
			case r := <-results:
				return r.value, caught
			case <-time.After(stepTime):
				var nothing T

				return nothing, caught
			}
		}
	}
}
