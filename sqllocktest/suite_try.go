package sqllocktest

import (
	"github.com/sqllock/sqllock/sqllock"
)

func tryCases() []testCase {
	return []testCase{
		{"try/does not wait for a row lock", nil, tryBesideRowLock},
		{"try/does not wait for the row lock of a held name", nil, tryHeldBesideRowLock},
		{"try/does not wait for a guard", guardOnly, tryBesideGuard},
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
		e.refused(e.b)
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
		e.refused(e.b)
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
