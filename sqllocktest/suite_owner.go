package sqllocktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func ownerCases() []testCase {
	return []testCase{
		{"owner/a stale handle touches no successor", leaseOnly, ownerStaleHandle},
		{"owner/a stale grant touches no successor", leaseOnly, ownerStaleGrant},
		{"owner/a released grant touches no successor", nil, ownerReleasedGrant},
		{"owner/settling touches no successor", nil, ownerSettle},
		{"owner/the same owner asks again", leaseOnly, ownerAgain},
		{"loss/is told by the next renewal", leaseOnly, lossByRenewal},
		{"loss/is for ever", leaseOnly, lossForEver},
		{"loss/the row is gone", leaseOnly, lossRowRemoved},
		{"release/is idempotent", nil, releaseTwice},
		{"release/of a lost lock", leaseOnly, releaseLost},
		{"release/with a cancelled context", nil, releaseCancelled},
	}
}

func ownerStaleHandle(e *env) {
	first := e.acquire(e.a)
	e.age(2 * lease)

	second := e.acquire(e.b)

	e.lost("Extend() of a stale handle", first.Extend(e.ctx(), 5*lease), sqllock.ReasonTakenOver)
	e.lost("Release() of a stale handle", first.Release(e.ctx()), sqllock.ReasonTakenOver)
	e.alive(second)
	e.refused(e.a)
	e.release(second)
}

// Without the core, which would not even ask after the first refusal.
func ownerStaleGrant(e *env) {
	first := e.grant(e.Strategy, e.request())
	e.age(2 * lease)

	second := e.grant(e.Other, e.request())
	e.grow("a take-over", first.Token, second.Token)

	e.lost("Renew() of a stale grant", first.Renew(e.ctx(), 10*lease), sqllock.ReasonTakenOver)
	e.lost("Check() of a stale grant", first.Check(e.ctx()), sqllock.ReasonTakenOver)

	if e.guards() {
		tx := e.begin("")
		e.lost("Guard() of a stale grant", first.Guard(e.ctx(), tx.Tx), sqllock.ReasonTakenOver)

		_ = tx.Rollback()
	}

	if releaseTxOnly(e) == "" {
		tx := e.begin("")
		e.lost("ReleaseTx() of a stale grant", first.ReleaseTx(e.ctx(), tx.Tx, 0), sqllock.ReasonTakenOver)

		_ = tx.Rollback()
	}

	e.lost("Release() of a stale grant", first.Release(e.ctx()), sqllock.ReasonTakenOver)

	if err := done(second.Check(e.ctx())); err != nil {
		e.Errorf("Check() of the successor = %v, want nil", err)
	}

	held, err := e.b.Inspect(e.ctx(), e.name)
	if err != nil || held.Token != second.Token || held.Remaining > lease+resolution {
		e.Errorf("Inspect() = token %d, %s left, %v, want token %d and at most %s: the stale grant renewed it",
			held.Token, held.Remaining, err, second.Token, lease)
	}

	e.refused(e.a)
}

func ownerReleasedGrant(e *env) {
	first := e.grant(e.Strategy, e.request())

	e.releaseGrant(first)

	if err := done(first.Release(e.ctx())); err != nil {
		e.Errorf("Release() of a released grant = %v, want nil", err)
	}

	if err := first.Renew(e.ctx(), lease); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Renew() of a released grant = %v, want ErrLost", err)
	}

	second := e.grant(e.Other, e.request())

	if err := first.Renew(e.ctx(), lease); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Renew() of a released grant that has a successor = %v, want ErrLost", err)
	}

	if err := first.Check(e.ctx()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Check() of a released grant that has a successor = %v, want ErrLost", err)
	}

	// nil or ErrLost: it cannot always be told which came first.
	if err := done(first.Release(e.ctx())); err != nil && !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Release() of a released grant that has a successor = %v, want nil or ErrLost", err)
	}

	if err := done(second.Check(e.ctx())); err != nil {
		e.Errorf("Check() of the successor = %v, want nil", err)
	}

	e.refused(e.a)
}

func ownerSettle(e *env) {
	r := e.request()

	e.poll("Settle() of an owner that never had anything is nil", func() error { return e.Strategy.Settle(e.ctx(), r) })

	first := e.grant(e.Strategy, r)
	_ = first.Release(e.ctx())

	second := e.acquire(e.b)

	for range 2 {
		if err := e.Strategy.Settle(e.ctx(), r); err != nil {
			e.Errorf("Settle() of an owner before the present one = %v, want nil", err)
		}
	}

	e.alive(second)
	e.refused(e.a)
	e.release(second)
}

// The answer to the first attempt was lost; the owner asks again, and again
// after its lease expired.
func ownerAgain(e *env) {
	r := e.request()
	first := e.grant(e.Strategy, r)
	again := e.grant(e.Strategy, r)

	if again.Token < first.Token {
		e.Errorf("token of the same owner = %d, want at least %d", again.Token, first.Token)
	}

	if err := done(again.Check(e.ctx())); err != nil {
		e.Errorf("Check() = %v, want nil", err)
	}

	e.refused(e.b)
	e.age(2 * lease)

	third := e.grant(e.Strategy, r)

	if err := done(third.Check(e.ctx())); err != nil {
		e.Errorf("Check() = %v, want nil", err)
	}

	e.refused(e.b)

	e.releaseGrant(third)

	e.grow("a release", third.Token, e.acquire(e.b).Token())
}

func lossByRenewal(e *env) {
	short := e.brief(6 * time.Second)
	first := e.acquire(e.a, sqllock.WithLease(short))
	started := time.Now()

	e.age(2 * short)

	second := e.acquire(e.b)

	e.ended(first, "of the take-over")

	// A renewal of the expired lease may have come before the take-over.
	if took := time.Since(started); e.late(took, short) {
		e.Errorf("the loss was told after %s, want by the renewal at a third of %s", took, short)
	}

	e.lost("context.Cause", context.Cause(first.Context()), sqllock.ReasonTakenOver)
	e.alive(second)
	e.release(second)
}

func lossForEver(e *env) {
	first := e.acquire(e.a)
	e.age(2 * lease)
	e.release(e.acquire(e.b))

	want := e.lost("Check()", first.Check(e.ctx()))

	for what, err := range map[string]error{
		"Err()": first.Err(), "Check()": first.Check(e.ctx()), "Extend()": first.Extend(e.ctx(), lease),
		"context.Cause": context.Cause(first.Context()), "Release()": first.Release(e.ctx()),
	} {
		if got := e.lost(what+" after a loss", err); got != want {
			e.Errorf("%s after a loss = %v, want the same loss as before: %v", what, got, want)
		}
	}

	if left := first.Remaining(); left != 0 {
		e.Errorf("Remaining() after a loss = %s, want 0", left)
	}
}

func lossRowRemoved(e *env) {
	if e.RemoveRow == nil {
		e.Fatal("Fixture.RemoveRow is nil")
	}

	lock := e.acquire(e.a)
	e.RemoveRow(e.T, e.name)

	const gone = "lost: its row is gone from the database"

	if lost := e.lost("Check() after the row was removed", lock.Check(e.ctx())); !strings.HasSuffix(lost.Error(), gone) {
		e.Errorf("Check() after the row was removed = %v, want %q", lost, gone)
	}

	e.lost("Release() after the row was removed", lock.Release(e.ctx()))

	// What is removed by hand is not noted, so that the clock alone vouches for the token, and not in a database that has removed
	// larger ones than the clock's.
	second := e.acquire(e.b)
	if second.Token() < lock.Token() {
		e.Errorf("the token after the removal of the row is %d, want no less than %d", second.Token(), lock.Token())
	}

	e.release(second)
}

func releaseTwice(e *env) {
	lock := e.acquire(e.a)
	e.release(lock)
	e.release(lock)

	if err := lock.Err(); !errors.Is(err, sqllock.ErrReleased) {
		e.Errorf("Err() after Release = %v, want ErrReleased", err)
	}

	if err := context.Cause(lock.Context()); !errors.Is(err, sqllock.ErrReleased) {
		e.Errorf("context.Cause after Release = %v, want ErrReleased", err)
	}

	second := e.acquire(e.b)
	e.release(lock)
	e.alive(second)
	e.release(second)
}

func releaseLost(e *env) {
	first := e.acquire(e.a)
	e.age(2 * lease)

	second := e.acquire(e.b)
	err := first.Release(e.ctx())
	e.lost("Release() of a lock that was taken over", err, sqllock.ReasonTakenOver)

	//nolint:errorlint // the very same result is what is promised
	if again := first.Release(e.ctx()); again != err {
		e.Errorf("the second Release() = %v, want what the first returned: %v", again, err)
	}

	e.alive(second)
	e.release(second)
}

func releaseCancelled(e *env) {
	ctx, cancel := context.WithCancel(e.ctx())
	lock := e.acquire(e.a)

	cancel()

	if err := lock.Release(ctx); err != nil {
		e.Errorf("Release() with a cancelled context = %v, want nil", err)
	}

	e.release(e.acquire(e.b))
}
