// Package migratelock lets one process at a time run the migrations of
// [golang-migrate], with a lock of sqllock in place of the lock of its database
// driver: on SQLite, where that is a mutex in the process, or on MySQL and
// PostgreSQL behind a proxy that does not keep a session for its client.
//
//	locker, err := sqllock.New(cas.New(mysql.New(db)))
//	...
//	err = locker.Do(ctx, "migrations", func(context.Context, *sqllock.Lock) error {
//		driver, err = migratemysql.WithInstance(migrations, &migratemysql.Config{NoLock: true})
//		return err
//	})
//	...
//	m, err := migrate.NewWithDatabaseInstance("file://migrations", "mysql",
//		migratelock.New(driver, locker, "migrations"))
//	...
//	err = m.Up()
//
// A driver of migrate makes its version table when it is made. MySQL's fails with error 1050 if another process does that
// at the same time, unless it has its own lock. So it is made under the lock, too.
//
// The lock is renewed for as long as the migrations take. It ends when migrate
// gives it back, or with its lease after the process has died. A statement that
// it had sent may go on in the server even then, and the version stays dirty.
//
// # Before
//
// sqllock's own tables must be there: "sqllock migrate up" makes them. Without
// them migrate returns [sqllock.ErrNoSchema]. Keep them in a database or schema
// of their own if you use migrate's Drop, which removes every table that it finds.
//
// The drivers of migrate keep a connection, so the locker needs another one. On
// SQLite give it another file: a file has one writer, so a migration keeps
// renewals waiting, and a lock in the same file is lost if its transaction takes
// longer than two thirds of the lease.
//
// # If the lock is lost
//
// migrate has no context, so a statement that runs is not cancelled. Before each
// statement and each change of the version the driver asks the database whether
// the lock is still its own, and returns a *[sqllock.LostError] if it is not. If
// that is after a migration, its version stays dirty, as after any other failure:
// no process runs more migrations until somebody has looked at it. Between that
// question and the statement a process can be paused for any length of time.
//
// [golang-migrate]: https://github.com/golang-migrate/migrate
package migratelock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/sqllock/sqllock/sqllock"
)

// DefaultMaxWait is how long Lock waits without [sqllock.WithMaxWait]. It is less than
// migrate.DefaultLockTimeout, after which migrate leaves a Lock to itself that goes on waiting.
const DefaultMaxWait = 10 * time.Second

// checkTimeout is how long to ask whether the lock is still ours. Without an answer the trust window decides.
const checkTimeout = 5 * time.Second

// Driver is a driver of migrate with another lock. It is safe for concurrent use if
// the driver inside is. Make it with [New].
type Driver struct {
	database.Driver

	locker  *sqllock.Locker
	name    string
	options []sqllock.LockOption

	turn sync.Mutex                   // that of a Lock or Unlock
	lock atomic.Pointer[sqllock.Lock] // nil unless locked
	told atomic.Bool                  // a method has returned that the lock was lost
	gone atomic.Bool                  // Drop was called under the lock
}

var _ database.Driver = (*Driver)(nil)

// New returns the driver with the lock of this name, which all who migrate the
// database give. The lock of the driver inside is not used any more, but some
// drivers use it when they are made, so switch it off where that can be done
// (NoLock of MySQL's), and make them under the lock: see the package comment. The options are for this lock, beside those of the locker.
// If migrate's LockTimeout is not the default, give [sqllock.WithMaxWait] a bit less
// than that. New sends nothing to the database.
func New(driver database.Driver, locker *sqllock.Locker, name string, options ...sqllock.Option) *Driver {
	options = append([]sqllock.Option{sqllock.WithMaxWait(DefaultMaxWait)}, options...)

	return &Driver{Driver: driver, locker: locker, name: name, options: sqllock.LockOptions(options...)}
}

// Open opens another database with the driver inside, under the lock because that makes the version table, and returns it
// with the same lock. Errors are those of Lock and of the driver.
func (d *Driver) Open(url string) (database.Driver, error) {
	opened := &Driver{locker: d.locker, name: d.name, options: d.options}

	if err := opened.Lock(); err != nil {
		return nil, err
	}

	driver, err := d.Driver.Open(url)
	_ = opened.Unlock() // a release that failed goes on in the background, and the table is there

	if err != nil {
		return nil, err
	}

	opened.Driver = driver

	return opened, nil
}

// Lock waits for the lock, and returns [database.ErrLocked] if another has it for as long as
// that, or if this driver has it. Other errors are those of [sqllock.Locker.Acquire].
func (d *Driver) Lock() error {
	if !d.turn.TryLock() {
		return database.ErrLocked
	}
	defer d.turn.Unlock()

	if d.lock.Load() != nil {
		return database.ErrLocked
	}

	//nolint:forbidigo // migrate has no context; WithMaxWait bounds the call
	lock, err := d.locker.Acquire(context.Background(), d.name, d.options...)

	switch {
	case errors.Is(err, sqllock.ErrNotAcquired):
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	case err != nil:
		return err
	}

	d.told.Store(false)
	d.gone.Store(false)
	d.lock.Store(lock)

	return nil
}

// Unlock releases the lock. It returns [database.ErrNotLocked] if this driver does not have it,
// a *[sqllock.LostError] if it was lost and no other method has said so, or a *[sqllock.ReleaseError]
// if the release failed, which goes on in the background. The driver can be used again in any case,
// but migrate.Migrate takes itself for locked after an error.
func (d *Driver) Unlock() error {
	if !d.turn.TryLock() {
		return database.ErrNotLocked
	}
	defer d.turn.Unlock()

	lock := d.lock.Load()
	if lock == nil {
		return database.ErrNotLocked
	}

	defer d.lock.Store(nil)

	//nolint:forbidigo // migrate has no context; a release takes some seconds at most
	err := lock.Release(context.Background())

	// What Drop removed is no lock any more.
	failed := new(sqllock.ReleaseError)
	removed := d.gone.Load() && errors.As(err, &failed) && errors.Is(failed.Err, sqllock.ErrNoSchema)

	if removed || d.told.Load() && errors.Is(err, sqllock.ErrLost) {
		return nil
	}

	return err
}

// Close releases the lock if this driver has it, and closes the driver inside, but not the locker.
func (d *Driver) Close() error {
	err := d.Unlock()
	if errors.Is(err, database.ErrNotLocked) {
		err = nil
	}

	return errors.Join(err, d.Driver.Close())
}

// Run applies a migration, unless the lock was lost: then it returns a *[sqllock.LostError].
func (d *Driver) Run(migration io.Reader) error {
	if err := d.check(); err != nil {
		return err
	}

	return d.Driver.Run(migration)
}

// SetVersion saves the version, unless the lock was lost: then it returns a *[sqllock.LostError].
func (d *Driver) SetVersion(version int, dirty bool) error {
	if err := d.check(); err != nil {
		return err
	}

	return d.Driver.SetVersion(version, dirty)
}

// Drop deletes everything in the database, sqllock's tables too if they are there, unless
// the lock was lost: then it returns a *[sqllock.LostError].
func (d *Driver) Drop() error {
	if err := d.check(); err != nil {
		return err
	}

	d.gone.Store(true)

	return d.Driver.Drop()
}

// check asks the database whether the lock is ours. A driver that was not locked is not checked:
// migrate locks it before each change.
func (d *Driver) check() error {
	lock := d.lock.Load()
	if lock == nil {
		return nil
	}

	//nolint:forbidigo // migrate has no context
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()

	_ = lock.Check(ctx) // what it finds shows in Err; if there is no answer, that asks the clocks

	err := lock.Err()
	if err != nil {
		d.told.Store(true)
	}

	return err
}
