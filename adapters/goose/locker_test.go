package gooselock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	gooselock "github.com/sqllock/sqllock/adapters/goose"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/cas"
)

const name = "migrations"

// Neither migration can run twice: the second CREATE TABLE fails.
var twoFiles = fstest.MapFS{
	"00001_one.sql": {Data: []byte("-- +goose Up\nCREATE TABLE one (id INTEGER);\nINSERT INTO one VALUES (1);\n")},
	"00002_two.sql": {Data: []byte("-- +goose Up\n-- +goose NO TRANSACTION\nCREATE TABLE two (id INTEGER);\n")},
}

// newLocker is a process: a locker with a pool of its own.
func newLocker(t *testing.T, on target, options ...sqllock.LockerOption) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(cas.New(on.wrap(on.open(t))), options...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(context.Background()) })

	return locker
}

func newProvider(
	t *testing.T, on target, db *sql.DB, locker *gooselock.Locker, options ...goose.ProviderOption,
) *goose.Provider {
	t.Helper()

	options = append(options, goose.WithDisableGlobalRegistry(true))
	if locker != nil {
		options = append(options, goose.WithLocker(locker))
	}

	provider, err := goose.NewProvider(on.goose, db, twoFiles, options...)
	if err != nil {
		t.Fatal(err)
	}

	return provider
}

// third is a migration in Go, after the two files.
func third(f func(ctx context.Context) error) goose.ProviderOption {
	run := func(ctx context.Context, _ *sql.DB) error { return f(ctx) }

	return goose.WithGoMigrations(goose.NewGoMigration(3, &goose.GoFunc{RunDB: run}, nil))
}

func TestSeveralMigrateOnce(t *testing.T) {
	t.Parallel()

	for _, database := range targets() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()

			on := fresh(t, database)
			const processes = 5

			type outcome struct {
				results []*goose.MigrationResult
				err     error
			}

			begin, outcomes := make(chan struct{}), make(chan outcome, processes)
			running := make(chan struct{}, 1)

			// Two at once would find the channel full.
			alone := func(context.Context) error {
				select {
				case running <- struct{}{}:
					<-running

					return nil
				default:
					return errors.New("two at once")
				}
			}

			// goose makes its version table without the lock: here it is made before.
			if _, err := newProvider(t, on, on.open(t), nil).HasPending(t.Context()); err != nil {
				t.Fatal(err)
			}

			for range processes {
				provider := newProvider(t, on, on.open(t), gooselock.New(newLocker(t, on), name), third(alone))

				go func() {
					<-begin

					results, err := provider.Up(t.Context())
					outcomes <- outcome{results, err}
				}()
			}

			close(begin)

			applied := 0

			for range processes {
				o := <-outcomes
				if o.err != nil {
					t.Errorf("Up() = %v", o.err)
				}

				applied += len(o.results)
			}

			if applied != 3 {
				t.Errorf("%d migrations were applied by all processes together, want 3", applied)
			}
		})
	}
}

func TestLongMigrationKeepsTheLock(t *testing.T) {
	t.Parallel()

	for _, database := range targets() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()

			on := fresh(t, database)
			const lease = 6 * time.Second // a busy machine takes seconds to connect

			other := newLocker(t, on)
			locker := newLocker(t, on, sqllock.WithLease(lease))

			long := third(func(ctx context.Context) error {
				for begin := time.Now(); time.Since(begin) < lease+lease/2; {
					lock, err := other.Acquire(ctx, name, sqllock.WithMaxWait(lease/4))
					if err == nil { // a slow machine may not say that it is held
						return errors.Join(errors.New("acquired in the migration"), lock.Release(ctx))
					}
				}

				return nil
			})

			ctx, cancel := gooselock.WithCancel(t.Context())
			defer cancel()

			if _, err := newProvider(t, on, on.open(t), gooselock.New(locker, name), long).Up(ctx); err != nil {
				t.Errorf("Up() = %v", err)
			}

			if lock, err := other.TryAcquire(t.Context(), name); err != nil {
				t.Errorf("TryAcquire() after the migrations = %v", err)
			} else if err := lock.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLostLockEndsMigrations(t *testing.T) {
	t.Parallel()

	for _, database := range targets() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()

			on := fresh(t, database)
			var cause error

			// A renewal finds out that it was taken away. On a busy machine the first may find no connection in time.
			const lease = 9 * time.Second

			other := newLocker(t, on)
			locker := newLocker(t, on, sqllock.WithLease(lease))

			robbed := third(func(ctx context.Context) error {
				if err := sqllocktest.ForceRelease(ctx, other, name, "taken away by the test"); err != nil {
					return err
				}

				<-ctx.Done()

				cause = context.Cause(ctx)

				return ctx.Err()
			})

			ctx, cancel := gooselock.WithCancel(t.Context())
			defer cancel()

			_, err := newProvider(t, on, on.open(t), gooselock.New(locker, name), robbed).Up(ctx)

			if !errors.Is(err, sqllock.ErrLost) || !errors.Is(err, context.Canceled) {
				t.Errorf("Up() = %v, want ErrLost and Canceled", err)
			}

			var lost *sqllock.LostError
			if !errors.As(cause, &lost) || lost.Reason != sqllock.ReasonForced {
				t.Errorf("cause of the migration's context = %v, want a LostError with ReasonForced", cause)
			}

			// It is not recorded as applied; another process runs it.
			results, err := newProvider(t, on, on.open(t), gooselock.New(other, name),
				third(func(context.Context) error { return nil })).Up(t.Context())
			if err != nil || len(results) != 1 {
				t.Errorf("Up() of another = %v, %v, want one migration", results, err)
			}
		})
	}
}

// Without WithCancel the migrations go on, and goose says at the end that the lock was lost.
func TestLostLockIsToldAtTheEnd(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")
	other := newLocker(t, on)
	ended := make(chan struct{})
	locker := newLocker(t, on, sqllock.WithLease(2*time.Second),
		sqllock.WithObserver(func(_ context.Context, e sqllock.Event) {
			if e.Kind == sqllock.Lost {
				close(ended)
			}
		}))

	robbed := third(func(ctx context.Context) error {
		if err := sqllocktest.ForceRelease(ctx, other, name, "taken away by the test"); err != nil {
			return err
		}

		<-ended

		return ctx.Err()
	})

	shared := gooselock.New(locker, name)
	results, err := newProvider(t, on, on.open(t), shared, robbed).Up(t.Context())

	if len(results) != 3 || !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Up() = %v, %v, want 3 migrations and ErrLost", results, err)
	}

	// The locker can be used again.
	if _, err := newProvider(t, on, on.open(t), shared, robbed).Down(t.Context()); err != nil {
		t.Errorf("Down() = %v", err)
	}
}

// Two providers of one process have one Locker, and the first loses the lock: the second, who
// is granted it, begins only when the first is done.
func TestOneProviderAtATime(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")
	other := newLocker(t, on)
	shared := gooselock.New(newLocker(t, on), name)

	if err := shared.Lock(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	if err := sqllocktest.ForceRelease(t.Context(), other, name, "taken away by the test"); err != nil {
		t.Fatal(err)
	}

	// One who is granted the lock and whose context ends before its turn.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	second := make(chan error, 1)
	go func() { second <- shared.Lock(ctx, nil) }()

	waitUntil(t, other, true)
	cancel()

	if err := <-second; !errors.Is(err, context.Canceled) || errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("Lock() = %v, want Canceled and not ErrNotAcquired", err)
	}

	waitUntil(t, other, false)

	// One who waits for its turn.
	go func() { second <- shared.Lock(t.Context(), nil) }()

	waitUntil(t, other, true)

	select {
	case err := <-second:
		t.Errorf("Lock() = %v before the first was done", err)
	default:
	}

	if err := shared.Unlock(t.Context(), nil); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Unlock() of the first = %v, want ErrLost", err)
	}

	if err := <-second; err != nil {
		t.Errorf("Lock() of the second = %v", err)
	}

	if err := shared.Unlock(t.Context(), nil); err != nil {
		t.Errorf("Unlock() of the second = %v", err)
	}

	if err := shared.Unlock(t.Context(), nil); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("Unlock() once more = %v, want ErrNotAcquired", err)
	}
}

// waitUntil polls until the lock is held, or is free.
func waitUntil(t *testing.T, locker *sqllock.Locker, held bool) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	for {
		status, err := locker.Inspect(ctx, name)
		if err != nil {
			t.Fatalf("held is not %v: %+v, %v", held, status, err)
		}

		if status.Held() == held {
			return
		}
	}
}

func TestPoolOfOne(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")
	db := on.open(t)
	db.SetMaxOpenConns(1)

	same, err := sqllock.New(cas.New(sqlite.New(db)))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = same.Close(context.Background()) })

	locker := gooselock.New(same, name, sqllock.WithMaxWait(300*time.Millisecond))

	if _, err := newProvider(t, on, db, locker).Up(t.Context()); !errors.Is(err, sqllock.ErrUnreachable) ||
		!strings.Contains(err.Error(), "pool of its own") {
		t.Errorf("Up() with the locker in the same pool = %v, want ErrUnreachable and the advice", err)
	}

	results, err := newProvider(t, on, db, gooselock.New(newLocker(t, on), name)).Up(t.Context())
	if err != nil || len(results) != 2 {
		t.Errorf("Up() with a locker of another pool = %v, %v, want two migrations", results, err)
	}
}

func TestNoTables(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")
	on.dsn = strings.Replace(on.dsn, "app.db", "bare.db", 1)

	_, err := newProvider(t, on, on.open(t), gooselock.New(newLocker(t, on), name)).Up(t.Context())
	if !errors.Is(err, sqllock.ErrNoSchema) {
		t.Errorf("Up() = %v, want ErrNoSchema", err)
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()

	on := fresh(t, "sqlite")

	if _, err := newLocker(t, on).Acquire(t.Context(), name); err != nil {
		t.Fatal(err)
	}

	locker := gooselock.New(newLocker(t, on), name, sqllock.WithMaxWait(50*time.Millisecond))

	_, err := newProvider(t, on, on.open(t), locker).Up(t.Context())
	if !errors.Is(err, sqllock.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Up() = %v, want ErrNotAcquired without DeadlineExceeded", err)
	}
}

// A process that is killed in a migration keeps the others out for its lease and no longer.
func TestDeath(t *testing.T) {
	t.Parallel()

	if dsn := os.Getenv("GOOSELOCK_TEST_DIES"); dsn != "" {
		die(t, dsn)

		return
	}

	const lease = 3 * time.Second

	on := fresh(t, "sqlite")

	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDeath$")
	process.Env = append(os.Environ(), "GOOSELOCK_TEST_DIES="+on.dsn, "GOOSELOCK_TEST_LEASE="+lease.String())
	process.Stderr = os.Stderr

	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := process.Start(); err != nil {
		t.Fatal(err)
	}

	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "migrating\n" {
		t.Fatalf("the process says %q, %v, want migrating", line, err)
	}

	killed := time.Now()

	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = process.Wait()

	results, err := newProvider(t, on, on.open(t), gooselock.New(newLocker(t, on), name),
		third(func(context.Context) error { return nil })).Up(t.Context())
	if err != nil || len(results) != 1 {
		t.Errorf("Up() after the death = %v, %v, want one migration", results, err)
	}

	// The last renewal was at most a third of the lease before.
	if waited := time.Since(killed); waited < lease/3 || waited > 2*lease {
		t.Errorf("it began %v after the death, want about %v", waited, lease)
	}
}

func die(t *testing.T, dsn string) {
	t.Helper()

	lease, err := time.ParseDuration(os.Getenv("GOOSELOCK_TEST_LEASE"))
	if err != nil {
		t.Fatal(err)
	}

	on := target{goose: goose.DialectSQLite3, driver: "sqlite", dsn: dsn}
	locks := on.open(t)

	locker, err := sqllock.New(cas.New(sqlite.New(locks)), sqllock.WithLease(lease))
	if err != nil {
		t.Fatal(err)
	}

	_, err = newProvider(t, on, on.open(t), gooselock.New(locker, name), third(func(ctx context.Context) error {
		_, _ = os.Stdout.WriteString("migrating\n")

		<-ctx.Done() // until it is killed

		return ctx.Err()
	})).Up(t.Context())
	t.Errorf("Up() = %v, want no return", err)
}
