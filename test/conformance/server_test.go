package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/test/catalog"
)

// wantTry makes one attempt and checks that its error is the wanted one and
// names the lock and what to do.
func wantTry(t *testing.T, strategy strategies.Strategy, want error, words ...string) {
	t.Helper()

	locker := lockerOn(t, strategy)

	_, err := locker.TryAcquire(t.Context(), "wanted")
	if !errors.Is(err, want) {
		t.Fatalf("TryAcquire() = %v, want %v", err, want)
	}

	for _, word := range append(words, `"wanted"`) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("TryAcquire() = %q, want that it says %q", err, word)
		}
	}

	if strings.Contains(err.Error(), "\n") {
		t.Errorf("TryAcquire() = %q, want one line", err)
	}
}

func postgresConfig(t *testing.T) *pgx.ConnConfig {
	t.Helper()

	config, err := pgx.ParseConfig(dsn(t, "postgres"))
	if err != nil {
		t.Fatal(err)
	}

	return config
}

func mysqlConfig(t *testing.T, server string) *driver.Config {
	t.Helper()

	config, err := driver.ParseDSN(dsn(t, server))
	if err != nil {
		t.Fatal(err)
	}

	config.Logger = &driver.NopLogger{} // it prints each connection that broke

	return config
}

// TestWrongServer gives each constructor the pools of the other databases.
// MariaDB behind mysql.New is no mistake; the suite runs there.
func TestWrongServer(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"postgres", "mysql", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var db *sql.DB

			switch name {
			case "postgres":
				db = stdPool(t, postgresConfig(t))
			case "mysql":
				db = mysqlPool(t, mysqlConfig(t, "mysql"))
			case "sqlite":
				dsn(t, "sqlite")
				db = sqlitePool(t, sqliteFile(t))
			}

			for dialect, wrong := range map[string]databases.DB{
				"postgres": postgres.NewStd(db), "mysql": mysql.New(db), "sqlite": sqlite.New(db),
			} {
				if dialect == name {
					continue
				}

				for _, strategy := range catalog.All() {
					if dialect == "sqlite" && strategy.Name != "cas" && strategy.Name != "insert" {
						continue
					}

					t.Run("behind "+dialect+"/"+strategy.Name, func(t *testing.T) {
						t.Parallel()
						wantTry(t, strategy.Make(wrong), sqllock.ErrUnsupported, "unsuitable server")
					})
				}
			}
		})
	}
}

// TestNoAutocommit: a grant would be rolled back with its connection.
func TestNoAutocommit(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, server))
			config.Params = map[string]string{"autocommit": "0"}

			for _, strategy := range catalog.All() {
				wantTry(t, strategy.Make(mysql.New(mysqlPool(t, config))), sqllock.ErrUnsupported, "autocommit")
			}
		})
	}
}

// TestIsolationDefaults: an application's pool may begin its transactions, and
// those of the strategies, with a level of its own.
func TestIsolationDefaults(t *testing.T) {
	t.Parallel()

	for _, level := range []string{"repeatable read", "serializable"} {
		for _, server := range []string{"postgres", "mysql", "mariadb"} {
			t.Run(server+"/"+level, func(t *testing.T) {
				t.Parallel()

				for _, strategy := range catalog.All() {
					db, pool := isolated(t, server, level)

					lockTwice(t, strategy.Name, strategy.Make(db))
					extendBesideAWrite(t, strategy.Name, lockerOn(t, strategy.Make(db)), pool)
					detachBesideAWrite(t, strategy.Name, lockerOn(t, strategy.Make(db)), pool)
				}
			})
		}
	}
}

// extendBesideAWrite extends locks while another transaction, as that of one who begins to wait, has changed the row of
// the name and commits. Above Read Committed a server may refuse the statement then.
func extendBesideAWrite(t *testing.T, name string, locker *sqllock.Locker, pool *sql.DB) {
	t.Helper()

	for _, options := range [][]sqllock.LockOption{nil, {sqllock.WithShared()}} {
		if options != nil && !locker.Features().Shared {
			continue
		}

		lock, err := locker.TryAcquire(t.Context(), "written", options...)
		if err != nil {
			t.Errorf("%s: TryAcquire() = %v, want the lock", name, err)

			return
		}

		if err := besideAWrite(t, locker, pool, func() error { return lock.Extend(t.Context(), 2*sqllock.DefaultLease) }); err != nil {
			t.Errorf("%s: Extend() beside a write = %v, want nil", name, err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("%s: Release() = %v, want nil", name, err)
		}
	}
}

// besideAWrite calls f while another transaction has changed the row of the name, and commits meanwhile.
func besideAWrite(t *testing.T, locker *sqllock.Locker, pool *sql.DB, f func() error) error {
	t.Helper()

	tx, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	table := "sqllock_leases"
	if locker.Features().Database == string(databases.Postgres) {
		table = "sqllock_locks"
	}

	if _, err := tx.ExecContext(t.Context(), "UPDATE "+table+" SET waiting = waiting + 1 WHERE name = 'written'"); err != nil {
		t.Fatal(err)
	}

	done := make(chan error, 1)

	go func() { done <- f() }()

	<-time.After(100 * time.Millisecond)

	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}

	return <-done
}

// detachBesideAWrite does the same with a lock that goes from one locker to another, to one of four who try.
func detachBesideAWrite(t *testing.T, name string, locker *sqllock.Locker, pool *sql.DB) {
	t.Helper()

	ctx := t.Context()
	if !locker.Features().Passes {
		return
	}

	lock, err := locker.TryAcquire(ctx, "written")
	if err != nil {
		t.Errorf("%s: TryAcquire() = %v, want the lock", name, err)

		return
	}

	var claim sqllock.Claim

	if err := besideAWrite(t, locker, pool, func() (err error) {
		claim, err = lock.Detach(ctx, time.Minute)

		return err
	}); err != nil {
		t.Errorf("%s: Detach() beside a write = %v, want nil", name, err)

		return
	}

	for what, use := range map[string]func() error{
		"CheckClaim":  func() error { return locker.CheckClaim(ctx, claim) },
		"ExtendClaim": func() error { return locker.ExtendClaim(ctx, claim, time.Minute) },
	} {
		if err := besideAWrite(t, locker, pool, use); err != nil {
			t.Errorf("%s: %s() beside a write = %v, want nil", name, what, err)
		}
	}

	var (
		tries   sync.WaitGroup
		adopted = make(chan *sqllock.Lock, 4)
	)

	_ = besideAWrite(t, locker, pool, func() error {
		for range cap(adopted) {
			tries.Go(func() {
				lock, err := locker.Adopt(ctx, claim)
				if err == nil {
					adopted <- lock
				} else if !errors.Is(err, sqllock.ErrLost) {
					t.Errorf("%s: Adopt() beside a write and other tries = %v, want the lock or ErrLost", name, err)
				}
			})
		}

		tries.Wait()

		return nil
	})

	if len(adopted) != 1 {
		t.Fatalf("%s: %d of %d have adopted the lock, want 1", name, len(adopted), cap(adopted))
	}

	if adopted := <-adopted; adopted.Token() != lock.Token() || adopted.Release(ctx) != nil {
		t.Errorf("%s: adopted %v, want the token of %v, and that it can be released", name, adopted, lock)
	}
}

// isolated returns a pool whose sessions have the isolation level.
func isolated(t *testing.T, server, level string) (databases.DB, *sql.DB) {
	t.Helper()

	if server == "postgres" {
		config := postgresDatabase(t, postgresConfig(t))
		config.RuntimeParams["default_transaction_isolation"] = level

		pool := stdPool(t, config)

		return postgres.NewStd(pool), pool
	}

	config := mysqlDatabase(t, mysqlConfig(t, server))

	// MariaDB before 11.1 has the older name only.
	variable, value := "transaction_isolation", ""
	if err := mysqlPool(t, config).QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'transaction_isolation'").Scan(&variable, &value); err != nil {
		variable = "tx_isolation"
	}

	config.Params = map[string]string{variable: "'" + strings.ToUpper(strings.ReplaceAll(level, " ", "-")) + "'"}

	pool := mysqlPool(t, config)

	return mysql.New(pool), pool
}

// batchTwice does what lockTwice does, with several locks at a time.
func batchTwice(t *testing.T, name string, batcher strategies.Strategy) {
	t.Helper()

	for i := range 2 {
		var requests []strategies.Request
		for j := range 3 {
			requests = append(requests, strategies.Request{
				Name: fmt.Sprintf("isolated/%d", j), Owner: fmt.Sprintf("owner %d.%d", i, j), Lease: time.Minute,
			})
		}

		grants, errs := batcher.Acquire(t.Context(), requests)
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: Acquire() = %v, want the grants", name, err)

			return
		}

		if err := errors.Join(batcher.Renew(t.Context(), grants, time.Minute)...); err != nil {
			t.Errorf("%s: RenewAll() = %v, want nil", name, err)
		}

		_, errs = batcher.Release(t.Context(), grants)
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: ReleaseAll() = %v, want nil", name, err)
		}
	}
}

// severalTwice takes several names at once, the second time while another waits for them in line.
func severalTwice(t *testing.T, name string, first, second *sqllock.Locker) {
	t.Helper()

	names := []string{"isolated/0", "isolated/1", "isolated/new"}

	locks, err := first.TryAcquire(t.Context(), names[0], sqllock.WithNames(names...))
	if err != nil {
		t.Errorf("%s: TryAcquire() of %q = %v, want the locks", name, names, err)

		return
	}

	ended := make(chan error, 1)

	go func() {
		ended <- second.Do(t.Context(), names[0], func(ctx context.Context, _ *sqllock.Lock) error { return ctx.Err() },
			sqllock.WithNames(names...), sqllock.WithMaxWait(20*time.Second))
	}()

	<-time.After(200 * time.Millisecond)

	if err := locks.Release(t.Context()); err != nil {
		t.Errorf("%s: Release() of several = %v, want nil", name, err)
	}

	if err := <-ended; err != nil {
		t.Errorf("%s: Do() of %q = %v, want nil", name, names, err)
	}
}

// readTwice reads with two lockers, and lets a writer in that waits for the readers, the second time where the rows are there.
func readTwice(t *testing.T, name string, first, second *sqllock.Locker) {
	t.Helper()

	for range 2 {
		var readers []*sqllock.Lock

		for _, locker := range []*sqllock.Locker{first, second} {
			lock, err := locker.TryAcquire(t.Context(), "isolated/read", sqllock.WithShared())
			if err != nil {
				t.Errorf("%s: TryAcquire(WithShared) = %v, want the lock", name, err)

				return
			}

			readers = append(readers, lock)
		}

		written := make(chan error, 1)

		go func() {
			written <- second.Do(t.Context(), "isolated/read", func(ctx context.Context, _ *sqllock.Lock) error { return ctx.Err() },
				sqllock.WithMaxWait(20*time.Second))
		}()

		for _, lock := range readers {
			if err := errors.Join(lock.Extend(t.Context(), sqllock.DefaultLease), lock.Check(t.Context())); err != nil {
				t.Errorf("%s: Extend() and Check() of a reader = %v, want nil", name, err)
			}

			<-time.After(50 * time.Millisecond)

			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("%s: Release() of a reader = %v, want nil", name, err)
			}
		}

		if err := <-written; err != nil {
			t.Errorf("%s: Do() behind readers = %v, want nil", name, err)
		}
	}
}

// lockTwice acquires, renews, checks and releases a lock, the second time one
// whose rows are there.
func lockTwice(t *testing.T, name string, strategy strategies.Strategy) {
	t.Helper()

	locker := lockerOn(t, strategy)

	if !strategy.Features().Unbatched {
		batchTwice(t, name, strategy)
	}

	if locker.Features().Several {
		severalTwice(t, name, locker, lockerOn(t, strategy))
	}

	if locker.Features().Shared {
		readTwice(t, name, locker, lockerOn(t, strategy))
	}

	for range 2 {
		lock, err := locker.TryAcquire(t.Context(), "isolated")
		if err != nil {
			t.Errorf("%s: TryAcquire() = %v, want the lock", name, err)

			return
		}

		if err := lock.Extend(t.Context(), sqllock.DefaultLease); err != nil {
			t.Errorf("%s: Extend() = %v, want nil", name, err)
		}

		if err := lock.Check(t.Context()); err != nil {
			t.Errorf("%s: Check() = %v, want nil", name, err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("%s: Release() = %v, want nil", name, err)
		}
	}
}

// TestGuardInAFullPool: a guard that finds the lock lost asks outside the
// caller's transaction, and must not wait for ever for a connection to do so.
func TestGuardInAFullPool(t *testing.T) {
	t.Parallel()

	db := stdPool(t, postgresDatabase(t, postgresConfig(t)))
	db.SetMaxOpenConns(1)

	locker := lockerOn(t, cas.New(postgres.NewStd(db)))

	lock, err := locker.Acquire(t.Context(), "guarded")
	if err != nil {
		t.Fatal(err)
	}

	exec(t, db, "UPDATE sqllock_locks SET owner = 'another', token = token + 1 WHERE name = 'guarded'")

	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	guarded := make(chan error, 1)

	go func() { guarded <- lock.Guard(t.Context(), postgres.StdTx(tx)) }()

	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()

	select {
	case err := <-guarded:
		if err == nil {
			t.Error("Guard() of a lock that is another's = nil, want an error")
		}
	case <-timer.C:
		t.Error("Guard() did not return within 10s from a pool without a free connection")
	}

	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}

// TestNilTransaction: it could not be begun, and nobody looked.
func TestNilTransaction(t *testing.T) {
	t.Parallel()

	locker := lockerOn(t, sqllocktest.NewMemory())

	lock, err := locker.Acquire(t.Context(), "guarded")
	if err != nil {
		t.Fatal(err)
	}

	for what, tx := range map[string]strategies.Tx{
		"postgres.Tx":            postgres.Tx(nil),
		"postgres.Tx of a pool":  postgres.Tx((*pgxpool.Tx)(nil)),
		"postgres.StdTx":         postgres.StdTx(nil),
		"mysql.Tx":               mysql.Tx(nil),
		"sqlite.Tx":              sqlite.Tx(nil),
		"databases.StdTx itself": databases.StdTx(nil, databases.SQLite),
	} {
		if err := lock.Guard(t.Context(), tx); !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("Guard() of a nil %s = %v, want ErrInvalidOption", what, err)
		}
	}

	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// TestRefusedName: what the server answers to a statement about one name says
// nothing of the session that other locks may share with it.
func TestRefusedName(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			var (
				database databases.DB
				beside   *sql.DB
			)

			if server == "postgres" {
				config := postgresDatabase(t, postgresConfig(t))
				database, beside = pgxPool(t, config, pgx.QueryExecModeCacheStatement), stdPool(t, config)
				exec(t, beside, "ALTER TABLE sqllock_locks ADD CONSTRAINT refuses CHECK (name <> 'refused' OR owner = '')")
			} else {
				config := mysqlDatabase(t, mysqlConfig(t, server))
				database, beside = mysql.New(mysqlPool(t, config)), mysqlPool(t, config)
				exec(t, beside, "ALTER TABLE sqllock_leases ADD CONSTRAINT refuses CHECK (name <> 'refused' OR owner = '')")
			}

			for _, strategy := range catalog.ConnectionHeld() {
				t.Run(strategy.Name, func(t *testing.T) { refusedName(t, strategy.Make(database)) })
			}
		})
	}
}

func refusedName(t *testing.T, strategy strategies.Strategy) {
	t.Helper()

	locker := lockerOn(t, strategy)

	other, err := locker.TryAcquire(t.Context(), "other")
	if err != nil {
		t.Fatalf("TryAcquire() = %v, want the lock", err)
	}

	_, err = locker.TryAcquire(t.Context(), "refused")
	if err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("TryAcquire() of a name that a constraint refuses = %v, want the server's error", err)
	}

	if err := other.Check(t.Context()); err != nil {
		t.Errorf("Check() of another lock after that = %v, want nil", err)
	}

	if err := other.Release(t.Context()); err != nil {
		t.Errorf("Release() of another lock after that = %v, want nil", err)
	}
}

// TestNoSchemaLeavesNothingLocked: an attempt before the migration must not
// leave an advisory lock on a connection of the pool.
func TestNoSchemaLeavesNothingLocked(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, server))
			db := mysqlPool(t, config)
			exec(t, db, "RENAME TABLE sqllock_locks TO elsewhere")

			early := advisory.New(mysql.New(mysqlPool(t, config)))
			wantTry(t, early, sqllock.ErrNoSchema)
			exec(t, db, "RENAME TABLE elsewhere TO sqllock_locks")

			locker := lockerOn(t, advisory.New(mysql.New(mysqlPool(t, config))))

			lock, err := locker.TryAcquire(t.Context(), "wanted")
			if err != nil {
				t.Fatalf("TryAcquire() after the migration = %v, want the lock", err)
			}

			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}
		})
	}
}

// TestReapEndsSessions: a holder that stopped renewing keeps its row locked for
// as long as its session lives, until the reaper ends that.
func TestReapEndsSessions(t *testing.T) {
	t.Parallel()

	check := func(t *testing.T, beside *sql.DB, first, second strategies.Strategy, age string) {
		t.Helper()

		readers(t, beside, first, second, age)

		request := strategies.Request{Name: "reaped", Owner: "first", Lease: time.Hour}

		grant, err := single.TryAcquire(t.Context(), first, request)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = grant.Release(context.WithoutCancel(t.Context())) })
		exec(t, beside, age)

		reaped, err := second.Reap(t.Context(), time.Hour)
		if err != nil || reaped.Expired < 1 {
			t.Fatalf("Reap() = %+v, %v, want the grant", reaped, err)
		}

		// The row is free when the server has noticed, a moment later.
		deadline := time.Now().Add(10 * time.Second)
		tick := time.NewTicker(20 * time.Millisecond)

		defer tick.Stop()

		for request.Owner = "second"; ; <-tick.C {
			next, err := single.TryAcquire(t.Context(), second, request)
			if err == nil {
				_ = next.Release(t.Context())

				break
			}

			if time.Now().After(deadline) {
				t.Fatalf("TryAcquire() after the reaping = %v, want the lock", err)
			}
		}

		if err := grant.Renew(t.Context(), time.Hour); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Renew() after the reaping = %v, want ErrLost", err)
		}
	}

	t.Run("postgres", func(t *testing.T) {
		t.Parallel()

		config := postgresDatabase(t, postgresConfig(t))
		check(t, stdPool(t, config), forupdate.New(postgres.NewStd(stdPool(t, config))),
			forupdate.New(postgres.NewStd(stdPool(t, config))), "UPDATE sqllock_locks SET expires_at = 'epoch'")
	})

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, server))
			check(t, mysqlPool(t, config), forupdate.New(mysql.New(mysqlPool(t, config))),
				forupdate.New(mysql.New(mysqlPool(t, config))), "UPDATE sqllock_leases SET expires_at = 0")
		})
	}
}

// readers looks whether a phase of readers that has expired, and one that has no readers any more, can be reaped and forced: it has no
// session, and is longer than MySQL's named locks may be.
func readers(t *testing.T, beside *sql.DB, first, second strategies.Strategy, age string) {
	t.Helper()

	for _, end := range []string{"reap", "force"} {
		request := strategies.Request{Name: "read", Owner: end + "ed", Lease: time.Hour, Mode: strategies.Shared}

		grant, err := single.TryAcquire(t.Context(), first, request)
		if err != nil {
			t.Fatal(err)
		}

		if end == "reap" {
			exec(t, beside, age)

			if reaped, err := second.Reap(t.Context(), time.Hour); err != nil || reaped.Expired < 1 {
				t.Errorf("Reap() of a reader = %+v, %v, want the grant", reaped, err)
			}
		} else {
			exec(t, beside, "DELETE FROM sqllock_shares")

			seen, _, err := second.Status(t.Context(), request.Name)
			if err != nil {
				t.Fatal(err)
			}

			if found, err := second.ForceRelease(t.Context(), seen, "test"); err != nil || !found {
				t.Errorf("ForceRelease() of a phase = %t, %v, want that it has ended", found, err)
			}
		}

		_ = grant.Release(t.Context())
	}
}

// TestSessionEndsBeforeItsRecord: the session of an attempt ends before the lease
// is written down on another connection. Meanwhile another gets the lock. What was
// held up must neither be a lock nor take that one away.
func TestSessionEndsBeforeItsRecord(t *testing.T) {
	t.Parallel()

	for _, held := range []struct {
		before string
		locked bool // the session has locked the row by then
	}{
		{"grant.state", false},
		{"forupdate.lock", false},
		{"grant.acquire", true},
	} {
		t.Run(held.before, func(t *testing.T) {
			t.Parallel()
			sessionEndsBefore(t, held.before, held.locked)
		})
	}
}

func sessionEndsBefore(t *testing.T, statement string, locked bool) {
	t.Helper()

	config := postgresDatabase(t, postgresConfig(t))
	db := stdPool(t, config)
	faulty := sqllocktest.NewFaulty(postgres.NewStd(stdPool(t, config)))
	first, second := forupdate.New(faulty), forupdate.New(postgres.NewStd(stdPool(t, config)))

	request := func(owner string) strategies.Request {
		return strategies.Request{Name: "contended", Owner: owner, Lease: time.Minute}
	}

	// The name's rows are there.
	before, err := single.TryAcquire(t.Context(), second, request("before"))
	if err != nil {
		t.Fatal(err)
	}

	if err := before.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	reached, resume := faulty.Pause(statement, sqllocktest.Before)
	attempted := make(chan error, 1)

	go func() {
		_, err := single.TryAcquire(t.Context(), first, request("first"))
		attempted <- err
	}()

	<-reached

	var ended int

	err = db.QueryRowContext(t.Context(), "SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"+
		" WHERE application_name = 'sqllock:first' AND datname = current_database()").Scan(&ended)
	if err != nil || locked && ended != 1 {
		t.Fatalf("ended %d sessions, %v, want that of the attempt", ended, err)
	}

	grant, err := single.TryAcquire(t.Context(), second, request("second"))
	if err != nil {
		t.Fatalf("TryAcquire() after the session has ended = %v, want the lock", err)
	}

	resume()

	if err := <-attempted; err == nil {
		t.Error("TryAcquire() whose session has ended = a lock, want an error")
	}

	if err := grant.Check(t.Context()); err != nil {
		t.Errorf("Check() of the lock that the other got = %v, want nil", err)
	}

	if err := grant.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// TestEndedSessionIsNotUsedAgain: a reaper, or an operator, is about to end the session of a
// holder, who gives it back at this moment. What ends then must not be under another lock.
func TestEndedSessionIsNotUsedAgain(t *testing.T) {
	t.Parallel()

	const lease = 5 * time.Second

	// The lease expires, and not the session, which has heard of its holder since.
	expire := func(t *testing.T, db *sqllocktest.Faulty, grant single.Grant) {
		t.Helper()

		<-time.After(lease / 2)
		db.Fail("grant.renew", 1, sqllocktest.Before, nil)

		if err := grant.Renew(t.Context(), lease); err == nil {
			t.Error("Renew() that failed = nil")
		}

		<-time.After(lease/2 + lease/10)
	}
	reap := func(ctx context.Context, s strategies.Strategy, _ strategies.Status) error {
		_, err := s.Reap(ctx, time.Hour)

		return err
	}
	force := func(ctx context.Context, s strategies.Strategy, seen strategies.Status) error {
		_, err := s.ForceRelease(ctx, seen, "a ticket")

		return err
	}

	for server, open := range freshPools(t) {
		for _, ended := range []struct {
			by, kill string
			strategy func(databases.DB) strategies.Strategy
			before   func(*testing.T, *sqllocktest.Faulty, single.Grant)
			end      func(context.Context, strategies.Strategy, strategies.Status) error
		}{
			{"a reaper", "forupdate.kill", func(db databases.DB) strategies.Strategy { return forupdate.New(db) }, expire, reap},
			{"force", "forupdate.kill", func(db databases.DB) strategies.Strategy { return forupdate.New(db) }, nil, force},
			{"force", "advisory.kill", func(db databases.DB) strategies.Strategy { return advisory.New(db) }, nil, force},
		} {
			own, beside := sqllocktest.NewFaulty(open(t)), sqllocktest.NewFaulty(open(t))
			strategy, other := ended.strategy(own), ended.strategy(beside)

			t.Run(fmt.Sprintf("%s/%s by %s", server, strategy.Features().Strategy, ended.by), func(t *testing.T) {
				t.Parallel()

				acquire := func() single.Grant {
					t.Helper()

					grant, err := single.TryAcquire(t.Context(), strategy, strategies.Request{Name: uniqueName(), Owner: uniqueName(), Lease: lease})
					if err != nil {
						t.Fatal(err)
					}

					return grant
				}

				name := uniqueName()

				doomed, err := single.TryAcquire(t.Context(), strategy, strategies.Request{Name: name, Owner: name, Lease: lease})
				if err != nil {
					t.Fatal(err)
				}

				if ended.before != nil {
					ended.before(t, own, doomed)
				}

				reached, resume := beside.Pause(ended.kill, sqllocktest.Before)
				done := make(chan error, 1)

				go func() { done <- ended.end(t.Context(), other, strategies.Status{Name: name, Token: doomed.Token}) }()

				select {
				case <-reached:
				case err := <-done:
					t.Fatalf("ended by %s without %s: %v", ended.by, ended.kill, err)
				}

				_ = doomed.Release(t.Context())

				// Whatever connections the pool has.
				next := []single.Grant{acquire(), acquire()}

				resume()

				if err := <-done; err != nil {
					t.Errorf("ended by %s: %v", ended.by, err)
				}

				<-time.After(50 * time.Millisecond) // the server ends a session a moment later

				for _, grant := range next {
					if err := grant.Check(t.Context()); err != nil {
						t.Errorf("Check() of the next lock = %v, want nil", err)
					}

					_ = grant.Release(t.Context())
				}
			})
		}
	}
}

// TestFollowedRelease: the session gave the lock back, and what became of the lease that
// is written down beside it is not known. Another gets the lock before that is tried again.
func TestFollowedRelease(t *testing.T) {
	t.Parallel()

	refused := map[string]error{
		"postgres": &pgconn.PgError{Code: "55P03", Message: "a lock timeout"},
		"mysql":    &driver.MySQLError{Number: 1205, Message: "a lock wait timeout"},
		"mariadb":  &driver.MySQLError{Number: 1205, Message: "a lock wait timeout"},
	}

	for server, open := range freshPools(t) {
		for _, fault := range []struct {
			strategy func(databases.DB) strategies.Strategy
			n        int
			when     sqllocktest.When
			err      error
		}{
			{func(db databases.DB) strategies.Strategy { return forupdate.New(db) }, 1, sqllocktest.Before, nil},
			{func(db databases.DB) strategies.Strategy { return forupdate.New(db) }, 1, sqllocktest.After, nil},
			// It asks on the session and then on another connection.
			{func(db databases.DB) strategies.Strategy { return advisory.New(db) }, 2, sqllocktest.Before, refused[server]},
		} {
			faulty := sqllocktest.NewFaulty(open(t))
			strategy, other := fault.strategy(faulty), fault.strategy(open(t))

			t.Run(fmt.Sprintf("%s/%s/%d", server, strategy.Features().Strategy, fault.when), func(t *testing.T) {
				t.Parallel()

				request := strategies.Request{Name: uniqueName(), Owner: "first", Lease: time.Minute}

				var (
					first single.Grant
					err   error
				)

				// MySQL may refuse a try for a gap beside the new name that another test has locked for a moment.
				eventually(t, "the first gets the lock", func() bool {
					first, err = single.TryAcquire(t.Context(), strategy, request)

					return err == nil
				})

				faulty.Fail("grant.release", fault.n, fault.when, fault.err)

				if fault.err != nil {
					faulty.Fail("advisory.release", 1, fault.when, fault.err) // both in one, before it asks for one after the other
				}

				if err := first.Release(t.Context()); err == nil || errors.Is(err, sqllock.ErrLost) {
					t.Fatalf("Release() that failed = %v, want the fault", err)
				}

				request.Owner = "second"

				var second single.Grant

				// The server ends a session that broke a moment later.
				eventually(t, "another gets the lock", func() bool {
					second, err = single.TryAcquire(t.Context(), other, request)

					return err == nil
				})

				if err := first.Release(t.Context()); err != nil {
					t.Errorf("Release() again, after the next holder came = %v, want nil", err)
				}

				if err := second.Check(t.Context()); err != nil {
					t.Errorf("Check() of the next holder = %v, want nil", err)
				}

				if err := second.Release(t.Context()); err != nil {
					t.Errorf("Release() of the next holder = %v, want nil", err)
				}
			})
		}
	}
}

// TestBrokenFirstLook: the connection breaks at the first thing that is asked on it.
func TestBrokenFirstLook(t *testing.T) {
	t.Parallel()

	for server, open := range freshPools(t) {
		for _, made := range catalog.All() {
			for _, statement := range []string{"grant.many-primaries", "grant.state", "advisory.identity", "forupdate.begin"} {
				faulty := sqllocktest.NewFaulty(open(t))
				strategy := made.Make(faulty)

				t.Run(server+"/"+made.Name+"/"+statement, func(t *testing.T) {
					t.Parallel()
					faulty.Fail(statement, 1, sqllocktest.Before, nil)

					request := strategies.Request{Name: uniqueName(), Owner: "owner", Lease: time.Minute}
					grant, err := single.TryAcquire(t.Context(), strategy, request)

					switch {
					case err == nil:
						_ = grant.Release(t.Context())

						if faulty.Count(statement) > 0 {
							t.Error("TryAcquire() on a connection that broke = nil, want an error")
						}
					case !errors.Is(err, strategies.ErrUnreachable):
						t.Errorf("TryAcquire() on a connection that broke = %v, want ErrUnreachable", err)
					}
				})
			}
		}
	}
}

// TestStatementPooling: a pooler that allows no transactions is named, and not taken for a server that is away.
func TestStatementPooling(t *testing.T) {
	t.Parallel()

	faulty := sqllocktest.NewFaulty(postgres.NewStd(stdPool(t, postgresDatabase(t, postgresConfig(t)))))
	faulty.Fail("forupdate.begin", 1, sqllocktest.Before, &pgconn.PgError{
		Severity: "FATAL", Code: "08P01", Message: "transaction blocks not allowed in statement pooling mode",
	})

	wantTry(t, forupdate.New(faulty), sqllock.ErrUnsupported, "PgBouncer in statement mode", "strategies/cas")
}

// freshPools makes a database on each server that has sessions, and opens pools of it.
func freshPools(t *testing.T) map[string]func(*testing.T) databases.DB {
	t.Helper()

	postgresServer := postgresDatabase(t, postgresConfig(t))
	pools := map[string]func(*testing.T) databases.DB{
		"postgres": func(t *testing.T) databases.DB {
			t.Helper()

			return postgres.NewStd(stdPool(t, postgresServer))
		},
	}

	for _, server := range []string{"mysql", "mariadb"} {
		config := mysqlDatabase(t, mysqlConfig(t, server))
		pools[server] = func(t *testing.T) databases.DB {
			t.Helper()

			return mysql.New(mysqlPool(t, config))
		}
	}

	return pools
}

// TestNoSchema looks at a database without sqllock's tables, and at one whose
// tables lack a column.
func TestNoSchema(t *testing.T) {
	t.Parallel()

	const hint = "sqllock migrate up"

	check := func(t *testing.T, db *sql.DB, wrapped databases.DB, outdated string) {
		t.Helper()

		for _, strategy := range catalog.All() {
			if strategy.Name != "cas" && strategy.Name != "insert" && wrapped.Dialect() == databases.SQLite {
				continue
			}

			t.Run("outdated/"+strategy.Name, func(t *testing.T) {
				exec(t, db, "CREATE TABLE IF NOT EXISTS placeholder (x int)")
				wantTry(t, strategy.Make(wrapped), sqllock.ErrNoSchema, hint)
				wantUnready(t, strategy.Make(wrapped), sqllock.ErrNoSchema, hint)
			})
		}

		for _, statement := range strings.Split(outdated, ";") {
			exec(t, db, statement)
		}

		for _, strategy := range catalog.All() {
			if strategy.Name != "cas" && strategy.Name != "insert" && wrapped.Dialect() == databases.SQLite {
				continue
			}

			t.Run("missing/"+strategy.Name, func(t *testing.T) {
				wantTry(t, strategy.Make(wrapped), sqllock.ErrNoSchema, hint)
				wantUnready(t, strategy.Make(wrapped), sqllock.ErrNoSchema, hint)
			})
		}
	}

	t.Run("postgres", func(t *testing.T) {
		t.Parallel()

		db := stdPool(t, postgresDatabase(t, postgresConfig(t)))
		exec(t, db, "ALTER TABLE sqllock_locks DROP COLUMN ended")
		check(t, db, postgres.NewStd(db), "DROP VIEW sqllock_holders; DROP VIEW sqllock_waiters; DROP TABLE sqllock_queue; DROP TABLE sqllock_locks; DROP TABLE sqllock_inserts;"+
			" DROP TABLE sqllock_mutexes")
	})

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db := mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, server)))
			exec(t, db, "ALTER TABLE sqllock_leases DROP COLUMN ended")
			check(t, db, mysql.New(db), "DROP VIEW sqllock_holders; DROP VIEW sqllock_waiters; DROP TABLE sqllock_queue; DROP TABLE sqllock_locks; DROP TABLE sqllock_leases;"+
				" DROP TABLE sqllock_inserts; DROP TABLE sqllock_mutexes")
		})
	}

	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dsn(t, "sqlite")

		db := sqlitePool(t, sqliteFile(t))
		exec(t, db, "ALTER TABLE sqllock_locks DROP COLUMN ended")
		check(t, db, sqlite.New(db), "DROP VIEW sqllock_holders; DROP VIEW sqllock_waiters; DROP TABLE sqllock_queue; DROP TABLE sqllock_locks; DROP TABLE sqllock_inserts")
	})
}

// TestReadOnly is not parallel: read_only is the whole server's.
func TestReadOnly(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		config := postgresDatabase(t, postgresConfig(t)).Copy()
		config.RuntimeParams["default_transaction_read_only"] = "on"
		db := stdPool(t, config)

		for _, strategy := range catalog.All() {
			t.Run(strategy.Name, func(t *testing.T) { wantTry(t, strategy.Make(postgres.NewStd(db)), sqllock.ErrReadOnly) })
		}
	})

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			db := mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, server)))
			request := func(name string) strategies.Request {
				return strategies.Request{Name: name, Owner: name, Lease: time.Minute}
			}

			// Sessions that were there before.
			one, many := advisory.New(mysql.New(db)), advisory.New(mysql.New(db))

			for strategy, name := range map[*advisory.Strategy]string{one: "one", many: "many"} {
				if _, err := single.TryAcquire(t.Context(), strategy, request(name)); err != nil {
					t.Fatal(err)
				}
			}

			rejected := rejectsReadOnly(t, server)

			exec(t, db, "SET GLOBAL read_only = 1")
			t.Cleanup(func() { exec(t, db, "SET GLOBAL read_only = 0") })

			for name, locker := range rejected {
				t.Run("rejected/"+name, func(t *testing.T) {
					if _, err := locker.TryAcquire(t.Context(), "wanted"); !errors.Is(err, sqllock.ErrReadOnly) {
						t.Errorf("TryAcquire() where the driver rejects a server that has become read-only = %v, want ErrReadOnly", err)
					}

					look(t, locker)
				})
			}

			// Their account may write all the same.
			if _, err := single.TryAcquire(t.Context(), one, request("another")); !errors.Is(err, sqllock.ErrReadOnly) {
				t.Errorf("TryAcquire() on a session of a server that has become read-only = %v, want ErrReadOnly", err)
			}

			_, errs := many.Acquire(t.Context(), []strategies.Request{request("another"), request("yet another")})
			if !errors.Is(errs[0], sqllock.ErrReadOnly) || !errors.Is(errs[1], sqllock.ErrReadOnly) {
				t.Errorf("Acquire() of several on such a session = %v, want ErrReadOnly", errs)
			}

			for _, strategy := range catalog.All() {
				t.Run(strategy.Name, func(t *testing.T) {
					wantTry(t, strategy.Make(mysql.New(db)), sqllock.ErrReadOnly)
					wantLook(t, strategy.Make(mysql.New(db)))
				})
			}
		})
	}
}

// rejectsReadOnly returns lockers whose account may not write on a read-only server, and whose driver closes a connection that
// is told so, and says no more than that it is closed.
func rejectsReadOnly(t *testing.T, server string) map[string]*sqllock.Locker {
	t.Helper()

	config := mysqlDatabase(t, mysqlConfig(t, server)).Clone()
	account(t, mysqlPool(t, config), config, "ALL")

	config.RejectReadOnly = true
	lockers := make(map[string]*sqllock.Locker)

	for _, strategy := range catalog.All() {
		locker := lockerOn(t, strategy.Make(mysql.New(mysqlPool(t, config))))
		lockers[strategy.Name] = locker

		lock, err := locker.TryAcquire(t.Context(), "wanted")
		if err != nil {
			t.Fatal(err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	return lockers
}

// wantLook looks at the locks where none can be acquired.
func wantLook(t *testing.T, strategy strategies.Strategy) {
	t.Helper()

	look(t, lockerOn(t, strategy))
}

func look(t *testing.T, locker *sqllock.Locker) {
	t.Helper()

	if _, err := locker.Holders(t.Context(), sqllock.Filter{}); err != nil {
		t.Errorf("Holders() of a read-only server = %v, want nil", err)
	}

	if status, err := locker.Inspect(t.Context(), "wanted"); err != nil || status.Held() {
		t.Errorf("Inspect() of a read-only server = %+v, %v, want that nobody holds it", status, err)
	}
}

// TestNotAllowed: a user who may not even look, and one who may do no more.
func TestNotAllowed(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			grant, db, _ := restricted(t, server)

			for _, rights := range []string{"", "SELECT"} {
				if rights != "" {
					grant(rights)
				}

				for _, strategy := range catalog.All() {
					t.Run(strategy.Name+"/"+rights, func(t *testing.T) {
						wantTry(t, strategy.Make(db), sqllock.ErrNotAllowed, "sqllock doctor")
					})
				}
			}
		})
	}
}

// TestNotAllowedTakesNothing: a user who may change rows and make none, or make them and delete none, takes a lock and can
// release it, or leaves nothing that keeps it from those who may more.
func TestNotAllowedTakesNothing(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			grant, db, all := restricted(t, server)

			for _, rights := range []string{"SELECT, UPDATE", "INSERT"} {
				grant(rights)

				for _, strategy := range catalog.All() {
					t.Run(strategy.Name+"/"+rights, func(t *testing.T) { takesNothing(t, strategy.Make(db), strategy.Make(all)) })
				}
			}
		})
	}
}

// takesNothing tries a lock and closes, and then has another take it.
func takesNothing(t *testing.T, restricted, other strategies.Strategy) {
	t.Helper()

	name := uniqueName()

	// Now the name has its rows.
	owner := lockerOn(t, other)
	for range 2 {
		lock, err := owner.TryAcquire(t.Context(), name)
		if err != nil {
			t.Fatalf("TryAcquire() = %v, want nil: nobody has it", err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Fatalf("Release() = %v", err)
		}

		locker, err := sqllock.New(restricted)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := locker.TryAcquire(t.Context(), name); err != nil && !errors.Is(err, sqllock.ErrNotAllowed) {
			t.Errorf("TryAcquire() of one who may do less than all = %v, want nil or ErrNotAllowed", err)
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
}

// restricted returns a database as a user sees it who may nothing but connect, what
// gives that user rights on all tables, and the database as its owner sees it.
func restricted(t *testing.T, server string) (grant func(rights string), db, all databases.DB) {
	t.Helper()

	if server == "postgres" {
		user, config := uniqueName(), postgresDatabase(t, postgresConfig(t))
		owner := stdPool(t, config)
		exec(t, owner, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'restricted'", user))
		t.Cleanup(func() {
			exec(t, owner, "DROP OWNED BY "+user)
			exec(t, owner, "DROP ROLE "+user)
		})

		config = config.Copy()
		config.User, config.Password = user, "restricted"

		return func(rights string) { exec(t, owner, "GRANT "+rights+" ON ALL TABLES IN SCHEMA public TO "+user) },
			postgres.NewStd(stdPool(t, config)), postgres.NewStd(owner)
	}

	config := mysqlDatabase(t, mysqlConfig(t, server))
	owner := mysqlPool(t, config)
	config = config.Clone()
	grant = account(t, owner, config)

	return grant, mysql.New(mysqlPool(t, config)), mysql.New(owner)
}

// account makes a user with the rights given, whom config then has, and returns what gives it more.
func account(t *testing.T, owner *sql.DB, config *driver.Config, rights ...string) (grant func(rights string)) {
	t.Helper()

	config.User, config.Passwd = uniqueName(), "restricted"

	exec(t, owner, fmt.Sprintf("CREATE USER %s IDENTIFIED BY 'restricted'", config.User))
	t.Cleanup(func() { exec(t, owner, "DROP USER "+config.User) })

	grant = func(rights string) { exec(t, owner, "GRANT "+rights+" ON "+config.DBName+".* TO "+config.User) }
	for _, r := range rights {
		grant(r)
	}

	return grant
}

// TestTooManyConnections: who may have one connection at a time, and has it,
// goes on waiting for the lock until there is another.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			open, wrap := limited(t, server, 1)
			pool, db := open(), wrap(open())

			only, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			for _, strategy := range catalog.All() {
				wantTry(t, strategy.Make(db), sqllock.ErrTooManyConnections)
			}

			locker := lockerOn(t, cas.New(db))

			acquired := make(chan error, 1)

			go func() {
				acquired <- locker.Do(t.Context(), "wanted", func(context.Context, *sqllock.Lock) error { return nil })
			}()

			// Many more attempts than are made without an answer.
			select {
			case err := <-acquired:
				t.Fatalf("Do() = %v at once, want that it waits", err)
			case <-time.After(2 * time.Second):
			}

			_ = only.Close()

			if err := pool.Close(); err != nil {
				t.Fatal(err)
			}

			if err := <-acquired; err != nil {
				t.Errorf("Do() = %v, want nil", err)
			}
		})
	}
}

// TestFewConnections: two processes have all connections that there are, one each,
// and a lock needs a second one for a moment.
func TestFewConnections(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		for _, strategy := range catalog.All() {
			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				open, wrap := limited(t, server, 2)
				done := make(chan error, 2)

				var pools []*sql.DB

				for range cap(done) {
					pool := open()
					if err := pool.PingContext(t.Context()); err != nil {
						t.Fatal(err)
					}

					pools = append(pools, pool)
				}

				for _, pool := range pools {
					locker, err := sqllock.New(strategy.Make(wrap(pool)),
						sqllock.WithTuning(sqllock.Tuning{NoNotifications: true}), sqllock.WithMaxWait(time.Minute))
					if err != nil {
						t.Fatal(err)
					}

					go func() {
						err := locker.Do(t.Context(), "wanted", func(context.Context, *sqllock.Lock) error { return nil })

						// Its process ends.
						done <- errors.Join(err, locker.Close(context.WithoutCancel(t.Context())), pool.Close())
					}()
				}

				for range pools {
					if err := <-done; err != nil {
						t.Errorf("Do() = %v, want nil", err)
					}
				}
			})
		}
	}
}

// limited returns what opens pools of a user who may have so many connections.
func limited(t *testing.T, server string, connections int) (open func() *sql.DB, wrap func(*sql.DB) databases.DB) {
	t.Helper()

	user := uniqueName()

	if server == "postgres" {
		config := postgresDatabase(t, postgresConfig(t))
		owner := stdPool(t, config)
		exec(t, owner, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'limited' CONNECTION LIMIT %d", user, connections))
		exec(t, owner, "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+user)
		t.Cleanup(func() {
			exec(t, owner, "DROP OWNED BY "+user)
			exec(t, owner, "DROP ROLE "+user)
		})

		config = config.Copy()
		config.User, config.Password = user, "limited"

		return func() *sql.DB { return stdPool(t, config) }, func(db *sql.DB) databases.DB { return postgres.NewStd(db) }
	}

	config := mysqlDatabase(t, mysqlConfig(t, server))
	owner := mysqlPool(t, config)
	exec(t, owner, fmt.Sprintf("CREATE USER %s IDENTIFIED BY 'limited' WITH MAX_USER_CONNECTIONS %d", user, connections))
	exec(t, owner, "GRANT ALL ON "+config.DBName+".* TO "+user)
	t.Cleanup(func() { exec(t, owner, "DROP USER "+user) })

	config = config.Clone()
	config.User, config.Passwd = user, "limited"

	return func() *sql.DB { return mysqlPool(t, config) }, func(db *sql.DB) databases.DB { return mysql.New(db) }
}

// TestSmallPool: with two connections, of which a lock may hold one, others
// that wait must not keep its holder from renewing and releasing.
func TestSmallPool(t *testing.T) {
	t.Parallel()

	pools := map[string]func(t *testing.T) databases.DB{
		"postgres": func(t *testing.T) databases.DB {
			db := stdPool(t, postgresDatabase(t, postgresConfig(t)))
			db.SetMaxOpenConns(2)

			return postgres.NewStd(db)
		},
		"mysql": func(t *testing.T) databases.DB {
			db := mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, "mysql")))
			db.SetMaxOpenConns(2)

			return mysql.New(db)
		},
	}

	for name, pool := range pools {
		for _, strategy := range catalog.All() {
			t.Run(name+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				// A server that others use too may not answer for some seconds.
				const lease = 9 * time.Second

				locker := lockerOn(t, strategy.Make(pool(t)), sqllock.WithLease(lease))

				lock, err := locker.Acquire(t.Context(), "held")
				if err != nil {
					t.Fatal(err)
				}

				const waiters = 6

				acquired := make(chan error, waiters)

				for i := range waiters {
					go func() {
						name := []string{"held", "other", "third"}[i%3]
						acquired <- locker.Do(t.Context(), name, func(context.Context, *sqllock.Lock) error { return nil })
					}()
				}

				// Longer than the lease, so that it lives by its renewals.
				timer := time.NewTimer(lease + time.Second)
				defer timer.Stop()

				select {
				case <-timer.C:
				case <-lock.Done():
					t.Fatalf("the lock ended beside waiters: %v", lock.Err())
				}

				if err := lock.Release(t.Context()); err != nil {
					t.Fatalf("Release() = %v, want nil", err)
				}

				for range waiters {
					if err := <-acquired; err != nil {
						t.Errorf("Do() = %v, want nil", err)
					}
				}
			})
		}
	}
}

// TestNoIndexOnRenewedColumns: an index on what a renewal writes would make
// every renewal write the index, too, and the table grow.
func TestNoIndexOnRenewedColumns(t *testing.T) {
	t.Parallel()

	db := stdPool(t, postgresDatabase(t, postgresConfig(t)))

	var indexes int

	err := db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM pg_indexes WHERE tablename LIKE 'sqllock\_%' AND tablename <> 'sqllock_goose_version'
			AND indexdef NOT LIKE '%(name)' AND indexdef NOT LIKE '%(process, id)' AND indexdef NOT LIKE '%(name, ticket, id)'
			AND indexdef NOT LIKE '%(name, owner)' AND indexdef NOT LIKE '%(id)'`).Scan(&indexes)
	if err != nil {
		t.Fatal(err)
	}

	if indexes != 0 {
		t.Errorf("%d indexes on columns that are written again, want none", indexes)
	}

	// Renewals stay heap-only.
	locker := lockerOn(t, cas.New(postgres.NewStd(db)))

	lock, err := locker.Acquire(t.Context(), "renewed")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = lock.Release(context.WithoutCancel(t.Context())) }()

	const renewals = 500

	for range renewals {
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}

	deadline := time.Now().Add(15 * time.Second)
	tick := time.NewTicker(100 * time.Millisecond)

	defer tick.Stop()

	for {
		var updates, hot int

		exec(t, db, "SELECT pg_stat_force_next_flush()")

		err := db.QueryRowContext(t.Context(),
			`SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'sqllock_locks'`).Scan(&updates, &hot)
		if err != nil {
			t.Fatal(err)
		}

		// The statistics come late. Without an index to write, nearly all of
		// the updates are heap-only; with one, none is.
		if updates >= renewals && hot >= updates*9/10 {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("%d of %d updates are heap-only, want nine of ten at least", hot, updates)
		}

		<-tick.C
	}
}

// TestNestedLocksInASmallPool: the locks that a process holds have all connections that may hold one, and under each of them
// another is asked for. One of the waits ends, and with it the others.
func TestNestedLocksInASmallPool(t *testing.T) {
	t.Parallel()

	for name, open := range freshPools(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const outer = 2

			db := open(t)
			locker := lockerOn(t, forupdate.New(smallPool{db, outer + 1}))
			held := make(chan struct{}, outer)
			done := make(chan error, outer)
			begin := make(chan struct{})

			for i := range outer {
				go func() {
					done <- locker.Do(t.Context(), fmt.Sprint("outer", i), func(ctx context.Context, _ *sqllock.Lock) error {
						held <- struct{}{}

						<-begin

						return locker.Do(ctx, fmt.Sprint("inner", i), func(context.Context, *sqllock.Lock) error { return nil })
					})
				}()
			}

			for range outer {
				<-held
			}

			close(begin)

			err := <-done
			if !errors.Is(err, sqllock.ErrDeadlock) || !errors.Is(err, sqllock.ErrNotAcquired) || !strings.Contains(err.Error(), "allow the pool more") {
				t.Errorf("the last of two that nest locks = %v, want ErrDeadlock and what to do", err)
			}

			if err := <-done; err != nil {
				t.Errorf("the other one = %v, want nil", err)
			}
		})
	}
}

// smallPool says that its pool has so many connections.
type smallPool struct {
	databases.DB

	conns int
}

func (p smallPool) MaxConns() int { return p.conns }
