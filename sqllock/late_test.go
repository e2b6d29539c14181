package sqllock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// late is a strategy whose first attempt does not return when its context
// ends, as with a driver whose connection was cut off, and is granted when it
// goes on.
type late struct {
	*sqllocktest.Memory
	attempts atomic.Int64
	goOn     chan struct{}
}

func (l *late) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	if l.attempts.Add(1) == 1 {
		<-l.goOn

		ctx = context.WithoutCancel(ctx)
	}

	return l.Memory.TryAcquire(ctx, r)
}

// TestLateGrantIsNotTheLock: the next attempt is made while the first hangs. What
// becomes of the first later must not touch the lock that the next one got.
func TestLateGrantIsNotTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		strategy := &late{Memory: sqllocktest.NewMemory(), goOn: make(chan struct{})}

		locker, err := sqllock.New(strategy, sqllock.WithLease(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}

		lock, err := locker.Acquire(t.Context(), "late")
		if err != nil {
			t.Fatalf("Acquire() = %v, want the lock by the second attempt", err)
		}

		close(strategy.goOn)
		synctest.Wait()
		time.Sleep(time.Second)

		if err := lock.Check(t.Context()); err != nil {
			t.Errorf("Check() after the first attempt returned = %v, want nil", err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if held, err := strategy.Holders(t.Context(), sqllock.Filter{}); err != nil || len(held) > 0 {
			t.Errorf("Holders() = %v, %v, want none", held, err)
		}
	})
}
