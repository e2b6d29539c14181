package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// keeper is a strategy that keeps something while it has a lock, and for a while longer.
type keeper struct {
	*sqllocktest.Memory

	mu     sync.Mutex
	allows bool
	busy   bool          // a lock is held
	left   time.Duration // of the time to keep, when it is asked
	asked  []time.Duration
}

func (k *keeper) KeepIdle() { k.allows = true }

func (k *keeper) GiveBack(_ context.Context, after time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.asked = append(k.asked, after)

	if k.busy && after > 0 {
		return after
	}

	left := min(k.left, after)
	k.left = 0

	return left
}

func (k *keeper) times() int {
	k.mu.Lock()
	defer k.mu.Unlock()

	return len(k.asked)
}

// TestLostWithItsSession: a lock that ended with the session that an attempt for another one broke is lost at once, and not only
// when its renewal is due.
func TestLostWithItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &keeper{Memory: sqllocktest.NewMemory()}
		locker := newLocker(t, k)
		held := acquire(t, locker, sqllock.WithLease(time.Hour))

		if _, err := k.ForceRelease(t.Context(), strategies.Status{Name: held.Name(), Token: held.Token()}, "its session is gone"); err != nil {
			t.Fatal(err)
		}

		k.Fail("acquire", 1, sqllocktest.Before, sqllock.ErrReadOnly)

		if _, err := locker.TryAcquire(t.Context(), "other"); !errors.Is(err, sqllock.ErrReadOnly) {
			t.Fatalf("TryAcquire() = %v, want ErrReadOnly", err)
		}

		started := time.Now()

		<-held.Context().Done()

		if took := time.Since(started); took > time.Second {
			t.Errorf("the lock was lost after %s, want at once", took)
		}
	})
}

// TestNotRenewedAfterADeadline: what the caller's deadline ended says nothing of the session, and a database that is slow is not
// asked for more.
func TestNotRenewedAfterADeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &keeper{Memory: sqllocktest.NewMemory()}
		locker := newLocker(t, k)
		acquire(t, locker, sqllock.WithLease(time.Hour))

		k.Fail("acquire", 1, sqllocktest.Before, fmt.Errorf("canceling statement: %w", context.DeadlineExceeded))

		if _, err := locker.TryAcquire(t.Context(), "other"); err != nil {
			t.Fatalf("TryAcquire() = %v, want the lock at the second try", err)
		}

		synctest.Wait()

		if n := k.Count("renew") + k.Count("renew-all"); n != 0 {
			t.Errorf("%d renewals after a deadline, want none", n)
		}
	})
}

// TestGivesBack: a strategy is asked two seconds after an attempt to give back what it keeps, again for as long as it keeps
// something, and not after that.
func TestGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &keeper{Memory: sqllocktest.NewMemory(), busy: true}
		locker := newLocker(t, k)

		if !k.allows {
			t.Error("the strategy was not allowed to keep anything")
		}

		acquire(t, locker)

		for n, want := range []int{0, 1, 2, 3} {
			if got := k.times(); got != want {
				t.Errorf("after %d times two seconds with a lock it was asked %d times, want %d", n, got, want)
			}

			time.Sleep(2*time.Second + time.Millisecond)
		}

		k.mu.Lock()
		k.busy, k.left = false, time.Second
		k.mu.Unlock()

		before := k.times()

		time.Sleep(time.Minute)

		// Once that a second is left, and once that nothing is.
		if got := k.times() - before; got != 2 {
			t.Errorf("when nothing was held any more it was asked %d times, want 2", got)
		}

		if _, err := locker.TryAcquire(t.Context(), "another"); err != nil {
			t.Fatal(err)
		}

		before = k.times()

		time.Sleep(3 * time.Second)

		if got := k.times() - before; got != 1 {
			t.Errorf("after another attempt it was asked %d times, want once", got)
		}
	})
}

// TestCloseGivesBack at once.
func TestCloseGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &keeper{Memory: sqllocktest.NewMemory()}

		locker, err := sqllock.New(k)
		if err != nil {
			t.Fatal(err)
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		if k.times() != 1 || k.asked[0] != 0 {
			t.Errorf("Close() asked for %v, want what was kept at all", k.asked)
		}
	})
}

// stuckKeeper is a keeper whose driver does not return from what gives it back.
type stuckKeeper struct {
	keeper

	resumed chan struct{}
}

func (k *stuckKeeper) GiveBack(context.Context, time.Duration) time.Duration {
	<-k.resumed

	return 0
}

// TestCloseBesideAStuckSession: Close does not wait for a driver that does not return when it is given the connection back.
func TestCloseBesideAStuckSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &stuckKeeper{keeper: keeper{Memory: sqllocktest.NewMemory()}, resumed: make(chan struct{})}
		locker := newLocker(t, k)

		time.AfterFunc(time.Minute, func() { close(k.resumed) })

		started := time.Now()

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if took := time.Since(started); took > 16*time.Second {
			t.Errorf("Close() took %s, want 15s and a moment at most", took)
		}

		<-k.resumed
	})
}
