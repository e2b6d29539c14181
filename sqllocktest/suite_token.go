package sqllocktest

import (
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func tokenCases() []testCase {
	return []testCase{
		{"token/grows over releases", nil, tokenRelease},
		{"token/grows over a take-over", leaseOnly, tokenTakeOver},
		{"token/grows over a rollback", releaseTxOnly, tokenRollback},
		{"token/grows over a commit", releaseTxOnly, tokenCommit},
		{"token/grows over a forced release", nil, tokenForced},
		{"token/grows over the removal of the row", nil, tokenRowRemoved},
		{"token/grows over a grant given back", nil, tokenSettled},
		{"token/grows over the end of the session", connectionHeldOnly, tokenSession},
		{"token/renewals keep it", nil, tokenRenewal},
		{"token/is durable before it is seen", nil, tokenVisible},
	}
}

func tokenRelease(e *env) {
	last := int64(0)

	for i := range 6 {
		lock := e.acquire([]*sqllock.Locker{e.a, e.b}[i%2])
		e.grow("a release", last, lock.Token())
		last = lock.Token()
		e.release(lock)
	}
}

func tokenTakeOver(e *env) {
	last := e.acquire(e.a).Token()

	for i := range 3 {
		e.age(2 * lease)

		lock := e.acquire(e.locker([]strategies.Strategy{e.Strategy, e.Other}[i%2]))
		e.grow("a take-over", last, lock.Token())
		last = lock.Token()
	}
}

func tokenRollback(e *env) {
	first := e.acquire(e.a)
	tx := e.begin("")

	if err := first.ReleaseTx(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("ReleaseTx() = %v", err)
	}

	if err := tx.Rollback(); err != nil {
		e.Fatalf("Rollback() = %v", err)
	}

	e.release(first)

	second := e.acquire(e.b)
	e.grow("a rollback", first.Token(), second.Token())
	e.release(second)
}

func tokenCommit(e *env) {
	first := e.acquire(e.a)
	tx := e.begin("")

	if err := first.ReleaseTx(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("ReleaseTx() = %v", err)
	}

	if err := tx.Commit(); err != nil {
		e.Fatalf("Commit() = %v", err)
	}

	second := e.acquire(e.b)
	e.grow("a commit", first.Token(), second.Token())
	e.release(second)
}

func tokenForced(e *env) {
	first := e.acquire(e.a)

	if err := ForceRelease(e.ctx(), e.b, e.name, "token test"); err != nil {
		e.Fatalf("ForceRelease() = %v", err)
	}

	e.grow("a forced release", first.Token(), e.acquire(e.b).Token())
}

// A plain counter would begin again with the row.
func tokenRowRemoved(e *env) {
	if e.RemoveRow == nil {
		e.Fatal("Fixture.RemoveRow is nil")
	}

	first := e.acquire(e.a)
	e.release(first)

	again := e.acquire(e.a)
	e.release(again)
	e.RemoveRow(e.T, e.name)

	// What is left is the clock, which has milliseconds on some databases.
	e.elapse(5 * time.Millisecond)

	second := e.acquire(e.b)

	// Nothing vouches for it where names were removed whose tokens were ahead of the clock, as other cases do.
	if again.Token() < time.Now().Add(time.Minute).UnixMicro() {
		e.grow("the removal of the row", again.Token(), second.Token())
	}

	e.release(second)
}

func tokenSettled(e *env) {
	first := e.grant(e.Strategy, e.request())

	if err := done(first.Release(e.ctx())); err != nil {
		e.Fatalf("Release() of the grant = %v", err)
	}

	r := e.request()
	second := e.grant(e.Strategy, r)
	e.grow("a release", first.Token, second.Token)

	if err := e.Strategy.Settle(e.ctx(), r); err != nil {
		e.Fatalf("Settle() = %v", err)
	}

	if e.features.ConnectionHeld {
		// Settle cannot reach what a grant of this process still holds.
		_ = second.Release(e.ctx())
	}

	e.grow("a settlement", second.Token, e.grant(e.Other, e.request()).Token)
}

func tokenSession(e *env) {
	if e.EndSession == nil {
		e.Fatal("Fixture.EndSession is nil, and the strategy's locks are held by sessions")
	}

	first := e.acquire(e.a)
	e.EndSession(e.T, e.name)

	second := e.acquire(e.b)
	e.grow("the end of the session", first.Token(), second.Token())
	e.release(second)
}

func tokenRenewal(e *env) {
	lock := e.acquire(e.a)
	token := lock.Token()

	for range 3 {
		if err := lock.Extend(e.ctx(), lease); err != nil {
			e.Fatalf("Extend() = %v", err)
		}
	}

	if lock.Token() != token {
		e.Errorf("Token() after renewals = %d, want %d", lock.Token(), token)
	}

	if held, err := e.b.Inspect(e.ctx(), e.name); err != nil || held.Token != token {
		e.Errorf("Inspect() = token %d, %v, want %d", held.Token, err, token)
	}

	e.release(lock)
}

// Another connection sees the token as soon as Acquire has returned: it was
// committed, so a crash does not give it out again.
func tokenVisible(e *env) {
	lock := e.acquire(e.a)

	if held, err := e.b.Inspect(e.ctx(), e.name); err != nil || held.Token != lock.Token() {
		e.Errorf("Inspect() by another process = token %d, %v, want %d", held.Token, err, lock.Token())
	}

	e.release(lock)
}
