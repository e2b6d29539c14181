package conformance_test

import (
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/tidb"
	"github.com/sqllock/sqllock/internal/outsider"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
)

// Driver modes and settings of sessions: the first runs all cases.
var tidbModes = []struct {
	name  string
	plain bool
	set   func(*driver.Config)
}{
	{"default", false, func(*driver.Config) {}},
	{"plain", true, func(*driver.Config) {}},
	{"found-rows", false, func(c *driver.Config) {
		c.ClientFoundRows = true
		_ = c.Apply(driver.Charset("latin1", ""))
	}},
	{"interpolate", false, func(c *driver.Config) {
		c.InterpolateParams, c.ParseTime = true, true
		_ = c.Apply(driver.Charset("gbk", ""))
	}},
	// What a transaction that does not say otherwise would be.
	{"settings", false, func(c *driver.Config) {
		c.Params = map[string]string{
			"tidb_txn_mode": "'optimistic'", "transaction_isolation": "'READ-COMMITTED'",
			"tidb_constraint_check_in_place_pessimistic": "OFF", "innodb_lock_wait_timeout": "1",
		}
	}},
}

// tidbConfig is how to reach the server that SQLLOCK_TEST_TIDB names. None is brought up: it takes a build of minutes.
func tidbConfig(t *testing.T) *driver.Config {
	t.Helper()

	dsn := os.Getenv("SQLLOCK_TEST_TIDB")
	if dsn == "" {
		t.Skip("not run: SQLLOCK_TEST_TIDB names no server")
	}

	config, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}

	return config
}

// tidbDatabase makes a database with sqllock's tables.
func tidbDatabase(t *testing.T, server *driver.Config) *driver.Config {
	t.Helper()

	name := uniqueName()
	maintenance := mysqlPool(t, server)
	exec(t, maintenance, "CREATE DATABASE "+name)
	t.Cleanup(func() { exec(t, maintenance, "DROP DATABASE IF EXISTS "+name) })

	config := server.Clone()
	config.DBName = name

	parsing := config.Clone()
	parsing.ParseTime = true // goose reads times
	migrate(t, mysqlPool(t, parsing), databases.TiDB)

	return config
}

func TestTiDB(t *testing.T) {
	t.Parallel()

	server := tidbConfig(t)

	for m, mode := range tidbModes {
		for n, strategy := range catalog.Leased() {
			t.Run(mode.name+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				config := tidbDatabase(t, server)
				beside := mysqlPool(t, config)
				mode.set(config)

				sqllocktest.Run(t, sqllocktest.Harness{
					Only: part(m, n),
					New: func(t *testing.T) sqllocktest.Fixture {
						db := watched{tidb.New(mysqlPool(t, config)), digits(t)}
						faulty := sqllocktest.NewFaulty(db)
						other := sqllocktest.NewFaulty(watched{tidb.New(mysqlPool(t, config)), digits(t)})
						wrap := func(tx *sql.Tx) databases.Tx { return db.Tx(tidb.Tx(tx)) }

						fixture := sqllocktest.Fixture{
							Strategy: strategy.Make(faulty), Other: strategy.Make(other), Faulty: faulty, OtherFaulty: other,
							Rivals: func(t *testing.T) []strategies.Strategy {
								return rivals(t, strategy.Name, func() databases.DB { return tidb.New(mysqlPool(t, config)) })
							},
						}
						outsider.Outsider{DB: beside, Dialect: databases.TiDB, Strategy: strategy.Name}.Equip(&fixture, wrap)

						return fixture
					},
					GuardBlocksGuard: true,
					Isolations:       outsider.Isolations(databases.TiDB),
					TryWithin:        tryWithin,
					Patience:         casePatience,
					Statements:       outsider.Statements(strategy.Name, databases.TiDB),
					Plain:            mode.plain,
					Rivals:           true,
				})
			})
		}
	}
}

// TestTiDBRefuses: strategies whose locks a session holds say what to use, and so does each database that is
// told of the other's server.
func TestTiDBRefuses(t *testing.T) {
	t.Parallel()

	db := tidb.New(mysqlPool(t, driver.NewConfig()))

	for _, strategy := range catalog.ConnectionHeld() {
		refused := new(sqllock.UnsupportedError)
		if _, err := sqllock.New(strategy.Make(db)); !errors.As(err, &refused) || refused.Instead != "cas" {
			t.Errorf("New(%s on TiDB) = %v, want that it is not supported, and cas is", strategy.Name, err)
		}
	}
}

// TestTiDBIsNotMySQL: package mysql names the one for TiDB.
func TestTiDBIsNotMySQL(t *testing.T) {
	t.Parallel()

	locker := lockerOn(t, cas.New(mysql.New(mysqlPool(t, tidbDatabase(t, tidbConfig(t))))))

	_, err := locker.TryAcquire(t.Context(), "a")
	wantRefused(t, err, "tidb.New")
}

// TestMySQLIsNotTiDB: and the other way round.
func TestMySQLIsNotTiDB(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			locker := lockerOn(t, cas.New(tidb.New(mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, server))))))

			_, err := locker.TryAcquire(t.Context(), "a")
			wantRefused(t, err, "mysql.New")
		})
	}
}

func wantRefused(t *testing.T, err error, fix string) {
	t.Helper()

	refused := new(databases.ServerError)
	if !errors.Is(err, sqllock.ErrUnsupported) || !errors.As(err, &refused) || !strings.Contains(refused.Fix, fix) {
		t.Errorf("TryAcquire() = %v, want that the server is not supported, and to use %s", err, fix)
	}
}

// TestTiDBGuardedReads: as TestGuardedReads, in transactions of both kinds.
func TestTiDBGuardedReads(t *testing.T) {
	t.Parallel()

	server := tidbConfig(t)

	for _, kind := range []string{"pessimistic", "optimistic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			pool := mysqlPool(t, inMode(tidbDatabase(t, server), kind))
			exec(t, pool, "CREATE TABLE guarded (value int)")
			exec(t, pool, "INSERT INTO guarded VALUES (0)")

			for _, strategy := range catalog.Leased() {
				for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
					// An optimistic transaction has its snapshot whatever its level.
					if kind == "optimistic" && level == sql.LevelReadCommitted {
						continue
					}

					for _, handed := range []bool{false, true} {
						guardedRead(t, pool, tidb.Tx, strategy.Make(tidb.New(pool)), level, handed, kind == "optimistic")
					}
				}
			}
		})
	}
}

// inMode is the configuration with transactions of a kind.
func inMode(config *driver.Config, kind string) *driver.Config {
	config.Params = map[string]string{"tidb_txn_mode": "'" + kind + "'"}

	return config
}

// TestTiDBOptimisticGuard: an optimistic transaction keeps nobody from its lock. Who took the lock over
// keeps it from its commit.
func TestTiDBOptimisticGuard(t *testing.T) {
	t.Parallel()

	pool := mysqlPool(t, inMode(tidbDatabase(t, tidbConfig(t)), "optimistic"))
	exec(t, pool, "CREATE TABLE guarded (value int)")

	first, second := lockerOn(t, cas.New(tidb.New(pool))), lockerOn(t, cas.New(tidb.New(pool)))

	for _, taken := range []bool{false, true} {
		lock, err := first.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}

		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}

		if err := lock.Guard(t.Context(), tidb.Tx(tx)); err != nil {
			t.Fatalf("Guard() = %v, want nil", err)
		}

		if _, err := tx.ExecContext(t.Context(), "INSERT INTO guarded VALUES (1)"); err != nil {
			t.Fatal(err)
		}

		// A renewal does not count.
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Fatalf("Extend() beside a guard = %v, want nil", err)
		}

		if taken {
			if err := sqllocktest.ForceRelease(t.Context(), second, "a", "to take it over"); err != nil {
				t.Fatal(err)
			}

			next, err := second.TryAcquire(t.Context(), "a")
			if err != nil {
				t.Fatalf("TryAcquire() beside an optimistic guard = %v, want the lock", err)
			}

			defer func() { _ = next.Release(t.Context()) }()
		}

		if err := tx.Commit(); (err != nil) != taken {
			t.Errorf("Commit() of a guarded transaction = %v, and the lock was taken over: %t", err, taken)
		}

		if err := lock.Release(t.Context()); (err != nil) != taken {
			t.Errorf("Release() = %v, and the lock was taken over: %t", err, taken)
		}
	}

	var committed int
	if err := pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM guarded").Scan(&committed); err != nil || committed != 1 {
		t.Errorf("%d guarded transactions were committed (%v), want 1", committed, err)
	}
}

// TestTiDBSettings: a session that reads what was before is refused.
func TestTiDBSettings(t *testing.T) {
	t.Parallel()

	config := tidbDatabase(t, tidbConfig(t))

	for variable, value := range map[string]string{
		"tidb_read_staleness": "-5", "tidb_low_resolution_tso": "ON", "autocommit": "0", "timestamp": "1000000000",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()

			config := config.Clone()
			config.Params = map[string]string{variable: value}

			_, err := lockerOn(t, cas.New(tidb.New(mysqlPool(t, config)))).TryAcquire(t.Context(), "a")
			wantRefused(t, err, "leave")
		})
	}
}
