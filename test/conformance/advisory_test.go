package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
)

// advisoryOn returns the strategy on a database of its own, what its connections are under, and a pool beside.
func advisoryOn(t *testing.T) (*advisory.Strategy, *sqllocktest.Faulty, *sql.DB) {
	t.Helper()

	config := postgresDatabase(t, postgresConfig(t))
	faulty := sqllocktest.NewFaulty(postgres.NewStd(stdPool(t, config)))

	return advisory.New(faulty), faulty, stdPool(t, config)
}

// keys is how many advisory locks there are.
func keys(t *testing.T, db *sql.DB) (n int) {
	t.Helper()

	err := db.QueryRowContext(t.Context(), `SELECT pg_catalog.count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// TestSmallPoolIsSpared: a program that may have few connections is not made to wait for one that has no lock.
func TestSmallPoolIsSpared(t *testing.T) {
	t.Parallel()

	pool := stdPool(t, postgresDatabase(t, postgresConfig(t)))
	pool.SetMaxOpenConns(2)

	lock, err := lockerOn(t, advisory.New(postgres.NewStd(pool))).Acquire(t.Context(), "small")
	if err == nil {
		err = lock.Release(t.Context())
	}

	if err != nil {
		t.Fatal(err)
	}

	if used := pool.Stats().InUse; used != 0 {
		t.Errorf("after Release() %d of 2 connections are in use, want none", used)
	}
}

// TestKeptSession: a session without locks is kept for a while. One that the server has ended meanwhile is no error, and
// Close gives it back, as time does.
func TestKeptSession(t *testing.T) {
	t.Parallel()

	strategy, faulty, db := advisoryOn(t)
	locker := lockerOn(t, strategy)

	pair := func(what string) {
		t.Helper()

		lock, err := locker.TryAcquire(t.Context(), "kept")
		if err == nil {
			err = lock.Release(t.Context())
		}

		if err != nil {
			t.Fatalf("%s: %v, want the lock", what, err)
		}
	}

	// Not a try: on a busy machine the first session takes longer to open than that may last.
	first, err := locker.Acquire(t.Context(), "kept")
	if err == nil {
		err = first.Release(t.Context())
	}

	if err != nil {
		t.Fatal(err)
	}

	if n := faulty.Leaks(); n != 1 {
		t.Errorf("after the release %d connections are kept, want 1", n)
	}

	before := faulty.Count("namespace")

	pair("on the kept session")

	if n := faulty.Count("namespace"); n != before {
		t.Error("the second lock has opened another session")
	}

	var ended int

	err = db.QueryRowContext(t.Context(), `SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
		WHERE application_name = 'sqllock advisory' AND datname = current_database()`).Scan(&ended)
	if err != nil || ended != 1 {
		t.Fatalf("ended %d sessions, %v, want the kept one", ended, err)
	}

	pair("after the session was ended")

	for deadline := time.Now().Add(10 * time.Second); faulty.Leaks() > 0; <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("10 s after its last lock the connection is not given back")
		}
	}

	pair("after it was given back")

	if err := locker.Close(t.Context()); err != nil || faulty.Leaks() > 0 {
		t.Errorf("Close() = %v, and %d connections are kept, want none", err, faulty.Leaks())
	}
}

// TestKeptSessionsLimit: a session that is kept does not let a lock outlive its own lease for that of an earlier one.
func TestKeptSessionsLimit(t *testing.T) {
	t.Parallel()

	strategy, faulty, _ := advisoryOn(t)
	locker := lockerOn(t, strategy)

	for _, c := range []struct {
		lease  time.Duration
		limits int
	}{{time.Hour, 1}, {time.Minute, 2}, {time.Minute, 2}} {
		lock, err := locker.TryAcquire(t.Context(), "limited", sqllock.WithLease(c.lease))
		if err != nil {
			t.Fatal(err)
		}

		if n := faulty.Count("limit"); n != c.limits {
			t.Errorf("with a lease of %s the limit was set %d times, want %d", c.lease, n, c.limits)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// conflict is what PostgreSQL answers above READ COMMITTED, and at a commit.
type conflict struct{}

func (conflict) Error() string    { return "could not serialize access" }
func (conflict) SQLState() string { return "40001" }

// TestRefusedWithTheKey: an error does not give back the key that its statement has locked, or has not to give back.
func TestRefusedWithTheKey(t *testing.T) {
	t.Parallel()

	strategy, faulty, db := advisoryOn(t)
	request := func(name, owner string) strategies.Request {
		return strategies.Request{Name: name, Owner: owner, Lease: time.Minute}
	}

	beside, err := single.TryAcquire(t.Context(), strategy, request("beside", "beside"))
	if err != nil {
		t.Fatal(err)
	}

	faulty.Fail("advisory.acquire", 1, sqllocktest.After, conflict{})

	if _, err := single.TryAcquire(t.Context(), strategy, request("refused", "first")); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("TryAcquire() that was refused = %v, want ErrNotAcquired", err)
	}

	if n := keys(t, db); n != 1 {
		t.Errorf("after an acquisition that was refused there are %d keys, want that of the other lock", n)
	}

	faulty.Fail("advisory.acquire-all", 1, sqllocktest.After, conflict{})

	_, errs := strategy.Acquire(t.Context(), []strategies.Request{request("a", "a"), request("b", "b")})
	if n := keys(t, db); n != 1 || errs[0] == nil || errs[1] == nil {
		t.Errorf("after acquisitions that were refused, %v, there are %d keys, want that of the other lock", errs, n)
	}

	second, err := single.TryAcquire(t.Context(), strategy, request("second", "second"))
	if err != nil {
		t.Fatal(err)
	}

	faulty.Fail("advisory.release", 1, sqllocktest.After, conflict{})

	if err := second.Release(t.Context()); err != nil {
		t.Errorf("Release() that was refused when it was done = %v, want nil", err)
	}

	third, err := single.TryAcquire(t.Context(), strategy, request("third", "third"))
	if err != nil {
		t.Fatal(err)
	}

	faulty.Fail("advisory.release-all", 1, sqllocktest.After, conflict{})

	if err := errors.Join(beside.Check(t.Context()), releaseTogether(t.Context(), strategy, beside, third)); err != nil {
		t.Errorf("Check() and Release() of the other locks = %v, want nil", err)
	}

	if n := keys(t, db); n != 0 {
		t.Errorf("after the releases there are %d keys", n)
	}
}

// releaseTogether releases in one statement what it can, and then the others alone, as the core does.
func releaseTogether(ctx context.Context, strategy strategies.Strategy, held ...single.Grant) error {
	grants := make([]strategies.Grant, len(held))
	for i, g := range held {
		grants[i] = g.Grant
	}

	_, errs := strategy.Release(ctx, grants)
	for i, err := range errs {
		if errors.Is(err, strategies.ErrNotBatched) {
			errs[i] = held[i].Release(ctx)
		}
	}

	return errors.Join(errs...)
}

// TestBrokenInABatch: a session that breaks while a batch makes rows brings nothing, and is not used any more.
func TestBrokenInABatch(t *testing.T) {
	t.Parallel()

	strategy, faulty, db := advisoryOn(t)
	request := func(name string) strategies.Request {
		return strategies.Request{Name: name, Owner: name, Lease: time.Minute}
	}

	there, err := single.TryAcquire(t.Context(), strategy, request("there"))
	if err != nil {
		t.Fatal(err)
	}

	if err := there.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	strategy.Close(t.Context()) // what breaks on a session that was kept is tried again on another

	faulty.Fail("create", 1, sqllocktest.Before, nil)

	made, errs := strategy.Acquire(t.Context(), []strategies.Request{request("there"), request("new"), request("newer")})

	for i, err := range errs {
		if err == nil || !made[i].None() {
			t.Errorf("attempt %d of a session that broke = %v, %v, want an error", i, made[i], err)
		}
	}

	if n := faulty.Leaks(); n != 0 {
		t.Errorf("%d connections are left of a session that broke", n)
	}

	for deadline := time.Now().Add(10 * time.Second); keys(t, db) > 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("10 s after the session broke there are keys")
		}
	}
}

// TestSameOwnersLease: an owner who asks again has the lease that it asks for, on the session and in the row.
func TestSameOwnersLease(t *testing.T) {
	t.Parallel()

	strategy, _, db := advisoryOn(t)
	request := strategies.Request{Name: "again", Owner: "owner", Lease: time.Minute}

	first, err := single.TryAcquire(t.Context(), strategy, request)
	if err != nil {
		t.Fatal(err)
	}

	request.Lease = time.Hour

	second, err := single.TryAcquire(t.Context(), strategy, request)
	if err != nil || second.Token != first.Token {
		t.Fatalf("TryAcquire() of who has it = %v, want its grant", err)
	}

	var whole bool

	err = db.QueryRowContext(t.Context(), `SELECT expires_at > pg_catalog.clock_timestamp() + interval '50 minutes'
		FROM sqllock_locks WHERE name = 'again'`).Scan(&whole)
	if err != nil || !whole {
		t.Errorf("the lease is an hour: %t, %v, want that", whole, err)
	}

	if err := second.Release(t.Context()); err != nil || keys(t, db) != 0 {
		t.Errorf("Release() = %v, and there are %d keys, want none", err, keys(t, db))
	}
}

// TestSessionIsKeptForAWhile when the last lock on it has ended, or until Close.
func TestSessionIsKeptForAWhile(t *testing.T) {
	t.Parallel()

	strategy, faulty, _ := advisoryOn(t)

	for _, closes := range []bool{true, false} {
		lock, err := single.TryAcquire(t.Context(), strategy, strategies.Request{Name: "kept", Owner: "owner", Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}

		strategy.Close(t.Context())

		if err := errors.Join(lock.Check(t.Context()), lock.Release(t.Context())); err != nil {
			t.Errorf("Check() after Close(), and Release() = %v, want nil", err)
		}

		if n := faulty.Leaks(); n != 1 {
			t.Errorf("after the last lock has ended %d connections are in use, want one", n)
		}

		if closes {
			strategy.Close(t.Context())
		} else {
			eventually(t, "the session is given back", func() bool { return faulty.Leaks() == 0 })
		}

		if n := faulty.Leaks(); n != 0 {
			t.Errorf("%d connections are in use, want none", n)
		}
	}
}

// TestKeptSessionSent: an attempt that was sent on a kept session is not said to be unsent because there is no other.
func TestKeptSessionSent(t *testing.T) {
	t.Parallel()

	strategy, faulty, _ := advisoryOn(t)

	request := strategies.Request{Name: "sent", Owner: "first", Lease: time.Minute}

	first, err := single.TryAcquire(t.Context(), strategy, request)
	if err != nil {
		t.Fatal(err)
	}

	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	request.Owner = "second"

	faulty.Fail("advisory.acquire", 1, sqllocktest.After, nil)
	faulty.Full(1)

	if _, err := single.TryAcquire(t.Context(), strategy, request); err == nil || errors.Is(err, strategies.ErrNotSent) {
		t.Errorf("TryAcquire() whose answer was lost = %v, want an error that is not ErrNotSent", err)
	}
}

// TestSilentSession: the session grants a lock, and its answer never comes. Nobody of the process can use the session until it is
// given up: after the time of an attempt, or when a lock on it is lost in any case. Then the name is free.
func TestSilentSession(t *testing.T) {
	t.Parallel()

	const held = strategies.AttemptTime + 3*time.Second

	for server, open := range freshPools(t) {
		for what, most := range map[string]time.Duration{"without a lock": strategies.AttemptTime, "beside a lock": held} {
			faulty := sqllocktest.NewFaulty(open(t))
			strategy, other := advisory.New(faulty), advisory.New(open(t))

			t.Run(server+"/"+what, func(t *testing.T) {
				t.Parallel()

				try := func(s strategies.Strategy, name string, lease time.Duration) (single.Grant, error) {
					return single.TryAcquire(t.Context(), s, strategies.Request{Name: name, Owner: uniqueName(), Lease: lease})
				}

				name, beside := uniqueName(), uniqueName()

				grant, err := try(strategy, beside, held)
				if err == nil && most != held {
					err = grant.Release(t.Context())
				}

				if err != nil {
					t.Fatal(err)
				}

				faulty.Pause("advisory.acquire", sqllocktest.After)

				began := time.Now()
				if _, err := try(strategy, name, time.Minute); err == nil {
					t.Error("TryAcquire() without an answer = nil")
				}

				if took := time.Since(began); took > most+2*time.Second {
					t.Errorf("TryAcquire() without an answer took %s, want %s", took, most)
				}

				faulty.Reset()

				if most == held {
					if err := grant.Renew(t.Context(), held); !errors.Is(err, sqllock.ErrLost) {
						t.Errorf("Renew() of the lock on the session that was given up = %v, want ErrLost", err)
					}
				}

				for _, s := range []strategies.Strategy{other, strategy} {
					eventually(t, "a name of the session that was given up is free", func() bool {
						next, err := try(s, name, held)
						if err == nil {
							err = next.Release(t.Context())
						}

						return err == nil
					})
				}
			})
		}
	}
}
