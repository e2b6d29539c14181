package sqllocktest

import (
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func sessionCases() []testCase {
	return []testCase{
		{"session/who waits has it when it ends", connectionHeldOnly, sessionWaits},
		{"session/its end ends the lock", connectionHeldOnly, sessionEnds},
		{"session/the renewal hears of its end", connectionHeldOnly, sessionRenewal},
	}
}

func (e *env) endSession() {
	e.Helper()

	if e.EndSession == nil {
		e.Fatal("Fixture.EndSession is nil, and the strategy's locks are held by sessions")
	}

	e.EndSession(e.T, e.name)
}

func sessionEnds(e *env) {
	first := e.acquire(e.a)
	e.endSession()

	var second *sqllock.Lock

	e.within(5*time.Second, "Acquire() after the session ended", func() { second = e.acquire(e.b) })
	e.lost("Check() after the session ended", first.Check(e.ctx()), sqllock.ReasonSessionGone)
	e.lost("Release() after the session ended", first.Release(e.ctx()), sqllock.ReasonSessionGone)
	e.grow("the end of the session", first.Token(), second.Token())
	e.alive(second)
	e.release(second)
}

func sessionRenewal(e *env) {
	const short = 6 * time.Second

	first := e.acquire(e.a, sqllock.WithLease(short))
	started := time.Now()

	e.endSession()

	e.ended(first, "of the session's end")

	if took := time.Since(started); took > short/2 {
		e.Errorf("the loss was told after %s, want by the renewal at a third of %s", took, short)
	}

	e.lost("Err() after the session ended", first.Err(), sqllock.ReasonSessionGone)
	e.release(e.acquire(e.b))
}

// The lease is that of one whose session has ended: it is in nobody's way.
func sessionWaits(e *env) {
	first := e.acquire(e.a, sqllock.WithoutRenewal())
	locks := e.waiting(e.b)
	e.stillWaiting(locks, "another session holds it")
	e.endSession()

	next := e.get(locks)
	e.grow("the end of a session", first.Token(), next.Token())
	e.release(next)
}
