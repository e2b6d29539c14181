package reach_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// length is how long guards meet their successors; a guard that is broken gets as much again.
const length = 40 * time.Second

// TestGuardAcrossNodes: where several nodes take writes, a guarded transaction that commits on one of them after the
// name was granted on another is rolled back, also while its node lags behind.
//
//nolint:paralleltest // one cluster after the other, each of which needs the machine
func TestGuardAcrossNodes(t *testing.T) {
	on(t, several, func(t *testing.T, s site) {
		t.Helper()

		met := meet(t, s, length, func(tx strategies.Tx) strategies.Tx { return tx }, func(meetings) bool { return false })
		t.Log(met)

		if met.late > 0 || met.refused == 0 {
			t.Errorf("%s; want no late commit, and some that are refused", met)
		}
	})
}

// TestGuardThatOnlyReads shows that TestGuardAcrossNodes finds a guard that writes nothing.
//
//nolint:paralleltest // as above
func TestGuardThatOnlyReads(t *testing.T) {
	on(t, several, func(t *testing.T, s site) {
		t.Helper()

		met := meet(t, s, 2*length, func(tx strategies.Tx) strategies.Tx { return &reading{tx.(databases.Tx)} },
			func(m meetings) bool { return m.late > 10 })
		t.Log(met)

		if met.late == 0 {
			t.Errorf("%s; want a late commit", met)
		}
	})
}

// reading is a transaction in which a guard locks the row, and changes none.
type reading struct{ databases.Tx }

func (r *reading) Run(
	ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	if s.Name != "grant.guard-write" {
		return r.Tx.Run(ctx, s, v, each)
	}

	s.SQL = `SELECT 1 FROM sqllock_locks
 WHERE name = UNHEX(?) AND owner = UNHEX(?) AND token = ? AND acquired_at = ? LOCK IN SHARE MODE`

	_, err = r.Tx.Run(ctx, s, v, func(databases.Row) error {
		result.RowsAffected++

		return nil
	})

	return result, err
}

// meetings counts guarded transactions, after whose guard the name was granted to another.
type meetings struct {
	late    int // committed after the grant
	kept    int // committed before it
	refused int // rolled back
	failed  int // could not be set up: an attempt was refused, or a commit's outcome is not known
}

func (m meetings) String() string {
	return fmt.Sprintf("%d guarded commits after the next grant, %d before it, %d refused, %d rounds failed", m.late, m.kept, m.refused, m.failed)
}

// meet lets guards on the first node meet grants on another, while the first stops for moments, until it is enough.
func meet(t *testing.T, s site, length time.Duration, wrap func(strategies.Tx) strategies.Tx, enough func(meetings) bool) meetings {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()

	var (
		group sync.WaitGroup
		mutex sync.Mutex
		met   meetings
		pid   = listener(t, s.nodes[0].address)
	)

	group.Go(func() { stutter(ctx, pid) })

	for worker := range 8 {
		group.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				one := take(fmt.Sprintf("guarded-%d-%d", worker, round), s.processes[0], s.processes[1+rand.IntN(len(s.processes)-1)], wrap)

				mutex.Lock()
				met.late += one.late
				met.kept += one.kept
				met.refused += one.refused
				met.failed += one.failed
				done := enough(met)
				mutex.Unlock()

				if done {
					cancel()
				}
			}
		})
	}

	group.Wait()

	return met
}

// stutter stops a process again and again, for 20 to 120 ms.
func stutter(ctx context.Context, pid int) {
	for ctx.Err() == nil {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond)) //nolint:forbidigo // the node does nothing meanwhile
		_ = syscall.Kill(pid, syscall.SIGCONT)
		time.Sleep(rand.N(100 * time.Millisecond)) //nolint:forbidigo // it catches up
	}
}

// take is one meeting: a guards a transaction, b takes the name from it, and a commits.
func take(name string, a, b process, wrap func(strategies.Tx) strategies.Tx) (met meetings) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	lock, err := a.locker.TryAcquire(ctx, name)
	if err != nil {
		return meetings{failed: 1}
	}

	defer func() { _ = lock.Release(ctx) }()

	tx, err := a.pool.BeginTx(ctx, nil)
	if err != nil {
		return meetings{failed: 1}
	}

	if err := lock.Guard(ctx, wrap(mysql.Tx(tx))); err != nil {
		_ = tx.Rollback()

		return meetings{failed: 1}
	}

	granted := make(chan time.Time, 1)

	go func() {
		defer close(granted)

		if err := sqllocktest.ForceRelease(ctx, b.locker, name, "to meet its guard"); err != nil {
			return
		}

		next, err := b.locker.TryAcquire(ctx, name)
		if err != nil {
			return
		}

		granted <- time.Now()

		_ = next.Release(ctx)
	}()

	// As if it worked. Most end after the grant, and some before.
	patience := time.After(rand.N(200 * time.Millisecond))

	var at time.Time

	select {
	case at = <-granted:
	case <-patience:
	}

	begun := time.Now()
	err = commit(ctx, tx)

	if at.IsZero() {
		at = <-granted
	}

	switch {
	case at.IsZero():
		return meetings{failed: 1}
	case err != nil && mysql.New(nil).Classify(err) != databases.Busy:
		return meetings{failed: 1}
	case err != nil:
		return meetings{refused: 1}
	case at.Before(begun):
		return meetings{late: 1}
	default:
		return meetings{kept: 1}
	}
}

// commit ends a transaction that is a write of its own besides the guard, as that of a user is.
func commit(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO sqllock_mutexes (name) VALUES (UUID())"); err != nil {
		_ = tx.Rollback()

		return err
	}

	return tx.Commit()
}
