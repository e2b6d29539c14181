package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

// changeable is a database with a second set of sqllock's tables, and what a program may send on a session of its pool.
type changeable struct {
	open    func(t *testing.T) *sql.DB
	wrap    func(*sql.DB) databases.DB
	tx      func(*sql.Tx) strategies.Tx
	changes []string // the first leads to the other tables
	rare    []string // after which what is said of a lock may be wrong, but nobody else gets it
}

func changeables(t *testing.T) map[string]changeable {
	t.Helper()

	config := postgresDatabase(t, postgresConfig(t))
	other := config.Copy()
	other.RuntimeParams["search_path"] = "other"
	role := config.Database + "_nobody"
	pool := stdPool(t, config)

	for _, query := range []string{"CREATE SCHEMA other", "CREATE SCHEMA empty", "CREATE ROLE " + role} {
		exec(t, pool, query)
	}

	t.Cleanup(func() { exec(t, pool, "DROP ROLE "+role) })
	migrate(t, stdPool(t, other), databases.Postgres)

	all := map[string]changeable{"postgres": {
		open: func(t *testing.T) *sql.DB { t.Helper(); return stdPool(t, config) },
		wrap: func(db *sql.DB) databases.DB { return postgres.NewStd(db) },
		tx:   func(tx *sql.Tx) strategies.Tx { return postgres.StdTx(tx) },
		changes: []string{
			"SET search_path TO other", "SET search_path TO empty", "SET ROLE " + role,
			"CREATE TEMPORARY TABLE IF NOT EXISTS sqllock_mutexes (LIKE public.sqllock_mutexes INCLUDING ALL)",
			"CREATE TEMPORARY TABLE IF NOT EXISTS sqllock_shares (LIKE public.sqllock_shares INCLUDING ALL)",
		},
		rare: []string{"SET client_encoding TO latin1"},
	}}

	for _, server := range []string{"mysql", "mariadb"} {
		config, other, empty := mysqlDatabase(t, mysqlConfig(t, server)), mysqlDatabase(t, mysqlConfig(t, server)), uniqueName()
		pool := mysqlPool(t, other)

		for _, query := range []string{"CREATE TABLE elsewhere (id int)", "CREATE DATABASE " + empty} {
			exec(t, pool, query)
		}

		t.Cleanup(func() { exec(t, pool, "DROP DATABASE "+empty) })
		all[server] = changeable{
			open: func(t *testing.T) *sql.DB { t.Helper(); return mysqlPool(t, config) },
			wrap: func(db *sql.DB) databases.DB { return mysql.New(db) },
			tx:   func(tx *sql.Tx) strategies.Tx { return mysql.Tx(tx) },
			changes: []string{
				"USE " + other.DBName, "USE " + empty, "LOCK TABLES " + other.DBName + ".elsewhere READ", "SET timestamp = UNIX_TIMESTAMP() + 5000", "SET timestamp = UNIX_TIMESTAMP() - 5000", "SET autocommit = 0",
			},
			rare: []string{"SET timestamp = UNIX_TIMESTAMP() + 3600", "SET sql_select_limit = 0", "SET sql_select_limit = 1", "SET completion_type = 'CHAIN'"},
		}
	}

	return all
}

// TestChangedSession: a program changes sessions of the pool that its locker uses, and does not set them back. Nothing is
// granted there, nor renewed. They are given up, and the next ones will do.
func TestChangedSession(t *testing.T) {
	t.Parallel()

	for server, on := range changeables(t) {
		for _, strategy := range catalog.All() {
			for i, change := range on.changes {
				t.Run(fmt.Sprintf("%s/%s/%d", server, strategy.Name, i), func(t *testing.T) {
					t.Parallel()

					pool := on.open(t)
					pool.SetMaxOpenConns(5) // forupdate keeps three, and leaves one

					made := strategy.Make(on.wrap(pool))
					c := changedSessions{
						T: t, pool: pool, change: change, name: fmt.Sprint(strategy.Name, i), strategy: made,
						locker: lockerOn(t, made), other: lockerOn(t, strategy.Make(on.wrap(on.open(t)))),
					}
					c.refuse()
					c.grant()
					c.keep()
					c.raise()
					c.ask()
					c.wait()
				})
			}
		}
	}
}

// TestChangedSessionExcludes: whatever a program has changed of the sessions of a locker's pool, that does not grant what another holds,
// nor take it away, nor is a lock called lost that is held.
func TestChangedSessionExcludes(t *testing.T) {
	t.Parallel()

	for server, on := range changeables(t) {
		for _, strategy := range catalog.All() {
			for i, change := range slices.Concat(on.changes, on.rare) {
				t.Run(fmt.Sprintf("%s/%s/%d", server, strategy.Name, i), func(t *testing.T) {
					t.Parallel()

					pool := on.open(t)
					pool.SetMaxOpenConns(5)
					pool.SetMaxIdleConns(5)

					locker, other := lockerOn(t, strategy.Make(on.wrap(pool))), lockerOn(t, strategy.Make(on.wrap(on.open(t))))
					c := changedSessions{T: t, pool: pool, change: change, name: "zürich " + strategy.Name + fmt.Sprint(i), locker: locker, other: other}

					c.must(locker, c.name)
					c.must(locker, c.name+" free")
					<-time.After(sessionKept) // advisory keeps one that long

					held, mine := acquire(t, other, c.name), acquire(t, locker, c.name+" mine")

					var read *sqllock.Lock
					if other.Features().Shared {
						read = acquire(t, other, c.name+" read", sqllock.WithShared())
					}

					for range 3 {
						c.open()
						c.all()

						// What they say is told by TestChangedSession.
						_, _ = locker.Reap(t.Context(), time.Hour)
						_, _ = locker.Inspect(t.Context(), c.name)
						_, _ = locker.Inspect(t.Context(), c.name+" free")
						_ = locker.RequestRelease(t.Context(), c.name, "test")
						_ = locker.EndRecovery(t.Context(), "test")

						c.all()

						if err := mine.Check(t.Context()); errors.Is(err, sqllock.ErrLost) {
							t.Errorf("Check() of a lock of the locker = %v, want no loss", err)
						}

						c.open()
						c.all()

						// It has another session until one will do, or is told what is wrong with one that it looks at.
						if err := mine.Mark(t.Context(), time.Now().UnixMicro()); err != nil && !errors.Is(err, sqllock.ErrUnsupported) {
							t.Errorf("Mark() of a lock of the locker = %v, want nil or ErrUnsupported", err)
						}

						if lock, err := locker.TryAcquire(t.Context(), c.name); err == nil {
							t.Errorf("granted with token %d, while another holds it with %d", lock.Token(), held.Token())
						}

						if lock, err := locker.TryAcquire(t.Context(), c.name+" read"); err == nil && read != nil {
							t.Errorf("granted with token %d, while another reads", lock.Token())
						}
					}

					if err := mine.Release(t.Context()); errors.Is(err, sqllock.ErrLost) {
						t.Errorf("Release() of a lock of the locker = %v, want no loss", err)
					}

					// Nor is anything left that is in the way of others.
					for _, name := range []string{c.name + " free", c.name + " new"} {
						if lock, err := other.TryAcquire(t.Context(), name); err != nil {
							t.Errorf("TryAcquire() by another = %v, want nil", err)
						} else if err := lock.Release(t.Context()); err != nil {
							t.Errorf("Release() by another = %v, want nil", err)
						}
					}

					for _, lock := range []*sqllock.Lock{held, read} {
						if lock == nil {
							continue // the strategy has no readers there
						}

						if err := errors.Join(lock.Check(t.Context()), lock.Extend(t.Context(), time.Minute), lock.Release(t.Context())); err != nil {
							t.Errorf("Check(), Extend() and Release() by who has it = %v, want nil", err)
						}
					}
				})
			}
		}
	}
}

// sessionKept is longer than advisory keeps the session of the last lock.
const sessionKept = 2500 * time.Millisecond

// TestSessionThatCannotBeAsked where it looks, after it has said that a lock is lost: so it is, and the connection is discarded.
func TestSessionThatCannotBeAsked(t *testing.T) {
	t.Parallel()

	for server, on := range changeables(t) {
		for _, strategy := range catalog.Leased() {
			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				faulty := sqllocktest.NewFaulty(on.wrap(on.open(t)))
				made, other := strategy.Make(faulty), strategy.Make(on.wrap(on.open(t)))

				grant, err := single.TryAcquire(t.Context(), made, strategies.Request{Name: strategy.Name, Owner: "first", Lease: time.Minute})
				if err != nil {
					t.Fatal(err)
				}

				if _, err := other.ForceRelease(t.Context(), strategies.Status{Name: strategy.Name, Token: grant.Token}, "a ticket"); err != nil {
					t.Fatal(err)
				}

				faulty.Reset()
				faulty.Fail("grant.where", 1, sqllocktest.Before, nil)

				lost := new(sqllock.LostError)
				if err := grant.Renew(t.Context(), time.Minute); !errors.As(err, &lost) || lost.Reason != sqllock.ReasonForced {
					t.Errorf("Renew() = %v, want that the release was forced", err)
				}

				if n := faulty.Count("grant.where"); n != 1 {
					t.Errorf("the session was asked %d times where it looks, want once", n)
				}

				if misuse := faulty.Misuse(); len(misuse) > 0 {
					t.Errorf("connection misused: %q", misuse)
				}
			})
		}
	}
}

// TestOtherTablesInATransaction: the caller's transaction finds other tables than the lock is in. That is an error, and no loss.
func TestOtherTablesInATransaction(t *testing.T) {
	t.Parallel()

	for server, on := range changeables(t) {
		for _, strategy := range catalog.All() {
			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				locker := lockerOn(t, strategy.Make(on.wrap(on.open(t))))

				lock, err := locker.TryAcquire(t.Context(), strategy.Name)
				if err != nil {
					t.Fatal(err)
				}

				for what, call := range map[string]func(strategies.Tx) error{
					"Guard()":     func(tx strategies.Tx) error { return lock.Guard(t.Context(), tx) },
					"ReleaseTx()": func(tx strategies.Tx) error { return lock.ReleaseTx(t.Context(), tx) },
					"MarkTx()":    func(tx strategies.Tx) error { return lock.MarkTx(t.Context(), tx, 1) },
				} {
					tx, err := on.open(t).BeginTx(t.Context(), nil)
					if err == nil {
						_, err = tx.ExecContext(t.Context(), on.changes[0])
					}

					if err != nil {
						t.Fatal(err)
					}

					if err := call(on.tx(tx)); err == nil || errors.Is(err, sqllock.ErrLost) {
						t.Errorf("%s in a transaction that finds other tables = %v, want an error and no loss", what, err)
					}

					if err := tx.Rollback(); err != nil {
						t.Error(err)
					}
				}

				if err := errors.Join(lock.Check(t.Context()), lock.Release(t.Context())); err != nil {
					t.Errorf("Check() and Release() after that = %v, want nil", err)
				}
			})
		}
	}
}

// TestMixedTables: a locker whose first session finds some of the tables in another schema than the others is none.
func TestMixedTables(t *testing.T) {
	t.Parallel()

	config := postgresDatabase(t, postgresConfig(t))
	pool := stdPool(t, config)
	exec(t, pool, "CREATE SCHEMA part")

	part := config.Copy()
	part.RuntimeParams["search_path"] = "part, public"

	for _, strategy := range catalog.All() {
		for _, table := range []string{"sqllock_locks", "sqllock_mutexes"} {
			exec(t, pool, "CREATE TABLE part."+table+" (LIKE public."+table+" INCLUDING ALL)")

			_, err := lockerOn(t, strategy.Make(postgres.NewStd(stdPool(t, part)))).TryAcquire(t.Context(), "n")
			if !errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), "one set of tables") {
				t.Errorf("%s: TryAcquire() with a second %s = %v, want ErrUnsupported", strategy.Name, table, err)
			}

			exec(t, pool, "DROP TABLE part."+table)
		}
	}
}

// TestTableMadeAgain: one of the tables is made again while a locker has found the one before.
func TestTableMadeAgain(t *testing.T) {
	t.Parallel()

	config := postgresDatabase(t, postgresConfig(t))
	pool := stdPool(t, config)

	for _, strategy := range catalog.All() {
		locker := lockerOn(t, strategy.Make(postgres.NewStd(stdPool(t, config))))
		try := func() error {
			lock, err := locker.TryAcquire(t.Context(), strategy.Name)

			return errors.Join(err, lock.Release(t.Context()))
		}

		if err := try(); err != nil {
			t.Fatal(err)
		}

		for _, query := range []string{
			"CREATE TABLE again (LIKE sqllock_mutexes INCLUDING ALL)", "DROP TABLE sqllock_mutexes", "ALTER TABLE again RENAME TO sqllock_mutexes",
		} {
			exec(t, pool, query)
		}

		eventually(t, strategy.Name+" acquires in the new table", func() bool { return try() == nil })
	}
}

// changedSessions are those of a pool that a locker uses. The sessions of the other one stay as they are.
type changedSessions struct {
	*testing.T

	pool          *sql.DB
	change, name  string
	strategy      strategies.Strategy // the locker's
	locker, other *sqllock.Locker
}

// open opens as many sessions as the pool may have.
func (c changedSessions) open() {
	c.Helper()

	stats := c.pool.Stats()
	c.each(stats.MaxOpenConnections-stats.InUse, func(*sql.Conn) error { return nil })
}

// all changes the sessions of the pool that are idle.
func (c changedSessions) all() {
	c.Helper()
	c.each(c.pool.Stats().Idle, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(c.Context(), c.change)

		return err
	})
}

// each does something on so many sessions of the pool, each another one.
func (c changedSessions) each(n int, do func(*sql.Conn) error) {
	c.Helper()

	var conns []*sql.Conn

	for range n {
		conn, err := c.pool.Conn(c.Context())
		if err == nil {
			err = do(conn)
		}

		if err != nil {
			c.Fatal(err)
		}

		conns = append(conns, conn)
	}

	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			c.Fatal(err)
		}
	}
}

// wait waits for a lock of the other, who can renew and release it meanwhile, and is granted it then.
func (c changedSessions) wait() {
	c.Helper()

	ctx, name := c.Context(), c.name+"waited"

	lock, err := c.other.TryAcquire(ctx, name)
	if err != nil {
		c.Fatal(err)
	}

	c.all()

	granted := make(chan error, 1)

	go func() {
		lock, err := c.locker.Acquire(ctx, name, sqllock.WithMaxWait(patience))
		for range 5 {
			if !errors.Is(err, sqllock.ErrUnsupported) {
				break // or else it says what is wrong with a session, which is given up
			}

			lock, err = c.locker.Acquire(ctx, name, sqllock.WithMaxWait(patience))
		}

		granted <- errors.Join(err, lock.Release(ctx))
	}()

	eventually(c.T, "it is known that it waits", func() bool {
		if len(granted) > 0 {
			c.Fatalf("a wait on changed sessions = %v, while another has the lock", <-granted)
		}

		waiters, err := c.other.Waiters(ctx, sqllock.WaiterFilter{})

		return err == nil && slices.ContainsFunc(waiters, func(w sqllock.Waiter) bool { return w.Name == name })
	})

	for range 5 {
		c.all()
		<-time.After(300 * time.Millisecond)

		began := time.Now()

		if err := lock.Extend(ctx, time.Minute); err != nil || time.Since(began) > tryWithin {
			c.Errorf("Extend() while another waits on changed sessions = %v after %s", err, time.Since(began))
		}
	}

	if err := lock.Release(ctx); err != nil {
		c.Errorf("Release() while another waits on changed sessions = %v", err)
	}

	if err := <-granted; err != nil {
		c.Errorf("a wait on changed sessions, and its release = %v", err)
	}
}

// ask asks for a lock that is held, and releases it. It was not lost.
func (c changedSessions) ask() {
	c.Helper()

	ctx, name := c.Context(), c.name+"asked"

	var options []sqllock.LockOption
	if c.locker.Features().MinHold {
		options = append(options, sqllock.WithMinHold(time.Minute))
	}

	// The sessions may be those that others have changed.
	try := func(name string, options ...sqllock.LockOption) (lock *sqllock.Lock, err error) {
		for range 5 {
			if lock, err = c.locker.TryAcquire(ctx, name, options...); err == nil {
				return lock, nil
			}
		}

		return nil, err
	}

	// The locker has looked at a session before.
	looked, err := try(c.name + "looked")
	if err == nil {
		err = looked.Release(ctx)
	}

	if err != nil {
		c.Fatal(err)
	}

	lock, err := try(name, options...)
	if err != nil {
		c.Fatal(err)
	}

	c.all()

	for range 5 {
		if err := lock.Check(ctx); errors.Is(err, sqllock.ErrLost) {
			c.Fatalf("Check() on a changed session = %v, want no loss", err)
		}
	}

	if err := lock.Check(ctx); err != nil {
		c.Errorf("Check() after five = %v, want nil", err)
	}

	c.all()

	if err := lock.Release(ctx); errors.Is(err, sqllock.ErrLost) {
		c.Errorf("Release() on a changed session = %v, want no loss", err)
	}

	if len(options) > 0 {
		eventually(c.T, "the name is released, and taken", func() bool {
			status, err := c.other.Inspect(ctx, name)

			return err == nil && !status.Held() && status.Taken > 0
		})
	}
}

// must acquires a name and releases it.
func (c changedSessions) must(locker *sqllock.Locker, name string) {
	c.Helper()

	lock, err := locker.TryAcquire(c.Context(), name)
	if err == nil {
		err = lock.Release(c.Context())
	}

	if err != nil {
		c.Fatal(err)
	}
}

// refuse tries in each way what the other holds.
func (c changedSessions) refuse() {
	c.Helper()

	ctx, name := c.Context(), c.name+"held"
	tryAll := func(names []string, options ...sqllock.LockOption) error {
		_, err := c.locker.TryAcquire(ctx, names[0], append(options, sqllock.WithNames(names...))...)

		return err
	}
	try := func(options ...sqllock.LockOption) error {
		_, err := c.locker.TryAcquire(ctx, name, options...)

		return err
	}
	ways := map[string]func() error{"one": func() error { return try() }}

	if c.locker.Features().Shared {
		ways["reader"] = func() error { return try(sqllock.WithShared()) }
	}

	if c.locker.Features().Several {
		ways["several"] = func() error { return tryAll([]string{name, c.name + "second"}) }
	}

	// The locker has looked at a session before.
	c.must(c.locker, name)

	for way, try := range ways {
		lock, err := c.other.TryAcquire(ctx, name)
		if err != nil {
			c.Fatal(err)
		}

		c.all()

		for range 5 {
			if err := try(); err == nil {
				c.Fatalf("%s: granted on a changed session what another holds", way)
			} else {
				c.check(err)
			}
		}

		if err := try(); !errors.Is(err, sqllock.ErrNotAcquired) {
			c.Errorf("%s: an attempt after five = %v, want ErrNotAcquired", way, err)
		}

		if err := lock.Release(ctx); err != nil {
			c.Errorf("%s: Release() of what was refused on changed sessions = %v, want nil", way, err)
		}
	}
}

// check looks at what is told of a changed session. An attempt may have had two of them, or go on with another one.
func (c changedSessions) check(err error) {
	c.Helper()

	switch told := err.Error(); {
	case errors.Is(err, sqllock.ErrNotAcquired):
	case !errors.Is(err, sqllock.ErrUnreachable) && !errors.Is(err, sqllock.ErrUnsupported):
		c.Errorf("an attempt on a changed session = %v, want ErrUnreachable or ErrUnsupported", err)
	case !strings.Contains(told, "a pool of its own") && !strings.Contains(told, "leave it out") && !strings.Contains(told, "autocommit"):
		c.Errorf("an attempt on a changed session = %v, want what to do about it", err)
	}
}

// grant tries a name that is free until it is granted. Then the other sees that.
func (c changedSessions) grant() {
	c.Helper()
	c.all()

	var told error

	for range 5 {
		lock, err := c.locker.TryAcquire(c.Context(), c.name+"free")
		if err != nil {
			told = err
			c.check(err)

			continue
		}

		if _, err := c.other.TryAcquire(c.Context(), c.name+"free"); !errors.Is(err, sqllock.ErrNotAcquired) {
			c.Errorf("an attempt at what was granted after %v = %v, want ErrNotAcquired", told, err)
		}

		if err := lock.Release(c.Context()); err != nil {
			c.Error(err)
		}

		return
	}

	c.Errorf("a name that is free is not granted: %v", told)
}

// keep holds locks for longer than their lease while the sessions are changed, each time that there are new ones. They are
// renewed together where the strategy can.
func (c changedSessions) keep() {
	c.Helper()

	const lease = 4 * time.Second

	var locks []*sqllock.Lock

	acquire := func(name string, options ...sqllock.LockOption) {
		lock, err := c.locker.TryAcquire(c.Context(), c.name+name, append(options, sqllock.WithLease(lease))...)
		if err != nil {
			c.Fatal(err)
		}

		locks = append(locks, lock)
	}

	acquire("kept")
	acquire("kept beside")

	if c.locker.Features().Shared {
		acquire("read", sqllock.WithShared())
	}

	for range 5 {
		c.all()

		<-time.After(lease / 4)

		for _, lock := range locks {
			if lock.Err() != nil {
				c.Fatalf("a lock was lost though each renewal could have another session: %v", context.Cause(lock.Context()))
			}

			if _, err := c.other.TryAcquire(c.Context(), lock.Name()); !errors.Is(err, sqllock.ErrNotAcquired) {
				c.Fatalf("an attempt at a lock that is held and renewed = %v, want ErrNotAcquired", err)
			}
		}
	}

	c.all()

	// It may fail, and is not told that the lock was lost.
	for _, lock := range locks {
		if err := lock.Release(c.Context()); errors.Is(err, sqllock.ErrLost) {
			c.Errorf("Release() = %v", err)
		}
	}
}

// raise raises a token, which others see then, or is refused.
func (c changedSessions) raise() {
	c.Helper()

	if _, ok := c.strategy.(strategies.Raiser); !ok {
		return
	}

	var grant single.Grant

	eventually(c.T, "the strategy grants on a session that is as it was", func() (granted bool) {
		var err error

		grant, err = single.TryAcquire(c.Context(), c.strategy, strategies.Request{Name: c.name + "raised", Owner: c.name, Lease: time.Minute})

		return err == nil
	})

	c.all()

	const by = int64(time.Hour / time.Microsecond)

	for range 5 {
		raised, err := grant.Raise(c.Context(), grant.Token+by)

		if errors.Is(err, sqllock.ErrLost) {
			c.Fatalf("Raise() on a changed session = %v", err)
		}

		if err != nil {
			continue
		}

		if status, err := c.other.Inspect(c.Context(), c.name+"raised"); err != nil || status.Token != raised.Token {
			c.Errorf("Inspect() after Raise() to %d = %d, %v, want that", raised.Token, status.Token, err)
		}

		return
	}

	c.Error("Raise() had five sessions, and none would do")
}
