package sqllocktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// notificationCases are about releases that are heard of.
func notificationCases() []testCase {
	return []testCase{
		{"waiting/a release is heard", nil, func(e *env) { waitHeard(e, (*env).release) }},
		{"waiting/a release after a minimum hold is heard", minHoldOnly, func(e *env) {
			waitHeard(e, (*env).release, sqllock.WithMinHold(50*time.Millisecond))
		}},
		{"waiting/a release in a transaction is heard", releaseTxOnly, func(e *env) {
			for _, level := range e.levels() {
				waitHeard(e, func(e *env, lock *sqllock.Lock) {
					e.releaseIn(level, lock)
					e.release(lock)
				})
			}
		}},
		{"waiting/noting it goes wrong", nil, waitUnnoted},
		{"waiting/noting it waits for no row lock", nil, waitNoted},
	}
}

// A waiter that listens asks the database every few seconds only.
func waitHeard(e *env, release func(*env, *sqllock.Lock), options ...sqllock.LockOption) {
	const soon = time.Second // no other process's poll comes in that time

	if _, ok := e.Other.(strategies.Queuer); !ok {
		e.Skip("the strategy is no Queuer")
	}

	e.poll(fmt.Sprintf("a release is heard within %s", soon), func() error {
		first := e.acquire(e.a, options...)
		locks := e.waiting(e.b)
		e.stillWaiting(locks, "another holds it")
		e.elapse(200 * time.Millisecond) // until it listens, and has noted so

		released := time.Now()
		release(e, first)

		second := e.get(locks)
		took := time.Since(released)
		e.release(second)

		if took > soon {
			return fmt.Errorf("it took %s", took)
		}

		return nil
	})
}

// releaseIn releases a lock in a transaction, and commits it.
func (e *env) releaseIn(level string, lock *sqllock.Lock) {
	tx := e.begin(level)

	if err := lock.ReleaseTx(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("ReleaseTx() with isolation %q = %v, want nil", level, err)
	}

	e.commit(tx)
}

// Whoever could not note that it waits, or did so twice, has the lock all the same.
func waitUnnoted(e *env) {
	if _, ok := e.Strategy.(strategies.Queuer); !ok {
		e.Skip("the strategy has no Queuer")
	}

	for _, fault := range []func(){
		func() { e.script.Fail("enqueue", 1, Before, nil) },
		func() { e.script.Fail("enqueue", 1, After, nil) },
		func() { e.script.Twice("enqueue") },
		func() { e.script.Fail("stand", 1, Before, nil) },
		func() { e.script.Fail("stand", 1, After, nil) },
		func() { e.script.Twice("stand") },
	} {
		// A name of its own each time: who noted it once need not do it again.
		e.name += "/again"
		first := e.acquire(e.b)

		fault()

		locks := e.waiting(e.a)
		e.stillWaiting(locks, "another holds it")
		e.release(first)

		second := e.get(locks)
		e.grow("a release", first.Token(), second.Token())
		e.release(second)
	}
}

func waitNoted(e *env) {
	queuer, ok := e.Strategy.(strategies.Queuer)

	switch {
	case !ok:
		e.Skip("the strategy has no Queuer")
	case e.harness.GuardBlocksRenewal:
		e.Skip("the database has one writer, so that a locked row stops all others")
	case e.LockRow == nil:
		e.Fatal("Fixture.LockRow is nil")
	}

	lock := e.acquire(e.b)
	unlock := e.LockRow(e.T, e.name)
	waiter := strategies.Waiter{Name: e.name, Process: e.request().Owner, ID: "1"}

	e.within(e.harness.TryWithin, "Enqueue() beside a locked row", func() {
		if _, err := single.Enqueue(e.ctx(), queuer, waiter, lease); err != nil && !errors.Is(err, strategies.ErrBusy) {
			e.Errorf("Enqueue() beside a locked row = %v, want nil or ErrBusy", err)
		}
	})

	unlock()
	e.release(lock)

	if taken, err := single.Enqueue(e.ctx(), queuer, waiter, lease); taken || err != nil {
		e.Errorf("Enqueue() for a name that nobody holds = %t, %v, want false", taken, err)
	}
}
