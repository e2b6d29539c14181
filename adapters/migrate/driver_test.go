package migratelock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	migratetesting "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	migratelock "github.com/sqllock/sqllock/adapters/migrate"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/cas"
)

const name = "migrations"

// It cannot run twice: the second CREATE TABLE fails.
var once = fstest.MapFS{
	"1_one.up.sql": {Data: []byte("CREATE TABLE one (id INTEGER);")},
	"2_two.up.sql": {Data: []byte("CREATE TABLE two (id INTEGER);")},
}

// A target is a database of one test, with the tables of sqllock.
type target struct {
	driver, dsn string
	wrap        func(*sql.DB) databases.DB
	migrates    func(*sql.DB) (database.Driver, error)
	kind        database.Driver // one that is not open
	url         string          // for its Open
}

// targets are the databases of SQLLOCK_TEST_DATABASES: without it, SQLite and all that a DSN is set for.
func targets() []string {
	names := []string{"sqlite"}

	for _, server := range []string{"mysql", "mariadb"} {
		list, chosen := os.LookupEnv("SQLLOCK_TEST_DATABASES")
		if chosen && strings.Contains(list, server) || !chosen && os.Getenv(variable(server)) != "" {
			names = append(names, server)
		}
	}

	return names
}

func variable(server string) string { return "SQLLOCK_TEST_" + strings.ToUpper(server) }

// fresh makes a database, which is dropped after the test. One without a DSN is a failure.
func fresh(t *testing.T, database string) target {
	t.Helper()

	on, dialect := sqliteTarget(t), "sqlite"
	if database != "sqlite" {
		on, dialect = mysqlTarget(t, database), "mysql"
	}

	text, err := migrations.FS.ReadFile(dialect + "/00001_create_locks.sql")
	if err != nil {
		t.Fatal(err)
	}

	create, _, _ := strings.Cut(string(text), "-- +goose Down")

	if _, err := on.open(t).Exec(create); err != nil {
		t.Fatal(err)
	}

	return on
}

func sqliteTarget(t *testing.T) target {
	t.Helper()

	file := filepath.Join(t.TempDir(), "app.db")

	return target{
		driver: "sqlite",
		dsn: "file:" + file +
			"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)",
		wrap: func(db *sql.DB) databases.DB { return sqlite.New(db) },
		migrates: func(db *sql.DB) (database.Driver, error) {
			return migratesqlite.WithInstance(db, &migratesqlite.Config{})
		},
		kind: &migratesqlite.Sqlite{},
		url:  "sqlite://" + file + "?_pragma=busy_timeout(10000)",
	}
}

func mysqlTarget(t *testing.T, server string) target {
	t.Helper()

	config, err := driver.ParseDSN(os.Getenv(variable(server)))
	if err != nil || config.User == "" {
		t.Fatalf("%s has no DSN (%v); leave the database out with SQLLOCK_TEST_DATABASES", variable(server), err)
	}

	admin, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}

	config.DBName = "sqllock_migrate_" + strings.ToLower(rand.Text()[:10])
	config.MultiStatements = true

	if _, err := admin.Exec("CREATE DATABASE " + config.DBName); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if _, err := admin.Exec("DROP DATABASE " + config.DBName); err != nil {
			t.Error(err)
		}

		_ = admin.Close()
	})

	return target{
		driver: "mysql", dsn: config.FormatDSN(),
		wrap: func(db *sql.DB) databases.DB { return mysql.New(db) },
		migrates: func(db *sql.DB) (database.Driver, error) {
			return migratemysql.WithInstance(db, &migratemysql.Config{NoLock: true})
		},
		kind: &migratemysql.Mysql{},
		url:  "mysql://" + config.FormatDSN() + "&x-no-lock=true",
	}
}

func (on target) open(t *testing.T) *sql.DB {
	t.Helper()

	db, err := sql.Open(on.driver, on.dsn)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = db.Close() })

	return db
}

// newLocker is a process: a locker with a pool of its own.
func newLocker(t *testing.T, on target, options ...sqllock.LockerOption) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(cas.New(on.wrap(on.open(t))), options...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()

		_ = locker.Close(ctx) // after Drop it goes on for the whole second
	})

	return locker
}

// plain is a driver of migrate itself.
func plain(t *testing.T, on target) database.Driver {
	t.Helper()

	inside, err := on.migrates(on.open(t))
	if err != nil {
		t.Fatal(err)
	}

	return inside
}

func newMigrate(t *testing.T, d database.Driver) *migrate.Migrate {
	t.Helper()

	source, err := iofs.New(once, ".")
	if err != nil {
		t.Fatal(err)
	}

	m, err := migrate.NewWithInstance("iofs", source, "test", d)
	if err != nil {
		t.Fatal(err)
	}

	return m
}

// between is a driver of migrate with something that happens while it is at work.
type between struct {
	database.Driver

	beforeRun, afterRun func() error
}

func (b *between) SetVersion(version int, dirty bool) error {
	if err := b.Driver.SetVersion(version, dirty); err != nil || !dirty || b.beforeRun == nil {
		return err
	}

	return b.beforeRun()
}

func (b *between) Run(migration io.Reader) error {
	if err := b.Driver.Run(migration); err != nil || b.afterRun == nil {
		return err
	}

	return b.afterRun()
}

// What migrate asks of every driver.
func TestAsDriver(t *testing.T) {
	t.Parallel()

	for _, database := range targets() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()

			on := fresh(t, database)
			migratetesting.Test(t, migratelock.New(plain(t, on), newLocker(t, fresh(t, "sqlite")), name),
				[]byte("CREATE TABLE one (id INTEGER)"))
		})
	}
}

func TestSeveralMigrateOnce(t *testing.T) {
	t.Parallel()

	for _, database := range targets() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()

			const processes = 5

			on := fresh(t, database)
			begin, outcomes := make(chan struct{}), make(chan error, processes)

			for range processes {
				locker := newLocker(t, on)
				m := newMigrate(t, migratelock.New(&between{Driver: plain(t, on), afterRun: func() error {
					return waitersCome(t, locker, processes-1)
				}}, locker, name))

				go func() {
					<-begin

					outcomes <- m.Up()
				}()
			}

			close(begin)

			migrated := 0

			for range processes {
				switch err := <-outcomes; {
				case err == nil:
					migrated++
				case !errors.Is(err, migrate.ErrNoChange):
					t.Errorf("Up() = %v", err)
				}
			}

			if migrated != 1 {
				t.Errorf("%d processes migrated, want 1", migrated)
			}
		})
	}
}

// Several processes start at once on a database without migrate's version table, each as the README says.
func TestSeveralBegin(t *testing.T) {
	t.Parallel()

	for _, on := range targets() {
		t.Run(on, func(t *testing.T) {
			t.Parallel()

			for what, begin := range map[string]func(target, *sql.DB, *sqllock.Locker) (database.Driver, error){
				"WithInstance": func(on target, db *sql.DB, locker *sqllock.Locker) (driver database.Driver, err error) {
					err = locker.Do(t.Context(), name, func(context.Context, *sqllock.Lock) error {
						driver, err = on.migrates(db)

						return err
					})

					return driver, err
				},
				"Open": func(on target, _ *sql.DB, locker *sqllock.Locker) (database.Driver, error) {
					return migratelock.New(on.kind, locker, name).Open(on.url)
				},
			} {
				t.Run(what, func(t *testing.T) {
					t.Parallel()

					const processes = 4

					on := fresh(t, on)
					start, outcomes := make(chan struct{}), make(chan error, processes)

					for range processes {
						locker, db := newLocker(t, on), on.open(t)

						go func() {
							<-start

							driver, err := begin(on, db, locker)
							if err == nil {
								err = driver.Close()
							}

							outcomes <- err
						}()
					}

					close(start)

					for range processes {
						if err := <-outcomes; err != nil {
							t.Errorf("the driver was not made: %v", err)
						}
					}
				})
			}
		})
	}
}

// waitersCome returns when so many wait for the lock.
func waitersCome(t *testing.T, locker *sqllock.Locker, want int) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	for {
		waiters, err := locker.Waiters(ctx, sqllock.WaiterFilter{Name: name})
		if err != nil {
			return fmt.Errorf("%d wait, want %d: %w", len(waiters), want, err)
		}

		if len(waiters) == want {
			return nil
		}
	}
}

func TestLongMigrationKeepsTheLock(t *testing.T) {
	t.Parallel()

	const lease = 2 * time.Second

	on := fresh(t, "sqlite")
	other := newLocker(t, on)
	begun := time.Now()

	long := &between{Driver: plain(t, on), afterRun: func() error {
		for time.Since(begun) < lease+lease/2 {
			lock, err := other.Acquire(t.Context(), name, sqllock.WithMaxWait(lease/4))
			if err == nil { // a slow machine may not say that it is held
				return errors.Join(errors.New("acquired in the migration"), lock.Release(t.Context()))
			}
		}

		return nil
	}}

	if err := newMigrate(t, migratelock.New(long, newLocker(t, on, sqllock.WithLease(lease)), name)).Up(); err != nil {
		t.Errorf("Up() = %v", err)
	}

	if lock, err := other.TryAcquire(t.Context(), name); err != nil {
		t.Errorf("TryAcquire() after the migrations = %v", err)
	} else if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// The lock is lost while a migration runs: the next does not run, and the version stays dirty.
func TestLostInMigration(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")
	other := newLocker(t, on)

	robbed := &between{Driver: plain(t, on), afterRun: func() error {
		return sqllocktest.ForceRelease(t.Context(), other, name, "taken away by the test")
	}}

	m := newMigrate(t, migratelock.New(robbed, newLocker(t, on), name))

	wantForced(t, m.Up())

	// It can be used again, and so can the lock.
	if err := m.Up(); !errors.As(err, new(migrate.ErrDirty)) {
		t.Errorf("Up() after the loss = %v, want ErrDirty", err)
	}

	if version, dirty, err := m.Version(); version != 1 || !dirty || err != nil {
		t.Errorf("Version() = %d, %v, %v, want 1, dirty", version, dirty, err)
	}

	robbed.afterRun = nil

	if err := errors.Join(m.Force(1), m.Up()); err != nil {
		t.Errorf("Force(1), Up() = %v", err)
	}
}

// The lock is lost before a migration runs: it does not run.
func TestLostBeforeMigration(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")
	other := newLocker(t, on)

	robbed := &between{
		Driver:    plain(t, on),
		beforeRun: func() error { return sqllocktest.ForceRelease(t.Context(), other, name, "taken away by the test") },
		afterRun: func() error {
			t.Error("the migration ran")

			return nil
		},
	}

	wantForced(t, newMigrate(t, migratelock.New(robbed, newLocker(t, on), name)).Up())
}

// A loss that nobody was told of is the error of Unlock.
func TestLostBeforeUnlock(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")
	d := migratelock.New(plain(t, on), newLocker(t, on), name)

	if err := d.Lock(); err != nil {
		t.Fatal(err)
	}

	if err := sqllocktest.ForceRelease(t.Context(), newLocker(t, on), name, "taken away by the test"); err != nil {
		t.Fatal(err)
	}

	wantForced(t, d.Unlock())

	if err := errors.Join(d.Lock(), d.Unlock()); err != nil {
		t.Errorf("Lock(), Unlock() after the loss = %v", err)
	}
}

func wantForced(t *testing.T, err error) {
	t.Helper()

	var lost *sqllock.LostError
	if !errors.As(err, &lost) || lost.Reason != sqllock.ReasonForced {
		t.Errorf("got %v, want a LostError with ReasonForced", err)
	}
}

func TestLocked(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")
	d := migratelock.New(plain(t, on), newLocker(t, on), name)

	if err := d.Unlock(); !errors.Is(err, database.ErrNotLocked) {
		t.Errorf("Unlock() before Lock() = %v, want ErrNotLocked", err)
	}

	if err := d.Lock(); err != nil {
		t.Fatal(err)
	}

	if err := d.Lock(); !errors.Is(err, database.ErrLocked) {
		t.Errorf("Lock() once more = %v, want ErrLocked", err)
	}

	// Another process gives up before migrate's LockTimeout, and knows who has the lock.
	var held *sqllock.HeldError

	err := newMigrate(t, migratelock.New(plain(t, on), newLocker(t, on), name, sqllock.WithMaxWait(50*time.Millisecond))).Up()
	if !errors.Is(err, database.ErrLocked) || !errors.As(err, &held) || held.Holder.PID != os.Getpid() {
		t.Errorf("Up() of another = %v, want ErrLocked and the holder", err)
	}

	if migratelock.DefaultMaxWait >= migrate.DefaultLockTimeout {
		t.Errorf("DefaultMaxWait = %v, want less than %v", migratelock.DefaultMaxWait, migrate.DefaultLockTimeout)
	}

	// Close releases it.
	if err := d.Close(); err != nil {
		t.Error(err)
	}

	if err := newMigrate(t, migratelock.New(plain(t, on), newLocker(t, on), name)).Up(); err != nil {
		t.Errorf("Up() after Close() = %v", err)
	}
}

// Drop removes the tables of sqllock, and the lock with them.
func TestDrop(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")

	if err := newMigrate(t, migratelock.New(plain(t, on), newLocker(t, on), name)).Drop(); err != nil {
		t.Errorf("Drop() = %v", err)
	}
	if err := newMigrate(t, migratelock.New(plain(t, on), newLocker(t, on), name)).Up(); !errors.Is(err, sqllock.ErrNoSchema) {
		t.Errorf("Up() without the tables = %v, want ErrNoSchema", err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")

	opened, err := migratelock.New(&migratesqlite.Sqlite{}, newLocker(t, on), name).
		Open("sqlite://" + filepath.Join(t.TempDir(), "other.db"))
	if err != nil {
		t.Fatal(err)
	}

	if err := opened.Lock(); err != nil {
		t.Fatal(err)
	}

	if _, err := newLocker(t, on).TryAcquire(t.Context(), name); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("TryAcquire() = %v, want ErrNotAcquired", err)
	}

	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}
