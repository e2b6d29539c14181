package failover_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/servers"
)

// TestCallsAfterRestart: MySQL numbers its sessions anew when it restarts. One
// that has the number now of a session that listened before is not disturbed by a release.
func TestCallsAfterRestart(t *testing.T) {
	t.Parallel()

	const server = "mysql"

	if !slices.Contains(servers.Names(), server) {
		t.Skip("SQLLOCK_TEST_DATABASES leaves out " + server)
	}

	set, err := servers.StartOwn(t.Context(), []string{server}, t.Output())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Errorf("Close() of the server = %v, want nil", err)
		}
	})

	before := mariadbConfig(t, set.DSN(server))
	parsing := before.Clone()
	parsing.ParseTime = true // goose reads times
	migrate(t, mariadbPool(t, parsing), databases.MySQL)

	name := newMover(before.Addr)
	config := before.Clone()
	config.DialFunc = name.dial

	holder := newLocker(t, all[0], mysql.New(mariadbPool(t, config)).WakeWaiters())
	waiter := newLocker(t, all[0], mysql.New(mariadbPool(t, config)).WakeWaiters(), sqllock.WithTuning(sqllock.Tuning{PollMin: 10 * time.Second, PollMax: 10 * time.Second}))
	lock := mustAcquire(t, holder, "restart", sqllock.WithLease(outlastsAll))

	got := make(chan error, 1)

	go func() {
		lock, err := waiter.Acquire(t.Context(), "restart")
		if err == nil {
			err = lock.Release(t.Context())
		}
		got <- err
	}()

	listened := untilAsleep(t, mariadbPool(t, before))

	do(t, "crash", func(ctx context.Context) error { return set.Crash(ctx, server) })
	do(t, "restart", func(ctx context.Context) error { return set.Restart(ctx, server) })

	// They are there before the lockers are.
	after := mariadbConfig(t, set.DSN(server))
	disturbed := bystanders(t, after, listened)

	name.move(after.Addr)
	untilAsleep(t, mariadbPool(t, after))

	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := <-got; err != nil {
		t.Fatal(err)
	}

	if n := disturbed(); n != 0 {
		t.Errorf("%d sessions were disturbed that have the numbers of those that listened before, want none", n)
	}
}

// untilAsleep returns the id of a session that listens, when there is one.
func untilAsleep(t *testing.T, db *sql.DB) int64 {
	t.Helper()

	var id sql.NullInt64

	do(t, "look who listens", func(ctx context.Context) error {
		for !id.Valid {
			err := db.QueryRowContext(ctx,
				"SELECT MAX(ID) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep' AND INFO LIKE 'DO SLEEP%'").Scan(&id)
			if err != nil {
				return err
			}
		}

		return nil
	})

	return id.Int64
}

// bystanders opens sessions until one has the id, and lets each of them run a statement.
// disturbed ends them, and says how many statements were cut short.
func bystanders(t *testing.T, config *mysqldriver.Config, id int64) (disturbed func() int) {
	t.Helper()

	pool := mariadbPool(t, config)
	pool.SetMaxOpenConns(0)

	ctx, stop := context.WithCancel(t.Context())
	cut, sessions := make(chan bool), 0

	for last := int64(0); last < id; sessions++ {
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&last); err != nil {
			t.Fatal(err)
		}

		go func() {
			defer func() { _ = conn.Close() }()

			short := false

			for ctx.Err() == nil {
				began := time.Now()

				var interrupted int

				err := conn.QueryRowContext(context.WithoutCancel(ctx), "SELECT SLEEP(1)").Scan(&interrupted)
				short = short || err != nil || interrupted != 0 || time.Since(began) < time.Second
			}

			cut <- short
		}()
	}

	return func() int {
		stop()

		n := 0

		for range sessions {
			if <-cut {
				n++
			}
		}

		return n
	}
}
