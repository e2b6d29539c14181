package sqllocktest

import (
	"errors"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func raiseCases() []testCase {
	return []testCase{
		{"raise/the next token is larger", raisesOnly, raiseGrows},
		{"raise/never lower", raisesOnly, raiseLower},
		{"raise/by one who lost it", raisesOnly, raiseLost},
		{"raise/without an answer", raisesOnly, raiseUnanswered},
		{"raise/every statement twice", raisesOnly, raiseTwice},
		{"raise/does not wait for a row lock", raisesOnly, raiseBesideRowLock},
		{"raise/the guard has its token", both(raisesOnly, guardedOnly), raiseGuarded},
	}
}

func raisesOnly(e *env) string {
	if _, ok := e.Strategy.(strategies.Raiser); !ok {
		return "the strategy is no Raiser"
	}

	return ""
}

// ahead is how much a token is raised: more than a server's clock passes in a case.
const ahead = int64(time.Hour / time.Microsecond)

// raise raises a grant, which must be possible.
func (e *env) raise(grant single.Grant, token int64) single.Grant {
	e.Helper()

	raised, err := grant.Raise(e.ctx(), token)
	if err != nil {
		e.Fatalf("Raise(%d) = %v, want nil", token, err)
	}

	return raised
}

func raiseGrows(e *env) {
	last := int64(0)

	for range 3 {
		grant := e.grant(e.Strategy, e.request())
		e.grow("a raise", last, grant.Token)

		last = grant.Token + ahead

		raised := e.raise(grant, last)
		if raised.Token != last {
			e.Errorf("Token() of a grant that was raised = %d, want %d", raised.Token, last)
		}

		if held := e.refused(e.b); held.Token != last {
			e.Errorf("HeldError.Token = %d, want %d as it was raised to", held.Token, last)
		}

		if err := errors.Join(raised.Check(e.ctx()), raised.Renew(e.ctx(), lease)); err != nil {
			e.Errorf("Check() and Renew() of a grant that was raised = %v, want nil", err)
		}

		e.releaseGrant(raised)
		e.releaseGrant(raised)
	}

	next := e.acquire(e.b)
	e.grow("a raise", last, next.Token())
	e.release(next)
}

func raiseLower(e *env) {
	grant := e.grant(e.Strategy, e.request())
	token := grant.Token

	if raised := e.raise(grant, token-ahead); raised.Token != token {
		e.Errorf("Token() after Raise() of less = %d, want %d as before", raised.Token, token)
	}

	high := e.raise(grant, token+ahead)

	for _, again := range []single.Grant{e.raise(grant, token+1), e.raise(high, token+ahead)} {
		if again.Token != token+ahead {
			e.Errorf("Token() after a larger one = %d, want %d", again.Token, token+ahead)
		}
	}

	e.releaseGrant(high)
	e.grow("a raise", token+ahead, e.acquire(e.b).Token())
}

func raiseLost(e *env) {
	released := e.grant(e.Strategy, e.request())
	e.releaseGrant(released)

	_, err := released.Raise(e.ctx(), released.Token+ahead)
	e.lost("Raise() of a grant that was released", err)

	stale := e.grant(e.Strategy, e.request())
	e.age(2 * lease)

	next := e.grant(e.Other, e.request())

	_, err = stale.Raise(e.ctx(), next.Token+ahead)
	e.lost("Raise() of a stale grant", err, sqllock.ReasonTakenOver)

	if held := e.refused(e.a); held.Token != next.Token {
		e.Errorf("token of the successor = %d, want %d: the stale grant raised it", held.Token, next.Token)
	}

	e.releaseGrant(next)
}

func raiseUnanswered(e *env) {
	grant := e.grant(e.Strategy, e.request())
	token := grant.Token + ahead

	e.script.Fail(e.op("raise"), 1, After, nil)

	if _, err := grant.Raise(e.ctx(), token); err == nil || errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Raise() without an answer = %v, want an error that is no loss", err)
	}

	e.struck("raise", 1)

	// It goes on either way.
	if err := errors.Join(grant.Check(e.ctx()), grant.Renew(e.ctx(), lease)); err != nil {
		e.Errorf("Check() and Renew() after Raise() without an answer = %v, want nil", err)
	}

	raised := e.raise(grant, token)
	if raised.Token != token {
		e.Errorf("Token() after Raise() was repeated = %d, want %d", raised.Token, token)
	}

	e.releaseGrant(raised)

	again := e.grant(e.Strategy, e.request())
	e.grow("a raise", token, again.Token)

	e.script.Fail(e.op("raise"), 1, After, nil)

	_, _ = again.Raise(e.ctx(), again.Token+ahead)

	e.releaseGrant(again)
	e.grow("a raise without an answer", again.Token+ahead, e.acquire(e.b).Token())
}

func raiseTwice(e *env) {
	e.script.Twice("*")

	grant := e.grant(e.Strategy, e.request())
	token := grant.Token + ahead

	raised := e.raise(grant, token)
	if raised.Token != token {
		e.Errorf("Token() of a grant that was raised twice = %d, want %d", raised.Token, token)
	}

	e.releaseGrant(raised)
	e.grow("a raise", token, e.acquire(e.b).Token())
}

func raiseBesideRowLock(e *env) {
	if e.LockRow == nil {
		e.Fatal("Fixture.LockRow is nil")
	}

	grant := e.grant(e.Strategy, e.request())
	token := grant.Token + ahead

	unlock := e.LockRow(e.T, e.name)

	e.within(e.harness.TryWithin, "Raise() beside a row lock", func() {
		// In memory, a pin is in nobody's way who has the name.
		if _, err := grant.Raise(e.ctx(), token); err != nil && !errors.Is(err, strategies.ErrBusy) || errors.Is(err, sqllock.ErrLost) {
			e.Errorf("Raise() beside a row lock = %v, want ErrBusy, and no ErrLost", err)
		}
	})

	unlock()

	raised := e.raise(grant, token)
	e.releaseGrant(raised)
	e.grow("a raise", token, e.acquire(e.b).Token())
}

func raiseGuarded(e *env) {
	for _, level := range e.levels() {
		grant := e.grant(e.Strategy, e.request())
		raised := e.raise(grant, grant.Token+ahead)

		tx := e.begin(level)

		if err := grant.Guard(e.ctx(), tx.Tx); err == nil {
			e.Errorf("Guard() with isolation %q under the token before = nil, want an error", level)
		}

		e.rollback(tx)

		tx = e.begin(level)

		if err := raised.Guard(e.ctx(), tx.Tx); err != nil {
			e.Errorf("Guard() with isolation %q of a grant that was raised = %v, want nil", level, err)
		}

		e.commit(tx)
		e.releaseGrant(raised)
	}
}
