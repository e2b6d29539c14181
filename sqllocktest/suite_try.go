package sqllocktest

import (
	"errors"
	"strings"

	"github.com/sqllock/sqllock/sqllock"
)

func tryCases() []testCase {
	return []testCase{
		{"try/does not wait for a row lock", nil, tryBesideRowLock},
		{"try/does not wait for the row lock of a held name", nil, tryHeldBesideRowLock},
		{"try/does not wait for the row lock of what a dead holder left", leaseOnly, tryBesideLeft},
		{"try/does not wait for another's first attempt", nil, tryBesideFirst},
		{"try/does not wait for a guard", guardedOnly, tryBesideGuard},
		{"try/does not wait for a release in a transaction", releaseTxOnly, tryBesideReleaseTx},
	}
}

// The name is free, and somebody's transaction has its row.
func tryBesideRowLock(e *env) {
	if e.LockRow == nil {
		e.Fatal("Fixture.LockRow is nil")
	}

	first := e.acquire(e.a)
	e.release(first)

	unlock := e.LockRow(e.T, e.name)

	e.within(e.harness.TryWithin, "TryAcquire() beside a row lock", func() {
		lock, err := e.b.TryAcquire(e.ctx(), e.name)

		switch {
		case err == nil && e.features.ConnectionHeld:
			e.release(lock) // Its lock is none on this row.
		case err == nil:
			e.Errorf("TryAcquire() beside a row lock = token %d, want a *HeldError", lock.Token())
		}
	})

	if !e.features.ConnectionHeld {
		_ = e.refusedUnheld(e.b)
	}

	unlock()

	second := e.acquire(e.b)
	e.grow("a release", first.Token(), second.Token())
	e.release(second)
}

func tryHeldBesideRowLock(e *env) {
	if e.LockRow == nil {
		e.Fatal("Fixture.LockRow is nil")
	}

	if e.features.ConnectionHeld {
		e.Skip("the holder's own transaction may have the row")
	}

	lock := e.acquire(e.a)
	unlock := e.LockRow(e.T, e.name)

	e.refused(e.b)
	unlock()
	e.alive(lock)
	e.release(lock)
}

// Another's rows of the name are there, and not committed.
func tryBesideFirst(e *env) {
	if e.LockNew == nil {
		e.Skip("a name has no rows that another could be making")
	}

	unlock := e.LockNew(e.T, e.name)

	// Nobody is known to have it: a job must not be skipped for it.
	if _, err := e.b.TryAcquire(e.ctx(), e.name); errors.Is(err, sqllock.ErrNotAcquired) || !errors.Is(err, sqllock.ErrUnreachable) {
		e.Errorf("TryAcquire() beside somebody who makes its row = %v, want ErrUnreachable, and not ErrNotAcquired", err)
	}

	unlock()
	e.release(e.acquire(e.b))
}

func tryBesideLeft(e *env) {
	if e.LockLeft == nil {
		e.Skip("the strategy keeps nothing beside the record")
	}

	first := e.acquire(e.a)
	e.age(2 * lease)

	unlock := e.LockLeft(e.T, e.name)

	if err := e.refusedUnheld(e.b); !strings.Contains(err.Error(), "a transaction has its row locked") {
		e.Errorf("TryAcquire() = %v, want that it says that a transaction has its row locked", err)
	}

	unlock()

	second := e.acquire(e.b)
	e.grow("a take-over", first.Token(), second.Token())
	e.lost("Check() after a take-over", first.Check(e.ctx()), sqllock.ReasonTakenOver)
	e.release(second)
}

func tryBesideGuard(e *env) {
	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v", err)
	}

	e.refused(e.b)

	if !e.features.ConnectionHeld && !e.harness.GuardBlocksRenewal {
		// Now only the guard is in the way.
		e.age(2 * lease)
		_ = e.refusedUnheld(e.b)
	}

	if err := tx.Rollback(); err != nil {
		e.Errorf("Rollback() = %v", err)
	}
}

func tryBesideReleaseTx(e *env) {
	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.ReleaseTx(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("ReleaseTx() = %v", err)
	}

	e.refused(e.b)

	if err := tx.Commit(); err != nil {
		e.Fatalf("Commit() = %v", err)
	}

	var next *sqllock.Lock

	e.within(e.patience, "Acquire() after the commit", func() { next = e.acquire(e.b) })
	e.release(lock)
	e.alive(next)
	e.release(next)
}
