package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sqllock/sqllock/strategies"
)

// MaxNames is how many names [Locker.AcquireAll] takes.
const MaxNames = 500

// AcquireAll waits until it has the locks of all names, ctx ends, or [WithMaxWait] has passed. It gets
// all of them or none, and holds none while it waits. So callers may give the names in any order, and
// those that want some of the same ones do not deadlock. A name that is given twice counts once. At most there are
// [MaxNames].
//
// It waits in the lines of all its names at once. Whoever comes later waits behind it in each,
// also while another of its names is still held; but for those who hold other locks meanwhile.
//
// Each lock has a token, a lease and a guard as any other. If one is lost all are. Options are for
// each of them, except [WithPermits] and [WithShared], which are [ErrUnsupported] here. Errors are those of [Locker.Acquire], and
// a [HeldError] names one of the locks that were not to be had.
//
// Strategies cas and insert take all names at once. advisory, and insert on TiDB, take one after the other, and give them
// back if one is not free, so that for a moment others may find a name held that nobody gets. forupdate, of which each
// lock holds a connection, takes one name only: [ErrUnsupported].
func (l *Locker) AcquireAll(ctx context.Context, names []string, options ...Option) (*Locks, error) {
	return l.acquireAll(ctx, names, false, options)
}

// TryAcquireAll is [Locker.AcquireAll] with one attempt, as [Locker.TryAcquire] makes.
func (l *Locker) TryAcquireAll(ctx context.Context, names []string, options ...Option) (*Locks, error) {
	return l.acquireAll(ctx, names, true, options)
}

// DoAll acquires the locks as [Locker.AcquireAll] does, runs f, and releases them, as [Locker.Do] does
// with one. The context of f ends when one of the locks is lost.
func (l *Locker) DoAll(ctx context.Context, names []string, f func(ctx context.Context, locks *Locks) error, options ...Option) error {
	return l.doAll(ctx, names, f, false, options)
}

// TryDoAll is [Locker.DoAll] with one attempt, as [Locker.TryAcquire] makes.
func (l *Locker) TryDoAll(ctx context.Context, names []string, f func(ctx context.Context, locks *Locks) error, options ...Option) error {
	return l.doAll(ctx, names, f, true, options)
}

func (l *Locker) acquireAll(ctx context.Context, names []string, try bool, options []Option) (*Locks, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))

	if n := len(names); n < 1 || n > MaxNames {
		return nil, fmt.Errorf("%w: %d names, want 1 to %d", ErrInvalidName, n, MaxNames)
	}

	var (
		locks []*Lock
		open  []*acquisition // for those that ctx does not hold
	)

	for _, name := range names {
		a, err := l.newAcquisition(ctx, name, try, options)

		switch {
		case err != nil:
		case a.set.many():
			err = fmt.Errorf("lock %q: %w: WithPermits is for one name at a time", name, ErrUnsupported)
		case a.set.shared:
			err = fmt.Errorf("lock %q: %w: WithShared is for one name at a time; take the names one after the other, sorted", name, ErrUnsupported)
		case a.set.tick != 0:
			err = fmt.Errorf("lock %q: %w: WithTick is for one name at a time", name, ErrUnsupported)
		case a.outer == nil:
			open = append(open, a)
		default:
			var lock *Lock
			if lock, err = a.run(ctx); err == nil {
				locks = append(locks, lock)
			}
		}

		if err != nil {
			return nil, withRelease(err, releaseEach(ctx, locks))
		}
	}

	if len(open) > 1 && !l.features.Several {
		err := fmt.Errorf("%s: %w: strategy %s cannot acquire several names at once; use cas, or acquire them one after the other, sorted",
			joined(open).title(), ErrUnsupported, l.features.Strategy)

		return nil, withRelease(err, releaseEach(ctx, locks))
	}

	if len(open) > 0 {
		a := joined(open)

		lock, err := a.run(ctx)
		if err != nil {
			return nil, withRelease(err, releaseEach(ctx, locks))
		}

		if !a.together() {
			a.locks = []*Lock{lock}
		}

		return newLocks(append(locks, a.locks...), lock.hold), nil
	}

	return newLocks(locks, innermostOf(ctx, locks)), nil
}

// Locks are several locks that were acquired together. It is safe for concurrent use. The methods of a nil
// *Locks return [ErrNotAcquired].
type Locks struct {
	locks []*Lock         // in the order of their names
	inner *hold           // of them the innermost, under whose context the others' are
	ctx   context.Context //nolint:containedctx // it is what Context returns
	stops []func() bool
}

var errNilLocks = fmt.Errorf("%w: the *Locks is nil", ErrNotAcquired)

func newLocks(locks []*Lock, inner *hold) *Locks {
	slices.SortFunc(locks, func(a, b *Lock) int { return cmp.Compare(a.Name(), b.Name()) })

	s := &Locks{locks: locks, inner: inner}
	s.ctx, s.stops = s.under(s.inner.ctx)

	return s
}

// innermostOf returns, of the holds of some locks that ctx is under, the one that has the others around it.
func innermostOf(ctx context.Context, locks []*Lock) *hold {
	for c, ok := ctx.Value(innermost{}).(*heldContext); ok; c, ok = c.outside.Value(innermost{}).(*heldContext) {
		if slices.ContainsFunc(locks, func(lock *Lock) bool { return lock.hold == c.hold }) {
			return c.hold
		}
	}

	return locks[0].hold
}

// under returns a context that ends with ctx, which is that of all the locks, and with each of them. What is returned
// with it ends that.
func (l *Locks) under(ctx context.Context) (context.Context, []func() bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	stops := make([]func() bool, len(l.locks))

	for i, lock := range l.locks {
		held := lock.Context()
		stops[i] = context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	}

	return &heldContext{Context: ctx, hold: l.inner, cancel: cancel, outside: l.inner.ctx.outside}, stops
}

// Names returns the names, sorted.
func (l *Locks) Names() []string {
	if l == nil {
		return nil
	}

	names := make([]string, len(l.locks))
	for i, lock := range l.locks {
		names[i] = lock.Name()
	}

	return names
}

// Lock returns the lock of a name, nil if it is none of them. It may be released before the others, which
// ends [Locks.Context].
func (l *Locks) Lock(name string) *Lock {
	if l == nil {
		return nil
	}

	i, found := slices.BinarySearchFunc(l.locks, name, func(lock *Lock, name string) int { return cmp.Compare(lock.Name(), name) })
	if !found {
		return nil
	}

	return l.locks[i]
}

// Context returns a context that ends when the first of the locks is lost or released. It is otherwise as
// [Lock.Context], and as that of each of them: an acquisition under it knows them all.
func (l *Locks) Context() context.Context {
	if l == nil {
		return (*Lock)(nil).Context()
	}

	return l.ctx
}

// Done is closed when the first of the locks is lost or released.
func (l *Locks) Done() <-chan struct{} { return l.Context().Done() }

// Err is nil while all of the locks are held. After that it is the [Lock.Err] of one that is not, of one that was lost
// if there is such.
func (l *Locks) Err() (err error) {
	if l == nil {
		return errNilLocks
	}

	for _, lock := range l.locks {
		switch ended := lock.Err(); {
		case errors.Is(ended, ErrLost):
			return ended
		case err == nil:
			err = ended
		}
	}

	return err
}

// Guard is [Lock.Guard] of each of the locks, in the order of their names.
func (l *Locks) Guard(ctx context.Context, tx strategies.Tx) error {
	return l.each(func(lock *Lock) error { return lock.Guard(ctx, tx) })
}

// ReleaseTx is [Lock.ReleaseTx] of each of the locks, in the order of their names.
func (l *Locks) ReleaseTx(ctx context.Context, tx strategies.Tx) error {
	return l.each(func(lock *Lock) error { return lock.ReleaseTx(ctx, tx) })
}

// each stops at the first error.
func (l *Locks) each(f func(*Lock) error) error {
	if l == nil {
		return errNilLocks
	}

	for _, lock := range l.locks {
		if err := f(lock); err != nil {
			return err
		}
	}

	return nil
}

// Release frees all the locks, as [Lock.Release] does with one, and returns their errors. Of locks that were lost
// together it is the loss of the first.
func (l *Locks) Release(ctx context.Context) error {
	if l == nil {
		return errNilLocks
	}

	for _, stop := range l.stops {
		defer stop()
	}

	return releaseEach(ctx, l.locks)
}

// releaseEach releases locks, together if it can be.
func releaseEach(ctx context.Context, locks []*Lock) error {
	if len(locks) == 0 {
		return nil
	}

	if first := locks[0].hold; len(locks) > 1 && first.batched() {
		defer first.locker.releases.expect(len(locks))()
	}

	var released sync.WaitGroup

	errs := make([]error, len(locks))

	for i, lock := range locks {
		released.Go(func() { errs[i] = lock.Release(ctx) })
	}

	released.Wait()

	return errors.Join(causes(errs)...)
}

// causes leaves out the losses that are another one's, if that is there.
func causes(errs []error) []error {
	ofAnother := func(err error) bool {
		lost := new(LostError)

		return errors.As(err, &lost) && lost.Reason == ReasonTogether
	}

	if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, ErrLost) && !ofAnother(err) }) {
		return errs
	}

	return slices.DeleteFunc(errs, ofAnother)
}

func (l *Locker) doAll(
	ctx context.Context, names []string, f func(context.Context, *Locks) error, try bool, options []Option,
) (err error) {
	if f == nil {
		return fmt.Errorf("%w: the function is nil", ErrInvalidOption)
	}

	locks, err := l.acquireAll(ctx, names, try, options)
	if err != nil {
		return err
	}

	work, stops := locks.under(locksContext{ctx, l, locks})

	// As do.
	defer func() {
		if ended := locks.Err(); errors.Is(ended, ErrClosed) {
			err = errors.Join(err, ended)
		}

		err = withRelease(err, locks.Release(ctx))

		for _, stop := range stops {
			stop()
		}
	}()

	return f(work, locks)
}
