// Package conformance runs the conformance suite for every strategy on every
// database and driver mode. make test brings up the servers.
package conformance_test

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
	"github.com/sqllock/sqllock/test/schema"
	"github.com/sqllock/sqllock/test/servers"
)

// suited returns the strategies of a mode. Those that hold a connection neither
// batch, nor hand on, nor listen, so that they are always plain.
func suited(plain bool) []catalog.Strategy {
	if plain {
		return catalog.Leased()
	}

	return catalog.All()
}

// parts is how many ways the cases are divided among the strategies where a mode of the driver is not the first of its
// database: that one runs all of them, and what differs with the mode, how values are bound and errors told, each of the
// statements shows.
const parts = 3

// part are the cases that a mode of a driver runs with a strategy, by their numbers: all with SQLLOCK_TEST_ALL=1.
func part(mode, strategy int) func(name string) bool {
	return func(name string) bool {
		if mode == 0 || os.Getenv("SQLLOCK_TEST_ALL") == "1" {
			return true
		}

		sum := fnv.New32a()
		_, _ = sum.Write([]byte(name))

		return (int(sum.Sum32())+mode+strategy)%parts == 0
	}
}

// rivals makes the other strategies, each on a database of its own.
func rivals(t *testing.T, name string, open func() databases.DB) (made []strategies.Strategy) {
	t.Helper()

	for _, rival := range catalog.Rivals(open().Dialect(), name) {
		made = append(made, rival.Make(open()))
	}

	return made
}

// dsn returns the DSN of a database's server. A test of a database that is
// left out of SQLLOCK_TEST_DATABASES is skipped; one that is not and has no
// server fails.
func dsn(t *testing.T, name string) string {
	t.Helper()

	wanted := os.Getenv("SQLLOCK_TEST_DATABASES")
	if wanted == "" {
		wanted = "postgres,mysql,mariadb,sqlite"
	}

	if !slices.Contains(strings.Split(wanted, ","), name) {
		t.Skipf("SQLLOCK_TEST_DATABASES=%s leaves %s out", wanted, name)
	}

	if name == "sqlite" {
		return ""
	}

	value := os.Getenv(servers.Variable(name))
	if value == "" {
		t.Fatalf("no server for %s: run make test, or set %s to its DSN, or leave it out of SQLLOCK_TEST_DATABASES",
			name, servers.Variable(name))
	}

	return value
}

// tryWithin is far less than the locks beside which a try is made stay: the five seconds
// that a try takes at most, and some for a loaded machine.
const tryWithin = 8 * time.Second

// unique names databases of this run.
var unique atomic.Int64

func uniqueName() string {
	return fmt.Sprintf("sqllock_test_%d_%d_%d", os.Getpid(), time.Now().Unix()%100000, unique.Add(1))
}

// migrate makes sqllock's tables.
func migrate(t *testing.T, db *sql.DB, dialect databases.Dialect) {
	t.Helper()

	if err := schema.Up(t.Context(), db, dialect); err != nil {
		t.Fatal(err)
	}
}

// lockerOn returns a locker, which is closed after the test.
func lockerOn(t *testing.T, s strategies.Strategy, opts ...sqllock.Option) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(s, opts...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

	return locker
}

// exec runs a statement beside sqllock.
func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()

	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// begin opens a caller's transaction and takes its snapshot.
func begin(
	t *testing.T, db *sql.DB, isolation string, wrap func(*sql.Tx) databases.Tx, faulty *sqllocktest.Faulty,
) sqllocktest.Transaction {
	t.Helper()

	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), &sql.TxOptions{Isolation: map[string]sql.IsolationLevel{
		"":                sql.LevelDefault,
		"read committed":  sql.LevelReadCommitted,
		"repeatable read": sql.LevelRepeatableRead,
		"serializable":    sql.LevelSerializable,
	}[isolation]})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = tx.Rollback() })

	// SQLite's transaction cannot write any more once another did since its
	// snapshot, so there it has none yet.
	if wrap(tx).Database() == string(databases.SQLite) {
		return sqllocktest.Transaction{Tx: faulty.Tx(wrap(tx)), Commit: tx.Commit, Rollback: tx.Rollback}
	}

	// Not from sqllock's tables: InnoDB's SERIALIZABLE would lock what it reads.
	var count int
	if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM "+migrations.TableName).Scan(&count); err != nil {
		t.Fatal(err)
	}

	return sqllocktest.Transaction{Tx: faulty.Tx(wrap(tx)), Commit: tx.Commit, Rollback: tx.Rollback}
}

// lockRows opens a transaction that locks rows.
func lockRows(t *testing.T, db *sql.DB, name string, queries ...string) func() {
	t.Helper()

	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}

	for _, query := range queries {
		lockRow(t, tx, query, name)
	}

	unlock := func() { _ = tx.Rollback() }
	t.Cleanup(unlock)

	return unlock
}

// lockNew makes the rows of a name, and does not commit; value is how the driver
// writes a name.
func lockNew(db *sql.DB, strategy, value string) func(*testing.T, string) func() {
	return func(t *testing.T, name string) func() {
		t.Helper()

		queries := []string{"INSERT INTO sqllock_locks (name) VALUES (" + value + ")"}
		if strategy == "forupdate" {
			queries = append(queries, "INSERT INTO sqllock_mutexes (name) VALUES ("+value+")")
		}

		return lockRows(t, db, name, queries...)
	}
}

// lockLeft locks the row of strategy insert; value is how the driver writes a name.
func lockLeft(db *sql.DB, strategy, value string) func(*testing.T, string) func() {
	if strategy != "insert" {
		return nil
	}

	return func(t *testing.T, name string) func() {
		t.Helper()

		return lockRows(t, db, name, "SELECT 1 FROM sqllock_inserts WHERE name = "+value+" FOR UPDATE")
	}
}

// lockRow reads the rows to the end: an Exec of a SELECT does not return with
// go-sql-driver 1.10.1 on MariaDB 11.8 when there is no row.
func lockRow(t *testing.T, tx *sql.Tx, query, name string) {
	t.Helper()

	rows, err := tx.QueryContext(t.Context(), query, name)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}

	defer func() { _ = rows.Close() }()

	for rows.Next() {
	}

	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// idle is an age at which Age makes the grant look old, too, and not only its
// lease: a name's idle time counts from its last grant.
const idle = time.Hour

// age makes what a name's rows say older, where a value is a question mark.
func age(t *testing.T, db *sql.DB, leases, name string, d time.Duration) {
	t.Helper()

	exec(t, db, "UPDATE "+leases+" SET expires_at = expires_at - ? WHERE name = ?", d.Microseconds(), name)

	if d >= idle {
		exec(t, db, "UPDATE sqllock_locks SET token = token - ? WHERE name = ?", d.Microseconds(), name)
	}
}

// removeRows removes a name from tables; value is how the driver writes one.
func removeRows(t *testing.T, db *sql.DB, value, name string, tables ...string) {
	t.Helper()

	for _, table := range tables {
		exec(t, db, "DELETE FROM "+table+" WHERE name = "+value, name)
	}
}

// statementNames says which statement decides an operation, where its name
// does not.
func statementNames(strategy string, dialect databases.Dialect) map[string]string {
	switch {
	case strategy == "forupdate":
		return map[string]string{"attempt": "forupdate.lock"}
	case strategy == "advisory":
		return map[string]string{"attempt": "advisory.try"}
	case strategy == "insert" && (dialect == databases.MySQL || dialect == databases.TiDB):
		return map[string]string{"acquire": "insert.insert", "attempt": "insert.look"}
	case strategy == "insert" && dialect == databases.SQLite:
		return map[string]string{"acquire": "insert.commit", "attempt": "insert.begin"}
	default:
		return nil
	}
}
