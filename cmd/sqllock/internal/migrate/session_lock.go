package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// sessionLockSeconds is how long one process waits for another's migration.
const sessionLockSeconds = 120

// mysqlSessionLocker lets one process at a time migrate where each statement commits. It is goose's session lock with
// GET_LOCK; goose has one for PostgreSQL only. The name is hashed with the schema because GET_LOCK's names
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
		return underWay(ctx, conn)
	default:
		return nil
	}
}

// underWay says whose migration goes on.
func underWay(ctx context.Context, conn *sql.Conn) error {
	const said = "another migration has been running for two minutes"

	var id sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK("+mysqlLockName+")").Scan(&id); err != nil || !id.Valid {
		return errors.New(said + "; try again")
	}

	return fmt.Errorf("%s, in session %d; if its process hangs: KILL %d", said, id.Int64, id.Int64)
}

// SessionUnlock frees the lock.
func (mysqlSessionLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var freed sql.NullInt64

	return conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK("+mysqlLockName+")").Scan(&freed)
}
