package migrate

import (
	"context"
	"database/sql"
	"fmt"
)

// sessionLockSeconds is how long one process waits for another's migration. It is less than a rollback may take.
const sessionLockSeconds = 20

// mysqlSessionLocker lets one process at a time migrate where each statement commits. It is goose's session lock with
// GET_LOCK; goose has one for PostgreSQL only. The name is hashed with the schema because GET_LOCK's names
// are the whole server's, and have at most 64 characters.
type mysqlSessionLocker struct{}

const mysqlLockName = "CONCAT('sqllock-migrate-', LEFT(SHA2(DATABASE(), 256), 40))"

// SessionLock waits for the lock, or says whose migration goes on.
func (mysqlSessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64

	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+mysqlLockName+", ?)", sessionLockSeconds).Scan(&got)

	switch {
	case err != nil:
		return fmt.Errorf("wait for other migrations: %w", err)
	case got.Int64 == 1:
		return nil
	}

	var session sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK("+mysqlLockName+")").Scan(&session); err != nil {
		return fmt.Errorf("look who migrates: %w", err)
	}

	return &UnderWayError{session.Int64}
}

// UnderWayError says that another migration goes on, and nothing was done.
type UnderWayError struct {
	// Session of the server in which it does; zero if it has ended meanwhile.
	Session int64
}

// Error says what to do.
func (e *UnderWayError) Error() string {
	said := fmt.Sprintf("another migration has been running for %d seconds; try again when it has ended", sessionLockSeconds)
	if e.Session != 0 {
		said += fmt.Sprintf(" (session %d; if its process hangs: KILL %d)", e.Session, e.Session)
	}

	return said
}

// SessionUnlock frees the lock.
func (mysqlSessionLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var freed sql.NullInt64

	return conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK("+mysqlLockName+")").Scan(&freed)
}
