// Package mysql keeps locks in MySQL 8.0 or later and in MariaDB 10.6 or
// later, through database/sql with github.com/go-sql-driver/mysql.
//
// Hardly a setting of the DSN matters to correctness: charset, clientFoundRows,
// interpolateParams, parseTime and loc may be what the application needs.
// [DB.Verify] says what is refused.
//
// Text is sent as hexadecimal digits, and statements have UNHEX(?) for it. So
// neither the connection's character set, which the server converts text from,
// nor quotes, which the driver escapes by bytes where the server may read
// characters of several, can make another name of a name. Digits are the same in
// every character set.
//
// Values are written into the text of a statement here, because the driver prepares a
// statement with values, unless it has interpolateParams=true: each would be two
// round trips.
package mysql

import (
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
)

// New returns the database behind a pool of go-sql-driver/mysql. The pool
// stays the caller's: nothing here closes it.
func New(db *sql.DB) *DB { return &DB{StdPool: databases.StdPool{DB: db}} }

// Tx wraps the caller's transaction for Guard and ReleaseTx.
func Tx(tx *sql.Tx) databases.Tx {
	if tx == nil {
		return nil
	}

	return transaction{databases.StdTx(tx, databases.MySQL)}
}

// DB is a MySQL or MariaDB database. It is safe for concurrent use.
type DB struct {
	databases.StdPool

	untested bool
	wakes    bool
	mariadb  atomic.Bool  // the server is
	nap      atomic.Int64 // how long a session that listens sleeps at a time; zero is as long as can be
	broke    atomic.Bool  // the connection of the last nap did
}

// AllowUntested returns the same database for a server that Verify refuses by its
// name or version. Whether locks exclude there is yours to find out: run the
// conformance suite of package sqllocktest against it.
func (d *DB) AllowUntested() *DB {
	return &DB{StdPool: d.StdPool, untested: true, wakes: d.wakes}
}

// WakeWaiters returns the same database with waiters that are woken by a release, and have the
// lock some milliseconds later in place of about twenty. It is for MySQL, and for all processes:
// those that wait, and those that release. A process keeps one connection of the pool while it
// waits, which sleeps, and whoever releases a lock that others wait for sends KILL QUERY, which
// wakes it.
//
// It is not the default because a connection that is given up sleeps on at the server for up to
// two seconds, beyond the limit of the pool. It does nothing on MariaDB, where two statements
// that wake at the same time can hold up each other, and new connections, for two seconds (seen
// on 11.8).
func (d *DB) WakeWaiters() *DB {
	return &DB{StdPool: d.StdPool, untested: d.untested, wakes: true}
}

// Wakes says whether a release has to wake waiters.
func (d *DB) Wakes() bool { return d.wakes && !d.mariadb.Load() }

// Dialect is databases.MySQL, for MariaDB too.
func (*DB) Dialect() databases.Dialect { return databases.MySQL }

// Classify sorts by error number
// (https://dev.mysql.com/doc/mysql-errors/9.7/en/server-error-reference.html,
// https://mariadb.com/docs/server/reference/error-codes).
func (*DB) Classify(err error) databases.Class {
	var numbered *mysql.MySQLError
	if !errors.As(err, &numbered) {
		if databases.Broken(err) || errors.Is(err, mysql.ErrInvalidConn) {
			return databases.Unreachable
		}

		return databases.Unknown
	}

	// The commit of a replication group that lost to one of another member, as MySQL 9.7.4 tells it at times in place of
	// 3101: Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT.
	if numbered.Number == 1180 && strings.Contains(numbered.Message, "error 149 ") {
		return databases.Busy
	}

	// BIGINT value is out of range in '(9223372036854775807 + ...)', which is how our statements tell it.
	if numbered.Number == 1690 && strings.Contains(numbered.Message, "9223372036854775807") {
		return databases.Changed
	}

	// Incorrect string value: '...' for function unhex, which means that the session's character set is none that text is sent in.
	if numbered.Number == 1411 && strings.Contains(numbered.Message, "unhex") {
		return databases.Changed
	}

	switch numbered.Number {
	case 1099, 1100, // the session has tables locked, and not these
		1137, // a temporary table is in front of one of these
		1568: // it is in a transaction
		return databases.Changed
	case 1205, // lock wait timeout, and MariaDB's NOWAIT: the statement is rolled back
		1213, // deadlock, and a failed certification of Galera: the transaction is rolled back
		3101, // a failed certification of Group Replication, at COMMIT: the transaction is rolled back
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
	case 1044, 1095, 1142, 1143, 1227, 1370: // no privilege: on a database, a session, a table, a column, of a kind, on a routine
		return databases.NotAllowed
	case 1053, // the server is shutting down
		1047, // a node of Galera that is not ready
		// the primary of a replication group that hands its role on, and answers nothing else until then
		// (https://dev.mysql.com/doc/refman/9.7/en/group-replication-changing-primary-member.html)
		4094,
		1152, 1158, 1159, 1160, // the connection was aborted, or could not be read or written
		1161, 1184, //
		1927, 3169, // the connection was killed (MariaDB, MySQL)
		4031, // the server disconnected a client that was idle
		// ProxySQL by itself, while it reaches no server
		9001, 9002, 9003, 9004, 9005, 9006, 9007, 9008, 9009, 9010, 9011, 9012, 9501:
		return databases.Unreachable
	case 1153, // a packet that is too large, after which the server closes the connection
		1156, // packets out of order
		1835: // a malformed packet
		return databases.Unknown
	default:
		return databases.Refused
	}
}
