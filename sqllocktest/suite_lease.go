package sqllocktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func leaseCases() []testCase {
	return []testCase{
		{"lease/the database's clock decides", leaseOnly, leaseDatabaseClock},
		{"lease/an unrenewed lock is taken over", leaseOnly, leaseRunsOut},
		{"lease/renewal keeps it", nil, leaseRenewed},
		{"lease/without renewal it ends", nil, leaseWithoutRenewal},
		{"lease/a short lease does not end others", leaseOnly, leaseDead},
		{"lease/the longest does not end others", nil, leaseLongest},
		{"trust/counts from before the attempt", nil, trustFromStart},
		{"trust/a slow answer is no lock", nil, trustSlowAnswer},
		{"trust/never longer than the database's lease", leaseOnly, trustWithinLease},
		{"renewal/waits for a row lock and has a full lease", leaseOnly, renewalBesideRowLock},
		{"extend/longer", nil, extendLonger},
		{"extend/never shorter", leaseOnly, extendShorter},
		{"max hold/ends the lock", nil, maxHold},
		{"min hold/keeps the name taken", minHoldOnly, minHold},
		{"min hold/release without an answer", minHoldOnly, minHoldAnswerLost},
		{"lock delay/after the lease expired", both(leaseOnly, lockDelayOnly), lockDelay},
		{"lock delay/not after a release", lockDelayOnly, lockDelayRelease},
	}
}

func minHoldOnly(e *env) string {
	if !e.features.MinHold {
		return "the strategy has no MinHold"
	}

	return ""
}

func lockDelayOnly(e *env) string {
	if !e.features.LockDelay {
		return "the strategy has no LockDelay"
	}

	return ""
}

// The holder's own clock says that the lease runs; the database's says that it
// expired.
func leaseDatabaseClock(e *env) {
	first := e.acquire(e.a)
	e.refused(e.b)
	e.age(lease - 10*time.Second)
	e.refused(e.b)
	e.age(11 * time.Second)

	second := e.acquire(e.b)

	if first.Remaining() <= 0 {
		e.Errorf("Remaining() by the holder's clock = %s, want more than 0", first.Remaining())
	}

	e.grow("a take-over", first.Token(), second.Token())
	e.lost("Check() after a take-over", first.Check(e.ctx()), sqllock.ReasonTakenOver)
	e.lost("context.Cause after a take-over", context.Cause(first.Context()), sqllock.ReasonTakenOver)
	e.alive(second)
	e.release(second)
}

// Real time, and a holder that never renews: it is told before the next has it.
func leaseRunsOut(e *env) {
	short := e.brief(700 * time.Millisecond)
	started := time.Now()
	first := e.acquire(e.a, sqllock.WithLease(short), sqllock.WithoutRenewal())
	second := e.acquire(e.b)

	if took := time.Since(started); took < short {
		e.Errorf("taken over after %s, want at least the lease of %s", took, short)
	}

	// The clocks say so at once, the context when its timer has had its turn.
	if remaining := first.Remaining(); remaining > 0 {
		e.Errorf("Remaining() of the earlier holder when the next has the lock = %s, want 0", remaining)
	}

	e.ended(first, "of the take-over")
	e.lost("Err() after the lease expired", first.Err(), sqllock.ReasonExpired)
	e.lost("Release() after the lease expired", first.Release(e.ctx()), sqllock.ReasonExpired)
	e.alive(second)
	e.release(second)
}

func leaseRenewed(e *env) {
	// Not so short that a busy server's pause ends it.
	short := e.brief(5 * time.Second)
	lock := e.acquire(e.a, sqllock.WithLease(short))
	e.elapse(2 * short)
	e.refused(e.b)

	if err := lock.Err(); err != nil {
		e.Errorf("Err() after two leases with renewals = %v, want nil", err)
	}

	e.alive(lock)
	e.release(lock)
	e.release(e.acquire(e.b))
}

func leaseWithoutRenewal(e *env) {
	short := e.brief(400 * time.Millisecond)
	started := time.Now()
	lock := e.acquire(e.a, sqllock.WithLease(short), sqllock.WithoutRenewal())
	acquired, renewals := time.Now(), e.script.Count(e.op("renew"))

	e.ended(lock, "after the lease without renewal")

	if took := time.Since(started); took < trusted(short) {
		e.Errorf("the context ended after %s, want about %s", took, short)
	}

	if took := time.Since(acquired); e.late(took, 10*short) {
		e.Errorf("the context ended after %s, want about %s", took, short)
	}

	if n := e.script.Count(e.op("renew")); n != renewals {
		e.Errorf("%d renewals were sent, want none", n-renewals)
	}

	e.lost("Err()", lock.Err(), sqllock.ReasonExpired)
	e.lost("Release()", lock.Release(e.ctx()), sqllock.ReasonExpired)
	e.release(e.acquire(e.b))
}

// The server carries the longest lease that is allowed. A longer one is refused
// before it is asked, so that it breaks no session that other locks have.
func leaseLongest(e *env) {
	longest := e.features.MaxLease
	if longest == 0 {
		longest = 366 * 24 * time.Hour
	}

	tooLong := longest + time.Second
	refused := func(err error) bool {
		return errors.Is(err, sqllock.ErrUnsupported) || errors.Is(err, sqllock.ErrInvalidOption)
	}

	other := e.acquireName(e.a, e.name+"/other")
	lock := e.acquire(e.a, sqllock.WithLease(longest))

	if err := lock.Extend(e.ctx(), longest); err != nil {
		e.Errorf("Extend(%s) = %v, want nil", longest, err)
	}

	before := len(e.script.Statements())

	if _, err := e.a.TryAcquire(e.ctx(), e.name+"/long", sqllock.WithLease(tooLong)); !refused(err) {
		e.Errorf("TryAcquire(WithLease(%s)) = %v, want ErrUnsupported or ErrInvalidOption", tooLong, err)
	}

	if err := lock.Extend(e.ctx(), tooLong); !refused(err) {
		e.Errorf("Extend(%s) = %v, want ErrUnsupported or ErrInvalidOption", tooLong, err)
	}

	if sent := e.script.Statements()[before:]; len(sent) > 0 {
		e.Errorf("statements sent for a lease that is too long: %q, want none", sent)
	}

	e.alive(lock)
	e.alive(other)
	e.release(lock)
	e.release(other)
	e.release(e.acquire(e.b))
}

// A grant of a process that died: nobody releases it.
func leaseDead(e *env) {
	r := e.request()
	r.Lease = e.brief(500 * time.Millisecond)

	started := time.Now()
	e.grant(e.Strategy, r)

	lock := e.acquire(e.b)

	if took := time.Since(started); took < r.Lease {
		e.Errorf("taken over after %s, want at least the lease of %s", took, r.Lease)
	}

	e.release(lock)
}

func trusted(d time.Duration) time.Duration { return d - d/100 - 10*time.Millisecond }

func trustFromStart(e *env) {
	const delay = 300 * time.Millisecond

	reached, resume := e.script.Pause(e.op("acquire"), After)
	locks := e.waiting(e.a)

	defer resume()

	e.reach(reached, "acquire")
	e.elapse(delay)
	resume()

	lock := e.get(locks)

	if left, most := lock.Remaining(), trusted(lease)-delay; left > most {
		e.Errorf("Remaining() after an answer that took %s = %s, want at most %s", delay, left, most)
	}

	started := time.Now()

	if err := lock.Extend(e.ctx(), lease); err != nil {
		e.Fatalf("Extend() = %v", err)
	}

	if left, most := lock.Remaining(), trusted(lease); left > most {
		e.Errorf("Remaining() after Extend(%s) = %s, want at most %s", lease, left, most)
	} else if least := most - time.Since(started); left < least {
		e.Errorf("Remaining() after Extend(%s) = %s, want at least %s", lease, left, least)
	}

	e.release(lock)
}

func trustSlowAnswer(e *env) {
	const short = 400 * time.Millisecond

	_, resume := e.script.Pause(e.op("acquire"), After)
	defer resume()

	lock, err := e.a.Acquire(e.ctx(), e.name, sqllock.WithLease(short), sqllock.WithoutRenewal(), sqllock.WithMaxWait(3*short))
	if err == nil {
		e.Fatalf("Acquire() with an answer later than the lease = token %d, %s left, want an error", lock.Token(), lock.Remaining())
	}

	resume()
	e.release(e.acquire(e.b))
}

// What is trusted here is never more than what is there.
func trustWithinLease(e *env) {
	lock := e.acquire(e.a)
	e.withinLease(lock, "Acquire")

	for _, d := range []time.Duration{3 * lease, lease, 10 * lease} {
		if err := lock.Extend(e.ctx(), d); err != nil {
			e.Fatalf("Extend(%s) = %v", d, err)
		}

		e.withinLease(lock, "Extend("+d.String()+")")
	}

	e.release(lock)
}

// withinLease fails if the holder trusts its lock for longer than the database
// keeps it.
func (e *env) withinLease(lock *sqllock.Lock, after string) {
	e.Helper()

	held, err := e.b.Inspect(e.ctx(), lock.Name())
	if err != nil {
		e.Fatalf("Inspect() after %s = %v", after, err)
	}

	// Later than the database's answer, so it can only be less.
	if left := lock.Remaining(); left > held.Remaining {
		e.Errorf("after %s the holder trusts its lock for %s and the database keeps it for %s", after, left, held.Remaining)
	}
}

func renewalBesideRowLock(e *env) {
	if e.LockRow == nil {
		e.Fatal("Fixture.LockRow is nil")
	}

	lock := e.acquire(e.a)
	e.age(lease / 2)

	unlock := e.LockRow(e.T, e.name)
	renewed := make(chan error, 1)
	started := time.Now()

	go func() { renewed <- lock.Extend(e.ctx(), lease) }()

	e.elapse(300 * time.Millisecond)
	unlock()

	err := <-renewed
	if errors.Is(err, sqllock.ErrLost) {
		e.Fatalf("Extend() beside a row lock = %v, want nil or an error that leaves the lock in doubt", err)
	}

	if err != nil { // It may give up, so that the keeper tries again.
		started = time.Now()

		if err := lock.Extend(e.ctx(), lease); err != nil {
			e.Fatalf("Extend() after the row lock = %v", err)
		}
	}

	held, err := e.b.Inspect(e.ctx(), e.name)
	if err != nil {
		e.Fatalf("Inspect() = %v", err)
	}

	if least := lease - time.Since(started) - 5*time.Millisecond; held.Remaining < least {
		e.Errorf("Inspect().Remaining after Extend(%s) that waited = %s, want at least %s", lease, held.Remaining, least)
	}

	e.alive(lock)
	e.release(lock)
}

func extendLonger(e *env) {
	lock := e.acquire(e.a)

	if err := lock.Extend(e.ctx(), 3*lease); err != nil {
		e.Fatalf("Extend() = %v", err)
	}

	if left := lock.Remaining(); left < 2*lease || left > trusted(3*lease) {
		e.Errorf("Remaining() after Extend(%s) = %s, want about %s", 3*lease, left, trusted(3*lease))
	}

	held, err := e.b.Inspect(e.ctx(), e.name)
	if err != nil || held.Remaining < 2*lease {
		e.Errorf("Inspect() after Extend(%s) = %s left, %v", 3*lease, held.Remaining, err)
	}

	e.release(lock)
}

func extendShorter(e *env) {
	lock := e.acquire(e.a)

	if err := lock.Extend(e.ctx(), time.Second); err != nil {
		e.Fatalf("Extend() = %v", err)
	}

	if left := lock.Remaining(); left < lease/2 {
		e.Errorf("Remaining() after Extend(1s) of a lease of %s = %s, want that it is not shortened", lease, left)
	}

	e.withinLease(lock, "Extend(1s)")
	e.release(lock)
}

func maxHold(e *env) {
	const most = 300 * time.Millisecond

	lock := e.acquire(e.a, sqllock.WithMaxHold(most))

	e.ended(lock, "after the maximum hold")

	e.lost("Err()", lock.Err(), sqllock.ReasonMaxHold)
	e.lost("Release()", lock.Release(e.ctx()), sqllock.ReasonMaxHold)
	// Given back at once, not when the lease ends.
	e.release(e.acquire(e.b))
}

func minHold(e *env) {
	const least = 800 * time.Millisecond

	started := time.Now()
	first := e.acquire(e.a, sqllock.WithMinHold(least))
	e.release(first)

	if time.Since(started) < least/2 {
		held := e.refused(e.b)
		if held.Token != 0 || held.Holder != (sqllock.Holder{}) || !strings.Contains(held.Detail, "minimum hold") {
			e.Errorf("HeldError = token %d, holder %+v, detail %q, want nobody's, and that it is a minimum hold", held.Token, held.Holder, held.Detail)
		}
	}

	second := e.acquire(e.b)

	if took := time.Since(started); took < least {
		e.Errorf("acquired again after %s, want at least %s", took, least)
	}

	e.grow("a release", first.Token(), second.Token())
	e.release(second)
}

// The release is repeated, and neither ends the minimum hold nor is a loss.
func minHoldAnswerLost(e *env) {
	const least = 800 * time.Millisecond

	for _, fault := range []func(){
		func() { e.script.Fail("*", 1, After, nil) },
		func() { e.script.Fail("*", 1, Before, nil) },
		func() { e.script.Twice("*") },
	} {
		started := time.Now()
		first := e.acquire(e.a, sqllock.WithMinHold(least))

		fault()
		e.release(first)
		e.script.Reset()

		second := e.acquire(e.b)

		if took := time.Since(started); took < least {
			e.Errorf("acquired again after %s, want at least %s", took, least)
		}

		e.grow("a release", first.Token(), second.Token())
		e.release(second)
	}
}

func lockDelay(e *env) {
	first := e.acquire(e.a, sqllock.WithLockDelay(lease))
	e.age(lease + 10*time.Second)
	e.refused(e.b)
	e.age(lease)

	second := e.acquire(e.b)
	e.grow("a take-over", first.Token(), second.Token())
	e.release(second)
}

func lockDelayRelease(e *env) {
	e.release(e.acquire(e.a, sqllock.WithLockDelay(lease)))
	e.release(e.acquire(e.b))
}
