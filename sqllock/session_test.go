package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// oneSession is a strategy whose locks are on one session.
type oneSession struct {
	*sqllocktest.Memory

	closed  atomic.Int64
	resumed chan struct{} // Close returns then; nil is at once
}

func (o *oneSession) Features() strategies.Features {
	f := o.Memory.Features()
	f.ConnectionHeld = true

	return f
}

func (o *oneSession) Close(context.Context) {
	o.closed.Add(1)

	if o.resumed != nil {
		<-o.resumed
	}
}

// TestLostWithItsSession: a lock that ended with the session that an attempt for another one broke is lost at once, and not only
// when its renewal is due.
func TestLostWithItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &oneSession{Memory: sqllocktest.NewMemory()}
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
		k := &oneSession{Memory: sqllocktest.NewMemory()}
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

// TestNotRenewedAtAFullPool: that it has no connection left says nothing of the session, and each renewal needs one.
func TestNotRenewedAtAFullPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &oneSession{Memory: sqllocktest.NewMemory()}
		locker := newLocker(t, k)
		acquire(t, locker, sqllock.WithLease(time.Hour))

		k.Fail("acquire", 1, sqllocktest.Before, sqllock.ErrTooManyConnections)

		_, err := locker.TryAcquire(t.Context(), "other")
		wantIs(t, "TryAcquire() at a full pool", err, sqllock.ErrTooManyConnections)

		synctest.Wait()

		if n := k.Count("renew") + k.Count("renew-all"); n != 0 {
			t.Errorf("%d renewals, want none", n)
		}
	})
}

// TestCloseGivesBack at once.
func TestCloseGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &oneSession{Memory: sqllocktest.NewMemory()}

		locker, err := sqllock.New(k)
		if err != nil {
			t.Fatal(err)
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		if n := k.closed.Load(); n != 1 {
			t.Errorf("Close() has closed the strategy %d times, want once", n)
		}
	})
}

// TestCloseBesideAStuckSession: Close does not wait for a driver that does not return when it is given the connection back.
func TestCloseBesideAStuckSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &oneSession{Memory: sqllocktest.NewMemory(), resumed: make(chan struct{})}
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
