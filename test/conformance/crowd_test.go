package conformance_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestFewSessions has somebody lock sqllock's tables, or the rows of leases, for much longer than a client waits for an answer.
// The server must not keep the sessions whose clients gave up while the pool opens others.
func TestFewSessions(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			// All wait at the same time, each in a database of its own.
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			var crowds []*crowd

			for _, strategy := range catalog.All() {
				for kind, lock := range map[string][]string{
					"tables": {"LOCK TABLES sqllock_leases WRITE, sqllock_locks WRITE, sqllock_queue WRITE"},
					"rows":   {"BEGIN", "UPDATE sqllock_leases SET waiting = waiting + 1"},
				} {
					crowds = append(crowds, gather(ctx, t, mysqlConfig(t, server), strategy, kind, lock))
				}
			}

			for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
				for _, c := range crowds {
					c.look(t)
				}

				time.Sleep(100 * time.Millisecond) //nolint:forbidigo // for the server, which is asked each time
			}

			cancel()

			for _, c := range crowds {
				c.end(t)
			}
		})
	}
}

const (
	crowdPool = 4
	// fewSessions are those of the pool, and as many again: a statement goes on for a second after its client.
	fewSessions = 2*crowdPool + 2
)

// crowd is a locker whose pool is small, with a database of its own in which somebody has locked what it needs.
type crowd struct {
	name     string
	database string
	locker   *sqllock.Locker
	beside   *sql.DB
	locking  *sql.Conn
	most     int // sessions that there were at a time
}

// gather has many wait until the context ends.
func gather(ctx context.Context, t *testing.T, server *mysqldriver.Config, strategy catalog.Strategy, kind string, lock []string) *crowd {
	t.Helper()

	config := mysqlDatabase(t, server)
	db := mysqlPool(t, config)
	db.SetMaxOpenConns(crowdPool)

	locker, err := sqllock.New(strategy.Make(mysql.New(db)), sqllock.WithLease(6*time.Second))
	if err != nil {
		t.Fatal(err)
	}

	c := &crowd{name: strategy.Name + "/" + kind, database: config.DBName, locker: locker, beside: mysqlPool(t, config)}

	if _, err := locker.Acquire(ctx, "held"); err != nil {
		t.Fatal(err)
	}

	if c.locking, err = c.beside.Conn(ctx); err != nil {
		t.Fatal(err)
	}

	for _, statement := range lock {
		if _, err := c.locking.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}

	for i := range 2 * crowdPool {
		go func() { _, _ = locker.Acquire(ctx, fmt.Sprintf("other/%d", i)) }()
	}

	go func() { _, _ = locker.Acquire(ctx, "held") }()

	return c
}

// look counts the sessions of the database, without those of the test.
func (c *crowd) look(t *testing.T) {
	t.Helper()

	var sessions int

	err := c.beside.QueryRowContext(t.Context(), `SELECT COUNT(*) - 2 FROM information_schema.processlist WHERE db = ?`, c.database).Scan(&sessions)
	if err != nil {
		t.Fatal(err)
	}

	c.most = max(c.most, sessions)
}

func (c *crowd) end(t *testing.T) {
	t.Helper()

	_ = c.locking.Raw(func(any) error { return driver.ErrBadConn }) // ends the session
	_ = c.locker.Close(t.Context())

	t.Logf("%s: %d sessions of a pool of %d", c.name, c.most, crowdPool)

	if c.most > fewSessions {
		t.Errorf("%s: %d sessions of a pool of %d, want at most %d", c.name, c.most, crowdPool, fewSessions)
	}
}
