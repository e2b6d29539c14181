package conformance_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/forupdate"
)

// TestHeldLockHasNoSnapshot: a session that holds a lock keeps no snapshot between its statements. CREATE INDEX
// CONCURRENTLY waits for every snapshot in its database, whatever it is of, and there is no end to how long a lock is held.
func TestHeldLockHasNoSnapshot(t *testing.T) { //nolint:tparallel // an index waits for the statements of the others, too
	t.Parallel()

	config := postgresDatabase(t, postgresConfig(t))
	db := stdPool(t, config)

	exec(t, db, "CREATE TABLE others (id bigint)")

	made := map[string]func(databases.DB) strategies.Strategy{
		"forupdate": func(db databases.DB) strategies.Strategy { return forupdate.New(db) },
		"advisory":  func(db databases.DB) strategies.Strategy { return advisory.New(db) },
	}

	for _, mode := range postgresModes {
		for name, of := range made {
			for _, shared := range []strategies.Mode{strategies.Exclusive, strategies.Shared} {
				test := mode.name + "/" + name
				if shared == strategies.Shared {
					test += "/shared"
				}

				// One after the other: an index waits for the statements of the others, too.
				t.Run(test, func(t *testing.T) {
					pool := mode.open(t, config)
					t.Cleanup(pool.close)
					holdsBackNothing(t, db, of(pool.db()), shared)
				})
			}
		}
	}
}

func holdsBackNothing(t *testing.T, db *sql.DB, strategy strategies.Strategy, mode strategies.Mode) {
	t.Helper()

	grant, err := single.TryAcquire(t.Context(), strategy, strategies.Request{
		Name: t.Name(), Owner: "owner", Lease: 5 * time.Minute, Mode: mode,
	})
	if err != nil {
		t.Fatal(err)
	}

	steps := []struct {
		name string
		take func(context.Context) error
	}{
		{"TryAcquire()", func(context.Context) error { return nil }},
		{"Renew()", func(ctx context.Context) error { return grant.Renew(ctx, 5*time.Minute) }},
		{"Renew() for longer", func(ctx context.Context) error { return grant.Renew(ctx, 10*time.Minute) }},
		{"Check()", grant.Check},
	}

	for _, step := range steps {
		if err := step.take(t.Context()); err != nil {
			t.Fatalf("%s = %v", step.name, err)
		}

		var snapshots int

		// A session that has answered shows it a moment later.
		const others = `SELECT count(*) FROM pg_catalog.pg_stat_activity
 WHERE backend_xmin IS NOT NULL AND state LIKE 'idle%' AND datname = current_database() AND pid <> pg_backend_pid()`
		if err := db.QueryRowContext(t.Context(), others).Scan(&snapshots); err != nil || snapshots != 0 {
			t.Errorf("behind %s %d idle sessions have a snapshot (%v), want none", step.name, snapshots, err)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	if _, err := db.ExecContext(ctx, "CREATE INDEX CONCURRENTLY IF NOT EXISTS others_id ON others (id)"); err != nil {
		t.Errorf("CREATE INDEX CONCURRENTLY on another table while the lock is held = %v", err)
	}

	exec(t, db, "DROP INDEX IF EXISTS others_id")

	if err := grant.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
