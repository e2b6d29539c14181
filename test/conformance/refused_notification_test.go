package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

// refusals are servers that take no notification, and each its pool.
var refusals = map[string]func(*testing.T) (databases.DB, *sql.DB){
	"the user may not notify": func(t *testing.T) (databases.DB, *sql.DB) {
		t.Helper()

		config := postgresDatabase(t, postgresConfig(t))
		owner, user := stdPool(t, config), uniqueName()
		exec(t, owner, "CREATE ROLE "+user+" LOGIN PASSWORD 'restricted'")
		t.Cleanup(func() {
			exec(t, owner, "DROP OWNED BY "+user)
			exec(t, owner, "DROP ROLE "+user)
		})
		exec(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+user)
		exec(t, owner, "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text) FROM PUBLIC")

		config = config.Copy()
		config.User, config.Password = user, "restricted"
		pool := stdPool(t, config)

		return postgres.NewStd(pool), pool
	},
	"the queue is full": func(t *testing.T) (databases.DB, *sql.DB) {
		t.Helper()

		pool := stdPool(t, postgresDatabase(t, postgresConfig(t)))

		return fullQueue{postgres.NewStd(pool)}, pool
	},
}

// fullQueue refuses what notifies, as a server does whose queue of notifications is full: at the commit, when the rows were
// sent and keys of the session are freed
// (https://www.postgresql.org/docs/current/sql-notify.html#id-1.9.3.158.6).
type fullQueue struct{ databases.DB }

var errQueueFull = &pgconn.PgError{
	Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "54000", Message: "too many notifications in the NOTIFY queue",
}

func (f fullQueue) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := f.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return fullQueueConn{conn}, nil
}

func (fullQueue) Listen(context.Context, []string, func(), func(channel, payload string)) error {
	return errQueueFull // of the notification that tests the way
}

type fullQueueConn struct{ databases.Conn }

func (c fullQueueConn) Run(
	ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	err = c.run(ctx, s, func() error {
		result, err = c.Conn.Run(ctx, s, v, each)

		return err
	})

	return result, err
}

func (c fullQueueConn) run(ctx context.Context, s databases.Statement, call func() error) error {
	if !strings.Contains(s.SQL, "pg_notify") {
		return call()
	}

	if _, err := c.Conn.Run(ctx, databases.Statement{Name: "begin", SQL: "BEGIN"}, nil, nil); err != nil {
		return err
	}

	err := call()
	_, failed := c.Conn.Run(ctx, databases.Statement{Name: "rollback", SQL: "ROLLBACK"}, nil, nil)

	if err := errors.Join(err, failed); err != nil {
		return err
	}

	return errQueueFull
}

// TestRefusedNotification: a notification is a hint. If the server refuses it, what it would have told of happens all the same.
func TestRefusedNotification(t *testing.T) {
	t.Parallel()

	for refusal, open := range refusals {
		for _, strategy := range catalog.All() {
			t.Run(refusal+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				db, pool := open(t)
				faulty := sqllocktest.NewFaulty(db)
				u := &untold{T: t, pool: pool, strategy: strategy.Make(faulty)}

				u.each()
				u.strategy.Close(t.Context())

				if misuse, leaks := faulty.Misuse(), faulty.Leaks(); len(misuse) > 0 || leaks > 0 {
					t.Errorf("%d connections were not given back; %q", leaks, misuse)
				}
			})
		}
	}
}

// untold are changes of which nobody can be told.
type untold struct {
	*testing.T

	pool     *sql.DB
	strategy strategies.Strategy
	names    int
}

const untoldLease = time.Minute

func (u *untold) each() {
	features := u.strategy.Features()

	for _, waited := range []bool{false, true} {
		u.free(fmt.Sprintf("Release() of one who waited: %t", waited), u.request(waited), single.Grant.Release)
		u.freeAll(fmt.Sprintf("Release() of those who waited: %t", waited), waited)
	}

	u.free("Ask()", u.request(false), func(g single.Grant, ctx context.Context) error {
		asked, err := u.strategy.(strategies.Noter).Ask(ctx, u.name(), "for a test")
		if err == nil && !asked {
			err = errors.New("nobody was asked")
		}

		return errors.Join(err, g.Release(ctx))
	})
	u.free("Announce() and Call()", u.request(false), func(g single.Grant, ctx context.Context) error {
		err := g.Release(ctx)

		return errors.Join(
			err, u.strategy.(strategies.Noter).Announce(ctx, u.name()), u.strategy.(strategies.Queuer).Call(ctx, []string{u.name()}),
		)
	})

	if features.MinHold {
		r := u.request(false)
		r.MinHold = time.Millisecond
		u.free("Release() with a minimum hold", r, single.Grant.Release)

		r = u.request(false)
		r.MinHold = time.Millisecond
		u.free("ReleaseTx() with a minimum hold", r, u.releaseTx)
	}

	if features.Shared {
		for _, waited := range []bool{false, true} {
			r := u.request(waited)
			r.Mode = strategies.Shared
			u.free(fmt.Sprintf("Release() of a reader who waited: %t", waited), r, single.Grant.Release)
		}
	}

	u.free("ReleaseTx()", u.request(false), u.releaseTx)
	u.free("Settle()", u.request(false), func(g single.Grant, ctx context.Context) error {
		err := u.strategy.Settle(ctx, strategies.Request{Name: u.name(), Owner: "first", Lease: untoldLease})

		return errors.Join(err, ended(g.Release(ctx)))
	})

	// The last, as it ends the session that another lock may be on.
	u.free("ForceRelease()", u.request(false), func(g single.Grant, ctx context.Context) error {
		status, _, err := u.strategy.Status(ctx, u.name())
		if err != nil {
			return err
		}

		found, err := u.strategy.ForceRelease(ctx, status, "for a test")
		if err == nil && !found {
			err = errors.New("nothing was found")
		}

		return errors.Join(err, ended(g.Release(ctx)))
	})
}

// ended is the error of a release after the grant was ended from elsewhere.
func ended(err error) error {
	if errors.Is(err, strategies.ErrLost) {
		return nil
	}

	return err
}

// name is that of the change that is under way.
func (u *untold) name() string { return fmt.Sprintf("untold/%d", u.names) }

// request is one for a new name.
func (u *untold) request(waited bool) strategies.Request {
	u.names++

	r := strategies.Request{Name: u.name(), Owner: "first", Lease: untoldLease}
	if waited {
		r.Process, r.Wait, r.First = "process", "wait", true
	}

	return r
}

// free has somebody wait for a lock, which a call frees, and another take it.
func (u *untold) free(what string, r strategies.Request, call func(g single.Grant, ctx context.Context) error) {
	u.Helper()

	grant, err := single.TryAcquire(u.Context(), u.strategy, r)
	if err != nil {
		u.Fatalf("%s: TryAcquire() = %v", what, err)
	}

	u.enqueue(r.Name)

	if err := call(grant, u.Context()); err != nil {
		u.Errorf("%s = %v, want nil", what, err)
	}

	u.take(what, r.Name)
}

func (u *untold) freeAll(what string, waited bool) {
	u.Helper()

	if u.strategy.Features().Unbatched {
		return
	}

	requests := []strategies.Request{u.request(waited), u.request(waited)}
	requests[1].Owner = "second"

	grants, errs := u.strategy.Acquire(u.Context(), requests)
	if err := errors.Join(errs...); err != nil {
		u.Fatalf("%s: Acquire() = %v", what, err)
	}

	for _, r := range requests {
		u.enqueue(r.Name)
	}

	_, errs = u.strategy.Release(u.Context(), grants)
	for i, err := range errs {
		if errors.Is(err, strategies.ErrNotBatched) {
			_, err = strategies.ReleaseOne(u.Context(), u.strategy, grants[i])
		}

		if err != nil {
			u.Errorf("%s = %v, want nil", what, err)
		}

		u.take(what, requests[i].Name)
	}
}

// releaseTx releases a lock in a transaction, where the strategy can.
func (u *untold) releaseTx(g single.Grant, ctx context.Context) error { //nolint:revive // as the method expression Grant.Release
	if u.strategy.Features().ConnectionHeld {
		return g.Release(ctx)
	}

	tx, err := u.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}

	if err := g.ReleaseTx(ctx, postgres.StdTx(tx), 0); err != nil {
		return errors.Join(err, tx.Rollback())
	}

	return errors.Join(tx.Commit(), g.Release(ctx))
}

func (u *untold) enqueue(name string) {
	u.Helper()

	w := strategies.Waiter{Name: name, Process: "other", ID: name}
	if _, err := single.Enqueue(u.Context(), u.strategy.(strategies.Queuer), w, untoldLease); err != nil {
		u.Fatalf("Enqueue() = %v", err)
	}
}

// take has another acquire a name that is free, or soon will be.
func (u *untold) take(what, name string) {
	u.Helper()

	r := strategies.Request{Name: name, Owner: "next", First: true, Lease: untoldLease}

	for began := time.Now(); ; time.Sleep(time.Millisecond) { //nolint:forbidigo // it looks again
		grant, err := single.TryAcquire(u.Context(), u.strategy, r)

		switch {
		case err == nil:
			if err := grant.Release(u.Context()); err != nil {
				u.Errorf("%s: Release() of the next = %v", what, err)
			}

			return
		case time.Since(began) > untoldLease/4:
			u.Errorf("%s: TryAcquire() of the next = %v, want the lock", what, err)

			return
		}
	}
}

// TestHandOverUntold: who waits where nobody is told of releases polls, and follows long before the lease has ended.
func TestHandOverUntold(t *testing.T) {
	t.Parallel()

	for refusal, open := range refusals {
		for _, strategy := range catalog.All() {
			t.Run(refusal+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				db, _ := open(t)
				lease := sqllock.WithLease(2 * time.Minute)
				a, b := lockerOn(t, strategy.Make(db), lease), lockerOn(t, strategy.Make(db), lease)

				// The first did not wait, and the others did.
				lock, err := a.Acquire(t.Context(), "handed over")
				if err != nil {
					t.Fatal(err)
				}

				for range 2 {
					got, failed := make(chan *sqllock.Lock, 1), make(chan error, 1)

					go func() {
						lock, err := b.Acquire(t.Context(), "handed over")
						failed <- err
						got <- lock
					}()

					untilWaiting(t, a, "handed over")

					released := time.Now()

					if err := lock.Release(t.Context()); err != nil {
						t.Errorf("Release() = %v, want nil", err)
					}

					if err := <-failed; err != nil {
						t.Fatalf("Acquire() = %v", err)
					}

					if took := time.Since(released); took > time.Minute {
						t.Errorf("the lock was free for %s before it was taken", took)
					}

					lock = <-got
					a, b = b, a
				}

				if err := lock.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}
			})
		}
	}
}

// untilWaiting waits until somebody is known to wait for a name.
func untilWaiting(t *testing.T, locker *sqllock.Locker, name string) {
	t.Helper()

	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // it looks again
		waiters, err := locker.Waiters(t.Context(), sqllock.WaiterFilter{Name: name})
		if err != nil {
			t.Fatal(err)
		}

		if len(waiters) > 0 {
			return
		}
	}

	t.Fatal("nobody waits")
}

// TestReleaseInAPreparedTransaction: a transaction that has notified cannot be prepared
// (https://www.postgresql.org/docs/current/sql-prepare-transaction.html).
func TestReleaseInAPreparedTransaction(t *testing.T) {
	t.Parallel()

	for _, strategy := range catalog.Leased() {
		for _, minHold := range []time.Duration{0, time.Millisecond} {
			t.Run(fmt.Sprintf("%s/a minimum hold of %s", strategy.Name, minHold), func(t *testing.T) {
				t.Parallel()

				pool := stdPool(t, postgresDatabase(t, postgresConfig(t)))

				said := false // something of notifications
				db := watched{postgres.NewStd(pool), func(s databases.Statement, _ databases.Values) {
					said = said || strings.Contains(s.SQL, "pg_notify")
				}}
				u := &untold{T: t, pool: pool, strategy: strategy.Make(db)}
				r := u.request(false)
				r.MinHold = minHold

				u.free("ReleaseTx()", r, func(g single.Grant, ctx context.Context) error {
					said = false
					if err := releasePrepared(ctx, pool, db, g); err != nil || said {
						return fmt.Errorf("it notifies: %t, %w", said, err)
					}

					return g.Release(ctx)
				})

				if !said {
					t.Error("nobody was told after the commit")
				}
			})
		}
	}
}

// releasePrepared releases a lock in a transaction that is committed in two phases, if the server has such.
func releasePrepared(ctx context.Context, pool *sql.DB, db watched, g single.Grant) error {
	var most int

	id := uniqueName()

	if err := pool.QueryRowContext(ctx, "SHOW max_prepared_transactions").Scan(&most); err != nil {
		return err
	}

	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}

	defer func() { _ = conn.Close() }()

	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}

	defer func() { _ = tx.Rollback() }() // which changes nothing any more

	if err := g.ReleaseTx(ctx, db.Tx(postgres.StdTx(tx)), 0); err != nil {
		return err
	}

	if most == 0 {
		err = tx.Commit()
	} else {
		_, err = tx.ExecContext(ctx, "PREPARE TRANSACTION '"+id+"'")
	}

	if err == nil && most != 0 {
		_, err = pool.ExecContext(ctx, "COMMIT PREPARED '"+id+"'")
	}

	return err
}
