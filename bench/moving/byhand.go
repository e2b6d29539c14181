package moving

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/sqllock/sqllock/sqllock"
)

// WithAdvisoryLock edits the document while nobody else does, on PostgreSQL.
func WithAdvisoryLock(ctx context.Context, db *sql.DB, key int64, edit Work) error {
	conn, err := db.Conn(ctx) // the lock is that of a session
	if err != nil {
		return err
	}
	defer conn.Close()

	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		return errors.Join(err, discard(conn)) // it may have been granted
	}

	err = edit(ctx)

	var unlocked bool

	row := conn.QueryRowContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", key)
	if failed := row.Scan(&unlocked); failed != nil || !unlocked {
		return errors.Join(err, failed, errors.New("not released"), discard(conn))
	}

	return err
}

// WithGetLock edits the document while nobody else does, on MySQL and MariaDB.
func WithGetLock(ctx context.Context, db *sql.DB, name string, edit Work) error {
	conn, err := db.Conn(ctx) // the lock is that of a session
	if err != nil {
		return err
	}
	defer conn.Close()

	var got sql.NullInt64

	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 60)", name).Scan(&got)
	if err != nil {
		return errors.Join(err, discard(conn)) // it may have been granted
	}

	if got.Int64 != 1 { // 0: after 60 seconds; NULL: an error
		return errors.New("not acquired")
	}

	err = edit(ctx)

	row := conn.QueryRowContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK(?)", name)
	if failed := row.Scan(&got); failed != nil || got.Int64 != 1 {
		return errors.Join(err, failed, errors.New("not released"), discard(conn))
	}

	return err
}

// discard keeps a session that may have a lock out of the pool.
func discard(conn *sql.Conn) error {
	err := conn.Raw(func(any) error { return driver.ErrBadConn })
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return nil
	}

	return err
}

// WithBothOfTheDatabase is for the version between the two.
func WithBothOfTheDatabase(ctx context.Context, db *sql.DB, key int64, locker *sqllock.Locker, edit Work) error {
	return WithAdvisoryLock(ctx, db, key, func(ctx context.Context) error {
		return WithSQLLock(ctx, locker, edit)
	})
}
