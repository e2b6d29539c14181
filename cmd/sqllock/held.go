package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// held are the locks that a command runs under: lost when the first of them is.
type held struct {
	locks []*sqllock.Lock
	ctx   context.Context //nolint:containedctx // it is the locks' own, merged
	end   context.CancelCauseFunc
	// free frees what an owner has of a slot at once, also if it has a minimum hold; nil if none has.
	free func(ctx context.Context, slot, owner string) error
}

func newHeld(ctx context.Context, free func(ctx context.Context, slot, owner string) error) *held {
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))

	return &held{ctx: ctx, end: end, free: free}
}

func (h *held) add(lock *sqllock.Lock) {
	h.locks = append(h.locks, lock)
	context.AfterFunc(lock.Context(), func() { h.end(context.Cause(lock.Context())) })
}

// Context ends when a lock is lost.
func (h *held) Context() context.Context { return h.ctx }

// Remaining is how long all locks can be trusted without a renewal.
func (h *held) Remaining() time.Duration {
	left := time.Duration(math.MaxInt64)
	for _, lock := range h.locks {
		left = min(left, lock.Remaining())
	}

	return left
}

// release releases the locks, the last one first, and joins what went wrong.
func (h *held) release(ctx context.Context) error {
	h.end(nil) // what ends the locks from now on is no loss

	var errs []error
	for _, lock := range slices.Backward(h.locks) {
		errs = append(errs, lock.Release(ctx))
	}

	return errors.Join(errs...)
}

// giveBack releases the locks of a command that never ran: no minimum hold keeps a
// name that nobody did anything under.
func (h *held) giveBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()

	var errs []error

	for _, lock := range slices.Backward(h.locks) {
		for _, name := range lock.Names() {
			if h.free != nil {
				errs = append(errs, h.free(ctx, strategies.SlotName(name, lock.Slot()), lock.OwnerOf(name)))
			}
		}
	}

	// A name that is free, or somebody else's by now, is what was wanted.
	if err := h.release(ctx); err != nil && (h.free == nil || !errors.Is(err, sqllock.ErrLost)) {
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// lock is the one that has a name, which is one of those that were asked for.
func (h *held) lock(name string) *sqllock.Lock {
	return h.locks[slices.IndexFunc(h.locks, func(lock *sqllock.Lock) bool { return slices.Contains(lock.Names(), name) })]
}
