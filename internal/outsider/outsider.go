// Package outsider does to sqllock's tables what the cases of the conformance suite want done beside the strategy:
// it ages rows, locks and removes them, and ends sessions, as any other program or an operator may. It is for servers
// that are tested, and for those that cmd/sqllock/prove tries.
package outsider

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllocktest"
)

// Outsider works on the database of a strategy through a pool of its own.
type Outsider struct {
	// DB is the pool; Dialect says what is on its other end, and Strategy what is tested there.
	DB       *sql.DB
	Dialect  databases.Dialect
	Strategy string
	// Callers is the pool of the transactions in which locks are guarded, where DB goes past a proxy; nil is DB.
	Callers *sql.DB
	// Fail ends a case because of what went wrong here, and does not return. nil fails it.
	Fail func(t *testing.T, err error)
}

// Equip gives a fixture what the outsider can do. wrap is what the fixture's database makes of a transaction, and
// goes beneath fixture.Faulty.
func (o Outsider) Equip(fixture *sqllocktest.Fixture, wrap func(*sql.Tx) databases.Tx) {
	faulty := fixture.Faulty

	fixture.Begin = func(t *testing.T, isolation string) sqllocktest.Transaction {
		t.Helper()

		return o.begin(t, isolation, func(tx *sql.Tx) databases.Tx { return faulty.Tx(wrap(tx)) })
	}
	fixture.Age, fixture.AgeReaders, fixture.RemoveRow, fixture.LockRow = o.age, o.ageReaders, o.removeRows, o.lockRow

	if o.Dialect == databases.SQLite {
		return
	}

	fixture.LockNew = o.lockNew

	// Never on TiDB, which crashes by a KILL of a session that is idle in a transaction
	// (https://github.com/pingcap/tidb/issues/63956).
	if o.Dialect != databases.TiDB {
		fixture.EndSession = o.endSession
	}

	if o.Strategy == "insert" {
		fixture.LockLeft = o.lockLeft
	}
}

// Isolations are the levels that Begin knows, for sqllocktest.Harness.
func Isolations(dialect databases.Dialect) []string {
	switch dialect {
	case databases.SQLite:
		return nil
	case databases.TiDB:
		return []string{"read committed", "repeatable read"} // it has no other
	default:
		return []string{"read committed", "repeatable read", "serializable"}
	}
}

// Statements says which statement decides an operation of a strategy, where its name does not, for
// sqllocktest.Harness.
func Statements(strategy string, dialect databases.Dialect) map[string]string {
	switch {
	case strategy == "forupdate":
		return map[string]string{"attempt": "forupdate.lock"}
	case strategy == "insert" && likeMySQL(dialect):
		return map[string]string{"acquire": "insert.insert", "attempt": "insert.look"}
	case strategy == "insert" && dialect == databases.SQLite:
		return map[string]string{"acquire": "insert.commit", "attempt": "insert.begin"}
	default:
		return nil
	}
}

// likeMySQL says whether the tables are those of MySQL.
func likeMySQL(dialect databases.Dialect) bool {
	return dialect == databases.MySQL || dialect == databases.TiDB
}

// fail ends the case if there is an error.
func (o Outsider) fail(t *testing.T, err error) {
	t.Helper()

	switch {
	case err == nil:
	case o.Fail != nil:
		o.Fail(t, err)
	default:
		t.Fatal(err)
	}
}

// turn is for how long a writer waits for its turn on SQLite, where others may be served first for longer than a busy timeout.
const turn = 15 * time.Second

// exec runs a statement beside sqllock.
func (o Outsider) exec(t *testing.T, query string, args ...any) {
	t.Helper()

	for until := time.Now().Add(turn); ; {
		_, err := o.DB.ExecContext(context.WithoutCancel(t.Context()), query, args...)
		if err == nil {
			return
		}

		if o.Dialect != databases.SQLite || !strings.Contains(err.Error(), "locked") || time.Now().After(until) {
			o.fail(t, fmt.Errorf("%s: %w", query, err))

			return
		}
	}
}

// name is how a name is bound. To MySQL it goes as bytes, whatever character set the connection has.
func (o Outsider) name(name string) any {
	if likeMySQL(o.Dialect) {
		return []byte(name)
	}

	return name
}

// parameter is how the n-th value of a statement is written.
func (o Outsider) parameter(n int) string {
	if o.Dialect == databases.Postgres {
		return fmt.Sprintf("$%d", n)
	}

	return "?"
}

// begin opens a caller's transaction and takes its snapshot.
func (o Outsider) begin(t *testing.T, isolation string, wrap func(*sql.Tx) databases.Tx) sqllocktest.Transaction {
	t.Helper()

	callers := o.Callers
	if callers == nil {
		callers = o.DB
	}

	tx, err := callers.BeginTx(context.WithoutCancel(t.Context()), &sql.TxOptions{Isolation: map[string]sql.IsolationLevel{
		"":                sql.LevelDefault,
		"read committed":  sql.LevelReadCommitted,
		"repeatable read": sql.LevelRepeatableRead,
		"serializable":    sql.LevelSerializable,
	}[isolation]})
	o.fail(t, err)

	t.Cleanup(func() { _ = tx.Rollback() })

	// SQLite's transaction cannot write any more once another did since its
	// snapshot, so there it has none yet.
	if o.Dialect != databases.SQLite {
		// Not from sqllock's tables: InnoDB's SERIALIZABLE would lock what it reads.
		var count int
		o.fail(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM "+migrations.TableName).Scan(&count))
	}

	return sqllocktest.Transaction{Tx: wrap(tx), Commit: tx.Commit, Rollback: tx.Rollback}
}

// idle is an age at which age makes the grant look old, too, and not only its
// lease: a name's idle time counts from its last grant, and from when somebody waited.
const idle = time.Hour

// age makes what a name's rows say older.
func (o Outsider) age(t *testing.T, name string, d time.Duration) {
	t.Helper()

	leases := "sqllock_locks"
	if likeMySQL(o.Dialect) {
		leases = "sqllock_leases"
	}

	o.expire(t, leases, name, d)
	o.ageReaders(t, name, d)

	if d >= idle {
		o.earlier(t, "sqllock_locks", "acquired_at", name, d)

		// The number of a line is the time of the last entry.
		o.exec(t, "UPDATE "+leases+" SET waiting = waiting - "+o.parameter(1)+" WHERE waiting > "+o.parameter(2)+" AND name = "+o.parameter(3),
			d.Microseconds(), d.Microseconds(), o.name(name))
	}
}

func (o Outsider) ageReaders(t *testing.T, name string, d time.Duration) {
	t.Helper()
	o.expire(t, "sqllock_shares", name, d)
}

// expire lets what a table says of a name's leases end sooner.
func (o Outsider) expire(t *testing.T, table, name string, d time.Duration) {
	t.Helper()

	o.earlier(t, table, "expires_at", name, d)
}

// earlier makes a time earlier that a table says of a name.
func (o Outsider) earlier(t *testing.T, table, column, name string, d time.Duration) {
	t.Helper()

	by := "?"
	if o.Dialect == databases.Postgres {
		by = "$1::float * interval '1 microsecond'"
	}

	o.exec(t, "UPDATE "+table+" SET "+column+" = "+column+" - "+by+" WHERE name = "+o.parameter(2), d.Microseconds(), o.name(name))
}

// removeRows removes a name from all tables.
func (o Outsider) removeRows(t *testing.T, name string) {
	t.Helper()

	tables := []string{"sqllock_locks", "sqllock_inserts", "sqllock_queue", "sqllock_shares"}

	switch o.Dialect {
	case databases.Postgres:
		tables = append(tables, "sqllock_mutexes")
	case databases.MySQL:
		tables = append(tables, "sqllock_mutexes", "sqllock_leases")
	case databases.TiDB:
		tables = append(tables, "sqllock_leases")
	case databases.SQLite:
	}

	for _, table := range tables {
		o.exec(t, "DELETE FROM "+table+" WHERE name = "+o.parameter(1), o.name(name))
	}
}

// lockRow locks what a renewal writes, and what a grant does.
func (o Outsider) lockRow(t *testing.T, name string) func() {
	t.Helper()

	switch o.Dialect {
	case databases.SQLite:
		return o.lock(t, name, "UPDATE sqllock_locks SET token = token WHERE name = ?")
	case databases.MySQL, databases.TiDB:
		return o.lock(t, name, "SELECT 1 FROM sqllock_locks WHERE name = ? FOR UPDATE", "SELECT 1 FROM sqllock_leases WHERE name = ? FOR UPDATE")
	default:
		return o.lock(t, name, "SELECT 1 FROM sqllock_locks WHERE name = $1 FOR UPDATE")
	}
}

// lockNew makes the rows of a name, and does not commit.
func (o Outsider) lockNew(t *testing.T, name string) func() {
	t.Helper()

	queries := []string{"INSERT INTO sqllock_locks (name) VALUES (" + o.parameter(1) + ")"}
	if o.Strategy == "forupdate" {
		queries = append(queries, "INSERT INTO sqllock_mutexes (name) VALUES ("+o.parameter(1)+")")
	}

	return o.lock(t, name, queries...)
}

// lockLeft locks the row of strategy insert.
func (o Outsider) lockLeft(t *testing.T, name string) func() {
	t.Helper()

	return o.lock(t, name, "SELECT 1 FROM sqllock_inserts WHERE name = "+o.parameter(1)+" FOR UPDATE")
}

// lock opens a transaction that locks rows.
func (o Outsider) lock(t *testing.T, name string, queries ...string) (unlock func()) {
	t.Helper()

	tx, err := o.DB.BeginTx(context.WithoutCancel(t.Context()), nil)
	o.fail(t, err)

	unlock = func() { _ = tx.Rollback() }
	t.Cleanup(unlock)

	for _, query := range queries {
		if err := readAll(t.Context(), tx, query, o.name(name)); err != nil {
			o.fail(t, fmt.Errorf("%s: %w", query, err))
		}
	}

	return unlock
}

// readAll reads the rows to the end: an Exec of a SELECT does not return with
// go-sql-driver 1.10.1 on MariaDB 11.8 when there is no row.
func readAll(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}

	defer func() { _ = rows.Close() }()

	for rows.Next() {
	}

	return rows.Err()
}
