package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/internal/outsider"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	for m, mode := range []string{"default", "plain"} {
		for n, strategy := range catalog.Leased() {
			t.Run(mode+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				sqllocktest.Run(t, sqllocktest.Harness{
					Only: part(m, n),
					// A file for each case: one writer at a time is all it has.
					New: func(t *testing.T) sqllocktest.Fixture {
						file := sqliteFile(t)
						beside := sqlitePool(t, file)
						faulty := sqllocktest.NewFaulty(sqlite.New(sqlitePool(t, file)))
						other := sqllocktest.NewFaulty(sqlite.New(sqlitePool(t, file)))

						fixture := sqllocktest.Fixture{
							Strategy: strategy.Make(faulty), Other: strategy.Make(other), Faulty: faulty, OtherFaulty: other,
							Rivals: func(t *testing.T) []strategies.Strategy {
								return rivals(t, strategy.Name, func() databases.DB { return sqlite.New(sqlitePool(t, file)) })
							},
						}
						outsider.Outsider{DB: beside, Dialect: databases.SQLite, Strategy: strategy.Name}.Equip(&fixture, sqlite.Tx)

						return fixture
					},
					GuardBlocksRenewal: true,
					TryWithin:          tryWithin,
					Patience:           casePatience,
					Statements:         outsider.Statements(strategy.Name, databases.SQLite),
					Plain:              mode == "plain",
					Rivals:             true,
				})
			})
		}
	}
}

// TestSQLiteRefuses checks that strategies that SQLite cannot carry say so.
func TestSQLiteRefuses(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	db := sqlite.New(sqlitePool(t, sqliteFile(t)))

	for _, strategy := range catalog.ConnectionHeld() {
		if _, err := sqllock.New(strategy.Make(db)); err == nil {
			t.Errorf("New(%s on SQLite) = nil, want an error", strategy.Name)
		} else {
			t.Log(err)
		}
	}
}

func sqliteFile(t *testing.T) string {
	t.Helper()

	file := filepath.Join(t.TempDir(), "locks.db")
	migrate(t, sqlitePool(t, file), databases.SQLite)

	return file
}

func sqlitePool(t *testing.T, file string) *sql.DB {
	t.Helper()

	// Without waits for the disk, which decide nothing here: no case is about a machine that loses power.
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}

	db.SetMaxOpenConns(poolSize)
	t.Cleanup(func() { _ = db.Close() })

	if err := db.PingContext(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}

	return db
}

// TestSQLiteBusyFile has another process write to the file for longer than the busy
// timeout, which says nothing about a name: nobody has it, and a job that is skipped
// when somebody does must not be.
func TestSQLiteBusyFile(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	for _, strategy := range catalog.Leased() {
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			file := sqliteFile(t)

			locker := lockerOn(t, strategy.Make(sqlite.New(sqlitePool(t, file))))

			writer, err := sqlitePool(t, file).BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = writer.Rollback() }()

			if _, err := writer.ExecContext(t.Context(), "INSERT INTO sqllock_locks (name) VALUES ('other')"); err != nil {
				t.Fatal(err)
			}

			_, err = locker.TryAcquire(t.Context(), "a")
			if !errors.Is(err, sqllock.ErrUnreachable) || errors.Is(err, sqllock.ErrNotAcquired) {
				t.Errorf("TryAcquire beside a writer = %v, want ErrUnreachable", err)
			}

			// Longer than the attempts of a locker that never reached its database.
			time.AfterFunc(6*time.Second, func() { _ = writer.Rollback() })

			lock, err := locker.Acquire(t.Context(), "b", sqllock.WithMaxWait(time.Minute))
			if err != nil {
				t.Fatalf("Acquire until a writer ends = %v", err)
			}

			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release = %v", err)
			}
		})
	}
}

// TestSQLiteConnectBusy has another process lock a file that has no WAL yet, so that
// the driver's own PRAGMA at connect is refused.
func TestSQLiteConnectBusy(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	for _, strategy := range catalog.Leased() {
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			file := filepath.Join(t.TempDir(), "locks.db")

			// A new connection for each lock.
			open := func(parameters string) *sql.DB {
				db, err := sql.Open("sqlite", "file:"+file+parameters)
				if err != nil {
					t.Fatal(err)
				}

				db.SetMaxIdleConns(-1)
				t.Cleanup(func() { _ = db.Close() })

				return db
			}

			writers := open("?_pragma=busy_timeout(1000)")
			migrate(t, writers, databases.SQLite)

			writer, err := writers.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			defer func() { _ = writer.Close() }()

			if _, err := writer.ExecContext(t.Context(), "BEGIN EXCLUSIVE"); err != nil {
				t.Fatal(err)
			}

			locker := lockerOn(t, strategy.Make(sqlite.New(open("?_pragma=busy_timeout(100)&_pragma=journal_mode(WAL)"))))

			_, err = locker.TryAcquire(t.Context(), "a")
			if !errors.Is(err, sqllock.ErrUnreachable) || errors.Is(err, sqllock.ErrNotAcquired) {
				t.Errorf("TryAcquire() beside a writer = %v, want ErrUnreachable", err)
			}

			// Longer than the attempts of a locker that never reached its database.
			time.AfterFunc(6*time.Second, func() { _, _ = writer.ExecContext(context.WithoutCancel(t.Context()), "ROLLBACK") })

			lock, err := locker.Acquire(t.Context(), "b", sqllock.WithMaxWait(time.Minute))
			if err != nil {
				t.Fatalf("Acquire() until a writer ends = %v", err)
			}

			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v", err)
			}
		})
	}
}
