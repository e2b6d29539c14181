package once_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func exampleLocker() (*sqllocktest.Memory, *sqllock.Locker) {
	memory := sqllocktest.NewMemory() // cas.New(postgres.New(pool)) with a database

	locker, err := sqllock.New(memory)
	if err != nil {
		log.Fatal(err)
	}

	return memory, locker
}

func ExampleTryDo() {
	_, locker := exampleLocker()
	fireTime := time.Date(2026, time.January, 2, 2, 15, 0, 0, time.UTC) // what the schedule says

	for range 2 { // two machines, of which one comes late
		err := once.TryDo(context.Background(), locker, "report", fireTime, func(context.Context, *sqllock.Lock) error {
			fmt.Println("the report is written")

			return nil
		})

		switch {
		case errors.Is(err, once.ErrDone):
			fmt.Println("skip:", err)
		case errors.Is(err, sqllock.ErrNotAcquired):
			fmt.Println("another process writes it:", err)
		case err != nil:
			log.Fatal(err)
		}
	}
	// Output:
	// the report is written
	// skip: lock "report": the job of this tick was done: 2026-01-02T02:15:00Z
}

// Do waits for a process that does the job, and does it if that one fails.
func ExampleDo() {
	_, locker := exampleLocker()
	fireTime := time.Date(2026, time.January, 2, 2, 15, 0, 0, time.UTC)

	for _, result := range []error{errors.New("no paper"), nil, nil} {
		err := once.Do(context.Background(), locker, "report", fireTime, func(context.Context, *sqllock.Lock) error { return result })
		fmt.Println(err)
	}
	// Output:
	// no paper
	// <nil>
	// lock "report": the job of this tick was done: 2026-01-02T02:15:00Z
}

// A job whose data is in the database of the lock is done exactly once: its writes and the record that it was done are committed
// together, or neither is.
func ExampleCompleteTx() {
	memory, locker := exampleLocker()
	fireTime := time.Date(2026, time.January, 2, 2, 15, 0, 0, time.UTC)

	report := func(ctx context.Context, lock *sqllock.Lock) error {
		tx := memory.Begin()                 // postgres.Tx(tx) around a transaction of your own
		defer func() { _ = tx.Rollback() }() // does nothing after the commit

		fmt.Println("the report is written in the transaction")

		if err := once.CompleteTx(ctx, lock, tx, fireTime); err != nil { // the last statement
			return err
		}

		return tx.Commit()
	}

	for range 2 {
		err := once.TryDo(context.Background(), locker, "report", fireTime, report)
		fmt.Println("done before:", errors.Is(err, once.ErrDone))
	}
	// Output:
	// the report is written in the transaction
	// done before: false
	// done before: true
}

// For a job that is no function: of a scheduler that calls at its begin and at its end.
func ExampleAcquire() {
	ctx := context.Background()
	_, locker := exampleLocker()
	fireTime := time.Date(2026, time.January, 2, 2, 15, 0, 0, time.UTC)

	lock, err := once.Acquire(ctx, locker, "report", fireTime)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(once.Complete(ctx, lock, fireTime), lock.Release(ctx))

	_, err = once.TryAcquire(ctx, locker, "report", fireTime)
	fmt.Println(errors.Is(err, once.ErrDone))
	// Output:
	// <nil> <nil>
	// true
}
