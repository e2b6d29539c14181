package reach_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
	"github.com/sqllock/sqllock/test/doctor"
	"github.com/sqllock/sqllock/test/schema"
)

// proxy stands before PostgreSQL.
type proxy struct {
	name         string // in the name of its variable
	refused      []string
	transactions bool
	doctor       string // how bad the doctor finds it
}

var proxies = []proxy{
	{"PGBOUNCER", []string{"advisory"}, true, "note"},
	{"PGBOUNCER_STATEMENT", []string{"forupdate", "advisory"}, false, "warning"},
	{"ODYSSEY", []string{"advisory"}, true, "note"},
	{"PGPOOL", nil, true, "note"},
}

// TestProxy has locks through each proxy that is named. Where there is a standby, it is told to stop where it is, so that
// whatever is read there is out of date.
//
//nolint:paralleltest // as above
func TestProxy(t *testing.T) {
	for _, p := range proxies {
		t.Run(strings.ToLower(p.name), func(t *testing.T) {
			dsns := strings.Split(named(t, "SQLLOCK_REACH_"+p.name), ",")
			if len(dsns) < 2 {
				t.Fatalf("SQLLOCK_REACH_%s names %d servers, want the proxy, and then the server behind it", p.name, len(dsns))
			}

			through := behind(t, dsns)

			if got := doctor.Examine(t, doctor.Build(t), dsns[0])["pooler"]; got != p.doctor {
				t.Errorf("the doctor says %q of the proxy, want %q", got, p.doctor)
			}

			for _, strategy := range catalog.All() {
				t.Run(strategy.Name, func(t *testing.T) {
					first, second := through.locker(t, strategy), through.locker(t, strategy)

					if slices.Contains(p.refused, strategy.Name) {
						wantRefused(t, first)

						return
					}

					lock := acquire(t, first)
					through.look(t, first, second, lock)

					if p.transactions {
						through.guard(t, lock)
					}

					handOver(t, first, second, lock)
				})
			}
		})
	}
}

// passage is the way through a proxy, to a database of the test's own.
type passage struct{ config *pgx.ConnConfig }

// behind makes the database on the server behind the proxy, and stops its standby, if there is one.
func behind(t *testing.T, dsns []string) passage {
	t.Helper()

	own := fmt.Sprintf("sqllock_reach_%d", os.Getpid())
	maintenance := stdPool(t, postgresConfig(t, dsns[1]), "")
	execute(t, maintenance, "CREATE DATABASE "+own)
	t.Cleanup(func() { drop(t, maintenance, databases.Postgres, own) })

	if err := schema.Up(t.Context(), stdPool(t, postgresConfig(t, dsns[1]), own), databases.Postgres); err != nil {
		t.Fatal(err)
	}

	if len(dsns) > 2 {
		pause(t, maintenance, stdPool(t, postgresConfig(t, dsns[2]), ""))
	}

	config := postgresConfig(t, dsns[0])
	config.Database = own

	return passage{config}
}

// pause stops a standby when it has all that there is.
func pause(t *testing.T, primary, standby *sql.DB) {
	t.Helper()

	var now string
	if err := primary.QueryRowContext(t.Context(), "SELECT pg_current_wal_lsn()").Scan(&now); err != nil {
		t.Fatal(err)
	}

	for there := false; !there; {
		if err := standby.QueryRowContext(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", now).Scan(&there); err != nil {
			t.Fatal(err)
		}
	}

	execute(t, standby, "SELECT pg_wal_replay_pause()")
	t.Cleanup(func() {
		_, _ = standby.ExecContext(context.WithoutCancel(t.Context()), "SELECT pg_wal_replay_resume()")
	})
}

func stdPool(t *testing.T, config *pgx.ConnConfig, database string) *sql.DB {
	t.Helper()

	if database != "" {
		config.Database = database
	}

	return open(t, stdlib.GetConnector(*config))
}

func (p passage) locker(t *testing.T, s catalog.Strategy) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(s.Make(postgres.NewStd(open(t, stdlib.GetConnector(*p.config)))))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

	return locker
}

func wantRefused(t *testing.T, locker *sqllock.Locker) {
	t.Helper()

	_, err := locker.TryAcquire(t.Context(), "refused")
	if !errors.Is(err, sqllock.ErrUnsupported) {
		t.Errorf("TryAcquire() = %v, want ErrUnsupported", err)
	}

	t.Logf("refused: %v", err)
}

func acquire(t *testing.T, locker *sqllock.Locker) *sqllock.Lock {
	t.Helper()

	lock, err := locker.Acquire(t.Context(), "a "+locker.Features().Strategy)
	if err != nil {
		t.Fatalf("Acquire() = %v, want the lock", err)
	}

	return lock
}

// look has the lock seen by others: at once, and again when it is released.
func (p passage) look(t *testing.T, holder, other *sqllock.Locker, lock *sqllock.Lock) {
	t.Helper()

	for range 20 {
		status, err := other.Inspect(t.Context(), lock.Name())
		if err != nil || !status.Held() || status.Token != lock.Token() {
			t.Errorf("Inspect() = %+v, %v, want that it is held with token %d", status, err, lock.Token())
		}

		held, err := other.Holders(t.Context(), sqllock.Filter{Name: lock.Name()})
		if err != nil || len(held) != 1 || held[0].Token != lock.Token() {
			t.Errorf("Holders() = %+v, %v, want the one with token %d", held, err, lock.Token())
		}

		if _, err := other.TryAcquire(t.Context(), lock.Name()); !errors.Is(err, sqllock.ErrNotAcquired) {
			t.Errorf("TryAcquire() of a lock that is held = %v, want ErrNotAcquired", err)
		}

		if err := lock.Check(t.Context()); err != nil {
			t.Errorf("Check() = %v, want nil", err)
		}

		brief, err := holder.TryAcquire(t.Context(), "brief "+lock.Name())
		if err != nil {
			t.Fatalf("TryAcquire() of a free lock = %v, want it", err)
		}

		if err := brief.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		if status, err := other.Inspect(t.Context(), brief.Name()); err != nil || status.Held() || status.Token != brief.Token() {
			t.Errorf("Inspect() of a lock that was released = %+v, %v, want that nobody holds it and token %d", status, err, brief.Token())
		}
	}
}

// guard commits a write under the lock.
func (p passage) guard(t *testing.T, lock *sqllock.Lock) {
	t.Helper()

	tx, err := open(t, stdlib.GetConnector(*p.config)).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = tx.Rollback() }()

	if err := lock.Guard(t.Context(), postgres.StdTx(tx)); err != nil {
		t.Errorf("Guard() = %v, want nil", err)
	}

	if err := tx.Commit(); err != nil {
		t.Errorf("Commit() of a guarded transaction = %v, want nil", err)
	}
}

// handOver has another wait for the lock, be seen to do so, and get it. Who watches sees the one, and then the other.
func handOver(t *testing.T, holder, waiter *sqllock.Locker, lock *sqllock.Lock) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	var (
		group sync.WaitGroup
		next  *sqllock.Lock
		err   error
	)

	group.Go(func() { next, err = waiter.Acquire(ctx, lock.Name()) })

	for waiting := false; !waiting; {
		listed, err := holder.Waiters(ctx, sqllock.WaiterFilter{Name: lock.Name()})
		if err != nil {
			t.Fatalf("Waiters() = %v, want the one who waits", err)
		}

		waiting = len(listed) == 1
	}

	var seen []int64

	for status, err := range holder.Watch(ctx, lock.Name()) {
		if err != nil {
			t.Fatalf("Watch() yields %v after tokens %d", err, seen)
		}

		if !status.Held() {
			continue
		}

		seen = append(seen, status.Token)
		if len(seen) == 2 {
			break
		}

		if err := lock.Release(ctx); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	}

	group.Wait()

	if err != nil {
		t.Fatalf("who waited: %v", err)
	}

	if want := []int64{lock.Token(), next.Token()}; !slices.Equal(seen, want) || want[1] <= want[0] {
		t.Errorf("Watch() yielded tokens %d, want %d, which grow", seen, want)
	}

	if err := next.Release(ctx); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}
