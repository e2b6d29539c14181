package sqllocktest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func detachCases() []testCase {
	return []testCase{
		{"detach/goes on in another process", passesOnly, detachAdopted},
		{"detach/is adopted once", passesOnly, detachAdoptedOnce},
		{"detach/is adopted by an attempt that is repeated", passesOnly, detachUnanswered},
		{"detach/is told why it does not stand any more", passesOnly, detachEnded},
		{"detach/is extended, checked and released by its claim", passesOnly, detachClaimed},
		{"detach/lets nobody pass a guard", both(passesOnly, both(guardedOnly, oneWriter)), detachGuarded},
		{"detach/is no loss to a renewal under way", passesOnly, detachRenewed},
		{"detach/that is not confirmed is released", passesOnly, detachFailed},
		{"detach/of several names", both(passesOnly, severalOnly), detachSeveral},
		{"detach/of a permit", both(passesOnly, slotsOnly), detachPermit},
		{"detach/of a lock that was handed on", passesOnly, detachHandedOn},
		{"detach/is refused", nil, detachRefused},
	}
}

func passesOnly(e *env) string {
	if !e.features.Passes {
		return "the strategy has no grants that go over to another owner"
	}

	return ""
}

// detach detaches a lock, whose handle has ended then and does no harm.
func (e *env) detach(lock *sqllock.Lock) sqllock.Claim {
	e.Helper()

	claim, err := lock.Detach(e.ctx(), lease)
	if err != nil {
		e.Fatalf("Detach() = %v", err)
	}

	if err := lock.Err(); !errors.Is(err, sqllock.ErrReleased) {
		e.Errorf("Err() after Detach() = %v, want ErrReleased", err)
	}

	if err := lock.Release(e.ctx()); err != nil {
		e.Errorf("Release() after Detach() = %v, want nil", err)
	}

	parsed, err := sqllock.ParseClaim(claim.Secret())
	if err != nil || parsed.Name() != lock.Name() || parsed.Token() != lock.Token() {
		e.Fatalf("ParseClaim() = %v, %v, want that of %q with token %d", parsed, err, lock.Name(), lock.Token())
	}

	return parsed
}

// adopt adopts a lock with the token that it has.
func (e *env) adopt(l *sqllock.Locker, claim sqllock.Claim, options ...sqllock.LockOption) *sqllock.Lock {
	e.Helper()

	lock, err := l.Adopt(e.ctx(), claim, options...)
	if err != nil {
		e.Fatalf("Adopt(%s) = %v", claim, err)
	}

	if lock.Name() != claim.Name() || lock.Token() != claim.Token() {
		e.Errorf("Adopt(%s) = lock %q with token %d", claim, lock.Name(), lock.Token())
	}

	return lock
}

// stands fails unless a claim is good, or is not for one of the reasons.
func (e *env) stands(when string, claim sqllock.Claim, reasons ...sqllock.Reason) {
	e.Helper()

	err := e.b.CheckClaim(e.ctx(), claim)
	if len(reasons) > 0 {
		e.lost("CheckClaim() "+when, err, reasons...)
	} else if err != nil {
		e.Errorf("CheckClaim() %s = %v, want nil", when, err)
	}
}

func detachAdopted(e *env) {
	before := e.acquire(e.a)
	claim := e.detach(before)

	e.stands("of a lock that was detached", claim)

	if held := e.refused(e.a); !strings.Contains(held.Error(), "detached") {
		e.Errorf("the refusal = %q, want that it says that it is detached", held)
	}

	e.refused(e.b)

	if status := e.status(); !status.Detached || status.Holder.PID != 0 || !status.Held() {
		e.Errorf("Inspect() of a detached lock = %+v, want Detached, and no PID", status)
	}

	if err := e.a.Close(e.ctx()); err != nil {
		e.Errorf("Close() = %v", err)
	}

	lock := e.adopt(e.b, claim, sqllock.WithLabel("worker"))
	e.alive(lock)

	if err := lock.Extend(e.ctx(), 2*lease); err != nil {
		e.Errorf("Extend() of an adopted lock = %v", err)
	}

	if status := e.status(); status.Detached || status.Holder.Label != "worker" {
		e.Errorf("Inspect() of an adopted lock = %+v, want its holder", status)
	}

	if e.guards() {
		tx := e.begin("")
		if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
			e.Errorf("Guard() of an adopted lock = %v", err)
		}

		e.commit(tx)
	}

	e.stands("of a lock that was adopted", claim, sqllock.ReasonAdopted)

	c := e.locker(e.Strategy)
	_, err := c.Adopt(e.ctx(), claim)

	if loss := e.lost("a second Adopt()", err, sqllock.ReasonAdopted); loss != nil && loss.Successor.Label != "worker" {
		e.Errorf("a second Adopt() tells of %+v, want who has adopted it", loss)
	}

	e.alive(lock)

	// On, to a third.
	claim = e.detach(lock)
	lock = e.adopt(c, claim)
	e.release(lock)
	e.stands("after a release", claim, sqllock.ReasonUnknown)

	next := e.acquire(c)
	e.grow("an adoption", claim.Token(), next.Token())
	e.release(next)
}

func detachAdoptedOnce(e *env) {
	claim := e.detach(e.acquire(e.a))

	var (
		group   sync.WaitGroup
		mu      sync.Mutex
		adopted []*sqllock.Lock
	)

	for i := range 8 {
		group.Go(func() {
			lock, err := []*sqllock.Locker{e.a, e.b}[i%2].Adopt(e.ctx(), claim)

			mu.Lock()
			defer mu.Unlock()

			if err == nil {
				adopted = append(adopted, lock)
			} else {
				e.lost("Adopt() beside others", err, sqllock.ReasonAdopted)
			}
		})
	}

	group.Wait()

	if len(adopted) != 1 {
		e.Fatalf("%d have adopted it, want one", len(adopted))
	}

	e.alive(adopted[0])
	e.release(adopted[0])
}

func detachUnanswered(e *env) {
	for _, when := range []When{Before, After} {
		lock := e.acquire(e.a)

		e.script.Fail("pass", 1, when, nil)

		claim := e.detach(lock)

		e.script.Fail("pass", 1, when, nil)

		adopted := e.adopt(e.a, claim)
		e.alive(adopted)
		e.release(adopted)
	}

	e.script.Twice("pass")

	lock := e.acquire(e.a)
	adopted := e.adopt(e.a, e.detach(lock))
	e.alive(adopted)
	e.release(adopted)
	e.grow("what was done twice", lock.Token(), e.acquire(e.b).Token())
}

func detachEnded(e *env) {
	claim := e.detach(e.acquire(e.a))
	e.age(2 * lease)
	e.stands("of one whose lease has ended", claim, sqllock.ReasonExpired)

	_, err := e.b.Adopt(e.ctx(), claim)
	e.lost("Adopt() of one whose lease has ended", err, sqllock.ReasonExpired)
	e.lost("ExtendClaim() of one whose lease has ended", e.b.ExtendClaim(e.ctx(), claim, lease), sqllock.ReasonExpired)

	next := e.acquire(e.b, sqllock.WithLabel("next"))
	_, err = e.a.Adopt(e.ctx(), claim)

	if loss := e.lost("Adopt() of one that was granted again", err, sqllock.ReasonTakenOver); loss != nil && loss.Successor.Label != "next" {
		e.Errorf("Adopt() tells of %+v, want who has it", loss)
	}

	e.lost("ReleaseClaim() of one that was granted again", e.a.ReleaseClaim(e.ctx(), claim), sqllock.ReasonTakenOver)
	e.alive(next)

	claim = e.detach(next)
	if err := ForceRelease(e.ctx(), e.b, e.name, "no more"); err != nil {
		e.Fatalf("ForceRelease() = %v", err)
	}

	e.stands("of one that was taken away", claim, sqllock.ReasonForced)

	_, err = e.b.Adopt(e.ctx(), claim)
	if loss := e.lost("Adopt() of one that was taken away", err, sqllock.ReasonForced); loss != nil && loss.Detail != "no more" {
		e.Errorf("Adopt() = %v, want the reason", loss)
	}
}

func detachClaimed(e *env) {
	lock := e.acquire(e.a)
	claim := e.detach(lock)

	if err := e.b.ExtendClaim(e.ctx(), claim, 10*lease); err != nil {
		e.Errorf("ExtendClaim() = %v", err)
	}

	if left := e.status().Remaining; left <= 9*lease {
		e.Errorf("the lease runs for %s after ExtendClaim(), want %s", left, 10*lease)
	}

	// It is not shortened by that.
	if err := e.b.ExtendClaim(e.ctx(), claim, lease); err != nil {
		e.Errorf("ExtendClaim() = %v", err)
	}

	if status := e.status(); status.Remaining <= 9*lease || !status.Detached {
		e.Errorf("Inspect() after a shorter ExtendClaim() = %+v, want it detached, and %s", status, 10*lease)
	}

	// The lease of an adopter begins anew.
	adopted := e.adopt(e.b, claim)
	if left := e.status().Remaining; left > lease+resolution {
		e.Errorf("the lease runs for %s after Adopt(), want %s", left, lease)
	}

	claim = e.detach(adopted)

	for range 2 {
		if err := e.a.ReleaseClaim(e.ctx(), claim); err != nil {
			e.Errorf("ReleaseClaim() = %v", err)
		}
	}

	claim = e.detach(e.acquire(e.a))
	next := e.waiting(e.b)

	e.stillWaiting(next, "while it is detached")

	if err := e.a.ReleaseClaim(e.ctx(), claim); err != nil {
		e.Errorf("ReleaseClaim() = %v", err)
	}

	e.release(e.get(next))
	e.stands("after the release and a grant", claim, sqllock.ReasonTakenOver, sqllock.ReasonUnknown)
}

func detachGuarded(e *env) {
	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v", err)
	}

	detached := make(chan sqllock.Claim, 1)

	go func() {
		defer close(detached)

		if claim, err := lock.Detach(e.ctx(), lease); err != nil {
			e.Errorf("Detach() beside a guard that ends = %v", err)
		} else {
			detached <- claim
		}
	}()

	select {
	case claim := <-detached:
		e.Errorf("Detach() beside a guard = %v, want that it waits", claim)
	case <-time.After(20 * time.Millisecond):
	}

	e.commit(tx)
	e.release(e.adopt(e.b, <-detached))

	// A transaction that has begun before may not see what the holder before has written.
	for _, level := range e.levels() {
		claim := e.detach(e.acquire(e.a))
		tx := e.begin(level)
		adopted := e.adopt(e.b, claim)

		e.oldSnapshot(level, adopted.Guard(e.ctx(), tx.Tx))
		e.rollback(tx)
		e.release(adopted)
	}
}

func detachRenewed(e *env) {
	const rounds = 10

	var (
		mu   sync.Mutex
		lost []error
		held int
	)

	observed, err := sqllock.New(e.Strategy, sqllock.WithLease(300*time.Millisecond), sqllock.WithObserver(func(_ context.Context, event sqllock.Event) {
		mu.Lock()
		defer mu.Unlock()

		if event.Kind == sqllock.Acquired {
			held++
		}

		if event.Kind == sqllock.Released || event.Kind == sqllock.Detached {
			held--
		}

		if event.Kind == sqllock.Lost {
			lost = append(lost, event.Err)
		}
	}))
	if err != nil {
		e.Fatal(err)
	}

	e.lockers = append(e.lockers, observed)

	for round := range rounds {
		lock := e.acquire(observed, sqllock.WithLease(lease))

		if err := lock.Extend(e.ctx(), lease); err != nil {
			e.Fatalf("Extend() = %v", err)
		}

		// About when a renewal is sent.
		reached, resume := e.script.Pause("renew", Before)
		renewal := make(chan error, 1)

		go func() { renewal <- lock.Extend(e.ctx(), lease) }()

		e.reach(reached, "renew")

		claim := e.detach(lock)

		resume()

		if err := <-renewal; err == nil || errors.Is(err, sqllock.ErrLost) {
			e.Errorf("round %d: the renewal under way = %v, want ErrReleased", round, err)
		}

		e.release(e.adopt(e.b, claim))

		// Beside a release, one of both does it.
		lock = e.acquire(observed)
		released := make(chan error, 1)

		go func() { released <- lock.Release(e.ctx()) }()

		if claim, err := lock.Detach(e.ctx(), lease); err == nil {
			e.release(e.adopt(e.b, claim))
		} else if !errors.Is(err, sqllock.ErrReleased) {
			e.Errorf("Detach() beside a release = %v, want ErrReleased", err)
		}

		if err := <-released; err != nil {
			e.Errorf("Release() beside Detach() = %v, want nil", err)
		}
	}

	mu.Lock()
	defer mu.Unlock()

	for _, err := range lost {
		e.Errorf("a loss was told: %v", err)
	}

	if held != 0 {
		e.Errorf("by the events %d are held after all were detached, or released, want 0", held)
	}
}

func detachFailed(e *env) {
	lock := e.acquire(e.a)

	e.script.Fail("pass", 3, After, nil)

	if claim, err := lock.Detach(e.ctx(), 10*lease); err == nil || errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Detach() without an answer = %v, %v, want an error, and no loss", claim, err)
	}

	e.ended(lock, "it is not known whether it was detached")

	// It is nobody's, and is ended.
	e.release(e.get(e.waiting(e.b)))

	// So it is if the last tries were not even sent.
	lock = e.acquire(e.a)

	e.script.Fail("pass", 1, After, nil)
	e.script.Fail("pass", 2, Before, sqllock.ErrTooManyConnections)

	if claim, err := lock.Detach(e.ctx(), 10*lease); err == nil {
		e.release(e.adopt(e.b, claim)) // a further try was answered
	}

	e.release(e.get(e.waiting(e.b)))
}

func detachSeveral(e *env) {
	names := e.several(3)
	locks := e.acquireSeveral(e.a, names)
	tokens := make(map[string]int64)

	for _, name := range names {
		tokens[name] = locks.TokenOf(name)
	}

	adopted := e.adopt(e.b, e.detach(locks))

	for _, name := range names {
		if token := adopted.TokenOf(name); token != tokens[name] {
			e.Errorf("TokenOf(%q) = %d, want %d", name, token, tokens[name])
		}

		e.refusedName(e.a, name)
	}

	claim := e.detach(adopted)

	for _, name := range names {
		_, err := e.locker(unpassed{e.Strategy, name}).Adopt(e.ctx(), claim)
		if err == nil || errors.Is(err, sqllock.ErrLost) {
			e.Errorf("Adopt() of which %q got no answer = %v, want an error, and no loss", name, err)
		}

		e.stands("that was given back", claim)
	}

	// If one of them does not stand, none is adopted, and the others are free.
	for _, name := range names {
		if err := ForceRelease(e.ctx(), e.b, name, "no more"); err != nil {
			e.Fatalf("ForceRelease() = %v", err)
		}

		_, err := e.b.Adopt(e.ctx(), claim)
		e.lost("Adopt() of several, one of which was taken away", err, sqllock.ReasonForced)

		claim = e.detach(e.acquireSeveral(e.a, names))

		if err := ForceRelease(e.ctx(), e.b, name, "no more"); err != nil {
			e.Fatalf("ForceRelease() = %v", err)
		}

		e.lost("ReleaseClaim() of several, one of which was taken away", e.b.ReleaseClaim(e.ctx(), claim), sqllock.ReasonForced)

		claim = e.detach(e.acquireSeveral(e.a, names))
	}

	if err := e.b.ReleaseClaim(e.ctx(), claim); err != nil {
		e.Errorf("ReleaseClaim() = %v", err)
	}
}

// unpassed is a strategy with a name of which no grant goes over.
type unpassed struct {
	strategies.Strategy

	name string
}

func (u unpassed) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if r := requests[0]; r.From != nil && r.From.Owner != r.Owner && r.Name == u.name {
		if strings.HasPrefix(r.Owner, strategies.DetachedPrefix) {
			return u.Strategy.Acquire(ctx, requests) // it is given back
		}

		return make([]strategies.Grant, 1), []error{sqllock.ErrUnreachable}
	}

	return u.Strategy.Acquire(ctx, requests)
}

func detachPermit(e *env) {
	all := e.permits(2)
	claim := e.detach(all[1])
	e.noneLeft(2)

	adopted := e.adopt(e.b, claim)
	if adopted.Slot() != 1 {
		e.Errorf("Slot() of an adopted permit = %d, want 1", adopted.Slot())
	}

	e.noneLeft(2)
	e.release(adopted)
	e.release(e.acquire(e.a, sqllock.WithPermits(2)))
	e.release(all[0])
}

func detachHandedOn(e *env) {
	e.reserves()

	r := e.request()
	r.Tokens = reserved

	granted, err := strategies.AcquireOne(e.ctx(), e.Strategy, r)
	if err != nil {
		e.Fatalf("Acquire() = %v", err)
	}

	next := e.request()
	next.From = &strategies.Source{Owner: r.Owner, Token: granted.Token + 2, Last: granted.Last}

	passed, err := strategies.AcquireOne(e.ctx(), e.Other, next)
	if err != nil || passed.Token != granted.Token+2 || passed.Last != granted.Last {
		e.Fatalf("Acquire() from the third holder of a grant = tokens %d to %d, %v, want %d to %d",
			passed.Token, passed.Last, err, granted.Token+2, granted.Last)
	}

	e.lost("Renew() of the grant before", strategies.RenewOne(e.ctx(), e.Strategy, granted, lease), sqllock.ReasonTakenOver)

	if _, err := strategies.ReleaseOne(e.ctx(), e.Other, passed); err != nil {
		e.Errorf("Release() = %v", err)
	}

	after := e.acquire(e.a)
	e.grow("a grant that went over", granted.Last, after.Token())
	e.release(after)
}

func detachRefused(e *env) {
	lock := e.acquire(e.a)

	switch claim, err := lock.Detach(e.ctx(), time.Millisecond); {
	case !e.features.Passes && !errors.Is(err, sqllock.ErrUnsupported):
		e.Errorf("Detach() = %v, %v, want ErrUnsupported", claim, err)
	case e.features.Passes && !errors.Is(err, sqllock.ErrInvalidOption):
		e.Errorf("Detach() for a millisecond = %v, %v, want ErrInvalidOption", claim, err)
	}

	e.alive(lock)
	e.release(lock)

	if _, err := lock.Detach(e.ctx(), lease); !errors.Is(err, sqllock.ErrReleased) {
		e.Errorf("Detach() after the release = %v, want ErrReleased", err)
	}

	if !e.features.Passes {
		return
	}

	if _, err := e.a.Adopt(e.ctx(), sqllock.Claim{}); !errors.Is(err, sqllock.ErrInvalidClaim) {
		e.Errorf("Adopt() of no claim = %v, want ErrInvalidClaim", err)
	}

	if e.features.Shared {
		reader := e.read(e.a)
		if _, err := reader.Detach(e.ctx(), lease); !errors.Is(err, sqllock.ErrUnsupported) {
			e.Errorf("Detach() of a reader = %v, want ErrUnsupported", err)
		}

		e.alive(reader)
		e.release(reader)
	}

	again := e.acquire(e.a, sqllock.WithReentrant())

	inner, err := e.a.Acquire(again.Context(), e.name, sqllock.WithReentrant())
	if err != nil {
		e.Fatalf("Acquire() under the lock = %v", err)
	}

	if _, err := again.Detach(e.ctx(), lease); !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("Detach() beside another handle = %v, want ErrUnsupported", err)
	}

	e.alive(again)
	e.release(inner)
	e.release(again)
}
