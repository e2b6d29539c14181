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
const MaxNames = 200

// AcquireAll waits until it has the locks of all names, ctx ends, or [WithMaxWait] has passed. It returns
// all of them or none. Callers may give the names in any order, and those that want some of the same ones do not
// deadlock. A name that is given twice counts once. At most there are [MaxNames].
//
// It asks for all names at once. If one is not free it waits for that in line as [Locker.Acquire] does, while it holds
// those that sort before it, and takes those that sort after it one by one. What [WithMaxHold] and [WithoutRenewal] limit begins
// when it has all.
//
// Each lock has a token, a lease and a guard as any other. If one is lost the context of all ends, and the others are held until
// they are released. Options are for each of them, except [WithPermits] and [WithShared], which are [ErrUnsupported] here. Errors
// are those of [Locker.Acquire], and name the lock that was not to be had.
//
// Who holds another lock meanwhile, and whoever has one of the names waits for that, is in a deadlock as with [Locker.Acquire].
// Without another lock it is in none: it gives all back, and begins again.
//
// forupdate, of which each lock holds a connection, takes one name only: [ErrUnsupported].
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

	var (
		taken []*Lock
		err   error
	)

	switch {
	case len(open) == 0:
		return newLocks(locks, innermostOf(ctx, locks)), nil
	case len(open) == 1:
		taken = make([]*Lock, 1)
		taken[0], err = open[0].run(ctx)
	case !l.features.Several:
		err = fmt.Errorf("lock %q: %w: strategy %s cannot acquire several names at once; use cas, or acquire them one after the other, sorted",
			open[0].request.Name, ErrUnsupported, l.features.Strategy)
	default:
		taken, err = (&several{locker: l, all: open}).run(ctx)
	}

	if err != nil {
		return nil, withRelease(err, releaseEach(ctx, locks))
	}

	return newLocks(append(locks, taken...), taken[len(taken)-1].hold), nil
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
func (l *Locks) under(ctx context.Context) (*heldContext, []func() bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	stops := make([]func() bool, len(l.locks))

	for i, lock := range l.locks {
		held := lock.Context()
		stops[i] = context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	}

	return &heldContext{Context: ctx, hold: l.inner, locks: l, cancel: cancel, outside: l.inner.ctx.outside}, stops
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

// lost is the end of one that has ended, as its context tells it; else nil.
func (l *Locks) lost() error {
	for _, lock := range l.locks {
		if ended := lock.hold.err(); ended != nil {
			return ended
		}
	}

	return nil
}

// Guard is [Lock.Guard] of each of the locks, in the order of their names.
func (l *Locks) Guard(ctx context.Context, tx strategies.Tx) error {
	return l.each(func(lock *Lock) error { return lock.Guard(ctx, tx) })
}

// ReleaseTx is [Lock.ReleaseTx] of each of the locks, in the order of their names. If it fails for one all are held as before.
func (l *Locks) ReleaseTx(ctx context.Context, tx strategies.Tx) error {
	var released []*Lock

	err := l.each(func(lock *Lock) error {
		again := lock.hold.mayBeFreed() // by an earlier transaction
		err := lock.ReleaseTx(ctx, tx)

		if err == nil && !again {
			released = append(released, lock)
		}

		return err
	})
	if err != nil {
		for _, lock := range released {
			lock.hold.undoReleaseTx()
		}
	}

	return err
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

// Release frees all the locks, as [Lock.Release] does with one, and returns their errors.
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

	holds, errs := make([]*hold, len(locks)), make([]error, len(locks))
	for i, lock := range locks {
		holds[i] = lock.hold
	}

	endEach(holds, func(i int) { errs[i] = locks[i].Release(ctx) })

	return errors.Join(errs...)
}

// endEach ends holds by end, with one statement if it can be.
func endEach(holds []*hold, end func(i int)) {
	if len(holds) > 1 && holds[0].batched() {
		defer holds[0].locker.releases.Expect(len(holds))()
	}

	var ended sync.WaitGroup

	for i := range holds {
		ended.Go(func() { end(i) })
	}

	ended.Wait()
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
