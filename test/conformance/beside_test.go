package conformance_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestRenewedBesideAFullPool: an application that keeps all connections of a pgx pool in use for longer than a lease loses no
// lock, a reader's neither. The renewals have one connection beside the pool, for which its hooks run, and which is gone again.
func TestRenewedBesideAFullPool(t *testing.T) {
	t.Parallel()

	for _, strategy := range catalog.All() {
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			config, err := pgxpool.ParseConfig("")
			if err != nil {
				t.Fatal(err)
			}

			// A server that others use too may not answer for some seconds.
			const lease = 9 * time.Second

			var connected atomic.Int64

			config.ConnConfig = postgresDatabase(t, postgresConfig(t)).Copy()
			config.MaxConns = 3
			config.AfterConnect = func(context.Context, *pgx.Conn) error {
				connected.Add(1)

				return nil
			}

			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(pool.Close)

			locker := lockerOn(t, strategy.Make(postgres.New(pool)), sqllock.WithLease(lease))

			lock, err := locker.Acquire(t.Context(), "held")
			if err != nil {
				t.Fatal(err)
			}

			reader := lock
			if strategy.Name == "cas" || strategy.Name == "insert" {
				if reader, err = locker.Acquire(t.Context(), "read", sqllock.WithShared()); err != nil {
					t.Fatal(err)
				}
			}

			free := fill(t, pool)
			before := connected.Load()

			for _, held := range []*sqllock.Lock{lock, reader} {
				timer := time.NewTimer(lease + time.Second)
				defer timer.Stop()

				select {
				case <-timer.C:
				case <-held.Done():
					t.Fatalf("%s ended beside a full pool: %v", held.Name(), held.Err())
				}
			}

			// advisory renews on the connection that it holds.
			if now := connected.Load(); now == before && strategy.Name != "advisory" {
				t.Error("no connection was opened beside the pool")
			}

			free()

			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}

			eventually(t, "there is no session beside those of the pool", func() bool {
				var sessions int
				if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND backend_type = 'client backend'`).Scan(&sessions); err != nil {
					t.Fatal(err)
				}

				return sessions <= int(pool.Stat().TotalConns())
			})
		})
	}
}

// fill takes all connections of the pool that are not in use, and returns what gives them back.
func fill(t *testing.T, pool *pgxpool.Pool) (free func()) {
	t.Helper()

	var taken []*pgxpool.Conn

	// Those that a strategy has for a moment, too.
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		conn, err := pool.Acquire(ctx)

		cancel()

		if err != nil {
			break
		}

		taken = append(taken, conn)
	}

	free = sync.OnceFunc(func() {
		for _, conn := range taken {
			conn.Release()
		}
	})

	t.Cleanup(free) // before the pool is closed

	if len(taken) == 0 {
		t.Fatal("no connection of the pool was free")
	}

	return free
}
