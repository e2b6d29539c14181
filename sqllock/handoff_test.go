package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// inTurn returns a lock, and where the lock comes of somebody who waits for it in
// the same process and gets it without the database.
func inTurn(t *testing.T, l *sqllock.Locker) (*sqllock.Lock, <-chan *sqllock.Lock) {
	t.Helper()

	first := acquire(t, l)
	locks := make(chan *sqllock.Lock, 2)

	// With two that wait, the one who is first reserves tokens.
	for range 2 {
		go func() { locks <- acquire(t, l) }()
	}

	time.Sleep(time.Millisecond)
	release(t, first)

	return <-locks, locks
}

func release(t *testing.T, lock *sqllock.Lock) {
	t.Helper()

	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// during is a transaction that does something when it is asked what it is.
type during struct {
	sqllock.Tx

	do func()
}

func (d during) Database() string {
	d.do()

	return d.Tx.Database()
}

// The grant is that of the next holder, whom a release would take it from.
func TestReleaseTxBesideAReleaseThatHandsOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock, locks := inTurn(t, locker)
		tx := memory.Begin()

		var next *sqllock.Lock

		err := lock.ReleaseTx(t.Context(), during{tx, func() {
			release(t, lock)

			next = <-locks
		}})
		if !errors.Is(err, sqllock.ErrReleased) {
			t.Errorf("ReleaseTx() beside a release = %v, want ErrReleased", err)
		}

		if next.Owner() != lock.Owner() {
			t.Fatal("the lock was not handed on")
		}

		if err := tx.Commit(); err != nil {
			t.Errorf("Commit() = %v, want nil", err)
		}

		if err := next.Check(t.Context()); err != nil {
			t.Errorf("Check() of the next holder = %v, want nil", err)
		}

		release(t, next)
	})
}

// Who comes next asked for another lease.
func TestExtendedLockIsNotHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		lock, locks := inTurn(t, locker)

		if err := lock.Extend(t.Context(), time.Hour); err != nil {
			t.Fatalf("Extend() = %v, want nil", err)
		}

		release(t, lock)

		next := <-locks
		if left := next.Remaining(); left > window {
			t.Errorf("the next holder has the lock for %s, want at most %s", left, window)
		}

		release(t, next)
	})
}

// partly is a strategy whose statement releases part of a batch, and does not know
// which: another holder has what was released when it is asked again.
type partly struct {
	*sqllocktest.Memory

	next *sqllock.Locker
	took chan *sqllock.Lock
}

func (p *partly) ReleaseAll(ctx context.Context, grants []sqllock.Grant) []error {
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = sqllock.ErrAlone
	}

	if err := grants[0].Release(ctx); err != nil {
		return errs
	}

	for _, n := range []string{"a", "b"} {
		if lock, err := p.next.TryAcquire(ctx, n); err == nil {
			p.took <- lock
		}
	}

	return errs
}

func TestReleaseOfWhatABatchReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		strategy := &partly{Memory: memory, next: newLocker(t, memory.Peer()), took: make(chan *sqllock.Lock, 2)}
		locker := newLocker(t, strategy)
		released := make(chan error, 2)

		first := acquire(t, locker)
		reached, resume := memory.Hang("release", sqllocktest.Before)

		go func() { _ = first.Release(t.Context()) }()

		<-reached

		// They gather behind the first.
		for _, n := range []string{"a", "b"} {
			lock, err := locker.Acquire(t.Context(), n)
			if err != nil {
				t.Fatalf("Acquire(%q) = %v, want the lock", n, err)
			}

			go func() { released <- lock.Release(t.Context()) }()
		}

		time.Sleep(time.Millisecond)
		resume()

		for range 2 {
			if err := <-released; err != nil {
				t.Errorf("Release() = %v, want nil: a batch released it", err)
			}
		}

		if len(strategy.took) != 1 {
			t.Errorf("%d locks were taken after the batch, want 1", len(strategy.took))
		}
	})
}
