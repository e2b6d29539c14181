// Package databases is the contract between strategies, which know SQL but no
// driver, and databases, which know a driver but no lock.
//
// Users take one of its implementations: databases/postgres, databases/mysql,
// databases/tidb or databases/sqlite. The package imports the standard library only.
//
// The contract has two rules that lock statements depend on:
//
//   - Every statement runs on a checked-out connection or in a transaction,
//     never through (*sql.DB).Exec: with some drivers database/sql executes a
//     statement twice when a connection breaks after the server ran it, and
//     reports success (pgx 5.9 to 5.12 in the simple protocol and for any
//     statement without arguments; lib/pq). Statements on a [Conn] are not
//     repeated.
//   - A connection whose state is in doubt is discarded, never returned to its
//     pool.
package databases

import (
	"context"
	"fmt"
)

// Dialect names a family of SQL. A strategy keeps its statements per dialect.
type Dialect string

// The dialects. MySQL stands for MariaDB too, and not for TiDB.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	TiDB     Dialect = "tidb"
	SQLite   Dialect = "sqlite"
)

// Statement is one SQL statement as it is sent to the server.
type Statement struct {
	// Name says which statement this is, as "strategy.verb". It is not sent to
	// the server; errors show it and tests stop or fail a statement by it.
	Name string
	// SQL is the text with the dialect's placeholders.
	SQL string
	// Args names the values to bind, in the order of the placeholders: the
	// first is $1 or the first question mark. A name may stand more than once.
	Args []string
	// Then is what package databases/tidb sends next in the same transaction, if this is no query or has found a row.
	Then *Statement
}

// Values holds what a statement's Args refer to, by name.
type Values map[string]any

// Bind returns the statement's arguments in the order of its placeholders.
func (s Statement) Bind(values Values) ([]any, error) {
	args := make([]any, len(s.Args))

	for i, name := range s.Args {
		value, ok := values[name]
		if !ok {
			return nil, fmt.Errorf("statement %s needs the value %q", s.Name, name)
		}

		args[i] = value
	}

	return args, nil
}

// Result is what a server says of a statement whose rows nobody reads.
type Result struct {
	// RowsAffected counts rows. On MySQL it is the number of changed or of
	// matched rows, depending on the user's clientFoundRows, so it decides
	// nothing where the two differ.
	RowsAffected int64
	// LastInsertID is MySQL's id of the OK packet, which LAST_INSERT_ID(expr)
	// sets; zero where nothing set it, and on other databases.
	LastInsertID int64
}

// Row reads the columns of the current row into dest.
type Row func(dest ...any) error

// Session is what a statement runs on: a connection or a transaction.
type Session interface {
	// Run runs a statement and calls each for every row, unless that is nil: then the statement
	// returns none, or none that matter. It reads to the end
	// and closes the rows before it returns, also on an error: an open cursor
	// keeps SQLite's write lock. The result is of statements without each.
	Run(ctx context.Context, s Statement, v Values, each func(Row) error) (Result, error)
}

// Conn is a connection that was checked out of a pool. It is not safe for
// concurrent use. Exactly one of Release and Discard ends it.
type Conn interface {
	Session
	// Release returns the connection to its pool.
	Release()
	// Discard ends the server session and takes the connection out of the pool.
	Discard()
}

// Tx is the caller's own transaction, wrapped by the database's Tx function.
// Nothing here commits it or rolls it back.
type Tx interface {
	Session
	// Database names the dialect, for error messages.
	Database() string
}

// Listener is a DB whose server tells one session what another notifies of.
type Listener interface {
	// Listen calls ready when from now on no notification on the channels is
	// missed, if that can be known, and notified for each, also without. It returns when
	// ctx ends or the connection does; with an error that wraps ErrNoNotifications if
	// there is no use in trying again soon.
	Listen(ctx context.Context, channels []string, ready func(), notified func(channel, payload string)) error
}

// Waker is a Listener that hears nothing unless it is woken.
type Waker interface {
	Listener
	// Wakes says whether whoever releases a lock has to wake others. Before the server is
	// known it may say so although there is nobody who could be woken.
	Wakes() bool
}

// Renewer is a DB that has a connection for a renewal also where the application keeps all of the pool in use.
type Renewer interface {
	// ConnToRenew is Conn of DB, and may return one that is not the pool's.
	ConnToRenew(ctx context.Context) (Conn, error)
}

// DB gives connections of one database.
type DB interface {
	// Dialect says which statements the database understands.
	Dialect() Dialect
	// Conn checks out a connection. It waits for a free one until ctx ends.
	Conn(ctx context.Context) (Conn, error)
	// Verify asks the server behind s what it is. It returns an error that
	// wraps ErrWrongServer or ErrReadOnly if locks cannot be kept there.
	Verify(ctx context.Context, s Session) error
	// Classify sorts an error of the driver.
	Classify(err error) Class
	// MaxConns is the most connections that the pool opens; zero is no limit.
	MaxConns() int
}
