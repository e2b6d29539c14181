package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestNothingIsPrepared: each statement goes to MySQL as one text, without interpolateParams=true, too. Preparing it would take one
// more round trip.
func TestNothingIsPrepared(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		for _, strategy := range catalog.All() {
			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				config := mysqlDatabase(t, mysqlConfig(t, server))
				config.InterpolateParams = false

				pool := mysqlPool(t, config)
				pool.SetMaxIdleConns(poolSize)

				locker := lockerOn(t, strategy.Make(mysql.New(pool)), sqllock.WithTuning(sqllock.Tuning{NoReaping: true}))
				useAll(t, locker, pool)

				if err := locker.Close(t.Context()); err != nil {
					t.Fatal(err)
				}

				wantNonePrepared(t, pool)
			})
		}
	}
}

// useAll does with locks what programs do.
func useAll(t *testing.T, locker *sqllock.Locker, pool *sql.DB) {
	t.Helper()

	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}

	for range 2 { // the first one makes the row
		lock, err := locker.Acquire(t.Context(), "name", sqllock.WithLabel("label"))
		must(err)
		must(lock.Extend(t.Context(), sqllock.DefaultLease))
		must(lock.Check(t.Context()))

		tx, err := pool.BeginTx(t.Context(), nil)
		must(err)
		must(lock.Guard(t.Context(), mysql.Tx(tx)))
		must(tx.Commit())
		must(lock.Release(t.Context()))
	}

	names := []string{"a", "b", "c"}
	for _, name := range names {
		must(locker.Do(t.Context(), name, func(context.Context, *sqllock.Lock) error { return nil }))
	}

	locks, err := locker.Acquire(t.Context(), names[0], sqllock.WithNames(names...))
	if !errors.Is(err, sqllock.ErrUnsupported) { // as with forupdate
		must(err)
		must(locks.Release(t.Context()))
	}

	_, err = locker.Inspect(t.Context(), "name")
	must(err)
	_, err = locker.Holders(t.Context(), sqllock.Filter{})
	must(err)
	_, err = locker.Reap(t.Context(), time.Hour)
	must(err)
}

// wantNonePrepared asks all sessions of a pool.
func wantNonePrepared(t *testing.T, pool *sql.DB) {
	t.Helper()

	open := pool.Stats().OpenConnections
	if open == 0 {
		t.Fatal("the pool has no connection to ask")
	}

	for range open {
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		defer conn.Close() // not before, so that the next one is another

		var (
			name  string
			count int
		)

		if err := conn.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_stmt_prepare'").Scan(&name, &count); err != nil {
			t.Fatal(err)
		}

		if count != 0 {
			t.Errorf("a session has prepared %d statements, want none", count)
		}
	}
}
