package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func guardCases() []testCase {
	all := guardAndReleaseCases()

	for i, c := range all {
		all[i].skip = guardedOnly
		if c.skip != nil {
			all[i].skip = both(guardedOnly, c.skip)
		}
	}

	return all
}

func guardAndReleaseCases() []testCase {
	return []testCase{
		{"guard/passes", nil, guardPasses},
		{"guard/pins until the transaction ends", leaseOnly, guardPins},
		{"guard/after the lease expired", leaseOnly, guardExpired},
		{"guard/after a take-over", leaseOnly, guardTakenOver},
		{"guard/after a take-over since the snapshot", leaseOnly, guardSnapshot},
		{"guard/after a renewal since the snapshot", nil, guardRenewed},
		{"guard/in a snapshot older than the lock", nil, guardOldSnapshot},
		{"guard/renewals pass", oneWriter, guardRenewals},
		{"guard/release passes and the next waits", oneWriter, guardRelease},
		{"guard/after a forced release", nil, guardForced},
		{"guard/beside a forced release", oneWriter, guardBesideForce},
		{"guard/of other transactions", nil, guardOther},
		{"guard/not after release", nil, guardReleased},
		{"release in a transaction/commit", releaseTxOnly, releaseTxCommit},
		{"release in a transaction/after a renewal since the snapshot", both(releaseTxOnly, oneWriter), releaseTxRenewed},
		{"release in a transaction/after another transaction's", both(releaseTxOnly, both(oneWriter, oneGuard)), releaseTxTwice},
		{"release in a transaction/after a forced release since the snapshot", both(releaseTxOnly, oneWriter), releaseTxForced},
		{"release in a transaction/rollback", releaseTxOnly, releaseTxRollback},
		{"release in a transaction/the next waits for the commit", releaseTxOnly, releaseTxWaits},
	}
}

func (e *env) commit(tx Transaction) {
	e.Helper()

	if err := tx.Commit(); err != nil {
		e.Fatalf("Commit() = %v, want nil", err)
	}
}

func (e *env) rollback(tx Transaction) {
	e.Helper()

	if err := tx.Rollback(); err != nil {
		e.Fatalf("Rollback() = %v, want nil", err)
	}
}

// levels are the isolation levels there are, the default first.
func (e *env) levels() []string { return append([]string{""}, e.harness.Isolations...) }

func guardPasses(e *env) {
	lock := e.acquire(e.a)

	for _, level := range e.levels() {
		for _, end := range []string{"commit", "rollback"} {
			tx := e.begin(level)

			for range 2 { // Twice in one transaction does no harm.
				if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
					e.Fatalf("Guard() with isolation %q = %v, want nil", level, err)
				}
			}

			if end == "commit" {
				e.commit(tx)
			} else {
				e.rollback(tx)
			}
		}

		e.alive(lock)
	}

	e.release(lock)

	second := e.acquire(e.b)
	e.grow("a release", lock.Token(), second.Token())
	e.release(second)
}

// The lease expired, so only the guard is in the way.
func guardPins(e *env) {
	for _, level := range e.levels() {
		for _, end := range []func(Transaction){e.commit, e.rollback} {
			grant := e.grant(e.Strategy, e.request())
			tx := e.begin(level)

			// Before: with one writer there is no other while the guard is open.
			e.age(2 * lease)

			if err := grant.Guard(e.ctx(), tx.Tx); err != nil {
				e.Fatalf("Guard() with isolation %q = %v, want nil", level, err)
			}

			_ = e.refusedUnheld(e.b)

			locks := e.waiting(e.b)
			e.stillWaiting(locks, "a guard is open")
			end(tx)

			next := e.get(locks)
			e.grow("a take-over", grant.Token, next.Token())
			e.release(next)
		}
	}
}

// Nobody took over since, so the holder is still the latest.
func guardExpired(e *env) {
	grant := e.grant(e.Strategy, e.request())
	e.age(2 * lease)

	tx := e.begin("")

	if err := grant.Guard(e.ctx(), tx.Tx); err != nil {
		e.Errorf("Guard() of an expired grant without a successor = %v, want nil", err)
	}

	e.commit(tx)
	e.release(e.acquire(e.b))
}

func guardTakenOver(e *env) {
	for _, level := range e.levels() {
		grant := e.grant(e.Strategy, e.request())
		e.age(2 * lease)

		next := e.acquire(e.b)
		tx := e.begin(level)
		e.lost("Guard() with isolation "+level+" after a take-over",
			grant.Guard(e.ctx(), tx.Tx), sqllock.ReasonTakenOver)
		e.rollback(tx)
		e.release(next)

		// Also when the successor has released it.
		tx = e.begin(level)
		e.lost("Guard() with isolation "+level+" after a take-over and a release", grant.Guard(e.ctx(), tx.Tx))
		e.rollback(tx)
	}
}

// The transaction began before the take-over and sees the row as it was.
func guardSnapshot(e *env) {
	for _, level := range e.levels() {
		grant := e.grant(e.Strategy, e.request())
		e.age(2 * lease)

		tx := e.begin(level)
		next := e.acquire(e.b)
		err := grant.Guard(e.ctx(), tx.Tx)

		switch {
		case err == nil:
			e.Errorf("Guard() with isolation %q after a take-over since the snapshot = nil, want an error", level)
		case level == "" || level == "read committed":
			e.lost("Guard() after a take-over since the transaction began", err, sqllock.ReasonTakenOver)
		}

		e.rollback(tx)
		e.alive(next)
		e.release(next)
	}
}

// The row has changed since the snapshot, by a renewal. That is no loss; it is
// allowed to be an error that makes the caller try again.
func guardRenewed(e *env) {
	for _, level := range e.levels() {
		lock := e.acquire(e.a)
		tx := e.begin(level)

		if err := lock.Extend(e.ctx(), lease); err != nil {
			e.Fatalf("Extend() beside a transaction = %v", err)
		}

		err := lock.Guard(e.ctx(), tx.Tx)

		switch {
		case errors.Is(err, sqllock.ErrLost):
			e.Errorf("Guard() with isolation %q after a renewal since the snapshot = %v, want no loss", level, err)
		case err != nil && (level == "" || level == "read committed"):
			e.Errorf("Guard() with isolation %q after a renewal since the snapshot = %v, want nil", level, err)
		}

		e.rollback(tx)
		e.release(lock)
	}
}

// The transaction began before the lock was there, and would not see what the holder
// before wrote. InnoDB's SERIALIZABLE has no snapshot: what it reads is the latest.
func guardOldSnapshot(e *env) {
	for _, level := range e.levels() {
		tx := e.begin(level)
		lock := e.acquire(e.a)
		e.oldSnapshot(level, lock.Guard(e.ctx(), tx.Tx))
		e.rollback(tx)

		// Once the lock is there a transaction may begin.
		tx = e.begin(level)

		if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
			e.Errorf("Guard() with isolation %q after the lock was acquired = %v, want nil", level, err)
		}

		e.commit(tx)
		e.release(lock)
	}
}

// oldSnapshot looks at the error of a guard in a transaction that began before the
// lock was acquired.
func (e *env) oldSnapshot(level string, err error) {
	e.Helper()

	switch {
	case errors.Is(err, sqllock.ErrLost):
		e.Errorf("Guard() with isolation %q in a snapshot older than the lock = %v, want no loss", level, err)
	case level == "read committed" && err != nil:
		e.Errorf("Guard() with isolation %q in a transaction older than the lock = %v, want nil", level, err)
	case level == "repeatable read" && err == nil:
		e.Errorf("Guard() with isolation %q in a snapshot older than the lock = nil, want an error", level)
	}
}

func guardRenewals(e *env) {
	for _, level := range e.levels() {
		lock := e.acquire(e.a)
		tx := e.begin(level)

		if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
			e.Fatalf("Guard() with isolation %q = %v", level, err)
		}

		ctx, cancel := context.WithTimeout(e.ctx(), 5*time.Second)

		if err := lock.Extend(ctx, lease); err != nil {
			e.Errorf("Extend() beside an open guard with isolation %q = %v, want nil", level, err)
		}

		cancel()
		e.commit(tx)
		e.alive(lock)
		e.release(lock)
	}
}

func guardRelease(e *env) {
	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v", err)
	}

	released := make(chan error, 1)

	go func() { released <- lock.Release(e.ctx()) }()

	locks := e.waiting(e.b)
	e.stillWaiting(locks, "the guard of the earlier holder is open")

	lock2, err := e.a.TryAcquire(e.ctx(), e.name)
	if err == nil {
		e.Fatalf("TryAcquire() beside an open guard after the release = token %d, want ErrNotAcquired", lock2.Token())
	}

	if err := <-released; err != nil {
		e.Errorf("Release() beside an open guard = %v, want nil", err)
	}

	e.commit(tx)

	next := e.get(locks)
	e.grow("a release", lock.Token(), next.Token())
	e.release(next)
}

func guardForced(e *env) {
	lock := e.acquire(e.a)

	if err := ForceRelease(e.ctx(), e.b, e.name, "guard test"); err != nil {
		e.Fatalf("ForceRelease() = %v", err)
	}

	tx := e.begin("")
	e.lost("Guard() after a forced release", lock.Guard(e.ctx(), tx.Tx))
	e.rollback(tx)
}

// The force does not wait for the guard, and leaves its trace all the same.
func guardBesideForce(e *env) {
	const reason = "the reason"

	last := int64(0)

	for what, hear := range map[string]func(*sqllock.Lock) error{
		"Release()": func(l *sqllock.Lock) error { return l.Release(e.ctx()) },
		"Check()":   func(l *sqllock.Lock) error { return l.Check(e.ctx()) },
		"Extend()":  func(l *sqllock.Lock) error { return l.Extend(e.ctx(), lease) },
	} {
		lock := e.acquire(e.a)
		e.grow("a forced release", last, lock.Token())
		last = lock.Token()

		tx := e.begin("")

		if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
			e.Fatalf("Guard() = %v, want nil", err)
		}

		if err := ForceRelease(e.ctx(), e.b, e.name, reason); err != nil {
			e.Fatalf("ForceRelease() beside a guard = %v, want nil", err)
		}

		if status := e.status(); status.Remaining != 0 || status.Ended != sqllock.ReasonForced || status.Detail != reason {
			e.Errorf("Inspect() after ForceRelease beside a guard = %+v, want no time, and the reason", status)
		}

		what += " after ForceRelease beside a guard"
		if lost := e.lost(what, hear(lock), sqllock.ReasonForced); lost.Detail != reason {
			e.Errorf("%s: LostError.Detail = %q, want %q", what, lost.Detail, reason)
		}

		e.commit(tx)
	}
}

// foreignTx is a transaction of a database that there is not.
type foreignTx struct{}

func (foreignTx) Database() string { return "elsewhere" }

func guardOther(e *env) {
	lock := e.acquire(e.a)

	for what, guard := range map[string]func(context.Context, strategies.Tx) error{
		"Guard": lock.Guard, "ReleaseTx": lock.ReleaseTx,
	} {
		if err := guard(e.ctx(), foreignTx{}); !errors.Is(err, sqllock.ErrUnsupported) {
			e.Errorf("%s() in a transaction of another database = %v, want ErrUnsupported", what, err)
		}

		if err := guard(e.ctx(), nil); !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("%s() in a nil transaction = %v, want ErrInvalidOption", what, err)
		}
	}

	e.alive(lock)
	e.release(lock)
}

func guardReleased(e *env) {
	lock := e.acquire(e.a)
	e.release(lock)

	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); !errors.Is(err, sqllock.ErrReleased) {
		e.Errorf("Guard() after Release = %v, want ErrReleased", err)
	}

	e.rollback(tx)

	// And without the core.
	grant := e.grant(e.Strategy, e.request())

	if err := grant.Release(e.ctx()); err != nil {
		e.Fatalf("Release() of the grant = %v", err)
	}

	tx = e.begin("")

	if err := grant.Guard(e.ctx(), tx.Tx); err == nil {
		e.Errorf("Guard() of a released grant = nil, want an error")
	}

	e.rollback(tx)
}

func releaseTxCommit(e *env) {
	for _, level := range e.levels() {
		lock := e.acquire(e.a)
		e.releaseIn(level, lock)

		next := e.acquire(e.b)
		e.grow("a commit", lock.Token(), next.Token())
		// It finds the lock freed, and leaves the successor alone.
		e.release(lock)
		e.alive(next)
		e.release(next)
	}
}

// A job that is longer than a third of its lease is renewed in its transaction. Where the
// isolation level does not allow for that, the error says what to do.
func releaseTxRenewed(e *env) {
	for _, level := range e.levels() {
		lock := e.acquire(e.a)
		tx := e.begin(level)

		if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
			e.Fatalf("Guard() with isolation %q = %v", level, err)
		}

		if err := lock.Extend(e.ctx(), lease); err != nil {
			e.Fatalf("Extend() beside a transaction = %v", err)
		}

		err := lock.ReleaseTx(e.ctx(), tx.Tx)

		switch {
		case err == nil:
			e.commit(tx)
		case errors.Is(err, sqllock.ErrLost), !strings.Contains(err.Error(), "roll it back"):
			e.Errorf("ReleaseTx() with isolation %q after a renewal = %v, want nil, or to be told to roll back", level, err)
			e.rollback(tx)
		case level == "" || level == "read committed":
			e.Errorf("ReleaseTx() with isolation %q after a renewal = %v, want nil", level, err)
			e.rollback(tx)
		default:
			e.rollback(tx)
			e.alive(lock)
		}

		e.release(lock)
		e.release(e.acquire(e.b))
	}
}

// The second transaction's snapshot shows the lock held, but the first one has released it.
func releaseTxTwice(e *env) {
	for _, level := range e.levels() {
		lock := e.acquire(e.a)
		first, second := e.begin(level), e.begin(level)

		for _, tx := range []Transaction{first, second} {
			if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
				e.Fatalf("Guard() with isolation %q = %v", level, err)
			}
		}

		if err := lock.ReleaseTx(e.ctx(), first.Tx); err != nil {
			e.Fatalf("ReleaseTx() with isolation %q = %v, want nil", level, err)
		}

		e.commit(first)

		if err := lock.ReleaseTx(e.ctx(), second.Tx); !errors.Is(err, sqllock.ErrReleased) {
			e.Errorf("ReleaseTx() with isolation %q after another transaction's = %v, want ErrReleased", level, err)
		}

		e.rollback(second)
		e.release(lock)
		e.release(e.acquire(e.b))
	}
}

func releaseTxForced(e *env) {
	const reason = "the reason"

	for _, level := range e.levels() {
		lock := e.acquire(e.a)
		tx := e.begin(level)

		if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
			e.Fatalf("Guard() with isolation %q = %v", level, err)
		}

		if err := ForceRelease(e.ctx(), e.b, e.name, reason); err != nil {
			e.Fatalf("ForceRelease() beside a guard = %v, want nil", err)
		}

		what := fmt.Sprintf("ReleaseTx() with isolation %q after ForceRelease", level)
		if lost := e.lost(what, lock.ReleaseTx(e.ctx(), tx.Tx), sqllock.ReasonForced); lost.Detail != reason {
			e.Errorf("%s: LostError.Detail = %q, want %q", what, lost.Detail, reason)
		}

		e.rollback(tx)
	}
}

func releaseTxRollback(e *env) {
	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.ReleaseTx(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("ReleaseTx() = %v, want nil", err)
	}

	e.rollback(tx)
	e.refused(e.b)
	e.release(lock)
	e.release(e.acquire(e.b))
}

func releaseTxWaits(e *env) {
	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.ReleaseTx(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("ReleaseTx() = %v, want nil", err)
	}

	locks := e.waiting(e.b)
	e.stillWaiting(locks, "the transaction that releases it is open")
	e.commit(tx)

	next := e.get(locks)
	e.grow("a commit", lock.Token(), next.Token())
	e.release(lock)
	e.release(next)
}
