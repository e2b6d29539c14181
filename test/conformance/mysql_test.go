package conformance_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

// Driver modes: what a DSN may say. The first runs all cases. Character sets are of the kind in which names
// are other bytes, and in which quoting by bytes is not enough.
var mysqlModes = []mysqlMode{
	{"default", false, true, func(*driver.Config) {}},
	{"plain", true, false, func(*driver.Config) {}},
	{"found-rows", false, true, func(c *driver.Config) {
		c.ClientFoundRows = true
		_ = c.Apply(driver.Charset("latin1", ""))
	}},
	{"interpolate", false, false, func(c *driver.Config) {
		c.InterpolateParams, c.ParseTime = true, true
		_ = c.Apply(driver.Charset("gbk", ""))
	}},
}

type mysqlMode struct {
	name         string
	plain, wakes bool
	set          func(*driver.Config)
}

func (m mysqlMode) database(pool *sql.DB) *mysql.DB {
	if m.wakes {
		return mysql.New(pool).WakeWaiters()
	}

	return mysql.New(pool)
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	testMySQL(t, "mysql")
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	testMySQL(t, "mariadb")
}

func testMySQL(t *testing.T, server string) {
	t.Helper()

	for m, mode := range mysqlModes {
		for n, strategy := range suited(mode.plain) {
			t.Run(mode.name+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				config := mysqlDatabase(t, mysqlConfig(t, server))
				beside := mysqlPool(t, config)
				mode.set(config)

				sqllocktest.Run(t, sqllocktest.Harness{
					Only: part(m, n),
					New: func(t *testing.T) sqllocktest.Fixture {
						db := watched{mode.database(mysqlPool(t, config)), digits(t)}
						faulty := sqllocktest.NewFaulty(db)
						other := sqllocktest.NewFaulty(watched{mode.database(mysqlPool(t, config)), digits(t)})
						wrap := func(tx *sql.Tx) databases.Tx { return db.Tx(mysql.Tx(tx)) }

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
							EndSession: func(t *testing.T, name string) { endMySQLSession(t, beside, strategy.Name, name) },
							RemoveRow: func(t *testing.T, name string) {
								removeRows(t, beside, "?", name, "sqllock_locks", "sqllock_leases", "sqllock_inserts", "sqllock_mutexes", "sqllock_queue", "sqllock_shares")
							},
							LockRow: func(t *testing.T, name string) func() {
								return lockRows(t, beside, name, "SELECT 1 FROM sqllock_locks WHERE name = ? FOR UPDATE",
									"SELECT 1 FROM sqllock_leases WHERE name = ? FOR UPDATE")
							},
							LockNew:  lockNew(beside, strategy.Name, "?"),
							LockLeft: lockLeft(beside, strategy.Name, "?"),
							Rivals: func(t *testing.T) []strategies.Strategy {
								return rivals(t, strategy.Name, func() databases.DB { return mysql.New(mysqlPool(t, config)) })
							},
						}
					},
					Isolations: []string{"read committed", "repeatable read", "serializable"},
					TryWithin:  tryWithin,
					Statements: statementNames(strategy.Name, databases.MySQL),
					Plain:      mode.plain,
					Rivals:     true,
				})
			})
		}
	}
}

// mysqlDatabase makes a database with sqllock's tables, for one run of the
// suite.
func mysqlDatabase(t *testing.T, server *driver.Config) *driver.Config {
	t.Helper()

	name := uniqueName()
	maintenance := mysqlPool(t, server)
	exec(t, maintenance, "CREATE DATABASE "+name)
	t.Cleanup(func() { exec(t, maintenance, "DROP DATABASE IF EXISTS "+name) })

	config := server.Clone()
	config.DBName = name

	parsing := config.Clone()
	parsing.ParseTime = true // goose reads times
	migrate(t, mysqlPool(t, parsing), databases.MySQL)

	return config
}

func mysqlPool(t *testing.T, config *driver.Config) *sql.DB {
	t.Helper()

	connector, err := driver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}

	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(poolSize)
	t.Cleanup(func() { _ = db.Close() })

	return db
}

// endMySQLSession ends the session that holds a lock, as an operator does.
func endMySQLSession(t *testing.T, db *sql.DB, strategy, name string) {
	t.Helper()

	var (
		query string
		arg   any = name
		id    sql.NullInt64
	)

	switch strategy {
	case "forupdate":
		query = "SELECT IS_USED_LOCK(CONCAT('sqllock:', CONVERT(owner USING utf8mb4))) FROM sqllock_leases WHERE name = ?"
	case "advisory":
		var database string
		if err := db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database); err != nil {
			t.Fatal(err)
		}

		sum := sha256.Sum256([]byte("sqllock\x00" + database + "\x00" + name))
		arg = "sqllock:" + hex.EncodeToString(sum[:20])
		query = "SELECT IS_USED_LOCK(?)"
	}

	if err := db.QueryRowContext(t.Context(), query, arg).Scan(&id); err != nil {
		t.Fatal(err)
	}

	if !id.Valid {
		t.Fatalf("no session holds %q", name)
	}

	exec(t, db, fmt.Sprintf("KILL %d", id.Int64))

	// The locks of a killed session go with its thread, a moment later. Another
	// session that waited may have them at once.
	deadline := time.Now().Add(5 * time.Second)

	for {
		var used sql.NullInt64
		if err := db.QueryRowContext(t.Context(), query, arg).Scan(&used); err != nil {
			t.Fatal(err)
		}

		if used != id {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("session %d still holds %q", used.Int64, name)
		}
	}
}

// TestBatchKeepsOffTheDisk: the tables that a server makes of a batch while it
// executes a statement stay in memory. One on disk, into which MariaDB puts every
// value that may be long, takes longer than the batch.
func TestBatchKeepsOffTheDisk(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			pool := mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, server)))
			pool.SetMaxOpenConns(1) // what is counted is counted for each session

			onDisk := func() (made int) {
				t.Helper()

				var variable string
				if err := pool.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Created_tmp_disk_tables'").Scan(&variable, &made); err != nil {
					t.Fatal(err)
				}

				return made
			}

			s := cas.New(mysql.New(pool))
			batchTwice(t, server, s) // the rows are there from now on, and the server verified

			// Whatever the question itself makes.
			begun := onDisk()
			asking := onDisk() - begun
			begun += 2 * asking

			batchTwice(t, server, s)

			if made := onDisk() - begun; made != 0 {
				t.Errorf("two acquisitions, renewals and releases in batches made %d tables on disk, want none", made)
			}
		})
	}
}
