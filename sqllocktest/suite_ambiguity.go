package sqllocktest

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func ambiguityCases() []testCase {
	return []testCase{
		{"ambiguity/acquire without an answer is asked for again", nil, acquireAnswerLost},
		{"ambiguity/acquire that failed is asked for again", nil, acquireFailed},
		{"ambiguity/acquire without an answer is given back", nil, acquireGivenBack},
		{"ambiguity/acquire that was cancelled under way is given back", nil, acquireInterrupted},
		{"ambiguity/acquire that ended late is given back", nil, acquireLate},
		{"ambiguity/acquire that arrives after it was given back", leaseOnly, acquireOvertaken},
		{"ambiguity/acquire that arrives again", leaseOnly, acquireArrivesAgain},
		{"ambiguity/acquire with a cancelled context", nil, acquireCancelled},
		{"ambiguity/release without an answer", nil, releaseAnswerLost},
		{"ambiguity/release that failed", nil, releaseFailed},
		{"ambiguity/release goes on in the background", nil, releaseInBackground},
		{"ambiguity/renewal without an answer", leaseOnly, renewalAnswerLost},
		{"ambiguity/renewal that failed", leaseOnly, renewalFailed},
		{"ambiguity/renewal error ends the session", connectionHeldOnly, renewalEndsSession},
		{"ambiguity/unanswered renewals move nothing", nil, renewalsUnanswered},
		{"once/every statement twice", leaseOnly, statementsTwice},
	}
}

func acquireAnswerLost(e *env) {
	before := e.acquire(e.b)
	e.release(before)

	e.script.Fail(e.op("acquire"), 1, After, nil)

	lock := e.acquire(e.a)
	e.struck("acquire", 2)
	e.grow("a release", before.Token(), lock.Token())
	e.alive(lock)
	e.refused(e.b)
	e.release(lock)
	e.release(e.acquire(e.b))
}

// overtaken is a strategy whose attempts are still on their way to the database
// when their context ends.
type overtaken struct {
	strategies.Strategy

	sent    chan strategies.Request
	settled chan struct{}
}

func (o overtaken) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, o.acquire, o.Strategy.Acquire)
}

func (o overtaken) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	o.sent <- r

	<-ctx.Done()

	return strategies.Grant{}, ctx.Err()
}

func (o overtaken) Settle(ctx context.Context, r strategies.Request) error {
	err := o.Strategy.Settle(ctx, r)

	select {
	case o.settled <- struct{}{}:
	default:
	}

	return err
}

func acquireOvertaken(e *env) {
	o := overtaken{e.Strategy, make(chan strategies.Request, 1), make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(e.ctx())
	locker := e.locker(o)
	ended := make(chan error, 1)

	go func() {
		_, err := locker.Acquire(ctx, e.name)
		ended <- err
	}()

	request := <-o.sent

	cancel()

	if err := <-ended; !errors.Is(err, context.Canceled) {
		e.Errorf("Acquire() that was cancelled = %v, want context.Canceled", err)
	}

	// Twice, since the second comes soon after the first and could meet the attempt half
	// way. There is time before the third.
	<-o.settled
	<-o.settled

	// Now it arrives, again if a server of several is late. Nobody knows of its grant, and nobody renews it.
	e.poll("the attempt is granted", func() error {
		_, err := single.TryAcquire(e.ctx(), e.Strategy, request)

		return err
	})

	e.release(e.acquire(e.b))
}

// struck fails unless the operation was asked for so often: otherwise the
// fault did not strike and the case proves nothing.
func (e *env) struck(operation string, least int) {
	e.Helper()

	if n := e.script.Count(e.op(operation)); n < least {
		e.Fatalf("%d statements %q were sent, want at least %d; see Harness.Statements; log: %v",
			n, e.op(operation), least, e.script.Statements())
	}
}

// reach waits until a pause was reached.
func (e *env) reach(reached <-chan struct{}, operation string) {
	e.Helper()

	timer := time.NewTimer(e.patience)
	defer timer.Stop()

	select {
	case <-reached:
	case <-timer.C:
		e.Fatalf("no statement %q within %s; see Harness.Statements; log: %v", e.op(operation), e.patience, e.script.Statements())
	}
}

func acquireFailed(e *env) {
	e.script.Fail(e.op("acquire"), 2, Before, nil)

	lock := e.acquire(e.a)
	e.struck("acquire", 3)
	e.alive(lock)
	e.release(lock)
}

// Nobody learns of the grant. It must not stand for its whole lease, which is
// longer than the e.patience of this test.
func acquireGivenBack(e *env) {
	e.script.Fail(e.op("acquire"), 1000, After, nil)

	lock, err := e.a.Acquire(e.ctx(), e.name, sqllock.WithMaxWait(5*time.Second))
	if err == nil {
		e.Fatalf("Acquire() = token %d though no answer came", lock.Token())
	}

	if errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Acquire() = %v, want no ErrLost", err)
	}

	if !errors.Is(err, ErrBroken) {
		e.Errorf("Acquire() = %v, want that errors.Is reaches the driver's error", err)
	}

	e.struck("acquire", 1)
	e.release(e.acquire(e.b))
}

// The statement took effect, and the context ended before the answer came.
func acquireInterrupted(e *env) {
	// Once before, so that the deadline is not over while it connects.
	e.release(e.acquire(e.a))

	_, resume := e.script.Pause(e.op("acquire"), After)
	defer resume()

	ctx, cancel := context.WithTimeout(e.ctx(), time.Second)
	defer cancel()

	if lock, err := e.a.Acquire(ctx, e.name); err == nil {
		e.Fatalf("Acquire() = token %d though no answer came", lock.Token())
	} else {
		e.unanswered("Acquire()", err)
	}

	e.struck("acquire", 1)
	resume()
	e.release(e.acquire(e.b))
}

// unanswered fails unless err says that no answer came before the deadline, and
// not that somebody has the lock.
func (e *env) unanswered(what string, err error) {
	e.Helper()

	if errors.Is(err, sqllock.ErrNotAcquired) || !errors.Is(err, sqllock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("%s = %v, want ErrUnreachable and context.DeadlineExceeded, and not ErrNotAcquired", what, err)
	}
}

// The driver does not even return when the context ends.
func acquireLate(e *env) {
	// Once before, so that the deadline is not over while it connects.
	e.release(e.acquire(e.a))

	reached, resume := e.script.Hang(e.op("acquire"), After)
	defer resume()

	ctx, cancel := context.WithTimeout(e.ctx(), time.Second)
	defer cancel()

	started := time.Now()
	lock, err := e.a.TryAcquire(ctx, e.name)

	if err == nil {
		e.Fatalf("TryAcquire() = token %d though no answer came", lock.Token())
	}

	e.unanswered("TryAcquire()", err)

	if took := time.Since(started); e.late(took, time.Second+e.harness.TryWithin) {
		e.Errorf("TryAcquire() returned %s after it began, with a deadline of 1s", took)
	}

	e.reach(reached, "acquire")
	resume()
	e.release(e.acquire(e.b))
}

// An attempt that was held up on its way is executed after the same owner's
// next one was granted. The grant that is being used must not suffer.
func acquireArrivesAgain(e *env) {
	r := e.request()
	grant := e.grant(e.Strategy, r)
	again := e.grant(e.Strategy, r)

	if again.Token != grant.Token {
		e.Errorf("Token() of an attempt repeated by its owner = %d, want %d as before", again.Token, grant.Token)
	}

	if e.guards() {
		tx := e.begin("")

		if err := grant.Guard(e.ctx(), tx.Tx); err != nil {
			e.Errorf("Guard() after the attempt was executed again = %v, want nil", err)
		}

		e.commit(tx)
	}

	e.releaseGrant(grant)

	e.release(e.acquire(e.b))
}

func acquireCancelled(e *env) {
	ctx, cancel := context.WithCancel(e.ctx())
	cancel()

	for what, acquire := range map[string]func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lock, error){
		"Acquire": e.a.Acquire, "TryAcquire": e.a.TryAcquire,
	} {
		lock, err := acquire(ctx, e.name)
		if err == nil {
			e.release(lock)
			e.Errorf("%s() with a cancelled context = token %d, want an error", what, lock.Token())

			continue
		}

		if errors.Is(err, sqllock.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			e.Errorf("%s() with a cancelled context = %v, want context.Canceled, and not ErrNotAcquired", what, err)
		}
	}

	e.release(e.acquire(e.b))
}

func releaseAnswerLost(e *env) {
	lock := e.acquire(e.a)
	e.script.Fail(e.op("release"), 1, After, nil)
	e.release(lock)
	e.struck("release", 1)
	e.release(lock)

	second := e.acquire(e.b)
	e.grow("a release", lock.Token(), second.Token())
	e.release(second)
}

func releaseFailed(e *env) {
	lock := e.acquire(e.a)
	e.script.Fail(e.op("release"), 1, Before, nil)
	e.release(lock)
	e.struck("release", 1)
	e.release(e.acquire(e.b))
}

func releaseInBackground(e *env) {
	lock := e.acquire(e.a)

	e.script.Fail("*", 1_000_000, Before, nil)

	started := time.Now()
	err := lock.Release(e.ctx())

	if took := time.Since(started); e.late(took, 10*time.Second) {
		e.Errorf("Release() without a database took %s, want some seconds at most", took)
	}

	switch {
	case errors.Is(err, sqllock.ErrLost):
		e.Errorf("Release() without a database = %v, want no ErrLost", err)
	case err == nil:
		e.Errorf("Release() without a database = nil, want an error")
	}

	e.script.Reset()
	e.release(e.acquire(e.b))
}

func renewalAnswerLost(e *env) {
	lock := e.acquire(e.a)
	left := lock.Remaining()
	e.script.Fail(e.op("renew"), 1, After, nil)

	err := lock.Extend(e.ctx(), 5*lease)
	if err == nil || errors.Is(err, sqllock.ErrLost) || !errors.Is(err, ErrBroken) {
		e.Errorf("Extend() without an answer = %v, want the driver's error", err)
	}

	e.struck("renew", 1)
	e.script.Reset() // one of several servers may have been given up before its fault

	if now := lock.Remaining(); now > left {
		e.Errorf("Remaining() after a renewal without an answer = %s, want at most %s", now, left)
	}

	e.alive(lock)

	if err := lock.Extend(e.ctx(), lease); err != nil {
		e.Errorf("Extend() after one without an answer = %v, want nil", err)
	}

	e.release(lock)
	e.release(e.acquire(e.b))
}

func renewalFailed(e *env) {
	lock := e.acquire(e.a)
	e.script.Fail(e.op("renew"), 2, Before, nil)

	for range 2 {
		if err := lock.Extend(e.ctx(), lease); err == nil || errors.Is(err, sqllock.ErrLost) {
			e.Errorf("Extend() that failed = %v, want the driver's error", err)
		}
	}

	if err := lock.Err(); err != nil {
		e.Errorf("Err() after renewals that failed = %v, want nil", err)
	}

	if err := lock.Extend(e.ctx(), lease); err != nil {
		e.Errorf("Extend() after two that failed = %v, want nil", err)
	}

	e.release(lock)
}

// The lock's own connection is in doubt: whoever holds on to it may believe in
// a lock that the server has ended.
func renewalEndsSession(e *env) {
	lock := e.acquire(e.a)
	e.script.Fail(e.op("renew"), 1, Before, nil)

	err := lock.Extend(e.ctx(), lease)
	if err == nil {
		e.Fatal("Extend() over a broken connection = nil, want an error")
	}

	e.struck("renew", 1)

	if !errors.Is(err, sqllock.ErrLost) {
		err = lock.Check(e.ctx())
	}

	e.lost("Extend(), then Check(), over a broken connection", err)
	e.release(e.acquire(e.b))
}

// Renewals take effect and nobody hears of it: the lock ends here all the same.
func renewalsUnanswered(e *env) {
	short := e.brief(900 * time.Millisecond)
	lock := e.acquire(e.a, sqllock.WithLease(short))
	started := time.Now()

	e.script.Fail(e.op("renew"), 1_000_000, After, nil)

	e.ended(lock, "though no renewal was answered")

	if took := time.Since(started); e.late(took, 2*short) {
		e.Errorf("the context ended after %s, want within the lease of %s", took, short)
	}

	e.struck("renew", 1)
	e.lost("Err()", lock.Err())
	e.lost("Release()", lock.Release(e.ctx()))
	e.release(e.acquire(e.b))
}

func statementsTwice(e *env) {
	last := int64(0)

	e.script.Twice("*")

	for range 2 {
		lock := e.acquire(e.a)
		e.grow("a release", last, lock.Token())
		e.alive(lock)
		e.refused(e.b)

		if err := lock.Extend(e.ctx(), lease); err != nil {
			e.Errorf("Extend() executed twice = %v, want nil", err)
		}

		e.alive(lock)
		e.release(lock)
		e.release(lock)

		next := e.acquire(e.b)
		e.grow("a release", lock.Token(), next.Token())
		e.refused(e.a)
		e.alive(next)
		e.release(next)
		last = next.Token()
	}
}
