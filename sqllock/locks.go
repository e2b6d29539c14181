package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// MaxNames is how many names [Locker.AcquireAll] takes.
const MaxNames = 200

// AcquireAll waits until it has the lock of all names, ctx ends, or [WithMaxWait] has passed. It returns
// all of them or none. Callers may give the names in any order, and those that want some of the same ones do not
// deadlock. A name that is given twice counts once. At most there are [MaxNames].
//
// It asks for all names at once. If one is not free it waits for that in line as [Locker.Acquire] does, while it holds
// those that sort before it, and takes those that sort after it one by one. What [WithMaxHold] and [WithoutRenewal] limit begins
// when it has all.
//
// The [Lock] is of all the names, each of which has a token, a lease and a guard ([Lock.Of]). If one is lost its context ends, and the
// others are held until it is released. Options are for each of them, except [WithPermits] and [WithShared], which are [ErrUnsupported] here. Errors
// are those of [Locker.Acquire], and name the lock that was not to be had.
//
// Who holds another lock meanwhile, and whoever has one of the names waits for that, is in a deadlock as with [Locker.Acquire].
// Without another lock it is in none: it gives all back, and begins again.
//
// forupdate, of which each lock holds a connection, takes one name only: [ErrUnsupported].
func (l *Locker) AcquireAll(ctx context.Context, names []string, options ...LockOption) (*Lock, error) {
	return l.acquireAll(ctx, names, false, options)
}

// TryAcquireAll is [Locker.AcquireAll] with one attempt, as [Locker.TryAcquire] makes.
func (l *Locker) TryAcquireAll(ctx context.Context, names []string, options ...LockOption) (*Lock, error) {
	return l.acquireAll(ctx, names, true, options)
}

// DoAll acquires the lock as [Locker.AcquireAll] does, runs f, and releases it, as [Locker.Do] does
// with one name. The context of f ends when one of the names is lost.
func (l *Locker) DoAll(ctx context.Context, names []string, f func(ctx context.Context, lock *Lock) error, options ...LockOption) error {
	return l.do(ctx, f, func() (*Lock, error) { return l.acquireAll(ctx, names, false, options) })
}

// TryDoAll is [Locker.DoAll] with one attempt, as [Locker.TryAcquire] makes.
func (l *Locker) TryDoAll(ctx context.Context, names []string, f func(ctx context.Context, lock *Lock) error, options ...LockOption) error {
	return l.do(ctx, f, func() (*Lock, error) { return l.acquireAll(ctx, names, true, options) })
}

func (l *Locker) acquireAll(ctx context.Context, names []string, try bool, options []LockOption) (*Lock, error) {
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

// newLocks returns the handle of several locks, of which inner is the innermost, under whose context the others' are.
func newLocks(locks []*Lock, inner *hold) *Lock {
	if len(locks) == 1 {
		return locks[0]
	}

	slices.SortFunc(locks, func(a, b *Lock) int { return cmp.Compare(a.Name(), b.Name()) })

	l := &Lock{all: locks, hold: inner}
	l.ctx, l.stop = l.underAll(inner.ctx)

	return l
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

// underAll returns a context that ends with ctx, which is that of all the locks, and with each of them; and what ends
// that.
func (l *Lock) underAll(ctx context.Context) (*heldContext, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stops := make([]func() bool, len(l.all))

	for i, lock := range l.all {
		held := lock.Context()
		stops[i] = context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	}

	stop := func() {
		for _, stop := range stops {
			stop()
		}
	}

	return &heldContext{Context: ctx, hold: l.hold, locks: l, cancel: cancel, outside: l.hold.ctx.outside}, stop
}

// Names returns the names of the lock, sorted: one, unless it is of [Locker.AcquireAll].
func (l *Lock) Names() []string {
	var names []string

	_ = l.each(func(lock *Lock) error {
		names = append(names, lock.Name())

		return nil
	})

	return names
}

// Of returns the lock of one of the names, with the token and the lease of that; nil if it is none of them. What is done with it is not
// done with the others. If it is released the context of all ends.
func (l *Lock) Of(name string) (one *Lock) {
	_ = l.each(func(lock *Lock) error {
		if lock.Name() == name {
			one = lock
		}

		return nil
	})

	return one
}

// each does something with the lock of each name, in the order of those, until the first error.
func (l *Lock) each(do func(*Lock) error) error {
	switch {
	case l == nil:
		return errNilLock
	case l.all == nil:
		return do(l)
	}

	for _, lock := range l.all {
		if err := do(lock); err != nil {
			return err
		}
	}

	return nil
}

// errAll is the error of one that is not held any more, of one that was lost if there is such.
func (l *Lock) errAll() (err error) {
	for _, lock := range l.all {
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
func (l *Lock) lost() error {
	return l.each(func(lock *Lock) error { return lock.hold.err() })
}

// releaseAllTx has all released in a transaction, or none.
func (l *Lock) releaseAllTx(release func(*Lock) error) error {
	var released []*Lock

	err := l.each(func(lock *Lock) error {
		again := lock.hold.mayBeFreed() // by an earlier transaction
		err := release(lock)

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
