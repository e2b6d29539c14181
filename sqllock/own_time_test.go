package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// wantNoDeadline fails unless there is an error, and it is not the end of a context.
func wantNoDeadline(t *testing.T, what string, err error) {
	t.Helper()

	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("%s = %v, want an error that matches no end of a context", what, err)
	}
}

// What a silent database gets no more time for is no end of a context of the caller's, which has not ended.
func TestOwnTimeIsNoDeadlineOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithLease(time.Hour))
		ctx := t.Context()
		closing := newLocker(t, memory)

		lock, err := locker.Acquire(ctx, name)
		if err != nil {
			t.Fatal(err)
		}

		released, err := locker.Acquire(ctx, "released")
		if err != nil {
			t.Fatal(err)
		}

		if _, err := closing.Acquire(ctx, "closing"); err != nil {
			t.Fatal(err)
		}

		_, resume := memory.Pause("*", sqllocktest.Before)
		defer resume()

		for what, call := range map[string]func() error{
			"TryAcquire()": func() error {
				_, err := locker.TryAcquire(ctx, "another")

				return err
			},
			"Acquire() of a locker that has not reached the database": func() error {
				_, err := newLocker(t, memory).Acquire(ctx, "another")

				return err
			},
			"Mark()": func() error { return lock.Mark(ctx, 1) },
			"Release()": func() error {
				failed := new(sqllock.ReleaseError)
				if err := released.Release(ctx); !errors.As(err, &failed) {
					return err
				}

				return failed.Err
			},
			"Watch()": func() error {
				for _, err := range locker.Watch(ctx, name) {
					return err
				}

				return nil
			},
			"Close()": func() error { return closing.Close(ctx) },
		} {
			wantNoDeadline(t, what, call())
		}
	})
}

// Nor is the time that a strategy gives its own statements.
func TestTimeOfAStrategyIsNoDeadlineOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)
		ctx := t.Context()

		for operation, call := range map[string]func() error{
			"guard": func() error { return lock.Guard(ctx, memory.Begin()) },
			"check": func() error { return lock.Check(ctx) },
			"list": func() error {
				_, err := locker.Holders(ctx, sqllock.Filter{})

				return err
			},
			"waiters": func() error {
				_, err := locker.Waiters(ctx, sqllock.WaiterFilter{})

				return err
			},
			"status": func() error {
				_, err := locker.Inspect(ctx, name)

				return err
			},
			"force": func() error {
				return locker.ForceRelease(ctx, sqllock.Status{Name: name, Token: lock.Token(), Owner: lock.Owner()}, "test")
			},
			"ask": func() error { return locker.RequestRelease(ctx, name, "test") },
			"reap": func() error {
				_, err := locker.Reap(ctx, time.Hour)

				return err
			},
		} {
			memory.Fail(operation, 1, sqllocktest.Before, errors.Join(errUnreachable, context.DeadlineExceeded))

			err := call()
			wantNoDeadline(t, operation, err)
			wantIs(t, operation, err, errUnreachable, sqllock.ErrUnreachable)

			ended, cancel := context.WithTimeout(ctx, 0)
			cancel()

			if _, err := locker.TryAcquire(ended, "another"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryAcquire() after the deadline = %v, want %v", err, context.DeadlineExceeded)
			}
		}
	})
}
