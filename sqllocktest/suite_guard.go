package sqllocktest

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func guardCases() []testCase {
	blocks := func(f sqllock.Features, h Harness) string {
		if h.GuardBlocksRenewal {
			return "the database has one writer, so that an open guard stops renewals and releases"
		}

		return guardOnly(f, h)
	}

	return []testCase{
		{"guard/passes", guardOnly, guardPasses},
		{"guard/pins until the transaction ends", both(leaseOnly, guardOnly), guardPins},
		{"guard/after the lease ran out", both(leaseOnly, guardOnly), guardExpired},
		{"guard/after a take-over", both(leaseOnly, guardOnly), guardTakenOver},
		{"guard/after a take-over since the snapshot", both(leaseOnly, guardOnly), guardSnapshot},
		{"guard/after a renewal since the snapshot", guardOnly, guardRenewed},
		{"guard/renewals pass", blocks, guardRenewals},
		{"guard/release passes and the next waits", blocks, guardRelease},
		{"guard/after a forced release", both(guardOnly, administerOnly), guardForced},
		{"guard/of other transactions", guardOnly, guardOther},
		{"guard/not after release", guardOnly, guardReleased},
		{"release in a transaction/commit", releaseTxOnly, releaseTxCommit},
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

// The lease ran out, so only the guard is in the way.
func guardPins(e *env) {
	for _, level := range e.levels() {
		for _, end := range []func(Transaction){e.commit, e.rollback} {
			grant := e.grant(e.Strategy, e.request())
			tx := e.begin(level)

			// Before: with one writer there is no other while the guard is open.
			e.age(2 * lease)

			if err := guarder(e, grant).Guard(e.ctx(), tx.Tx); err != nil {
				e.Fatalf("Guard() with isolation %q = %v, want nil", level, err)
			}

			e.refused(e.b)

			locks := e.waiting(e.b)
			e.stillWaiting(locks, "a guard is open")
			end(tx)

			next := e.get(locks)
			e.grow("a take-over", grant.Token(), next.Token())
			e.release(next)
		}
	}
}

// Nobody took over since, so the holder is still the latest.
func guardExpired(e *env) {
	grant := e.grant(e.Strategy, e.request())
	e.age(2 * lease)

	tx := e.begin("")

	if err := guarder(e, grant).Guard(e.ctx(), tx.Tx); err != nil {
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
			guarder(e, grant).Guard(e.ctx(), tx.Tx), sqllock.ReasonTakenOver)
		e.rollback(tx)
		e.release(next)

		// Also when the successor has released it.
		tx = e.begin(level)
		e.lost("Guard() with isolation "+level+" after a take-over and a release", guarder(e, grant).Guard(e.ctx(), tx.Tx))
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
		err := guarder(e, grant).Guard(e.ctx(), tx.Tx)

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

	if err := e.b.ForceRelease(e.ctx(), e.name, "guard test"); err != nil {
		e.Fatalf("ForceRelease() = %v", err)
	}

	tx := e.begin("")
	e.lost("Guard() after a forced release", lock.Guard(e.ctx(), tx.Tx))
	e.rollback(tx)
}

// foreignTx is a transaction of a database that there is not.
type foreignTx struct{}

func (foreignTx) Database() string { return "elsewhere" }

func guardOther(e *env) {
	lock := e.acquire(e.a)

	for what, guard := range map[string]func(context.Context, sqllock.Tx) error{
		"Guard": lock.Guard, "ReleaseTx": lock.ReleaseTx,
	} {
		if what == "ReleaseTx" && !e.features.ReleaseTx {
			continue
		}

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

	if err := guarder(e, grant).Guard(e.ctx(), tx.Tx); err == nil {
		e.Errorf("Guard() of a released grant = nil, want an error")
	}

	e.rollback(tx)
}

func releaseTxCommit(e *env) {
	for _, level := range e.levels() {
		lock := e.acquire(e.a)
		tx := e.begin(level)

		if err := lock.ReleaseTx(e.ctx(), tx.Tx); err != nil {
			e.Fatalf("ReleaseTx() with isolation %q = %v, want nil", level, err)
		}

		e.commit(tx)

		next := e.acquire(e.b)
		e.grow("a commit", lock.Token(), next.Token())
		// It finds the lock freed, and leaves the successor alone.
		e.release(lock)
		e.alive(next)
		e.release(next)
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
