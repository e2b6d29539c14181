package sqllock

import (
	"context"
	"errors"
	"fmt"
)

// Do acquires the lock as [Locker.Acquire] does, runs f, and releases the lock. The
// context of f ends when the lock is lost or when ctx does; [context.Cause] says
// which. Its Err checks the clocks, as that of [Lock.Context] does. Do returns the error
// of f joined with that of the release, so a loss during f is an error ([ErrLost]) even
// if f had none. A *[ReleaseError] says that f ran and the release failed, a *[LostError] that the lock was
// lost meanwhile. Neither matches an error of an acquisition, or of the driver: f has run, and what it committed stands.
func (l *Locker) Do(
	ctx context.Context, name string, f func(ctx context.Context, lock *Lock) error, options ...LockOption,
) error {
	return l.do(ctx, name, false, f, options)
}

// TryDo is [Locker.Do] with one attempt, as [Locker.TryAcquire] makes: the way to run a
// job once in a cluster. [ErrNotAcquired] says that another process runs it. The error of f
// is returned too, so an ErrNotAcquired of an inner call looks like one of this call. Do not
// mix it with Do on one name: if a process dies while it waits in Do, TryDo is told for up to
// three seconds that this one comes first.
func (l *Locker) TryDo(
	ctx context.Context, name string, f func(ctx context.Context, lock *Lock) error, options ...LockOption,
) error {
	return l.do(ctx, name, true, f, options)
}

func (l *Locker) do(
	ctx context.Context, name string, try bool, f func(context.Context, *Lock) error, options []LockOption,
) (err error) {
	if f == nil {
		return fmt.Errorf("%w: the function is nil", ErrInvalidOption)
	}

	lock, err := l.acquire(ctx, name, try, options)
	if err != nil {
		return err
	}

	work, stop := lock.ctx.over(ctx)
	defer stop()

	// Also when f panics or calls runtime.Goexit.
	defer func() {
		if ended := lock.Err(); errors.Is(ended, ErrClosed) {
			err = errors.Join(err, fmt.Errorf("lock %q: %w", lock.Name(), ended))
		}

		err = withRelease(err, lock.Release(ctx))
	}()

	return f(work, lock)
}

// withRelease joins the error of a function with that of the release after it. A loss
// that the function returned, as it was or as a part of its own error, is not told twice.
func withRelease(err, released error) error {
	if released != nil && errors.Is(err, released) {
		return err
	}

	return errors.Join(err, released)
}
