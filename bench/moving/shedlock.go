package moving

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// ErrShedLocked reports that another process has the row of ShedLock.
var ErrShedLocked = errors.New("ShedLock's row is taken")

// WithShedLock works while it has a row of ShedLock on PostgreSQL, as a Java
// program with usingDbTime takes it, and keeps it for atLeast.
func WithShedLock(ctx context.Context, db *sql.DB, name, who string, atMost, atLeast time.Duration, work Work) error {
	ctx, cancel := context.WithTimeout(ctx, atMost) // from before the row has its time
	defer cancel()

	result, err := db.ExecContext(ctx, `
		INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
		VALUES ($1, timezone('utc', clock_timestamp()) + $2 * interval '1 second', timezone('utc', clock_timestamp()), $3)
		ON CONFLICT (name) DO UPDATE
		SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by
		WHERE shedlock.lock_until <= timezone('utc', clock_timestamp())`, name, atMost.Seconds(), who)
	if err != nil {
		return err
	}

	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, ErrShedLocked)
	}

	err = work(ctx)

	_, released := db.ExecContext(context.WithoutCancel(ctx), `
		UPDATE shedlock
		SET lock_until = greatest(locked_at + $3 * interval '1 second', timezone('utc', clock_timestamp()))
		WHERE name = $1 AND locked_by = $2 AND lock_until > timezone('utc', clock_timestamp())`, name, who, atLeast.Seconds())

	return errors.Join(err, released)
}

// NightlyWithBoth is for the time in which the Java program still runs. who is
// of this process alone.
func NightlyWithBoth(ctx context.Context, db *sql.DB, who string, locker *sqllock.Locker, report Work) error {
	return WithShedLock(ctx, db, "nightly", who, time.Hour, 10*time.Minute, func(ctx context.Context) error {
		return Nightly(ctx, locker, report)
	})
}
