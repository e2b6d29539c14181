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
	strategies.Tx

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

// lostAnswers is a strategy whose releases together are done, and their answers lost. Another
// holder has one of the locks when it is asked again.
type lostAnswers struct {
	*sqllocktest.Memory

	next *sqllock.Locker
	took chan *sqllock.Lock
}

func (l *lostAnswers) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	contended, errs := l.Memory.Release(ctx, grants)
	if len(grants) == 1 {
		return contended, errs
	}

	for i := range errs {
		errs[i] = errors.New("the answer was lost")
	}

	if lock, err := l.next.TryAcquire(ctx, "a"); err == nil {
		l.took <- lock
	}

	return contended, errs
}

func TestReleaseOfWhatABatchReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		strategy := &lostAnswers{Memory: memory, next: newLocker(t, memory.Peer()), took: make(chan *sqllock.Lock, 2)}
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

// A batch answers for a lock that it did not release. That it is somebody else's now is a
// loss, and no sign of an earlier try.
func TestReleaseTogetherTellsOfALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		other := newLocker(t, memory.Peer())
		locks := make(map[string]*sqllock.Lock)

		for _, n := range []string{"first", "a", "b"} {
			lock, err := locker.Acquire(t.Context(), n)
			if err != nil {
				t.Fatalf("Acquire(%q) = %v, want the lock", n, err)
			}

			locks[n] = lock
		}

		if err := sqllocktest.ForceRelease(t.Context(), other, "a", "for a test"); err != nil {
			t.Fatalf("ForceRelease() = %v, want nil", err)
		}

		if _, err := other.TryAcquire(t.Context(), "a"); err != nil {
			t.Fatalf("TryAcquire() = %v, want the lock", err)
		}

		released := make(chan error, 1)
		reached, resume := memory.Pause("release", sqllocktest.Before)

		go func() { _ = locks["first"].Release(t.Context()) }()

		<-reached

		go func() { released <- locks["a"].Release(t.Context()) }()
		go func() { _ = locks["b"].Release(t.Context()) }()

		synctest.Wait()
		resume()

		wantLost(t, "Release()", <-released, sqllock.ReasonTakenOver)

		if n := memory.Count("release-all"); n != 1 {
			t.Errorf("Count(release-all) = %d, want 1", n)
		}
	})
}

// Its Err may have said already that it is lost, and that does not change.
func TestLockHeldTooLongIsNotHandedOn(t *testing.T) {
	const longest = 5 * time.Millisecond

	t.Parallel()

	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			_, locker := setup(t, sqllock.WithMaxHold(longest))
			lock, locks := inTurn(t, locker)
			time.Sleep(longest)

			wantLost(t, "Err() after the longest hold", lock.Err(), sqllock.ReasonMaxHold)
			wantLost(t, "Release() after it", lock.Release(t.Context()), sqllock.ReasonMaxHold)
			wantLost(t, "Err() after that", lock.Err(), sqllock.ReasonMaxHold)

			release(t, <-locks)
		})

		if t.Failed() {
			return
		}
	}
}

// The release was rolled back with its transaction, so that what happened then was no
// consequence of it.
func TestForcedAfterAReleaseThatWasRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)
		tx := memory.Begin()

		if err := lock.ReleaseTx(t.Context(), tx); err != nil {
			t.Fatalf("ReleaseTx() = %v, want nil", err)
		}

		_ = tx.Rollback()

		if err := sqllocktest.ForceRelease(t.Context(), newLocker(t, memory.Peer()), name, "for a test"); err != nil {
			t.Fatalf("ForceRelease() = %v, want nil", err)
		}

		wantLost(t, "Release()", lock.Release(t.Context()), sqllock.ReasonForced)
	})
}
