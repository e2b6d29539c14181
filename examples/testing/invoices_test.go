package testing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	invoices "github.com/sqllock/sqllock/examples/testing"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

func newLocker(t *testing.T, strategy strategies.Strategy) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(strategy, sqllock.WithLease(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(context.Background()) })

	return locker
}

// Another process holds the lock.
func TestRunSaysThatAnotherRuns(t *testing.T) {
	t.Parallel()

	memory := sqllocktest.NewMemory()
	here := &invoices.Invoices{Locker: newLocker(t, memory)}

	if _, err := newLocker(t, memory.Peer()).Acquire(t.Context(), "invoices/2026-11"); err != nil {
		t.Fatal(err)
	}

	if err := here.Run(t.Context(), "2026-11", 3); !errors.Is(err, invoices.ErrRunning) {
		t.Errorf("Run = %v, want ErrRunning", err)
	}
}

// The lock is lost in the middle of the work: the work must stop, and Run must
// say that it is not done. In the bubble of synctest the renewal that finds
// out comes after 10 s that take no time.
func TestRunStopsWhenTheLockIsLost(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		written := 0

		here := &invoices.Invoices{
			Locker: newLocker(t, memory),
			Write: func(ctx context.Context, number int, _ *sqllock.Lock) error {
				if number == 1 {
					memory.Lose("invoices/2026-11")
				}

				select {
				case <-time.After(time.Minute):
					written++

					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			},
		}

		if err := here.Run(t.Context(), "2026-11", 3); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Run = %v, want ErrLost", err)
		}

		if written != 1 {
			t.Errorf("wrote %d invoices, want 1", written)
		}
	})
}

// The process was paused, and another has the lock when it goes on: the guard refuses its transaction.
func TestGuardRefusesALateTransaction(t *testing.T) {
	t.Parallel()

	memory := sqllocktest.NewMemory()
	written := 0

	here := &invoices.Invoices{
		Locker: newLocker(t, memory),
		Write: func(ctx context.Context, number int, lock *sqllock.Lock) error {
			if number == 1 {
				memory.Lose("invoices/2026-11")
			}

			tx := memory.Begin() // with a database it is pool.Begin, and Guard takes postgres.Tx(tx)
			defer func() { _ = tx.Rollback() }()

			if err := lock.Guard(ctx, tx); err != nil {
				return err
			}

			written++

			return tx.Commit()
		},
	}

	if err := here.Run(t.Context(), "2026-11", 3); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Run = %v, want ErrLost", err)
	}

	if written != 1 {
		t.Errorf("wrote %d invoices, want 1", written)
	}
}

// The database cannot be reached for longer than the lease.
func TestRunStopsWhenTheDatabaseIsGone(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()

		here := &invoices.Invoices{
			Locker: newLocker(t, memory),
			Write: func(ctx context.Context, _ int, _ *sqllock.Lock) error {
				memory.Fail("*", 1000, sqllocktest.Before, sqllock.ErrUnreachable)
				<-ctx.Done()

				return context.Cause(ctx)
			},
		}

		started := time.Now()

		if err := here.Run(t.Context(), "2026-11", 1); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Run = %v, want ErrLost", err)
		}

		if took := time.Since(started); took > 40*time.Second {
			t.Errorf("Run took %s, want not much more than the lease", took)
		}
	})
}
