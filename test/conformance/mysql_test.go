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
)

// Driver modes: what a DSN may say.
var mysqlModes = []struct {
	name  string
	plain bool
	set   func(*driver.Config)
}{
	{"plain", true, func(*driver.Config) {}},
	{"default", false, func(*driver.Config) {}},
	{"found-rows", false, func(c *driver.Config) { c.ClientFoundRows = true }},
	{"interpolate", false, func(c *driver.Config) { c.InterpolateParams, c.ParseTime = true, true }},
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

	for _, mode := range mysqlModes {
		for _, strategy := range suited(mode.plain) {
			t.Run(mode.name+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				config := mysqlDatabase(t, mysqlConfig(t, server))
				beside := mysqlPool(t, config)
				mode.set(config)

				sqllocktest.Run(t, sqllocktest.Harness{
					New: func(t *testing.T) sqllocktest.Fixture {
						faulty := sqllocktest.NewFaulty(mysql.New(mysqlPool(t, config)))
						other := sqllocktest.NewFaulty(mysql.New(mysqlPool(t, config)))

						return sqllocktest.Fixture{
							Strategy: strategy.Make(faulty), Other: strategy.Make(other), Faulty: faulty, OtherFaulty: other,
							Begin: func(t *testing.T, isolation string) sqllocktest.Transaction {
								return begin(t, beside, isolation, mysql.Tx, faulty)
							},
							Age: func(t *testing.T, name string, d time.Duration) {
								age(t, beside, leaseTable(databases.MySQL, strategy.Name), name, d)
							},
							EndSession: func(t *testing.T, name string) { endMySQLSession(t, beside, strategy.Name, name) },
							RemoveRow: func(t *testing.T, name string) {
								removeRows(t, beside, "?", name, "sqllock_locks", "sqllock_leases", "sqllock_inserts", "sqllock_mutexes")
							},
							LockRow: func(t *testing.T, name string) func() {
								return lockRows(t, beside, name, "SELECT 1 FROM sqllock_locks WHERE name = ? FOR UPDATE",
									"SELECT 1 FROM "+leaseTable(databases.MySQL, strategy.Name)+" WHERE name = ? FOR UPDATE")
							},
						}
					},
					Isolations: []string{"read committed", "repeatable read", "serializable"},
					TryWithin:  tryWithin,
					Statements: statementNames(strategy.Name, databases.MySQL),
					Plain:      mode.plain,
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
