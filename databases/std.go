package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/databases/internal/detour"
)

// StdPool is a database/sql pool as a DB needs it. Databases that work through
// database/sql embed it.
type StdPool struct{ DB *sql.DB }

// Conn checks out a connection.
func (p StdPool) Conn(ctx context.Context) (Conn, error) {
	idle := func() bool { return p.DB.Stats().Idle > 0 }

	conn, err := detour.Acquire(ctx, p.DB.Conn, idle, func(conn *sql.Conn) { _ = conn.Close() })
	if err != nil {
		stats := p.DB.Stats()

		return nil, PoolError(err, stats.InUse, stats.MaxOpenConnections)
	}

	return &stdConn{stdSession{conn}, conn}, nil
}

// PoolError says that all connections of a pool are in use, where that may be why the
// wait for one has ended. Other errors stay. The most is zero if there is no limit.
func PoolError(err error, inUse, most int) error {
	if most == 0 || inUse < most || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}

	return fmt.Errorf("no connection of the pool became free (%d of %d in use): %w", inUse, most, err)
}

// Validate reports a nil pool.
func (p StdPool) Validate() error {
	if p.DB == nil {
		return errors.New("the pool is nil")
	}

	return nil
}

// MaxConns is the pool's limit.
func (p StdPool) MaxConns() int { return p.DB.Stats().MaxOpenConnections }

// StdTx wraps the caller's transaction of database/sql. It is nil if tx is, which
// Guard and ReleaseTx tell of.
func StdTx(tx *sql.Tx, dialect Dialect) Tx {
	if tx == nil {
		return nil
	}

	return stdTx{stdSession{tx}, dialect}
}

// stdExecutor is what *sql.Conn and *sql.Tx share.
type stdExecutor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type stdSession struct{ on stdExecutor }

func (s stdSession) Run(ctx context.Context, stmt Statement, v Values, each func(Row) error) (Result, error) {
	args, err := stmt.Bind(v)
	if err != nil {
		return Result{}, err
	}

	if each != nil {
		return Result{}, s.query(ctx, stmt.SQL, args, each)
	}

	res, err := s.on.ExecContext(ctx, stmt.SQL, args...)
	if err != nil {
		return Result{}, err
	}

	// Drivers that cannot tell one of the two return zero and an error for it alone
	// (pgx and lib/pq know no insert id). Statements read only what their
	// dialect has.
	affected, _ := res.RowsAffected()
	id, _ := res.LastInsertId()

	return Result{RowsAffected: affected, LastInsertID: id}, nil
}

func (s stdSession) query(ctx context.Context, text string, args []any, each func(Row) error) error {
	rows, err := s.on.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}

	defer func() { _ = rows.Close() }() // after the last row they are closed

	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}

	return rows.Err()
}

type stdConn struct {
	stdSession
	conn *sql.Conn
}

func (c *stdConn) Release() {
	// Close fails only where the connection is gone already; the pool drops
	// such a one by itself.
	_ = c.conn.Close()
}

func (c *stdConn) Discard() {
	// Raw takes the connection out of the pool when its function returns
	// driver.ErrBadConn (https://pkg.go.dev/database/sql#Conn.Raw).
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.conn.Close()
}

// Raw gives the driver's connection, for what a driver can and database/sql cannot.
func (c *stdConn) Raw(use func(driver any) error) error { return c.conn.Raw(use) }

type stdTx struct {
	stdSession
	dialect Dialect
}

func (t stdTx) Database() string { return string(t.dialect) }
