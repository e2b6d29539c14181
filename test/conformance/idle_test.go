package conformance_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

// TestIdleOfTheDead: a waiter that has died, and left neither its line nor keeps its place in it alive, keeps no idle name from being
// removed, and its place goes, too.
func TestIdleOfTheDead(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb", "sqlite"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, beside := databaseAndPool(t, server)
			strategy := cas.New(db)

			grant, err := single.TryAcquire(t.Context(), strategy, strategies.Request{Name: "once", Owner: "holder", Lease: time.Minute, Tokens: 1})
			if err != nil {
				t.Fatal(err)
			}

			waiter := strategies.Waiter{Name: "once", Process: "dead", ID: "waiter", Slots: 1}
			if _, err := single.Enqueue(t.Context(), strategy, waiter, time.Millisecond); err != nil {
				t.Fatal(err)
			}

			if err := grant.Release(t.Context()); err != nil {
				t.Fatal(err)
			}

			long := map[bool]string{true: "'epoch'", false: "0"}[server == "postgres"]
			exec(t, beside, "UPDATE sqllock_queue SET expires_at = "+long)

			for _, table := range []string{"sqllock_locks", "sqllock_queue"} {
				for left, until := 1, time.Now().Add(10*time.Second); left > 0; {
					if _, _, err := strategy.ReapIdle(t.Context(), time.Millisecond, 10); err != nil {
						t.Fatal(err)
					}

					if err := beside.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&left); err != nil {
						t.Fatal(err)
					}

					if left > 0 && time.Now().After(until) {
						t.Fatalf("%s has %d rows, want none", table, left)
					}
				}
			}
		})
	}
}

// TestIdleManyNames: what strategies keep beside the names of a page goes with those, however many they are.
func TestIdleManyNames(t *testing.T) {
	t.Parallel()

	const names = 1500

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, beside := databaseAndPool(t, server)
			rows := strings.TrimSuffix(strings.Repeat("(?),", names), ",")
			args := make([]any, names)

			for i := range args {
				args[i] = fmt.Sprint("name", i)
			}

			for _, table := range []string{"sqllock_locks", "sqllock_leases", "sqllock_mutexes"} {
				if _, err := beside.ExecContext(t.Context(), "INSERT INTO "+table+" (name) VALUES "+rows, args...); err != nil {
					t.Fatal(err)
				}
			}

			exec(t, beside, "UPDATE sqllock_locks SET token = 1, acquired_at = 1")

			// What somebody has locked is not waited for, and stays.
			tx, err := beside.BeginTx(t.Context(), nil)
			if err == nil {
				_, err = tx.ExecContext(t.Context(), "SELECT name FROM sqllock_mutexes WHERE name = 'name7' FOR UPDATE")
			}

			if err != nil {
				t.Fatal(err)
			}

			started := time.Now()

			removed, _, err := cas.New(db).ReapIdle(t.Context(), time.Minute, 2*names)
			if err != nil || removed != names {
				t.Fatalf("ReapIdle() = %d, %v, want %d", removed, err, names)
			}

			if took := time.Since(started); took > 20*time.Second {
				t.Errorf("ReapIdle() took %s, want that it does not wait for a row", took)
			}

			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}

			var left int
			if err := beside.QueryRowContext(t.Context(), "SELECT count(*) FROM sqllock_mutexes").Scan(&left); err != nil || left != 1 {
				t.Errorf("sqllock_mutexes has %d rows, %v, want the one that was locked", left, err)
			}
		})
	}
}

// TestIdleWithoutLease: a process that dies between the two rows of a new name leaves one that nothing else removes. One whose
// lease somebody has locked is not taken for such a row.
func TestIdleWithoutLease(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, beside := databaseAndPool(t, server)
			strategy := cas.New(db)

			exec(t, beside, "INSERT INTO sqllock_locks (name, acquired_at) VALUES ('half', 1), ('whole', 1)")
			exec(t, beside, "INSERT INTO sqllock_leases (name) VALUES ('whole')")

			renewal, err := beside.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := renewal.ExecContext(t.Context(), "SELECT name FROM sqllock_leases WHERE name = 'whole' FOR UPDATE"); err != nil {
				t.Fatal(err)
			}

			removes(t, strategy, 1)

			if err := renewal.Rollback(); err != nil {
				t.Fatal(err)
			}

			removes(t, strategy, 1)
		})
	}
}

// removes fails unless so many idle names are removed.
func removes(t *testing.T, strategy *cas.Strategy, want int) {
	t.Helper()

	if removed, _, err := strategy.ReapIdle(t.Context(), time.Millisecond, 10); removed != want || err != nil {
		t.Errorf("ReapIdle() = %d, %v, want %d", removed, err, want)
	}
}

// databaseAndPool is a database with sqllock's tables, and a pool beside its own.
func databaseAndPool(t *testing.T, server string) (databases.DB, *sql.DB) {
	t.Helper()

	switch server {
	case "postgres":
		config := postgresDatabase(t, postgresConfig(t))

		return postgres.NewStd(stdPool(t, config)), stdPool(t, config)
	case "sqlite":
		file := sqliteFile(t)

		return sqlite.New(sqlitePool(t, file)), sqlitePool(t, file)
	default:
		config := mysqlDatabase(t, mysqlConfig(t, server))

		return mysql.New(mysqlPool(t, config)), mysqlPool(t, config)
	}
}

// eventually fails unless something is true within ten seconds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for until := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(until) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
