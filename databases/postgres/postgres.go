// Package postgres keeps locks in PostgreSQL 13 or later, through pgx's pool
// or through database/sql with any driver.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/internal/detour"
)

// New returns the database behind a pgx pool. All of pgx's query modes work,
// so a pool that talks to a transaction-pooling proxy may use
// pgx.QueryExecModeExec or pgx.QueryExecModeSimpleProtocol. The pool stays the
// caller's: nothing here closes it.
//
// If the application keeps all connections of the pool in use, locks are renewed over
// one connection beside it, with the pool's settings, so that none is lost.
func New(pool *pgxpool.Pool) *DB { return &DB{pool: pool, beside: make(chan struct{}, 1)} }

// NewStd returns the database behind a database/sql pool, which is pgx's
// stdlib driver or any other. The pool stays the caller's. With pgx's driver those who wait
// are notified, as with [New], over a connection beside the pool. With another, such as lib/pq,
// they poll. Prefer New in a new program, and pgx's driver where the program has a *sql.DB.
func NewStd(db *sql.DB) *DB { return &DB{std: databases.StdPool{DB: db}} }

// Tx wraps the caller's transaction for Guard and ReleaseTx. One that was begun
// within another is a savepoint: when it is rolled back, its guard is gone, and the
// outer transaction goes on without it.
func Tx(tx pgx.Tx) databases.Tx {
	// Of a pool, or a connection, that could not begin one.
	if v := reflect.ValueOf(tx); tx == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}

	return pgxTx{pgxSession{tx}}
}

// StdTx wraps the caller's database/sql transaction for Guard and ReleaseTx.
func StdTx(tx *sql.Tx) databases.Tx { return databases.StdTx(tx, databases.Postgres) }

// DB is a PostgreSQL database. It is safe for concurrent use.
type DB struct {
	pool *pgxpool.Pool     // or, if it is nil,
	std  databases.StdPool // this

	beside chan struct{} // has room for who has the connection beside the pool

	untested bool
}

// AllowUntested returns the same database for a server that Verify refuses by its
// name or version. Whether locks exclude there is yours to find out: run the
// conformance suite of package sqllocktest against it.
func (d *DB) AllowUntested() *DB {
	other := *d
	other.untested = true

	return &other
}

// Dialect is databases.Postgres.
func (*DB) Dialect() databases.Dialect { return databases.Postgres }

// Conn checks out a connection.
func (d *DB) Conn(ctx context.Context) (databases.Conn, error) {
	if d.pool == nil {
		conn, err := d.std.Conn(ctx)
		if err != nil {
			return nil, err
		}

		return pipelining(conn), nil
	}

	idle := func() bool { return d.pool.Stat().IdleConns() > 0 }

	conn, err := detour.Acquire(ctx, d.pool.Acquire, idle, (*pgxpool.Conn).Release)
	if err != nil {
		stat := d.pool.Stat()

		return nil, databases.PoolError(err, int(stat.AcquiredConns()), int(stat.MaxConns()))
	}

	return &pgxConn{pgxSession{conn}, conn}, nil
}

// Validate reports a nil pool.
func (d *DB) Validate() error {
	if d.pool == nil {
		return d.std.Validate()
	}

	return nil
}

// MaxConns is the pool's limit.
func (d *DB) MaxConns() int {
	if d.pool == nil {
		return d.std.MaxConns()
	}

	return int(d.pool.Stat().MaxConns())
}

// Classify sorts by SQLSTATE
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
func (*DB) Classify(err error) databases.Class {
	said := answerOf(err)

	switch said.state {
	case "40001", // serialization_failure: the session's default isolation is stricter than READ COMMITTED
		"40P01", // deadlock_detected
		"55P03", // lock_not_available
		"23505": // unique_violation: somebody made the row since the statement began
		return databases.Busy
	case "42P01", "42703", "3F000", // undefined table, column, schema
		"42883": // undefined function: an old schema's
		return databases.NoSchema
	case "25006": // read_only_sql_transaction
		return databases.ReadOnly
	case "53300": // too_many_connections: of the server, the database or the role
		return databases.Full
	case "42501": // insufficient_privilege
		return databases.NotAllowed
	case "57P01", "57P02", "57P03", // admin_shutdown, crash_shutdown, cannot_connect_now
		"57P05": // idle_session_timeout
		return databases.Unreachable
	}

	switch {
	// invalid_text_representation, which is how our statements tell that they find other tables
	case said.state == "22P02" && strings.Contains(err.Error(), "sqllock: other tables"):
		return databases.Changed
	// feature_not_supported: nothing is planned on a standby that reads an unlogged table
	case said.state == "0A000" && said.routine == "get_relation_info":
		return databases.ReadOnly
	case strings.HasPrefix(said.state, "08"), // connection exceptions, of which proxies tell, too
		said.state == "" && (databases.Broken(err) || errors.As(err, new(*pgconn.ConnectError)) || pgconn.SafeToRetry(err)):
		return databases.Unreachable
	case said.state == "", said.fatal:
		return databases.Unknown
	default:
		return databases.Refused
	}
}

// answer is what a server says with an error; zero but for fatal if no server has.
type answer struct {
	state   string // the SQLSTATE
	routine string // the function of the server that the error comes from
	// fatal: it ended the session with the error, or did not begin one
	// (https://www.postgresql.org/docs/current/runtime-config-logging.html#RUNTIME-CONFIG-SEVERITY-LEVELS).
	fatal bool
}

// answerOf reads the errors of pgx, and those of other drivers by their methods, of which lib/pq's have all.
func answerOf(err error) answer {
	var (
		ours  *pgconn.PgError
		coded interface{ SQLState() string }
		pq    interface {
			Get(field byte) string
			Fatal() bool
		}
	)

	switch {
	case errors.As(err, &ours):
		// The severity is not translated, from version 9.6 on.
		return answer{ours.Code, ours.Routine, ours.SeverityUnlocalized != "ERROR"}
	case !errors.As(err, &coded):
		return answer{fatal: true}
	case errors.As(err, &pq):
		return answer{coded.SQLState(), pq.Get('R'), pq.Fatal()}
	default:
		return answer{state: coded.SQLState(), fatal: true}
	}
}

type pgxExecutor interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

type pgxSession struct{ on pgxExecutor }

func (s pgxSession) Run(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	args, err := stmt.Bind(v)
	if err != nil {
		return databases.Result{}, err
	}

	rows, err := s.on.Query(ctx, stmt.SQL, args...)
	if err != nil {
		return databases.Result{}, err
	}

	return read(rows, each)
}

// read calls each for every row, if it is not nil.
func read(rows pgx.Rows, each func(databases.Row) error) (databases.Result, error) {
	defer rows.Close()

	for rows.Next() && each != nil {
		if err := each(rows.Scan); err != nil {
			return databases.Result{}, err
		}
	}

	rows.Close()

	return databases.Result{RowsAffected: rows.CommandTag().RowsAffected()}, rows.Err()
}

type pgxConn struct {
	pgxSession
	conn *pgxpool.Conn
}

// Release returns the connection; pgx's pool destroys one that is closed or in
// a transaction.
func (c *pgxConn) Release() { c.conn.Release() }

// discardTimeout bounds the farewell to a server that may not answer.
const discardTimeout = time.Second

func (c *pgxConn) Discard() {
	ctx, cancel := context.WithTimeout(context.Background(), discardTimeout) //nolint:forbidigo // Discard has no caller's context: it must work after that ended
	defer cancel()

	_ = c.conn.Hijack().Close(ctx)
}

// Pipeline sends the statements as a batch.
func (c *pgxConn) Pipeline(ctx context.Context, steps []databases.Step) error {
	return pipeline(ctx, c.conn.Conn(), steps)
}

// stdConn is a connection of database/sql whose driver is pgx's.
type stdConn struct {
	databases.Conn

	driver raw
}

type raw interface {
	Raw(use func(driver any) error) error
}

// withPgx calls use with pgx's connection, if the driver is pgx's.
func withPgx(of raw, use func(*pgx.Conn) error) error {
	return of.Raw(func(driver any) error {
		conn, ok := driver.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("%w: the driver's connection is a %T", databases.ErrNoNotifications, driver)
		}

		return use(conn.Conn())
	})
}

// pipelining returns the same connection, with a Pipeline if its driver is pgx's. One that is broken shows it when it is used.
func pipelining(conn databases.Conn) databases.Conn {
	driver, ok := conn.(raw)
	if !ok || withPgx(driver, func(*pgx.Conn) error { return nil }) != nil {
		return conn
	}

	return &stdConn{conn, driver}
}

// Pipeline sends the statements as a batch.
func (c *stdConn) Pipeline(ctx context.Context, steps []databases.Step) error {
	return withPgx(c.driver, func(on *pgx.Conn) error { return pipeline(ctx, on, steps) })
}

// pipeline works in all of pgx's query modes.
func pipeline(ctx context.Context, on *pgx.Conn, steps []databases.Step) error {
	batch := &pgx.Batch{}

	for _, step := range steps {
		args, err := step.Statement.Bind(step.Values)
		if err != nil {
			return err
		}

		batch.Queue(step.Statement.SQL, args...)
	}

	results := on.SendBatch(ctx, batch)

	for _, step := range steps {
		rows, err := results.Query()
		if err == nil {
			_, err = read(rows, step.Each)
		}

		if err != nil {
			_ = results.Close()

			return err
		}
	}

	return results.Close() // with an error that comes when all is answered: one that ends the session, from a pooler
}

type pgxTx struct{ pgxSession }

func (pgxTx) Database() string { return string(databases.Postgres) }
