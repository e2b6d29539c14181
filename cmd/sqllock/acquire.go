package main

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/around"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// acquire waits for all locks. If one is not to be had, none is kept.
func (f *runFlags) acquire(ctx context.Context, locker *sqllock.Locker) (*held, error) {
	h := newHeld(ctx, f.free)

	// A lock that is lost while another is waited for ends the wait.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	defer stop()

	// What the runs around this one hold stays held until it ends.
	ctx = around.With(ctx, ownersIn()...)

	err := f.askAll(ctx, locker, h)
	if lost := context.Cause(h.ctx); lost != nil {
		err = lost
	}

	if err != nil {
		_ = h.giveBack(ctx)

		return nil, err
	}

	return h, nil
}

// askAll asks for all locks at once. Permits of several names, and locks of strategy forupdate, have to be waited for one after the
// other. That is in the order of the names, so that two that want the same ones never wait for each other.
func (f *runFlags) askAll(ctx context.Context, locker *sqllock.Locker, h *held) error {
	together := [][]string{f.names}
	if f.permits > 1 || !locker.Features().Several {
		together = slices.Collect(slices.Chunk(slices.Sorted(slices.Values(f.names)), 1))
	}

	begun := time.Now()

	for i, names := range together {
		wait := time.Duration(f.wait)
		if i > 0 {
			wait = max(0, wait-time.Since(begun)).Round(waitStep)
		}

		lock, err := f.ask(ctx, locker, names, wait)
		if err != nil {
			return err
		}

		h.add(lock)

		if h.ctx.Err() != nil {
			return context.Cause(h.ctx)
		}
	}

	return nil
}

// waitStep is what is left of --wait for further locks rounded to, because it is shown.
const waitStep = 10 * time.Millisecond

// ask waits for a lock of some names, so long at most with --wait.
func (f *runFlags) ask(ctx context.Context, locker *sqllock.Locker, names []string, wait time.Duration) (*sqllock.Lock, error) {
	name, kind := names[0], []sqllock.LockOption{sqllock.WithNames(names[1:]...), sqllock.WithPermits(f.permits)}
	if f.shared {
		kind = append(kind, sqllock.WithShared())
	}

	switch {
	case f.noWait && !f.tick.IsZero():
		return once.TryAcquire(ctx, locker, name, f.tick.Time)
	case f.noWait:
		return locker.TryAcquire(ctx, name, kind...)
	}

	defer tell(ctx, looker{Locker: locker}, names...)()

	var limit []sqllock.Option
	if f.given("wait") {
		limit = append(limit, sqllock.WithMaxWait(wait))
	}

	if !f.tick.IsZero() {
		return once.Acquire(ctx, locker, name, f.tick.Time, limit...)
	}

	return locker.Acquire(ctx, name, append(kind, sqllock.LockOptions(limit...)...)...)
}

// stepTime is how long an interrupted step may take to end by itself.
const stepTime = 2 * time.Second

// interruptible runs a step until a signal ends it. What the step has got by
// then comes with the signalError, unless it did not end in time.
func interruptible[T any](
	ctx context.Context, signals <-chan os.Signal, step func(context.Context) (T, error),
) (nothing T, _ error) {
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
				return nothing, caught
			}
		}
	}
}
