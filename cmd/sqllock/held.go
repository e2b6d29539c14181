package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// held are the locks that a command runs under: lost when the first of them is.
type held struct {
	locks []*sqllock.Lock
	ctx   context.Context //nolint:containedctx // it is the locks' own, merged
	end   context.CancelCauseFunc
	stops []func() bool
}

func newHeld(ctx context.Context) *held {
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))

	return &held{ctx: ctx, end: end}
}

func (h *held) add(lock *sqllock.Lock) {
	h.locks = append(h.locks, lock)
	h.stops = append(h.stops, context.AfterFunc(lock.Context(), func() { h.end(context.Cause(lock.Context())) }))
}

// Context ends when a lock is lost.
func (h *held) Context() context.Context { return h.ctx }

// Remaining is how long all locks can be trusted without a renewal.
func (h *held) Remaining() time.Duration {
	left := h.locks[0].Remaining()
	for _, lock := range h.locks[1:] {
		left = min(left, lock.Remaining())
	}

	return left
}

// release releases the locks, the last one first, and joins what went wrong.
func (h *held) release(ctx context.Context) error {
	for _, stop := range h.stops {
		stop()
	}

	h.end(nil)

	var errs []error
	for _, lock := range slices.Backward(h.locks) {
		errs = append(errs, lock.Release(ctx))
	}

	return errors.Join(errs...)
}

// lock is the one of a name, or nil.
func (h *held) lock(name string) *sqllock.Lock {
	for _, lock := range h.locks {
		if lock.Name() == name {
			return lock
		}
	}

	return nil
}
