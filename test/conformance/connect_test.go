package conformance_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// TestNoNewConnections: the server, or what is before it, answers nobody who connects. The connections that there are go on, and
// do for all who have use for one. A connection beside the pool, as for notifications, is not part of this.
func TestNoNewConnections(t *testing.T) {
	t.Parallel()

	t.Run("postgres/pgx", func(t *testing.T) {
		t.Parallel()

		var silent atomic.Bool

		config, err := pgxpool.ParseConfig("")
		if err != nil {
			t.Fatal(err)
		}

		config.ConnConfig = postgresDatabase(t, postgresConfig(t)).Copy()
		config.MaxConns = poolSize
		dial := config.ConnConfig.DialFunc
		ended := make(chan struct{})
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if silent.Load() {
				select {
				case <-ended:
				case <-ctx.Done():
				}

				return nil, net.ErrClosed
			}

			return dial(ctx, network, address)
		}

		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(pool.Close)
		t.Cleanup(func() { close(ended) })
		wantAllServed(t, postgres.New(pool), func() { silent.Store(true) })
	})

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(server+"/sql", func(t *testing.T) {
			t.Parallel()

			_, far, network := overNetwork(t, server)
			wantAllServed(t, far, network.silence)
		})
	}
}

// wantAllServed has many acquire locks at the same time after new connections get no answer.
func wantAllServed(t *testing.T, db databases.DB, silence func()) {
	t.Helper()

	locker := lockerOn(t, cas.New(db), sqllock.WithTuning(sqllock.Tuning{NoNotifications: true, NoBatching: true}))

	lock, err := locker.Acquire(t.Context(), uniqueName())
	if err != nil {
		t.Fatal(err)
	}

	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	silence()

	began := time.Now()
	served := make(chan error)

	const callers = 8

	for range callers {
		name := uniqueName()

		go func() {
			lock, err := locker.Acquire(t.Context(), name)
			if err == nil {
				err = lock.Release(t.Context())
			}

			served <- err
		}()
	}

	for range callers {
		if err := <-served; err != nil {
			t.Errorf("Acquire and Release = %v, want nil", err)
		}
	}

	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s, want less than the time that an attempt has: there is a connection", took)
	}
}
