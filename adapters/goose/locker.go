// Package gooselock lets one process at a time run the migrations of
// [goose], with a lock of sqllock: on PostgreSQL, MySQL, MariaDB and SQLite.
//
//	locker, err := sqllock.New(cas.New(mysql.New(db)))
//	...
//	provider, err := goose.NewProvider(goose.DialectMySQL, db, files,
//		goose.WithLocker(gooselock.New(locker, "migrations")))
//	...
//	ctx, cancel := gooselock.WithCancel(ctx)
//	defer cancel()
//	_, err = provider.Up(ctx)
//
// The lock is renewed for as long as the migrations take. It ends when goose
// gives it back, or with its lease after the process has died. A statement that it had sent may go on in the server even
// then: the README says what to do about that.
//
// # Before
//
// sqllock's own tables must be there: "sqllock migrate up" makes them, and so
// does goose with package migrations, as the example shows. Without them goose
// returns [sqllock.ErrNoSchema].
//
// goose holds a connection of its pool while it waits for the lock, so the
// locker needs another one. If goose's pool has only one, as is common with
// SQLite, give the locker a pool of its own. On SQLite let it also be another
// file: a file has one writer, so a migration keeps renewals waiting, and a
// lock in the same file is lost if its transaction takes longer than two
// thirds of the lease.
//
// # If the lock is lost
//
// Under [WithCancel] the context of the migrations ends before another process
// can have the lock, or at the next renewal if it was taken away with
// [sqllock.Locker.ForceRelease]. A migration that is one transaction is rolled back then,
// and the next process runs it. In any case goose returns [sqllock.ErrLost],
// though perhaps all migrations were applied. A process that was paused between
// its last look at the lock and its COMMIT can still commit after another has
// begun: then it is up to the migration whether both succeed.
//
// [goose]: https://github.com/pressly/goose
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/lock"

	"github.com/sqllock/sqllock/sqllock"
)

// Locker is the lock of a goose.Provider, or of several: one of them runs at a
// time. It is safe for concurrent use. Make it with [New].
type Locker struct {
	locker  *sqllock.Locker
	name    string
	options []sqllock.LockOption
	// turn holds the lock that goose has, from Lock until Unlock.
	turn chan held
}

type held struct {
	lock *sqllock.Lock
	// forget ends the watch that WithCancel asked for.
	forget func() bool
}

var _ lock.Locker = (*Locker)(nil)

// New returns a locker for goose.WithLocker. All who migrate a database give
// the same name. The options are for this lock, beside those of the locker:
// [sqllock.WithMaxWait] for one, which bounds the wait but not the migrations.
// New sends nothing to the database.
func New(locker *sqllock.Locker, name string, options ...sqllock.Option) *Locker {
	return &Locker{locker: locker, name: name, options: sqllock.LockOptions(options...), turn: make(chan held, 1)}
}

// Lock waits for the lock until ctx ends. goose calls it. Its errors are those
// of [sqllock.Locker.Acquire]. It does not use db.
func (l *Locker) Lock(ctx context.Context, db *sql.DB) error {
	acquired, err := l.locker.Acquire(ctx, l.name, l.options...)
	if err != nil {
		return explain(err, db)
	}

	ours := held{lock: acquired, forget: func() bool { return true }}

	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelCauseFunc); ok {
		//nolint:contextcheck // the lock outlives ctx: its own context is what ends with it
		ours.forget = context.AfterFunc(acquired.Context(), func() { cancel(acquired.Err()) })
	}

	// Another provider of this process may have lost the lock and still be at work.
	select {
	case l.turn <- ours:
		return nil
	case <-ctx.Done():
		ours.forget()

		return errors.Join(context.Cause(ctx), acquired.Release(ctx))
	}
}

// Unlock releases the lock. goose calls it when the migrations are over, and
// returns its error: a *[sqllock.LostError] if the lock was lost meanwhile, a
// *[sqllock.ReleaseError] if the release failed, [sqllock.ErrNotAcquired] if there was
// no Lock before. It does not use db.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	select {
	case ours := <-l.turn:
		ours.forget()

		return ours.lock.Release(ctx)
	default:
		return fmt.Errorf("unlock %q: %w", l.name, sqllock.ErrNotAcquired)
	}
}

// WithCancel returns a context for the methods of a goose.Provider whose locker
// is a [Locker]. It ends if the lock is lost, with a *[sqllock.LostError] as its
// cause, so that the statement that runs is cancelled. Calling cancel ends it, too,
// and frees its resources. Give it to one call at a time.
func WithCancel(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cause := context.WithCancelCause(parent)

	return context.WithValue(ctx, cancelKey{}, cause), func() { cause(nil) }
}

type cancelKey struct{}

// explain says what to do if the locker waited for the connection that goose has.
func explain(err error, db *sql.DB) error {
	if errors.Is(err, sqllock.ErrUnreachable) && db != nil && db.Stats().MaxOpenConnections == 1 {
		return fmt.Errorf("%w (goose has the only connection of its pool: does the locker have a pool of its own?)", err)
	}

	return err
}
