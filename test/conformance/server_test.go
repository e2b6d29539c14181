package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/test/strategies"
)

// wantTry makes one attempt and checks that its error is the wanted one and
// names the lock and what to do.
func wantTry(t *testing.T, strategy sqllock.Strategy, want error, words ...string) {
	t.Helper()

	locker, err := sqllock.New(strategy)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

	_, err = locker.TryAcquire(t.Context(), "wanted")
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

				for _, strategy := range strategies.All() {
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

			for _, strategy := range strategies.All() {
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

				for _, strategy := range strategies.All() {
					lockTwice(t, strategy.Name, strategy.Make(isolated(t, server, level)))
				}
			})
		}
	}
}

// isolated returns a pool whose sessions have the isolation level.
func isolated(t *testing.T, server, level string) databases.DB {
	t.Helper()

	if server == "postgres" {
		config := postgresDatabase(t, postgresConfig(t))
		config.RuntimeParams["default_transaction_isolation"] = level

		return postgres.NewStd(stdPool(t, config))
	}

	config := mysqlDatabase(t, mysqlConfig(t, server))

	// MariaDB before 11.1 has the older name only.
	variable, value := "transaction_isolation", ""
	if err := mysqlPool(t, config).QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'transaction_isolation'").Scan(&variable, &value); err != nil {
		variable = "tx_isolation"
	}

	config.Params = map[string]string{variable: "'" + strings.ToUpper(strings.ReplaceAll(level, " ", "-")) + "'"}

	return mysql.New(mysqlPool(t, config))
}

// batchTwice does what lockTwice does, with several locks at a time.
func batchTwice(t *testing.T, name string, batcher sqllock.Batcher) {
	t.Helper()

	for i := range 2 {
		var requests []sqllock.Request
		for j := range 3 {
			requests = append(requests, sqllock.Request{
				Name: fmt.Sprintf("isolated/%d", j), Owner: fmt.Sprintf("owner %d.%d", i, j), Lease: time.Minute,
			})
		}

		grants, errs := batcher.TryAcquireAll(t.Context(), requests)
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: TryAcquireAll() = %v, want the grants", name, err)

			return
		}

		if err := errors.Join(batcher.RenewAll(t.Context(), grants, time.Minute)...); err != nil {
			t.Errorf("%s: RenewAll() = %v, want nil", name, err)
		}

		if err := errors.Join(batcher.ReleaseAll(t.Context(), grants)...); err != nil {
			t.Errorf("%s: ReleaseAll() = %v, want nil", name, err)
		}
	}
}

// lockTwice acquires, renews, checks and releases a lock, the second time one
// whose rows are there.
func lockTwice(t *testing.T, name string, strategy sqllock.Strategy) {
	t.Helper()

	locker, err := sqllock.New(strategy)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

	if batcher, ok := strategy.(sqllock.Batcher); ok {
		batchTwice(t, name, batcher)
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

	locker, err := sqllock.New(cas.New(postgres.NewStd(db)))
	if err != nil {
		t.Fatal(err)
	}

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

			locker, err := sqllock.New(advisory.New(mysql.New(mysqlPool(t, config))))
			if err != nil {
				t.Fatal(err)
			}

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

	check := func(t *testing.T, beside *sql.DB, first, second sqllock.Strategy, age string) {
		t.Helper()

		request := sqllock.Request{Name: "reaped", Owner: "first", Lease: time.Hour}

		grant, err := first.TryAcquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = grant.Release(context.WithoutCancel(t.Context())) })
		exec(t, beside, age)

		admin, ok := second.(sqllock.Administrator)
		if !ok {
			t.Fatalf("%T is no Administrator", second)
		}

		reaped, err := admin.Reap(t.Context(), time.Hour)
		if err != nil || reaped.Expired < 1 {
			t.Fatalf("Reap() = %+v, %v, want the grant", reaped, err)
		}

		// The row is free when the server has noticed, a moment later.
		deadline := time.Now().Add(10 * time.Second)
		tick := time.NewTicker(20 * time.Millisecond)

		defer tick.Stop()

		for request.Owner = "second"; ; <-tick.C {
			next, err := second.TryAcquire(t.Context(), request)
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

// TestSessionEndsBeforeItsRecord: the row was locked, and the session ends before
// the lease is written down on another connection. Meanwhile another gets the
// lock. What was held up must neither be a lock nor take that one away.
func TestSessionEndsBeforeItsRecord(t *testing.T) {
	t.Parallel()

	config := postgresDatabase(t, postgresConfig(t))
	db := stdPool(t, config)
	faulty := sqllocktest.NewFaulty(postgres.NewStd(stdPool(t, config)))
	first, second := forupdate.New(faulty), forupdate.New(postgres.NewStd(stdPool(t, config)))

	request := func(owner string) sqllock.Request {
		return sqllock.Request{Name: "contended", Owner: owner, Lease: time.Minute}
	}

	// The name's rows are there, and its last holder's lease is not over.
	before, err := second.TryAcquire(t.Context(), request("before"))
	if err != nil {
		t.Fatal(err)
	}

	if err := before.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	reached, resume := faulty.Pause("record.acquire", sqllocktest.Before)
	attempted := make(chan error, 1)

	go func() {
		_, err := first.TryAcquire(t.Context(), request("first"))
		attempted <- err
	}()

	<-reached
	exec(t, db, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'sqllock:first'"+
		" AND datname = current_database()")

	grant, err := second.TryAcquire(t.Context(), request("second"))
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

// TestNoSchema looks at a database without sqllock's tables, and at one whose
// tables lack a column.
func TestNoSchema(t *testing.T) {
	t.Parallel()

	const hint = "sqllock migrate up"

	check := func(t *testing.T, db *sql.DB, wrapped databases.DB, outdated string) {
		t.Helper()

		for _, strategy := range strategies.All() {
			if strategy.Name != "cas" && strategy.Name != "insert" && wrapped.Dialect() == databases.SQLite {
				continue
			}

			t.Run("outdated/"+strategy.Name, func(t *testing.T) {
				exec(t, db, "CREATE TABLE IF NOT EXISTS placeholder (x int)")
				wantTry(t, strategy.Make(wrapped), sqllock.ErrNoSchema, hint)
			})
		}

		for _, statement := range strings.Split(outdated, ";") {
			exec(t, db, statement)
		}

		for _, strategy := range strategies.All() {
			if strategy.Name != "cas" && strategy.Name != "insert" && wrapped.Dialect() == databases.SQLite {
				continue
			}

			t.Run("missing/"+strategy.Name, func(t *testing.T) { wantTry(t, strategy.Make(wrapped), sqllock.ErrNoSchema, hint) })
		}
	}

	t.Run("postgres", func(t *testing.T) {
		t.Parallel()

		db := stdPool(t, postgresDatabase(t, postgresConfig(t)))
		exec(t, db, "ALTER TABLE sqllock_locks DROP COLUMN ended")
		check(t, db, postgres.NewStd(db), "DROP VIEW sqllock_holders; DROP TABLE sqllock_locks; DROP TABLE sqllock_inserts;"+
			" DROP TABLE sqllock_mutexes")
	})

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db := mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, server)))
			exec(t, db, "ALTER TABLE sqllock_locks DROP COLUMN ended")
			check(t, db, mysql.New(db), "DROP VIEW sqllock_holders; DROP TABLE sqllock_locks; DROP TABLE sqllock_leases;"+
				" DROP TABLE sqllock_inserts; DROP TABLE sqllock_mutexes")
		})
	}

	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dsn(t, "sqlite")

		db := sqlitePool(t, sqliteFile(t))
		exec(t, db, "ALTER TABLE sqllock_locks DROP COLUMN ended")
		check(t, db, sqlite.New(db), "DROP VIEW sqllock_holders; DROP TABLE sqllock_locks; DROP TABLE sqllock_inserts")
	})
}

// TestReadOnly is not parallel: read_only is the whole server's.
func TestReadOnly(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		config := postgresDatabase(t, postgresConfig(t)).Copy()
		config.RuntimeParams["default_transaction_read_only"] = "on"
		db := stdPool(t, config)

		for _, strategy := range strategies.All() {
			t.Run(strategy.Name, func(t *testing.T) { wantTry(t, strategy.Make(postgres.NewStd(db)), sqllock.ErrReadOnly) })
		}
	})

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			db := mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, server)))
			exec(t, db, "SET GLOBAL read_only = 1")
			t.Cleanup(func() { exec(t, db, "SET GLOBAL read_only = 0") })

			for _, strategy := range strategies.All() {
				t.Run(strategy.Name, func(t *testing.T) { wantTry(t, strategy.Make(mysql.New(db)), sqllock.ErrReadOnly) })
			}
		})
	}
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

			for _, strategy := range strategies.All() {
				wantTry(t, strategy.Make(db), sqllock.ErrTooManyConnections)
			}

			locker, err := sqllock.New(cas.New(db))
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

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
		for _, strategy := range strategies.All() {
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
						sqllock.WithoutNotifications(), sqllock.WithMaxWait(time.Minute))
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
		for _, strategy := range strategies.All() {
			t.Run(name+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				// A server that others use too may not answer for some seconds.
				const lease = 9 * time.Second

				locker, err := sqllock.New(strategy.Make(pool(t)), sqllock.WithLease(lease))
				if err != nil {
					t.Fatal(err)
				}

				defer func() { _ = locker.Close(context.WithoutCancel(t.Context())) }()

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
			AND indexdef NOT LIKE '%(name)'`).Scan(&indexes)
	if err != nil {
		t.Fatal(err)
	}

	if indexes != 0 {
		t.Errorf("%d indexes on other columns than name, want none", indexes)
	}

	// Renewals stay heap-only.
	locker, err := sqllock.New(cas.New(postgres.NewStd(db)))
	if err != nil {
		t.Fatal(err)
	}

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
