package sqllock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// A server that takes no more connections has answered that it does not; only
// errors in a row that leave an outcome open end a wait.
func TestWaitForAFullServerOverOtherErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))

		for range 3 {
			memory.Fail("acquire", 1, sqllocktest.Before, nil)
			memory.Fail("acquire", 20, sqllocktest.Before, sqllock.ErrTooManyConnections)
		}

		release(t, acquire(t, locker))
	})
}

func TestTryAtAFullServerIsOneAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
		memory.Fail("acquire", 2, sqllocktest.Before, sqllock.ErrTooManyConnections)

		_, err := locker.TryAcquire(t.Context(), name)
		wantIs(t, "TryAcquire() at a full server", err, sqllock.ErrTooManyConnections)

		_, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(0))
		wantIs(t, "Acquire() without waiting at a full server", err, sqllock.ErrTooManyConnections)

		if n := memory.Count("acquire"); n != 2 {
			t.Errorf("Count(acquire) = %d, want 2: one for each call", n)
		}
	})
}

// Nothing was taken at a full server, so nothing has to be given back: neither
// does that load the server, nor does Close wait for it.
func TestNothingIsSettledAtAFullServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}), sqllock.WithLease(time.Hour))
		memory.Fail("*", 1_000_000, sqllocktest.Before, sqllock.ErrTooManyConnections)

		for range 10 {
			_, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(200*time.Millisecond))
			wantIs(t, "Acquire() at a full server", err, sqllock.ErrTooManyConnections)
			wantNot(t, "Acquire() at a full server", err, sqllock.ErrNotAcquired)
		}

		started := time.Now()

		if err := locker.Close(t.Context()); err != nil || time.Since(started) > 0 {
			t.Errorf("Close() = %v after %s, want nil at once", err, time.Since(started))
		}

		if n := memory.Count("settle"); n != 0 {
			t.Errorf("Count(settle) = %d, want 0", n)
		}
	})
}

// unheard is a strategy that cannot listen for now.
type unheard struct {
	*sqllocktest.Memory

	asked atomic.Int64
}

func (u *unheard) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	u.asked.Add(1)

	return u.Memory.Acquire(ctx, requests)
}

func (*unheard) Call(context.Context, []string) error { return nil }

func (*unheard) Listen(context.Context, string, func(), func(string, string, int64), func(string, bool)) error {
	return sqllock.ErrTooManyConnections
}

// Each try to listen must not look like a release to those who wait.
func TestListeningInVainWakesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := &unheard{Memory: sqllocktest.NewMemory()}
		acquire(t, newLocker(t, strategy.Peer()))

		_, err := newLocker(t, strategy, sqllock.WithTuning(sqllock.Tuning{NoBatching: true})).Acquire(t.Context(), name, sqllock.WithMaxWait(10*time.Minute))
		wantIs(t, "Acquire() of a lock that is held", err, sqllock.ErrNotAcquired)

		// Once in 25 to 50 milliseconds, and more and more rarely from a minute on.
		if n := strategy.Count("stand"); n < 3500 || n > 6500 {
			t.Errorf("looked %d times in ten minutes, want about 4700", n)
		}

		if n := strategy.asked.Load(); n > 2 {
			t.Errorf("asked %d times in ten minutes, want it to wait for its turn", n)
		}
	})
}
