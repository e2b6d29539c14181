package sqllock_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func TestCloseIsBoundedByItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		var locks []*sqllock.Lock

		for i := range 400 {
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

func TestFeaturesOfNil(t *testing.T) {
	t.Parallel()

	var locker *sqllock.Locker

	if got := locker.Features(); got != (sqllock.Features{}) {
		t.Errorf("Features() of nil = %v, want none", got)
	}
}
