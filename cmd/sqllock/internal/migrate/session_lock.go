package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/lock"

	"github.com/sqllock/sqllock/databases"
)

// sessionLockSeconds is how long one process waits for another's migration.
const sessionLockSeconds = 120

// sessionLocker lets one process at a time migrate; nil where it is not needed.
// MySQL and TiDB commit each statement of a migration. On PostgreSQL and SQLite a
// migration is one transaction, of which only one can make the tables; and behind
// a proxy that pools transactions a lock of PostgreSQL's session would stay with
// a session that others have by then.
func sessionLocker(dialect databases.Dialect) lock.SessionLocker {
	if dialect == databases.MySQL || dialect == databases.TiDB {
		return mysqlSessionLocker{}
	}

	return nil
}

// mysqlSessionLocker is goose's session lock with GET_LOCK, which goose has for
// PostgreSQL only. The name is hashed with the schema because GET_LOCK's names
// are the whole server's, and have at most 64 characters.
type mysqlSessionLocker struct{}

const mysqlLockName = "CONCAT('sqllock-migrate-', LEFT(SHA2(DATABASE(), 256), 40))"

// SessionLock waits for the lock.
func (mysqlSessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64

	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+mysqlLockName+", ?)", sessionLockSeconds).Scan(&got)

	switch {
	case err != nil:
		return fmt.Errorf("wait for other migrations: %w", err)
	case got.Int64 != 1:
		return errors.New("another migration has been running for too long")
	default:
		return nil
	}
}

// SessionUnlock frees the lock.
func (mysqlSessionLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var freed sql.NullInt64

	return conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK("+mysqlLockName+")").Scan(&freed)
}
