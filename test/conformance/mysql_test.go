package conformance_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllocktest"
)

// Driver modes: what a DSN may say.
var mysqlModes = []struct {
	name string
	set  func(*driver.Config)
}{
	{"default", func(*driver.Config) {}},
	{"found-rows", func(c *driver.Config) { c.ClientFoundRows = true }},
	{"interpolate", func(c *driver.Config) { c.InterpolateParams, c.ParseTime = true, true }},
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

	config, err := driver.ParseDSN(dsn(t, server))
	if err != nil {
		t.Fatal(err)
	}

	for _, mode := range mysqlModes {
		for _, strategy := range strategies {
			t.Run(mode.name+"/"+strategy.name, func(t *testing.T) {
				t.Parallel()

				config := mysqlDatabase(t, config)
				beside := mysqlPool(t, config)
				mode.set(config)

				sqllocktest.Run(t, sqllocktest.Harness{
					New: func(t *testing.T) sqllocktest.Fixture {
						faulty := sqllocktest.NewFaulty(mysql.New(mysqlPool(t, config)))
						other := sqllocktest.NewFaulty(mysql.New(mysqlPool(t, config)))

						return sqllocktest.Fixture{
							Strategy: strategy.make(faulty), Other: strategy.make(other), Faulty: faulty, OtherFaulty: other,
							Begin: func(t *testing.T, isolation string) sqllocktest.Transaction {
								return begin(t, beside, isolation, mysql.Tx, faulty)
							},
							Age: func(t *testing.T, name string, d time.Duration) {
								exec(t, beside, "UPDATE "+leaseTable(databases.MySQL, strategy.name)+
									" SET expires_at = expires_at - ? WHERE name = ?", d.Microseconds(), name)

								if d >= idle {
									exec(t, beside, "UPDATE sqllock_locks SET token = token - ? WHERE name = ?", d.Microseconds(), name)
								}
							},
							EndSession: func(t *testing.T, name string) { endMySQLSession(t, beside, strategy.name, name) },
							RemoveRow: func(t *testing.T, name string) {
								for _, table := range []string{"sqllock_locks", "sqllock_leases", "sqllock_inserts", "sqllock_mutexes"} {
									exec(t, beside, "DELETE FROM "+table+" WHERE name = ?", name)
								}
							},
							LockRow: func(t *testing.T, name string) func() {
								return lockRows(t, beside, name, "SELECT 1 FROM sqllock_locks WHERE name = ? FOR UPDATE",
									"SELECT 1 FROM "+leaseTable(databases.MySQL, strategy.name)+" WHERE name = ? FOR UPDATE")
							},
						}
					},
					Isolations: []string{"read committed", "repeatable read", "serializable"},
					TryWithin:  tryWithin,
					Statements: statementNames(strategy.name, databases.MySQL),
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
	migrate(t, mysqlPool(t, parsing), goose.DialectMySQL, "mysql")

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

	// The locks of a killed session go with its thread, a moment later.
	deadline := time.Now().Add(5 * time.Second)

	for {
		var used sql.NullInt64
		if err := db.QueryRowContext(t.Context(), query, arg).Scan(&used); err != nil {
			t.Fatal(err)
		}

		if !used.Valid {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("session %d still holds %q", used.Int64, name)
		}
	}
}
