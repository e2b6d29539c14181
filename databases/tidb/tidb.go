// Package tidb keeps locks in TiDB 8.5 or later, through database/sql with
// github.com/go-sql-driver/mysql. One server is as good as several: locks exclude
// whichever of a cluster's servers their processes are connected to.
//
// Settings of the DSN are as for MySQL: charset, clientFoundRows, interpolateParams,
// parseTime and loc may be what the application needs, and [DB.Verify] says what is
// refused.
//
// Each statement is sent in a pessimistic transaction of its own, because TiDB would
// execute it optimistically otherwise: it would lock no row before its commit, and if that
// failed the server would execute it again by itself. So an acquisition takes four round
// trips, and a renewal or a release three or four.
package tidb

import (
	"context"
	"database/sql"
	"errors"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
)

// New returns the database behind a pool of go-sql-driver/mysql. The pool stays the
// caller's: nothing here closes it.
func New(db *sql.DB) *DB {
	// What the server calls itself is looked at here.
	return &DB{mysql: mysql.New(db).AllowUntested()}
}

// Tx wraps the caller's transaction for Guard and ReleaseTx. It may be pessimistic, as is
// the default, or optimistic.
func Tx(tx *sql.Tx) databases.Tx {
	if tx == nil {
		return nil
	}

	return transaction{mysql.Tx(tx)}
}

type transaction struct{ databases.Tx }

func (transaction) Database() string { return string(databases.TiDB) }

// DB is a TiDB database. It is safe for concurrent use.
//
// It has no notifications, and does not wake waiters as MySQL's does: that needs KILL QUERY,
// with which TiDB 8.5 was seen to crash.
type DB struct{ mysql *mysql.DB }

// Dialect is databases.TiDB.
func (*DB) Dialect() databases.Dialect { return databases.TiDB }

// Validate reports a nil pool.
func (d *DB) Validate() error { return d.mysql.Validate() }

// MaxConns is the pool's limit.
func (d *DB) MaxConns() int { return d.mysql.MaxConns() }

// Conn checks out a connection. Each statement on it is a transaction of its own, except
// between statements of the texts BEGIN and COMMIT or ROLLBACK.
func (d *DB) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := d.mysql.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return &connection{Conn: conn}, nil
}

// Classify sorts by error number: those of MySQL, and TiDB's own
// (https://docs.pingcap.com/tidb/stable/error-codes/).
func (d *DB) Classify(err error) databases.Class {
	class, end := d.classify(err), new(endError)

	// Whatever the error would mean of another statement.
	if errors.As(err, &end) && (!end.commits || class != databases.Busy && class != databases.Unreachable) {
		return databases.Unknown
	}

	return class
}

func (d *DB) classify(err error) databases.Class {
	var numbered *driver.MySQLError
	if !errors.As(err, &numbered) {
		return d.mysql.Classify(err)
	}

	switch numbered.Number {
	case 9007, // a write conflict
		8002, // FOR UPDATE could not be tried again, for one
		8022, // a commit that failed and may be tried again
		8028: // a table was changed meanwhile
		return databases.Busy
	case 8120, // no timestamp for a transaction
		8229,       // the transaction's locks have expired
		8027,       // the tables' definitions could not be read in time
		9001,       // the placement driver timed out
		9002, 9003, // TiKV timed out, or is busy
		9004, 9005: // a lock could not be resolved, a region is not available
		return databases.Unreachable
	default:
		return d.mysql.Classify(err)
	}
}
