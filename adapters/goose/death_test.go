package gooselock_test

import (
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	gooselock "github.com/sqllock/sqllock/adapters/goose"
	"github.com/sqllock/sqllock/sqllock"
)

// A migration that is no transaction, and waits at the gate.
var gated = fstest.MapFS{
	"00001_gated.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nINSERT INTO applied SELECT 1 FROM gate FOR UPDATE;\n")},
}

const gatedLease = 3 * time.Second

// survives is what the README says to do about the statement of a process that died: on PostgreSQL the server looks for its
// client, and elsewhere a lock delay lets the next one wait for it.
func (on target) survives(t *testing.T) (dsn string, options []sqllock.Option) {
	t.Helper()

	if on.driver != "pgx" {
		return on.dsn, []sqllock.Option{sqllock.WithLockDelay(2 * gatedLease)}
	}

	u, err := url.Parse(on.dsn)
	if err != nil {
		t.Fatal(err)
	}

	q := u.Query()
	q.Set("client_connection_check_interval", "1s")
	u.RawQuery = q.Encode()

	return u.String(), nil
}

// TestDeathInAStatement: a process is killed in a statement that takes longer than its lease. The server goes on with that, and
// the next process does not run the migration beside it.
func TestDeathInAStatement(t *testing.T) {
	t.Parallel()

	if database := os.Getenv("GOOSELOCK_TEST_DIES_ON"); database != "" {
		dieAtTheGate(t, database)

		return
	}

	for _, database := range targets() {
		if database == "sqlite" {
			continue // its statements run in the process
		}

		t.Run(database, func(t *testing.T) {
			t.Parallel()

			on := fresh(t, database)
			db := on.open(t)

			for _, statement := range []string{"CREATE TABLE applied (n INTEGER)", "CREATE TABLE gate (n INTEGER)", "INSERT INTO gate VALUES (1)"} {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}

			gate, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := gate.ExecContext(t.Context(), "SELECT n FROM gate FOR UPDATE"); err != nil {
				t.Fatal(err)
			}

			process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDeathInAStatement$")
			process.Env = append(os.Environ(), "GOOSELOCK_TEST_DIES_ON="+database, "GOOSELOCK_TEST_DSN="+on.dsn)
			process.Stderr = os.Stderr

			if err := process.Start(); err != nil {
				t.Fatal(err)
			}

			for begun := time.Now(); on.atTheGate(t, db) == 0; <-time.After(20 * time.Millisecond) {
				if time.Since(begun) > 20*time.Second {
					t.Fatal("the process has not begun its migration")
				}
			}

			if err := process.Process.Kill(); err != nil {
				t.Fatal(err)
			}

			_ = process.Wait()

			next := make(chan error, 1)

			go func() {
				_, err := gatedProvider(t, on, newLocker(t, on)).Up(t.Context())
				next <- err
			}()

			for killed := time.Now(); time.Since(killed) < 2*gatedLease; {
				<-time.After(20 * time.Millisecond)

				if n := on.atTheGate(t, db); n > 1 {
					t.Errorf("%d processes run the migration %s after the first was killed, want one", n, time.Since(killed))

					break
				}
			}

			if err := gate.Rollback(); err != nil {
				t.Fatal(err)
			}

			if err := <-next; err != nil {
				t.Errorf("Up() of the next = %v, want nil", err)
			}
		})
	}
}

// atTheGate says how many sessions run the migration.
func (on target) atTheGate(t *testing.T, db *sql.DB) (n int) {
	t.Helper()

	query := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE 'INSERT INTO applied%'"
	if on.driver != "pgx" {
		query = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT INTO applied%'"
	}

	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}

	return n
}

func gatedProvider(t *testing.T, on target, locker *sqllock.Locker, options ...sqllock.Option) *goose.Provider {
	t.Helper()

	provider, err := goose.NewProvider(on.goose, on.open(t), gated,
		goose.WithDisableGlobalRegistry(true), goose.WithLocker(gooselock.New(locker, name, options...)))
	if err != nil {
		t.Fatal(err)
	}

	return provider
}

// dieAtTheGate is the process that is killed.
func dieAtTheGate(t *testing.T, database string) {
	t.Helper()

	on := dialect(database)
	on.dsn = os.Getenv("GOOSELOCK_TEST_DSN")

	dsn, options := on.survives(t)
	on.dsn = dsn

	_, err := gatedProvider(t, on, newLocker(t, on, sqllock.WithLease(gatedLease)), options...).Up(t.Context())
	t.Errorf("Up() = %v, want no return", err)
}
