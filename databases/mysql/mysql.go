// Package mysql keeps locks in MySQL 8.0 or later and in MariaDB 10.6 or
// later, through database/sql with github.com/go-sql-driver/mysql.
//
// Hardly a setting of the DSN matters to correctness: clientFoundRows,
// interpolateParams, parseTime and loc may be what the application needs, only
// autocommit=0 is refused. With
// interpolateParams=true each statement is one round trip, without it two.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
)

// New returns the database behind a pool of go-sql-driver/mysql. The pool
// stays the caller's: nothing here closes it.
func New(db *sql.DB) *DB { return &DB{databases.StdPool{DB: db}} }

// Tx wraps the caller's transaction for Guard and ReleaseTx.
func Tx(tx *sql.Tx) databases.Tx { return databases.StdTx(tx, databases.MySQL) }

// DB is a MySQL or MariaDB database. It is safe for concurrent use.
type DB struct{ databases.StdPool }

// Dialect is databases.MySQL, for MariaDB too.
func (*DB) Dialect() databases.Dialect { return databases.MySQL }

var (
	verifyKind = databases.Statement{
		Name: "mysql.verify-kind",
		SQL:  `SELECT VERSION()`,
	}
	// A replica is read_only as a rule, and a lock there would be no lock for
	// those who connect to the primary. Without autocommit a grant would be
	// rolled back with its connection.
	verifyWritable = databases.Statement{
		Name: "mysql.verify-writable",
		SQL:  `SELECT @@global.read_only OR @@global.innodb_read_only, @@session.autocommit`,
	}
)

// Verify reports a server that is neither MySQL nor MariaDB, or read-only.
func (*DB) Verify(ctx context.Context, s databases.Session) error {
	var version string

	err := s.Query(ctx, verifyKind, nil, func(row databases.Row) error { return row(&version) })

	switch {
	case err != nil && strings.Contains(strings.ToLower(err.Error()), "no such function"):
		return fmt.Errorf("%w: it has no VERSION(), as MySQL and MariaDB have: %w", databases.ErrWrongServer, err)
	case err != nil:
		return err
	case version == "" || version[0] < '0' || version[0] > '9':
		return fmt.Errorf("%w: it calls itself %q, not MySQL or MariaDB", databases.ErrWrongServer, version)
	}

	var readOnly, autocommit bool

	err = s.Query(ctx, verifyWritable, nil, func(row databases.Row) error { return row(&readOnly, &autocommit) })

	switch {
	case err != nil:
		return err
	case readOnly:
		return fmt.Errorf("%w: read_only is on; connect to the primary", databases.ErrReadOnly)
	case !autocommit:
		return fmt.Errorf("%w: autocommit is off; leave autocommit=0 out of the DSN and of init_connect",
			databases.ErrWrongServer)
	default:
		return nil
	}
}

// Classify sorts by error number
// (https://dev.mysql.com/doc/mysql-errors/9.7/en/server-error-reference.html,
// https://mariadb.com/docs/server/reference/error-codes).
func (*DB) Classify(err error) databases.Class {
	var numbered *mysql.MySQLError
	if !errors.As(err, &numbered) {
		return databases.Unknown
	}

	switch numbered.Number {
	case 1205, // lock wait timeout, and MariaDB's NOWAIT: the statement is rolled back
		1213, // deadlock, and a failed certification of Galera: the transaction is rolled back
		1020, // record has changed since last read: MariaDB 11.6 and later with innodb_snapshot_isolation
		3572: // MySQL's NOWAIT
		return databases.Busy
	case 1146, // no such table
		1054, // unknown column
		1046: // no database selected
		return databases.NoSchema
	case 1094: // no such thread
		return databases.NoSession
	case 1290, // --read-only, and a secondary of a replication group
		1792, // read-only transaction
		1836: // read-only mode
		return databases.ReadOnly
	case 1040, // too many connections
		1203, // the user has more than max_user_connections
		1226: // the account has as many as WITH MAX_USER_CONNECTIONS allows it, or used up what it has for an hour
		return databases.Full
	default:
		return databases.Unknown
	}
}
