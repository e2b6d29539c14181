package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
)

// soon is how long a hand-over takes at most when the waiter was called: much longer than
// usual, for a busy machine, and less than what is left of a nap of two seconds that has just begun.
const soon = time.Second

// rarely is how often those who wait look by themselves, where a test is about being called.
func rarely() sqllock.LockerOption {
	return sqllock.WithTuning(sqllock.Tuning{PollMin: 20 * time.Second, PollMax: 20 * time.Second})
}

// TestCalls: on MySQL a session sleeps while somebody waits, and whoever
// releases the lock wakes it.
func TestCalls(t *testing.T) {
	t.Parallel()

	for _, strategy := range catalog.All() {
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, "mysql"))
			beside := mysqlPool(t, config)
			a, b := lockerOn(t, strategy.Make(mysql.New(mysqlPool(t, config)).WakeWaiters()), rarely()),
				lockerOn(t, strategy.Make(mysql.New(mysqlPool(t, config)).WakeWaiters()), rarely())

			for _, release := range []func(*sqllock.Lock) error{
				func(lock *sqllock.Lock) error { return lock.Release(t.Context()) },
				func(lock *sqllock.Lock) error {
					defer func() { _ = lock.Release(t.Context()) }()

					return sqllocktest.ForceRelease(t.Context(), b, lock.Name(), "to call")
				},
			} {
				// A call has a quarter of a second, which a busy machine may not keep.
				const want, most = 3, 12

				called := 0

				for rounds := 0; called < want && rounds < most; rounds++ {
					if handOver(t, beside, a, b, release) < soon {
						called++
					}

					a, b = b, a
				}

				if called < want {
					t.Errorf("%d of %d hand-overs took less than %s, want %d", called, most, soon, want)
				}
			}

			closeLocker(t, a)
			closeLocker(t, b)
		})
	}
}

// handOver has a waiter of b, which is asleep, follow a lock of a, and returns how long after
// the release it did.
func handOver(
	t *testing.T, beside *sql.DB, a, b *sqllock.Locker, release func(*sqllock.Lock) error,
) time.Duration {
	t.Helper()

	lock, err := a.Acquire(t.Context(), "called", sqllock.WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}

	got := make(chan error, 1)

	go func() {
		lock, err := b.Acquire(t.Context(), "called")
		if err == nil {
			err = lock.Release(t.Context())
		}
		got <- err
	}()

	untilNap(t, beside)

	// It looks once more when a nap has begun.
	time.Sleep(300 * time.Millisecond) //nolint:forbidigo // there is nothing to see

	released := time.Now()

	if err := release(lock); err != nil {
		t.Fatal(err)
	}

	if err := <-got; err != nil {
		t.Fatal(err)
	}

	return time.Since(released)
}

// asleep returns the ids of the sessions of a database that listen.
func asleep(t *testing.T, beside *sql.DB, config *driver.Config) (ids []int64) {
	t.Helper()

	rows, err := beside.QueryContext(t.Context(),
		"SELECT ID FROM performance_schema.processlist WHERE DB = ? AND STATE = 'User sleep' AND INFO LIKE 'DO SLEEP%'", config.DBName)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = rows.Close() }()

	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}

		ids = append(ids, id)
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	return ids
}

// untilNap waits until the session of the one that waits has just begun to sleep.
func untilNap(t *testing.T, beside *sql.DB) {
	t.Helper()

	for before, now := -1, -1; now < 0 || now >= before; {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // for the server, which is asked each time

		before, now = now, -1

		// In whole seconds.
		err := beside.QueryRowContext(t.Context(), `SELECT TIME FROM performance_schema.processlist WHERE STATE = 'User sleep' AND ID =
			(SELECT IS_USED_LOCK(CONCAT('sqllock_', process)) FROM sqllock_queue ORDER BY expires_at DESC LIMIT 1)`).Scan(&now)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
	}
}

func untilAsleep(t *testing.T, beside *sql.DB, config *driver.Config) []int64 {
	t.Helper()

	for range 1000 {
		if ids := asleep(t, beside, config); len(ids) > 0 {
			return ids
		}

		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // for the server, which is asked each time
	}

	t.Fatal("no session is asleep that could be called")

	return nil
}

func closeLocker(t *testing.T, locker *sqllock.Locker) {
	t.Helper()

	if err := locker.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCallsMeetNobodyElse: whatever sessions there are beside those that listen, of the
// same account and of another, none of them is woken, ended or disturbed.
func TestCallsMeetNobodyElse(t *testing.T) {
	t.Parallel()

	config := mysqlDatabase(t, mysqlConfig(t, "mysql"))
	beside := mysqlPool(t, config)
	a, b := lockerOn(t, cas.New(mysql.New(mysqlPool(t, config)).WakeWaiters()), rarely()), lockerOn(t, cas.New(mysql.New(mysqlPool(t, config)).WakeWaiters()), rarely())
	release := func(lock *sqllock.Lock) error { return lock.Release(t.Context()) }

	disturbed, _ := bystanders(t, config)

	for range 5 {
		handOver(t, beside, a, b, release)
		a, b = b, a
	}

	// Those that listened have gone; their connections' successors are others'.
	closeLocker(t, a)
	closeLocker(t, b)

	process := "of a process that has gone"
	call(t, config, process)

	if n := disturbed(); n != 0 {
		t.Errorf("%d sessions were disturbed that do not listen, want none", n)
	}

	// So that it shows if one is. Asleep may be, too, who listened a moment ago.
	disturbed, ids := bystanders(t, config)
	for !slices.Contains(untilAsleep(t, beside, config), ids[0]) {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // for the server, which is asked each time
	}

	exec(t, beside, fmt.Sprintf("KILL QUERY %d", ids[0]))

	if n := disturbed(); n != 1 {
		t.Errorf("%d sessions were disturbed by KILL QUERY of one, want it to be seen", n)
	}
}

// bystanders are sessions that look much like one that listens, of the account that
// releases. disturbed ends them, and says how many did not sleep as long as they were to. ids are their ids.
func bystanders(t *testing.T, config *driver.Config) (disturbed func() int, ids []int64) {
	t.Helper()

	const (
		sessions = 5
		nap      = time.Second
	)

	ctx, stop := context.WithCancel(t.Context())
	pool := mysqlPool(t, config)
	woken := make(chan bool, sessions)

	for i := range sessions {
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if _, err := conn.ExecContext(t.Context(), "DO GET_LOCK(?, 0)", fmt.Sprintf("sqllock_%s_%d", config.DBName, i)); err != nil {
			t.Fatal(err)
		}

		var id int64
		if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			t.Fatal(err)
		}

		ids = append(ids, id)

		go func() {
			defer func() { _ = conn.Close() }()

			early := false

			for ctx.Err() == nil {
				began := time.Now()
				_, err := conn.ExecContext(context.WithoutCancel(ctx), "DO SLEEP(?)", nap.Seconds())
				early = early || err != nil || time.Since(began) < nap
			}

			woken <- early
		}()
	}

	return func() int {
		stop()

		n := 0

		for range sessions {
			if <-woken {
				n++
			}
		}

		return n
	}, ids
}

// call calls a process as a release does that found it first in a line.
func call(t *testing.T, config *driver.Config, process string) {
	t.Helper()

	pool := mysqlPool(t, config)
	exec(t, pool, "INSERT INTO sqllock_queue (process, id, name, ticket, expires_at) VALUES (?, 'x', 'gone', 1, 1e18)", process)

	if err := cas.New(mysql.New(pool).WakeWaiters()).Call(t.Context(), []string{"gone"}); err != nil {
		t.Errorf("Call() = %v, want nil: nobody listens", err)
	}
}

// TestCallsOfAnotherAccount: whoever may not wake a session of another account releases all the
// same, and the waiter looks by itself.
func TestCallsOfAnotherAccount(t *testing.T) {
	t.Parallel()

	grant, few, all := restricted(t, "mysql")
	grant("SELECT, INSERT, UPDATE, DELETE")

	a, b := lockerOn(t, cas.New(waking(t, few))), lockerOn(t, cas.New(waking(t, all)))

	for range 3 {
		lock, err := a.Acquire(t.Context(), "accounts")
		if err != nil {
			t.Fatal(err)
		}

		got := make(chan error, 1)

		go func() {
			lock, err := b.Acquire(t.Context(), "accounts")
			if err == nil {
				err = lock.Release(t.Context())
			}
			got <- err
		}()

		time.Sleep(time.Second) //nolint:forbidigo // there is nothing to see

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

func waking(t *testing.T, db databases.DB) databases.DB {
	t.Helper()

	m, ok := db.(*mysql.DB)
	if !ok {
		t.Fatalf("the database is a %T", db)
	}

	return m.WakeWaiters()
}

// TestNoCalls: nothing sleeps or wakes where it was not asked for, and on MariaDB.
func TestNoCalls(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		server string
		db     func(*sql.DB) *mysql.DB
	}{
		{"mysql", mysql.New},
		{"mariadb", mysql.New},
		{"mariadb", func(pool *sql.DB) *mysql.DB { return mysql.New(pool).WakeWaiters() }},
	} {
		db := c.db(mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, c.server))))

		if err := db.Listen(t.Context(), []string{"sqllock_none"}, nil, nil); !errors.Is(err, databases.ErrNoNotifications) {
			t.Errorf("Listen() on %s = %v, want ErrNoNotifications", c.server, err)
		}

		// The first connection shows what server it is.
		lock, err := lockerOn(t, cas.New(db)).Acquire(t.Context(), "no calls")
		if err != nil {
			t.Fatal(err)
		}

		if db.Wakes() {
			t.Errorf("Wakes() on %s = true, want false", c.server)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestPoolWithoutConnectionToSpare: who waits gives the pool the connection back that it sleeps on when
// somebody needs it, and takes none of a pool that has no other.
func TestPoolWithoutConnectionToSpare(t *testing.T) {
	t.Parallel()

	config := mysqlDatabase(t, mysqlConfig(t, "mysql"))
	pool := mysqlPool(t, config)
	pool.SetMaxOpenConns(3)

	db := mysql.New(pool).WakeWaiters()
	listen := func(ctx context.Context) error {
		return db.Listen(ctx, []string{"sqllock_spare"}, nil, func(string, string) {})
	}

	heard := make(chan error, 1)
	go func() { heard <- listen(t.Context()) }()

	untilAsleep(t, mysqlPool(t, config), config)

	for range 3 {
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		defer func() { _ = conn.Close() }()
	}

	// It is tried again after a while.
	if err := <-heard; err == nil || errors.Is(err, databases.ErrNoNotifications) {
		t.Errorf("Listen() on a connection that the pool needs = %v, want another error than ErrNoNotifications", err)
	}

	if err := listen(t.Context()); err == nil || errors.Is(err, databases.ErrNoNotifications) {
		t.Errorf("Listen() of a pool without a connection to spare = %v, want another error than ErrNoNotifications", err)
	}

	pool.SetMaxOpenConns(2)

	if err := listen(t.Context()); !errors.Is(err, databases.ErrNoNotifications) {
		t.Errorf("Listen() of a pool that is too small = %v, want ErrNoNotifications", err)
	}
}

// TestListenReadTimeout: connections that break when nothing comes for a second are slept on for
// less than that.
func TestListenReadTimeout(t *testing.T) {
	t.Parallel()

	config := mysqlDatabase(t, mysqlConfig(t, "mysql"))
	config.ReadTimeout = time.Second
	db := mysql.New(mysqlPool(t, config)).WakeWaiters()

	listen := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()

		return db.Listen(ctx, []string{"sqllock_timeout"}, nil, func(string, string) {})
	}

	// A session whose connection broke sleeps on for a while, and has the name.
	for began := time.Now(); ; {
		err := listen()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}

		if time.Since(began) > time.Minute {
			t.Fatalf("Listen() = %v after a minute, want that it goes on", err)
		}

		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // as those do that listen again
	}
}
