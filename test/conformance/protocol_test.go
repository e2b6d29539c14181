package conformance_test

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
	"github.com/sqllock/sqllock/test/schema"
)

// kinds are the databases that migrations are tried on.
var kinds = []string{"postgres", "mysql", "mariadb", "sqlite"}

// onEach runs a test with each strategy that works on each database.
func onEach(t *testing.T, run func(t *testing.T, server string, strategy catalog.Strategy)) {
	t.Helper()

	for _, server := range kinds {
		all := catalog.All()
		if server == "sqlite" {
			all = catalog.Leased()
		}

		for _, strategy := range all {
			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()
				run(t, server, strategy)
			})
		}
	}
}

// TestNewerProtocol: a program refuses tables that a newer one has migrated so that it would break their locks, and says so. One that
// has used them before learns it with its next statement.
func TestNewerProtocol(t *testing.T) {
	t.Parallel()

	words := []string{"protocol " + strconv.Itoa(strategies.Protocol+1), "speaks " + strconv.Itoa(strategies.Protocol), "version of sqllock"}

	onEach(t, func(t *testing.T, server string, strategy catalog.Strategy) {
		db, beside := databaseAndPool(t, server)
		running := lockerOn(t, strategy.Make(db))

		if err := acquire(t, running, "before").Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		column := map[databases.Dialect]string{databases.Postgres: "::bigint"}[db.Dialect()] + " AS protocol"
		migration := []string{
			"DROP VIEW sqllock_holders", "DROP VIEW sqllock_waiters", "DROP VIEW sqllock_protocol",
			"CREATE VIEW sqllock_protocol AS SELECT " + strconv.Itoa(strategies.Protocol+1) + column,
			"ALTER TABLE sqllock_locks RENAME TO sqllock_names",
		}
		if db.Dialect() == databases.MySQL {
			migration = append(migration, "ALTER TABLE sqllock_leases RENAME TO sqllock_names_leases")
		}

		for _, statement := range migration {
			exec(t, beside, statement)
		}

		wantTry(t, strategy.Make(db), sqllock.ErrUnsupported, words...)
		wantUnready(t, strategy.Make(db), sqllock.ErrUnsupported, words...)

		_, err := running.TryAcquire(t.Context(), "wanted")
		if !errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), words[0]) {
			t.Errorf("TryAcquire() by who was there before = %v, want ErrUnsupported, and %q", err, words[0])
		}
	})
}

// TestOlderProtocol: a program that is newer than the tables says that they are to be migrated.
func TestOlderProtocol(t *testing.T) {
	t.Parallel()

	onEach(t, func(t *testing.T, server string, strategy catalog.Strategy) {
		db, beside := databaseAndPool(t, server)

		for _, statement := range []string{"DROP VIEW sqllock_protocol", "CREATE VIEW sqllock_protocol AS SELECT 0 AS protocol"} {
			exec(t, beside, statement)
		}

		wantTry(t, strategy.Make(db), sqllock.ErrNoSchema, "sqllock migrate up", "protocol is 0")
	})
}

// additions are migrations as the rules allow them: they add, and give up soon if a transaction that is open is in their way.
var additions = map[databases.Dialect]string{
	databases.Postgres: `-- +goose Up
SET LOCAL lock_timeout = '200ms';
ALTER TABLE sqllock_locks ADD COLUMN more text NOT NULL DEFAULT '';
CREATE TABLE sqllock_more (name text PRIMARY KEY);
CREATE OR REPLACE VIEW sqllock_protocol AS SELECT 1::bigint AS protocol;
`,
	databases.MySQL: `-- +goose Up
SET SESSION lock_wait_timeout = 1;
ALTER TABLE sqllock_locks ADD COLUMN more VARBINARY(64) NOT NULL DEFAULT '', ALGORITHM = INSTANT;
`,
	databases.SQLite: `-- +goose Up
ALTER TABLE sqllock_locks ADD COLUMN more TEXT NOT NULL DEFAULT '';
CREATE TABLE sqllock_more (name TEXT PRIMARY KEY);
`,
}

// TestMigratedWhileHeld: migrations after the first are applied while a thousand locks are held, one of which is guarded, and two
// processes hand another one to each other. Nobody loses a lock, and nobody waits for long.
func TestMigratedWhileHeld(t *testing.T) {
	t.Parallel()

	const (
		locks = 1000
		lease = 6 * time.Second
	)

	for _, server := range kinds {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, beside := databaseAndPool(t, server)
			holder := lockerOn(t, cas.New(db), sqllock.WithLease(lease))

			held := make([]*sqllock.Lock, locks)

			var group sync.WaitGroup

			for i := range held {
				group.Go(func() {
					var err error
					if held[i], err = holder.TryAcquire(t.Context(), "held "+strconv.Itoa(i)); err != nil {
						t.Errorf("TryAcquire() = %v, want the lock", err)
					}
				})
			}

			if group.Wait(); t.Failed() {
				return
			}

			guarded, err := beside.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}

			// As Guard does, except on SQLite, where a guard keeps all others from writing.
			locking := map[databases.Dialect]string{databases.Postgres: "FOR KEY SHARE", databases.MySQL: "LOCK IN SHARE MODE"}[db.Dialect()]
			if _, err := guarded.ExecContext(t.Context(), "SELECT token FROM sqllock_locks WHERE name = 'held 0' "+locking); err != nil {
				t.Fatal(err)
			}

			handed := handToAndFro(t, lockerOn(t, cas.New(db)), lockerOn(t, cas.New(db)))

			timer := time.AfterFunc(lease, func() { _ = guarded.Rollback() })
			defer timer.Stop()

			tries := 1

			// Those who try again leave the others time in between, however long a try took.
			for began := time.Now(); ; <-time.After(lease / 6) {
				err := schema.UpFrom(t.Context(), beside, db.Dialect(), later(t, db.Dialect()))
				if err == nil {
					break
				}

				if tries++; time.Since(began) > patience {
					t.Fatalf("migrate up beside locks = %v, want nil after the guard", err)
				}
			}

			if _, err := beside.ExecContext(t.Context(), "UPDATE sqllock_locks SET more = 'x' WHERE name = 'held 1'"); err != nil {
				t.Errorf("the migration was not applied: %v", err)
			}

			pause, count := handed()
			t.Logf("%d hand-overs beside %d tries of a migration, %s apart at most", count, tries, pause.Round(time.Millisecond))

			if pause > lease {
				t.Errorf("nobody was handed the lock for %s, want %s at most", pause, lease)
			}

			for _, lock := range held {
				if err := lock.Check(t.Context()); err != nil {
					t.Fatalf("Check() after the migration = %v, want nil", err)
				}
			}
		})
	}
}

// later are the migrations that there are, and one more.
func later(t *testing.T, dialect databases.Dialect) fs.FS {
	t.Helper()

	files, err := migrations.For(string(dialect))
	if err != nil {
		t.Fatal(err)
	}

	all := fstest.MapFS{"99999_add.sql": {Data: []byte(additions[dialect])}}

	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}

		all[name] = &fstest.MapFile{Data: data}
	}

	return all
}

// handToAndFro has two lockers hand a name to each other until the function is called that it returns, which says how far apart two grants
// were at most, and how many there were.
func handToAndFro(t *testing.T, lockers ...*sqllock.Locker) func() (pause time.Duration, count int) {
	t.Helper()

	ctx, stop := context.WithCancel(t.Context())
	granted := make(chan time.Time, 1000)

	var group sync.WaitGroup

	for _, locker := range lockers {
		group.Go(func() {
			for ctx.Err() == nil {
				lock, err := locker.Acquire(ctx, "handed")
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Acquire() beside a migration = %v, want the lock", err)
					}

					return
				}

				granted <- time.Now()

				if err := lock.Release(context.WithoutCancel(ctx)); err != nil {
					t.Errorf("Release() beside a migration = %v, want nil", err)
				}
			}
		})
	}

	type result struct {
		pause time.Duration
		count int
	}

	results := make(chan result)

	go func() {
		r, last := result{}, time.Now()

		for at := range granted {
			r.pause, r.count, last = max(r.pause, at.Sub(last)), r.count+1, at
		}

		results <- r
	}()

	return func() (time.Duration, int) {
		stop()
		group.Wait()
		close(granted)

		r := <-results

		return r.pause, r.count
	}
}
