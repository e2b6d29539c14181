package conformance_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestFewSessions has somebody lock sqllock's tables, or the rows of leases, for much longer than a client waits for an answer.
// The server must not keep the sessions whose clients gave up while the pool opens others.
func TestFewSessions(t *testing.T) {
	t.Parallel()

	const (
		pool = 4
		few  = 2*pool + 2 // a statement goes on for a second after its client
	)

	for _, server := range []string{"mysql", "mariadb"} {
		for _, strategy := range catalog.All() {
			for kind, lock := range map[string][]string{
				"tables": {"LOCK TABLES sqllock_leases WRITE, sqllock_locks WRITE, sqllock_queue WRITE"},
				"rows":   {"BEGIN", "UPDATE sqllock_leases SET waiting = waiting + 1"},
			} {
				t.Run(server+"/"+strategy.Name+"/"+kind, func(t *testing.T) {
					t.Parallel()

					config := mysqlDatabase(t, mysqlConfig(t, server))
					beside := mysqlPool(t, config)
					db := mysqlPool(t, config)
					db.SetMaxOpenConns(pool)

					locker, err := sqllock.New(strategy.Make(mysql.New(db)), sqllock.WithLease(6*time.Second))
					if err != nil {
						t.Fatal(err)
					}

					ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
					defer cancel()

					if _, err := locker.Acquire(ctx, "held"); err != nil {
						t.Fatal(err)
					}

					conn, err := beside.Conn(ctx)
					if err != nil {
						t.Fatal(err)
					}

					for _, statement := range lock {
						if _, err := conn.ExecContext(ctx, statement); err != nil {
							t.Fatal(err)
						}
					}

					for i := range 2 * pool {
						go func() { _, _ = locker.Acquire(ctx, fmt.Sprintf("other/%d", i)) }()
					}

					go func() { _, _ = locker.Acquire(ctx, "held") }()

					most := 0

					for ctx.Err() == nil {
						var sessions int

						err := beside.QueryRowContext(t.Context(), `SELECT COUNT(*) - 2 FROM information_schema.processlist WHERE db = ?`, config.DBName).Scan(&sessions)
						if err != nil {
							t.Fatal(err)
						}

						most = max(most, sessions)

						time.Sleep(100 * time.Millisecond) //nolint:forbidigo // for the server, which is asked each time
					}

					_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // ends the session
					_ = locker.Close(context.WithoutCancel(ctx))

					if most > few {
						t.Errorf("%d sessions of a pool of %d, want at most %d", most, pool, few)
					}
				})
			}
		}
	}
}
