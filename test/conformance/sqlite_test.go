package conformance_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/test/strategies"
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	for mode, plain := range map[string]bool{"default": false, "plain": true} {
		for _, strategy := range strategies.Leased() {
			t.Run(mode+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				sqllocktest.Run(t, sqllocktest.Harness{
					// A file for each case: one writer at a time is all it has.
					New: func(t *testing.T) sqllocktest.Fixture {
						file := sqliteFile(t)
						beside := sqlitePool(t, file)
						faulty := sqllocktest.NewFaulty(sqlite.New(sqlitePool(t, file)))
						other := sqllocktest.NewFaulty(sqlite.New(sqlitePool(t, file)))

						return sqllocktest.Fixture{
							Strategy: strategy.Make(faulty), Other: strategy.Make(other), Faulty: faulty, OtherFaulty: other,
							Begin: func(t *testing.T, isolation string) sqllocktest.Transaction {
								return begin(t, beside, isolation, sqlite.Tx, faulty)
							},
							Age: func(t *testing.T, name string, d time.Duration) {
								age(t, beside, leaseTable(databases.SQLite, strategy.Name), name, d)
							},
							RemoveRow: func(t *testing.T, name string) {
								removeRows(t, beside, "?", name, "sqllock_locks", "sqllock_inserts")
							},
							LockRow: func(t *testing.T, name string) func() {
								return lockRows(t, beside, name, "UPDATE sqllock_locks SET token = token WHERE name = ?")
							},
						}
					},
					GuardBlocksRenewal: true,
					TryWithin:          tryWithin,
					Statements:         statementNames(strategy.Name, databases.SQLite),
					Plain:              plain,
				})
			})
		}
	}
}

// TestSQLiteRefuses checks that strategies that SQLite can not carry say so.
func TestSQLiteRefuses(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	db := sqlite.New(sqlitePool(t, sqliteFile(t)))

	for _, strategy := range strategies.ConnectionHeld() {
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

	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
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
