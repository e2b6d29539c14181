package sqllocktest

import (
	"errors"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func sessionCases() []testCase {
	return []testCase{
		{"session/who waits has it when it ends", connectionHeldOnly, sessionWaits},
		{"session/its end ends the lock", connectionHeldOnly, sessionEnds},
		{"session/the renewal hears of its end", connectionHeldOnly, sessionRenewal},
		{"session/a release after its end tells who had it", connectionHeldOnly, sessionFollowed},
		{"session/a release after its end leaves nothing", connectionHeldOnly, sessionReleased},
		{"session/close after its end leaves nothing", connectionHeldOnly, sessionClosed},
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

	lost := e.lost("Check() after the session ended", first.Check(e.ctx()), sqllock.ReasonSessionGone)
	if errors.Is(lost.Err, sqllock.ErrUnreachable) {
		e.Errorf("Check() after the session ended = %v, want that it does not say that the database cannot be reached", lost)
	}

	e.lost("Release() after the session ended", first.Release(e.ctx()), sqllock.ReasonSessionGone)
	e.grow("the end of the session", first.Token(), second.Token())
	e.alive(second)
	e.release(second)
}

func sessionRenewal(e *env) {
	short := e.brief(6 * time.Second)
	first := e.acquire(e.a, sqllock.WithLease(short))
	started := time.Now()

	e.endSession()

	e.ended(first, "of the session's end")

	if took := time.Since(started); took > short*5/6 {
		e.Errorf("the loss was told after %s, want by a renewal and not at the end of a lease of %s", took, short)
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

// Another had the lock while the work under the first went on.
func sessionFollowed(e *env) {
	first := e.acquire(e.a)
	e.endSession()
	e.release(e.acquire(e.b))
	e.lost("Release() after another had it", first.Release(e.ctx()))
}

func sessionReleased(e *env) {
	lock := e.acquire(e.a)
	e.endSession()

	if err := lock.Release(e.ctx()); err != nil && !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Release() after the session ended = %v, want nil or ErrLost", err)
	}

	e.nothingLeft("when Release has returned")
}

func sessionClosed(e *env) {
	locker := e.locker(e.Strategy)
	e.acquire(locker)
	e.endSession()

	if err := locker.Close(e.ctx()); err != nil && !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Close() after the session ended = %v, want nil or ErrLost", err)
	}

	e.nothingLeft("when Close has returned")
}
