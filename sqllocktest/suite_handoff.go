package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func handOffCases() []testCase {
	return []testCase{
		{"hand-off/from one to the next in a process", nil, handOff},
		{"hand-off/tokens that were reserved are never given again", nil, handOffTokens},
		{"hand-off/whoever handed it on guards no more", nil, handOffGuard},
		{"hand-off/a guard waits for no other", databaseOnly, handOffGuardsAtOnce},
		{"hand-off/a guard in a snapshot older than the lock", nil, handOffOldSnapshot},
		{"hand-off/not beside an open guard", nil, handOffPinned},
		{"hand-off/not by a locker whose locks are guarded", nil, handOffGuarding},
		{"hand-off/after a guard that failed", nil, handOffGuardFailed},
		{"hand-off/of a grant that is lost", leaseOnly, handOffLost},
		{"hand-off/other processes get their turn", nil, handOffFair},
		{"hand-off/NoHandOff", nil, handOffOff},
	}
}

// many tokens are more than the clock, which tokens follow, passes in a case.
const (
	reserved = 8
	many     = 60_000_000
)

// reserves skips the case if the strategy reserves no tokens.
func (e *env) reserves() {
	e.Helper()

	r := e.request()
	r.Name += "/probe"
	r.Tokens = reserved
	grant := e.grant(e.Strategy, r)

	for n := 1; ; n++ {
		if grant = grant.Next(); grant.None() && n == 1 {
			e.Skip("the strategy reserves no tokens")
		}

		if grant.None() && n != reserved {
			e.Fatalf("a grant of %d tokens has %d", reserved, n)
		}

		if grant.None() {
			return
		}
	}
}

// reserver acquires a grant with many tokens.
func (e *env) reserver() (single.Grant, strategies.Request) {
	e.Helper()
	e.reserves()

	r := e.request()
	r.Tokens = many

	return e.grant(e.Strategy, r), r
}

// inTurn lets n waiters of one locker have the lock one after the other, and
// returns their locks in order.
func (e *env) inTurn(n int, options ...sqllock.LockOption) []*sqllock.Lock {
	e.Helper()

	var (
		mutex sync.Mutex
		group sync.WaitGroup
		locks []*sqllock.Lock
		first = e.acquire(e.a, options...)
	)

	for range n {
		group.Go(func() {
			lock, err := e.a.Acquire(e.ctx(), e.name, options...)
			if err != nil {
				e.Errorf("Acquire() = %v, want the lock%s", err, e.holder(e.name))

				return
			}

			mutex.Lock()
			locks = append(locks, lock)
			mutex.Unlock()

			e.release(lock)
		})
	}

	e.release(first)
	group.Wait()

	return locks
}

// attempts are all that a batch or a single statement asked for.
func (e *env) attempts() int { return e.script.Count(e.op("attempt")) }

func handOff(e *env) {
	e.reserves()
	e.handedOn("")

	next := e.acquire(e.b)
	e.release(next)
}

// handedOn checks that locks go from one to the next.
func (e *env) handedOn(when string) {
	e.Helper()

	const waiters = 12

	// A grant is handed on for some milliseconds only, which a busy machine may let
	// pass.
	e.poll("somebody gets the lock without the database"+when, func() error {
		before := e.attempts()
		locks := e.inTurn(waiters)

		for i := 1; i < len(locks); i++ {
			e.grow("a hand-off", locks[i-1].Token(), locks[i].Token())
		}

		for _, lock := range locks {
			if !errors.Is(lock.Err(), sqllock.ErrReleased) || lock.Context().Err() == nil {
				e.Errorf("Err() of a lock that was handed on = %v, want ErrReleased and an ended context", lock.Err())
			}
		}

		if asked := e.attempts() - before; asked > waiters {
			return fmt.Errorf("%d attempts for %d locks", asked, len(locks)+1)
		}

		return nil
	})
}

func handOffTokens(e *env) {
	grant, r := e.reserver()
	first := grant.Token

	for i := int64(1); i < reserved; i++ {
		next := grant.Next()
		if next.None() || next.Token != first+i {
			e.Fatalf("token %d of %d = %d, want %d", i+1, many, next.Token, first+i)
		}

		grant = next

		if err := grant.Check(e.ctx()); err != nil {
			e.Errorf("Check() of token %d = %v, want nil", grant.Token, err)
		}

		if err := grant.Renew(e.ctx(), lease); err != nil {
			e.Errorf("Renew() of token %d = %v, want nil", grant.Token, err)
		}
	}

	// The answer to the attempt was lost, and it is repeated.
	if again := e.grant(e.Strategy, r); again.Token != first {
		e.Errorf("the same owner's token = %d, want %d", again.Token, first)
	}

	if e.Age != nil {
		e.age(2 * lease) // its process died
	} else {
		e.releaseGrant(grant)
	}

	successor := e.grant(e.Other, e.request())
	e.grow("a take-over", first+many-1, successor.Token)

	e.releaseGrant(successor)
}

func handOffGuard(e *env) {
	// Of those before it the core knows that they have released the lock.
	before, _ := e.reserver()
	after := before.Next()

	if after.None() {
		e.Fatalf("there is no token after %d, want %d", before.Token, many)
	}

	tx := e.begin("")
	err := after.Guard(e.ctx(), tx.Tx)

	// The first time a snapshot from after it was handed on cannot be told from an
	// older one.
	if err != nil && !errors.Is(err, sqllock.ErrLost) && len(e.harness.Isolations) > 0 {
		e.rollback(tx)
		tx = e.begin("")
		err = after.Guard(e.ctx(), tx.Tx)
	}

	if err != nil {
		e.Errorf("Guard() of the grant under its next token = %v, want nil", err)
	}

	e.commit(tx)
}

// The first guard of a grant that was handed on stands in the database, and does not even
// return when its context ends. The second waits for it no longer than its own.
func handOffGuardsAtOnce(e *env) {
	if e.harness.GuardBlocksRenewal {
		e.Skip("the database has one writer, so that a guard asks nothing outside its transaction")
	}

	before, _ := e.reserver()
	after := before.Next()

	reached, resume := e.script.Hang("date", Before)
	defer resume()

	guard := func(ctx context.Context, ended chan<- error) {
		tx := e.begin("")

		go func() {
			ended <- after.Guard(ctx, tx.Tx)

			_ = tx.Rollback()
		}()
	}

	first := make(chan error, 1)
	guard(e.ctx(), first)
	e.reach(reached, "date")

	ctx, cancel := context.WithCancel(e.ctx())
	second := make(chan error, 1)
	guard(ctx, second)
	cancel()

	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			e.Errorf("Guard() with a cancelled context, beside another = %v, want context.Canceled", err)
		}
	case <-time.After(e.patience):
		e.Errorf("Guard() with a cancelled context, beside another, did not return within %s", e.patience)
	}

	resume()
	<-first
}

// The database has not changed the row of a grant that was handed on. A snapshot from
// before does not see what the holders before wrote, all the same.
func handOffOldSnapshot(e *env) {
	e.reserves()

	for _, level := range e.levels() {
		r := e.request()
		r.Tokens = reserved
		grant := e.grant(e.Strategy, r)
		tx := e.begin(level)

		next := grant.Next().Next()
		if next.None() {
			e.Fatalf("there are no tokens after %d, want %d", grant.Token, reserved)
		}

		e.oldSnapshot(level, next.Guard(e.ctx(), tx.Tx))
		e.rollback(tx)

		// Any number of times, once that was told.
		for range 2 {
			tx = e.begin(level)

			for range 2 {
				if err := next.Guard(e.ctx(), tx.Tx); err != nil {
					e.Errorf("Guard() with isolation %q of a grant that was handed on = %v, want nil", level, err)
				}
			}

			e.commit(tx)
		}

		e.releaseGrant(next)
	}
}

func handOffPinned(e *env) {
	if e.harness.GuardBlocksRenewal {
		e.Skip("the database has one writer, so that an open guard stops releases")
	}

	e.reserves()

	// Two wait, so that the second of three has reserved tokens.
	first := e.acquire(e.b)
	second := e.waiting(e.a)
	e.stillWaiting(second, "another holds it")

	third := e.waiting(e.a)
	e.stillWaiting(third, "another holds it")
	e.release(first)

	lock := <-second
	if lock == nil {
		lock, third = <-third, second
	}

	tx := e.begin("")
	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v, want nil", err)
	}

	e.release(lock)
	e.stillWaiting(third, "the guard of the holder before is open")
	e.commit(tx)

	next := e.get(third)
	e.grow("a guarded release", lock.Token(), next.Token())
	e.release(next)
}

func handOffLost(e *env) {
	grant, _ := e.reserver()
	grant = grant.Next()
	e.age(2 * lease)
	successor := e.acquire(e.b)

	err := grant.Check(e.ctx())
	e.lost("Check() of a grant that was taken over", err, sqllock.ReasonTakenOver)

	if lost := new(strategies.LostError); !errors.As(err, &lost) || lost.SuccessorToken != successor.Token() {
		e.Errorf("LostError.SuccessorToken = %d, want %d", lost.SuccessorToken, successor.Token())
	}

	e.alive(successor)
	e.release(successor)
}

func handOffFair(e *env) {
	ctx := e.ctx()
	done := make(chan struct{})

	var group sync.WaitGroup

	defer func() {
		close(done)
		group.Wait()
	}()

	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}

				lock, err := e.a.Acquire(ctx, e.name)
				if err != nil {
					e.Errorf("Acquire() = %v, want the lock", err)

					return
				}

				e.release(lock)
			}
		})
	}

	for range 3 {
		e.release(e.acquire(e.b))
	}
}

// Whoever guards gets its grants from the database, which then tells an old snapshot.
func handOffGuarding(e *env) {
	e.reserves()

	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v, want nil", err)
	}

	e.commit(tx)
	e.release(lock)
	e.notHandedOn("after a guard")
}

// Only a guard that passed needs grants of the database from then on.
func handOffGuardFailed(e *env) {
	e.reserves()

	lock := e.acquire(e.a)
	tx := e.begin("")
	e.commit(tx)

	if err := lock.Guard(e.ctx(), tx.Tx); err == nil {
		e.Fatal("Guard() in a transaction that was committed = nil, want an error")
	}

	e.release(lock)
	e.handedOn(", after a guard that failed")
}

func handOffOff(e *env) {
	e.reserves()
	e.notHandedOn("without hand-off", sqllock.WithTuning(sqllock.Tuning{NoHandOff: true}))
}

// notHandedOn checks that each of several locks is a grant of the database.
func (e *env) notHandedOn(when string, options ...sqllock.LockOption) {
	e.Helper()

	before := e.attempts()
	locks := e.inTurn(4, options...)

	if asked := e.attempts() - before; asked <= len(locks) {
		e.Errorf("%d attempts for %d locks %s", asked, len(locks)+1, when)
	}
}
