package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// In a synctest bubble time passes when all goroutines wait, so that a test of
// half an hour takes no time and is exact to the nanosecond.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

const (
	name  = "the lock"
	lease = 30 * time.Second
	// window is how long a lease of 30 s is trusted.
	window = 29690 * time.Millisecond
)

// setup returns a locker on a new in-memory strategy.
func setup(t *testing.T, options ...sqllock.LockerOption) (*sqllocktest.Memory, *sqllock.Locker) {
	t.Helper()

	memory := sqllocktest.NewMemory()

	return memory, newLocker(t, memory, options...)
}

func newLocker(t *testing.T, s strategies.Strategy, options ...sqllock.LockerOption) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(s, options...)
	if err != nil {
		t.Fatalf("New() = %v", err)
	}

	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

	return locker
}

func acquire(t *testing.T, l *sqllock.Locker, options ...sqllock.LockOption) *sqllock.Lock {
	t.Helper()

	lock, err := l.Acquire(t.Context(), name, options...)
	if err != nil {
		t.Fatalf("Acquire() = %v, want the lock", err)
	}

	return lock
}

// wantLost fails unless err is a loss for the reason.
func wantLost(t *testing.T, what string, err error, reason sqllock.Reason) *sqllock.LostError {
	t.Helper()

	var lost *sqllock.LostError
	if !errors.As(err, &lost) || !errors.Is(err, sqllock.ErrLost) || lost.Reason != reason {
		t.Fatalf("%s = %v, want a *LostError, %s", what, err, reason)
	}

	return lost
}

func wantIs(t *testing.T, what string, err error, targets ...error) {
	t.Helper()

	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s = %v, want that it matches %q", what, err, target)
		}
	}
}

func wantNot(t *testing.T, what string, err, target error) {
	t.Helper()

	if errors.Is(err, target) {
		t.Errorf("%s = %v, want that it does not match %q", what, err, target)
	}
}

// wantOption fails unless err is an *OptionError and says so.
func wantOption(t *testing.T, what string, err error, want string) {
	t.Helper()

	if option := new(sqllock.OptionError); !errors.As(err, &option) || err.Error() != want {
		t.Errorf("%s = %v, want an *OptionError: %q", what, err, want)
	}
}

// wantHeld fails unless the database has the name taken.
func wantHeld(t *testing.T, m *sqllocktest.Memory, when string) {
	t.Helper()

	if n := held(t, m); n != 1 {
		t.Errorf("%d locks are held %s, want 1", n, when)
	}
}

func wantFree(t *testing.T, m *sqllocktest.Memory, when string) {
	t.Helper()

	if n := held(t, m); n != 0 {
		t.Errorf("%d locks are held %s, want none", n, when)
	}
}

func held(t *testing.T, m *sqllocktest.Memory) int {
	t.Helper()

	locks, err := m.Peer().List(t.Context(), strategies.Filter{})
	if err != nil {
		t.Fatalf("Holders() = %v", err)
	}

	return len(locks)
}

// hooks are functions for kinds of events; nil for those that do not matter.
type hooks struct {
	Acquired, NotAcquired, Renewed, RenewalFailed, Lost, Released func(sqllock.Event)
}

// observed has them called.
func observed(h hooks) sqllock.LockerOption {
	of := map[sqllock.EventKind]func(sqllock.Event){
		sqllock.Acquired: h.Acquired, sqllock.NotAcquired: h.NotAcquired, sqllock.Renewed: h.Renewed,
		sqllock.RenewalFailed: h.RenewalFailed, sqllock.Lost: h.Lost, sqllock.Released: h.Released,
	}

	return sqllock.WithObserver(func(_ context.Context, e sqllock.Event) {
		if hook := of[e.Kind]; hook != nil {
			hook(e)
		}
	})
}
