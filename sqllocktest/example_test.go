package sqllocktest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// A lock that is lost while work goes on, without waiting for a lease to end.
func ExampleNewMemory() {
	ctx := context.Background()
	memory := sqllocktest.NewMemory()

	locker, err := sqllock.New(memory)
	if err != nil {
		log.Fatal(err)
	}

	err = locker.Do(ctx, "invoices", func(ctx context.Context, lock *sqllock.Lock) error {
		memory.Lose("invoices")

		// A renewal finds it within a third of the lease; Check at once.
		_ = lock.Check(ctx)

		<-ctx.Done()
		fmt.Println("the work stops:", errors.Is(context.Cause(ctx), sqllock.ErrLost))

		return nil
	})
	fmt.Println("Do says so too:", errors.Is(err, sqllock.ErrLost))
	// Output:
	// the work stops: true
	// Do says so too: true
}

// Another process has the lock.
func ExampleMemory_Peer() {
	ctx := context.Background()
	memory := sqllocktest.NewMemory()

	here, _ := sqllock.New(memory)
	elsewhere, _ := sqllock.New(memory.Peer(), sqllock.WithLabel("the other process"))

	if _, err := elsewhere.Acquire(ctx, "invoices"); err != nil {
		log.Fatal(err)
	}

	_, err := here.TryAcquire(ctx, "invoices")

	var held *sqllock.HeldError
	fmt.Println(errors.As(err, &held), held.Holder.Label)
	// Output: true the other process
}

// The database fails: the acquisition is tried again by the same owner.
func ExampleScript_Fail() {
	ctx := context.Background()
	memory := sqllocktest.NewMemory()
	locker, _ := sqllock.New(memory)

	// The grant is made, and its answer is lost.
	memory.Fail("acquire", 1, sqllocktest.After, nil)

	lock, err := locker.Acquire(ctx, "invoices")
	fmt.Println(err, memory.Count("acquire"))

	_ = lock.Release(ctx)
	// Output: <nil> 2
}

// The transaction that a guard needs, without a database.
func ExampleMemory_Begin() {
	ctx := context.Background()
	memory := sqllocktest.NewMemory()
	locker, _ := sqllock.New(memory)

	lock, err := locker.Acquire(ctx, "invoices")
	if err != nil {
		log.Fatal(err)
	}

	tx := memory.Begin()
	fmt.Println(lock.Guard(ctx, tx), tx.Commit())

	memory.Lose("invoices")

	late := memory.Begin()
	fmt.Println(errors.Is(lock.Guard(ctx, late), sqllock.ErrLost), late.Rollback())
	// Output:
	// <nil> <nil>
	// true <nil>
}

// A strategy of your own is tested so; t is the test's. With a database
// beneath it the fixture has more: see [sqllocktest.Fixture].
func ExampleRun() {
	var t *testing.T

	sqllocktest.Run(t, sqllocktest.Harness{
		New: func(*testing.T) sqllocktest.Fixture {
			memory := sqllocktest.NewMemory()

			return sqllocktest.Fixture{
				Strategy: memory, Other: memory.Peer(), Script: memory.Script,
				Age: func(_ *testing.T, name string, d time.Duration) { memory.Age(name, d) },
			}
		},
	})
}

// The next two renewals fail, and the third has its answer lost.
func ExampleNewFaulty() {
	var db databases.DB // such as postgres.New(pool)

	faulty := sqllocktest.NewFaulty(db)
	faulty.Fail("renew", 2, sqllocktest.Before, nil)
	faulty.Fail("renew", 1, sqllocktest.After, nil)

	// strategy := cas.New(faulty)
	// ...
	fmt.Println(faulty.Count("renew"), faulty.Leaks(), faulty.Misuse())
}
