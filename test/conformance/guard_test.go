package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestGuardedReads: a transaction that a guard passed in sees what the holder before
// wrote, or the guard does not pass.
func TestGuardedReads(t *testing.T) {
	t.Parallel()

	pools := map[string]func(*testing.T) (*sql.DB, databases.DB, func(*sql.Tx) databases.Tx){
		"postgres": func(t *testing.T) (*sql.DB, databases.DB, func(*sql.Tx) databases.Tx) {
			t.Helper()

			pool := stdPool(t, postgresDatabase(t, postgresConfig(t)))

			return pool, postgres.NewStd(pool), postgres.StdTx
		},
	}

	for _, server := range []string{"mysql", "mariadb"} {
		for mode, off := range map[string]bool{"": false, " without snapshot isolation": true} {
			if off && server == "mysql" {
				continue // has none to turn off
			}

			pools[server+mode] = func(t *testing.T) (*sql.DB, databases.DB, func(*sql.Tx) databases.Tx) {
				t.Helper()

				pool := snapshotPool(t, mysqlDatabase(t, mysqlConfig(t, server)), off)

				return pool, mysql.New(pool), mysql.Tx
			}
		}
	}

	for name, open := range pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			pool, db, wrap := open(t)
			exec(t, pool, "CREATE TABLE guarded (value int)")
			exec(t, pool, "INSERT INTO guarded VALUES (0)")

			for _, strategy := range catalog.All() {
				for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
					for _, handed := range []bool{false, true} {
						guardedRead(t, pool, wrap, strategy.Make(db), level, handed, false)
					}
				}
			}
		})
	}
}

// snapshotPool returns a pool, of MariaDB with its snapshot isolation turned off. Older
// versions have nothing to turn off.
func snapshotPool(t *testing.T, config *driver.Config, off bool) *sql.DB {
	t.Helper()

	if off {
		var name, value string

		err := mysqlPool(t, config).QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").Scan(&name, &value)
		if err == nil {
			config.Params = map[string]string{name: "OFF"}
		}
	}

	return mysqlPool(t, config)
}

// guardedRead begins a transaction, lets the holder before write, and has the next
// guard and read in that transaction.
func guardedRead(
	t *testing.T, pool *sql.DB, wrap func(*sql.Tx) databases.Tx, strategy strategies.Strategy, level sql.IsolationLevel, handed, optimistic bool,
) {
	t.Helper()

	ctx := context.WithoutCancel(t.Context())
	r := strategies.Request{Name: "guarded", Owner: uniqueName(), Lease: time.Minute, Tokens: 2}

	take := func() single.Grant {
		grant, err := single.TryAcquire(ctx, strategy, r)
		if err != nil {
			t.Fatalf("TryAcquire() = %v", err)
		}

		return grant
	}

	var grant single.Grant

	if handed {
		grant = take()

		if grant.Next().None() {
			_ = grant.Release(ctx)

			return
		}
	}

	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()

	var value, latest int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+migrations.TableName).Scan(&value); err != nil {
		t.Fatal(err)
	}

	exec(t, pool, "UPDATE guarded SET value = value + 1")

	if handed {
		grant = grant.Next()
	} else {
		grant = take()
	}

	defer func() { _ = grant.Release(ctx) }()

	err = grant.Guard(ctx, wrap(tx))

	switch {
	case err != nil && level == sql.LevelReadCommitted:
		t.Errorf("%s, handed on %t: Guard() with READ COMMITTED = %v, want nil", strategy.Features().Strategy, handed, err)
	case err != nil:
		return
	}

	if err := tx.QueryRowContext(ctx, "SELECT value FROM guarded").Scan(&value); err != nil {
		return
	}

	err = pool.QueryRowContext(ctx, "SELECT value FROM guarded").Scan(&latest)

	// An optimistic one learns by its commit that its snapshot is older than the lock.
	if err == nil && value != latest && optimistic && tx.Commit() != nil {
		return
	}

	if err != nil || value != latest {
		t.Errorf("%s, %s, handed on %t: after Guard() the transaction reads %d, want %d (%v)",
			strategy.Features().Strategy, level, handed, value, latest, err)
	}
}

// severalPrimaries is a transaction on a server that says of itself that others take writes too.
type severalPrimaries struct{ databases.Tx }

func (s severalPrimaries) Run(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	if stmt.Name != "grant.many-primaries" {
		return s.Tx.Run(ctx, stmt, v, each)
	}

	return databases.Result{}, each(func(dest ...any) error {
		for i, said := range []string{"wsrep_on", "ON"} {
			to, ok := dest[i].(*string)
			if !ok {
				return fmt.Errorf("column %d goes to a %T", i, dest[i])
			}

			*to = said
		}

		return nil
	})
}

// TestGuardWritesWhereSeveralTakeWrites: such a guard changes the row, once it has seen it in the transaction's snapshot.
// What that does on several nodes package reach tests.
func TestGuardWritesWhereSeveralTakeWrites(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		server    string
		foundRows bool
	}{{"mysql", false}, {"mysql", true}, {"mariadb", false}, {"mariadb", true}} {
		t.Run(fmt.Sprintf("%s/found rows=%t", c.server, c.foundRows), func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, c.server))
			config.ClientFoundRows = c.foundRows

			pool := mysqlPool(t, config)
			locker := lockerOn(t, cas.New(mysql.New(pool)))

			begin := func() (*sql.Tx, databases.Tx) {
				tx, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
				if err != nil {
					t.Fatal(err)
				}

				t.Cleanup(func() { _ = tx.Rollback() })

				// So it has its snapshot.
				if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM sqllock_locks").Scan(new(int)); err != nil {
					t.Fatal(err)
				}

				return tx, severalPrimaries{mysql.Tx(tx)}
			}

			_, before := begin()

			lock, err := locker.Acquire(t.Context(), "several")
			if err != nil {
				t.Fatal(err)
			}

			if err := lock.Guard(t.Context(), before); err == nil {
				t.Error("Guard() in a snapshot older than the lock = nil, want an error")
			}

			tx, guarded := begin()

			for range 2 {
				if err := lock.Guard(t.Context(), guarded); err != nil {
					t.Fatalf("Guard() = %v, want nil", err)
				}
			}

			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()

			_, beside := begin()
			if err := lock.Guard(brief, beside); err == nil {
				t.Error("Guard() beside another of the lock = nil, want it to wait")
			}

			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}

			// The server may still be at the guard that was given up, and has the row locked then.
			guards := 0
			if err := pool.QueryRowContext(t.Context(), "SELECT guards FROM sqllock_locks FOR UPDATE").Scan(&guards); err != nil || guards != 2 {
				t.Errorf("the row has %d guards (%v), want 2", guards, err)
			}

			if err := sqllocktest.ForceRelease(t.Context(), locker, "several", "to guard what is nobody's"); err != nil {
				t.Fatal(err)
			}

			_, late := begin()
			if err := lock.Guard(t.Context(), late); !errors.Is(err, sqllock.ErrLost) {
				t.Errorf("Guard() of a lock that was taken away = %v, want ErrLost", err)
			}
		})
	}
}
