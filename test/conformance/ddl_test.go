package conformance_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestTablesChangeWhileHeld: a lock that is held keeps nobody from changing the
// tables that all locks share. Whoever waits for a table to change it is in the way of
// all who come later, and so of the renewals of other locks.
func TestTablesChangeWhileHeld(t *testing.T) {
	t.Parallel()

	changes := map[string][]string{
		"postgres": {"VACUUM FULL sqllock_locks", "ALTER TABLE sqllock_locks ALTER COLUMN label SET DEFAULT ''"},
		"mysql":    {"ALTER TABLE sqllock_locks ENGINE = InnoDB", "ALTER TABLE sqllock_leases ENGINE = InnoDB"},
	}
	changes["mariadb"] = changes["mysql"]

	for server, statements := range changes {
		for _, strategy := range catalog.All() {
			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				var (
					db     databases.DB
					beside *sql.DB
				)

				if server == "postgres" {
					config := postgresDatabase(t, postgresConfig(t))
					db, beside = postgres.NewStd(stdPool(t, config)), stdPool(t, config)
				} else {
					config := mysqlDatabase(t, mysqlConfig(t, server))
					db = mysql.New(mysqlPool(t, config))

					// These servers wait on after their client has gone.
					config.Params = map[string]string{"lock_wait_timeout": "6"}
					beside = mysqlPool(t, config)
				}

				changeWhileHeld(t, beside, lockerOn(t, strategy.Make(db)), lockerOn(t, cas.New(db)), statements)
			})
		}
	}
}

func changeWhileHeld(t *testing.T, beside *sql.DB, holds, renews *sqllock.Locker, statements []string) {
	t.Helper()

	const lease = 3 * time.Second

	// The second time the names have their rows.
	for range 2 {
		held, err := holds.TryAcquire(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}

		renewed, err := renews.TryAcquire(t.Context(), "renewed", sqllock.WithLease(lease))
		if err != nil {
			t.Fatal(err)
		}

		for _, statement := range statements {
			// Longer than the lease: one that waits behind the lock ends the other.
			ctx, cancel := context.WithTimeout(t.Context(), 2*lease)

			if _, err := beside.ExecContext(ctx, statement); err != nil {
				t.Errorf("%s while a lock is held = %v, want nil", statement, err)
			}

			cancel()
		}

		for _, lock := range []*sqllock.Lock{renewed, held} {
			if err := lock.Check(t.Context()); err != nil {
				t.Errorf("Check() of %q after that = %v, want nil", lock.Name(), err)
			}

			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release() of %q after that = %v, want nil", lock.Name(), err)
			}
		}
	}
}
