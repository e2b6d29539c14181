package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func TestCloseIsBoundedByItsContext(t *testing.T) {
	for _, held := range []int{1, 400} {
		t.Run(strconv.Itoa(held), func(t *testing.T) { closeBounded(t, held) })
	}
}

func closeBounded(t *testing.T, held int) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		var locks []*sqllock.Lock

		for i := range held {
			lock, err := locker.Acquire(t.Context(), strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}

			locks = append(locks, lock)
		}

		_, resume := memory.Hang("release", sqllocktest.Before)
		defer resume()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		started := time.Now()
		wantIs(t, "Close()", locker.Close(ctx), context.DeadlineExceeded)

		if took := time.Since(started); took > 2*time.Second {
			t.Errorf("Close() with a second took %s", took)
		}

		for _, lock := range locks {
			wantIs(t, "Err() after Close", lock.Err(), sqllock.ErrClosed)
		}
	})
}

// What an acquisition leaves that Close interrupts is gone when Close returns.
func TestCloseWaitsForAcquisitions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		reached, resume := memory.Pause("acquire", sqllocktest.After)
		defer resume()

		acquired := make(chan error, 1)

		go func() {
			_, err := locker.Acquire(t.Context(), name)
			acquired <- err
		}()

		<-reached

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if n := held(t, memory); n != 0 {
			t.Errorf("%d locks are held after Close, want none", n)
		}

		wantIs(t, "Acquire() during Close", <-acquired, sqllock.ErrClosed)
	})
}

// So is what an attempt leaves that its caller has given up and that the driver goes on with.
func TestCloseWaitsForAbandonedAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := &late{Memory: sqllocktest.NewMemory(), delay: 3 * time.Second}
		locker := newLocker(t, strategy)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if _, err := locker.TryAcquire(ctx, name); err == nil {
			t.Fatal("TryAcquire() = a lock after its deadline")
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if strategy.returned.Load() == 0 {
			t.Error("Close() returned while an attempt was under way")
		}

		if n := held(t, strategy.Memory); n != 0 {
			t.Errorf("%d locks are held after Close, want none", n)
		}
	})
}

func TestCloseUnderDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)

		err := locker.Do(t.Context(), name, func(ctx context.Context, _ *sqllock.Lock) error {
			if err := locker.Close(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}

			return nil
		})
		wantIs(t, "Do() whose lock Close released", err, sqllock.ErrClosed)
	})
}

func TestErrAfterReleaseOfALostLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)
		memory.Lose(name)

		wantIs(t, "Check()", lock.Check(t.Context()), sqllock.ErrLost)
		wantIs(t, "Release()", lock.Release(t.Context()), sqllock.ErrLost)
		wantIs(t, "Err() after Release", lock.Err(), sqllock.ErrLost)
	})
}

// The context of another locker's lock ends by that locker's Close.
func TestCloseOfAnotherLocker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		acquire(t, newLocker(t, memory.Peer()))

		_, other := setup(t)
		outer := acquire(t, other)

		time.AfterFunc(time.Second, func() { _ = other.Close(context.WithoutCancel(t.Context())) })

		_, err := locker.Acquire(outer.Context(), name)
		wantIs(t, "Acquire() under a lock of a locker that was closed", err, sqllock.ErrNotAcquired, context.Canceled)
	})
}

func TestFeaturesOfNil(t *testing.T) {
	t.Parallel()

	var locker *sqllock.Locker

	if got := locker.Features(); got != (sqllock.Features{}) {
		t.Errorf("Features() of nil = %v, want none", got)
	}
}

// A lock can end before the acquisition that got it has returned.
func TestEndBesideAnAcquisition(t *testing.T) {
	t.Parallel()

	t.Run("by Close", func(t *testing.T) {
		t.Parallel()

		for range 300 {
			locker := newLocker(t, sqllocktest.NewMemory(), sqllock.WithoutBatching())

			var group sync.WaitGroup

			for i := range 20 {
				group.Go(func() {
					if _, err := locker.Acquire(t.Context(), fmt.Sprint(i)); err != nil && !errors.Is(err, sqllock.ErrClosed) {
						t.Errorf("Acquire() beside Close() = %v, want the lock or ErrClosed", err)
					}
				})
			}

			runtime.Gosched()

			if err := locker.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}

			group.Wait()
		}
	})

	t.Run("by its longest hold", func(t *testing.T) {
		t.Parallel()

		locker := newLocker(t, sqllocktest.NewMemory(), sqllock.WithoutBatching(), sqllock.WithMaxHold(time.Nanosecond))

		for range 5000 {
			lock := acquire(t, locker)

			if err := lock.Release(t.Context()); err != nil && !errors.Is(err, sqllock.ErrLost) {
				t.Fatalf("Release() at the longest hold = %v, want nil or ErrLost", err)
			}
		}
	})
}
