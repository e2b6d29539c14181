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

						ageReaders := func(t *testing.T, name string, d time.Duration) {
							t.Helper()
							exec(t, beside, "UPDATE sqllock_shares SET expires_at = expires_at - ? WHERE name = ?", d.Microseconds(), []byte(name))
						}

						return sqllocktest.Fixture{
							AgeReaders: ageReaders,
							Strategy:   strategy.Make(faulty), Other: strategy.Make(other), Faulty: faulty, OtherFaulty: other,
							Begin: func(t *testing.T, isolation string) sqllocktest.Transaction {
								return begin(t, beside, isolation, wrap, faulty)
							},
							Age: func(t *testing.T, name string, d time.Duration) {
								age(t, beside, "sqllock_leases", name, d)
								ageReaders(t, name, d)
							},
							RemoveRow: func(t *testing.T, name string) {
								removeRows(t, beside, "?", name, "sqllock_locks", "sqllock_leases", "sqllock_inserts", "sqllock_queue", "sqllock_shares")
							},
							LockRow: func(t *testing.T, name string) func() {
								return lockRows(t, beside, name, "SELECT 1 FROM sqllock_locks WHERE name = ? FOR UPDATE",
									"SELECT 1 FROM sqllock_leases WHERE name = ? FOR UPDATE")
							},
							LockNew:  lockNew(beside, strategy.Name, "?"),
							LockLeft: lockLeft(beside, strategy.Name, "?"),
							Rivals: func(t *testing.T) []strategies.Strategy {
								return rivals(t, strategy.Name, func() databases.DB { return tidb.New(mysqlPool(t, config)) })
							},
						}
					},
					GuardBlocksGuard: true,
					// It has no SERIALIZABLE.
					Isolations: []string{"read committed", "repeatable read"},
					TryWithin:  tryWithin,
					Statements: statementNames(strategy.Name, databases.TiDB),
					Plain:      mode.plain,
					Rivals:     true,
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
