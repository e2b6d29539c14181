package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
)

// recoverable are the servers that another one may take the place of, without the latest commits.
var recoverable = []string{"postgres", "mysql", "mariadb"}

// promote has a server find that it was another one that has taken the writes before.
func promote(t *testing.T, beside *sql.DB) {
	t.Helper()

	exec(t, beside, "UPDATE sqllock_recovery SET previous = '', server = 'the primary before'")
}

// endPause has a recovery pause that there is end so much later, by the database's clock.
func endPause(t *testing.T, beside *sql.DB, database string, in time.Duration) {
	t.Helper()

	query := "UPDATE sqllock_recovery SET paused_until = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + %d"
	if database == "postgres" {
		query = "UPDATE sqllock_recovery SET paused_until = clock_timestamp() + interval '%d microseconds'"
	}

	exec(t, beside, fmt.Sprintf(query, in.Microseconds()))
}

// endsWaiting acquires a name in the background, in a recovery pause, and fails unless it is granted when that has ended, which is soon.
func endsWaiting(t *testing.T, locker *sqllock.Locker, name string, beside *sql.DB, told <-chan sqllock.Event) *sqllock.Lock {
	t.Helper()

	const soon = 1500 * time.Millisecond

	got, err := (*sqllock.Lock)(nil), error(nil)

	var waiting sync.WaitGroup

	waiting.Go(func() { got, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(patience)) })

	select {
	case e := <-told:
		if e.Name != name || e.Held == nil || !e.Held.Recovering || e.Held.Remaining <= 0 || e.Held.Detail == "" || e.Held.At.IsZero() {
			t.Errorf("event %+v, %v, want why %q is not granted, and for how long", e, e.Held, name)
		}
	case <-time.After(patience):
		t.Errorf("the wait for %q was not told of the pause", name)
	}

	began := time.Now()

	endPause(t, beside, locker.Features().Database, soon)
	waiting.Wait()

	if err != nil {
		t.Fatal(err)
	}

	if waited := time.Since(began); waited < soon {
		t.Errorf("%q was granted %s before the end of the pause", name, soon-waited)
	}

	return got
}

// wantPause fails unless the pause is as long as a lease, after something that had it begin.
func wantPause(t *testing.T, locker *sqllock.Locker, since time.Time, lease time.Duration) {
	t.Helper()

	// The pause is counted from what the server found first, which was after that.
	st, err := locker.Recovery(t.Context())
	if whole := st.Remaining + time.Since(since); err != nil || whole < lease || st.Remaining > lease {
		t.Errorf("Recovery() = %+v, %v, want a pause of %s", st, err, lease)
	}
}

// eachRecoverable runs a case for each strategy on each of those servers.
func eachRecoverable(t *testing.T, of []catalog.Strategy, run func(t *testing.T, made func() strategies.Strategy, beside *sql.DB)) {
	t.Helper()

	for _, server := range recoverable {
		for _, strategy := range of {
			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				db, beside := databaseAndPool(t, server)
				run(t, func() strategies.Strategy { return strategy.Make(db) }, beside)
			})
		}
	}
}

// TestRecoveryPause: a server that has become the primary grants nothing until the longest lease is over, whatever is asked for. Who
// holds a lock that it knows goes on, who holds one that it does not know is told, and who waits is granted the lock afterwards.
func TestRecoveryPause(t *testing.T) {
	t.Parallel()

	// Nobody waits for its end.
	const lease = time.Minute

	eachRecoverable(t, catalog.All(), func(t *testing.T, made func() strategies.Strategy, beside *sql.DB) {
		told := make(chan sqllock.Event, 100)
		observer := sqllock.WithObserver(func(_ context.Context, e sqllock.Event) {
			if e.Kind == sqllock.Recovering {
				told <- e
			}
		})

		holder, other := lockerOn(t, made(), sqllock.WithLease(lease)), lockerOn(t, made(), sqllock.WithLease(lease), observer)

		held := acquire(t, holder, "held")
		lost := acquire(t, holder, "lost")

		features := made().Features()

		if err := acquire(t, holder, "ghost").Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		if features.ConnectionHeld {
			// Of a session that ended with the server before.
			exec(t, beside, "UPDATE sqllock_locks SET strategy = '"+features.Strategy+"' WHERE name = 'ghost'")
			exec(t, beside, "UPDATE "+map[bool]string{
				true: "sqllock_locks SET owner = 'gone', expires_at = now() + interval '1 hour'", false: "sqllock_leases SET owner = 'gone', expires_at = 9000000000000000",
			}[features.Database == "postgres"]+" WHERE name = 'ghost'")
		}

		exec(t, beside, lose(features.Database), "lost")
		promote(t, beside)

		promoted := time.Now()

		asked := map[string][]sqllock.LockOption{
			"free":    nil,
			"new":     {sqllock.WithNames("newer", "newest")},
			"lost":    nil,
			"permits": {sqllock.WithPermits(3)},
			"ghost":   nil,
		}

		if features.Strategy == "forupdate" {
			delete(asked, "new")  // one name at a time
			delete(asked, "lost") // here its session goes on
		}

		for name, options := range asked {
			_, err := other.TryAcquire(t.Context(), name, options...)

			refusal := new(sqllock.HeldError)
			if !errors.Is(err, sqllock.ErrRecovering) || errors.Is(err, sqllock.ErrNotAcquired) || !errors.As(err, &refusal) {
				t.Fatalf("TryAcquire(%q) = %v, want ErrRecovering", name, err)
			}

			if refusal.Remaining <= 0 || refusal.Remaining > lease {
				t.Errorf("TryAcquire(%q): %s remain, want as long as a lease: %v", name, refusal.Remaining, err)
			}
		}

		wantPause(t, other, promoted, lease)

		// What a session had may have ended with it: the server does not know.
		if _, err := other.TryAcquire(t.Context(), "held"); !errors.Is(err, sqllock.ErrNotAcquired) && !features.ConnectionHeld {
			t.Errorf("TryAcquire of a lock that is held = %v, want ErrNotAcquired", err)
		}

		if _, err := other.Acquire(t.Context(), "free", sqllock.WithMaxWait(2*time.Second)); !errors.Is(err, sqllock.ErrRecovering) || errors.Is(err, sqllock.ErrNotAcquired) {
			t.Errorf("a wait that ends in the pause = %v, want ErrRecovering", err)
		}

		if err := held.Extend(t.Context(), lease); err != nil {
			t.Errorf("renewal in the pause of a lock that the server knows of: %v", err)
		}

		if err := lost.Extend(t.Context(), lease); !errors.Is(err, sqllock.ErrLost) || lost.Err() == nil {
			t.Errorf("renewal of a lock whose grant is gone = %v, and then Err() = %v, want ErrLost", err, lost.Err())
		}

		// Whoever waits is told, once; a try is not.
		select {
		case e := <-told:
			if e.Name != "free" {
				t.Errorf("event %+v, want one of the wait for %q", e, "free")
			}
		default:
			t.Error("the wait that ended in the pause was not told of it")
		}

		got := endsWaiting(t, other, "lost", beside, told)

		if got.Token() <= lost.Token() {
			t.Errorf("token %d, want more than that of the lost lock, %d", got.Token(), lost.Token())
		}

		if err := held.Check(t.Context()); err != nil {
			t.Errorf("a lock that the server knows of: %v", err)
		}

		if len(told) > 0 {
			t.Errorf("another event: %+v", <-told)
		}
	})
}

// lose undoes the grant of a name, as if it had never come to the server.
func lose(database string) string {
	if database == "postgres" {
		return "UPDATE sqllock_locks SET owner = '', token = 1, expires_at = 'epoch' WHERE name = $1"
	}

	return "UPDATE sqllock_locks l JOIN sqllock_leases e ON e.name = l.name SET e.owner = '', l.token = 1, e.expires_at = 0 WHERE l.name = ?"
}

// TestExpiredInARecoveryPause: a lease that has expired is not renewed in the pause, in which what has ended it may be lost. It is
// renewed otherwise, if nobody else has the name.
func TestExpiredInARecoveryPause(t *testing.T) {
	t.Parallel()

	eachRecoverable(t, catalog.Leased(), func(t *testing.T, made func() strategies.Strategy, beside *sql.DB) {
		strategy, grants, another := made(), [2][3]single.Grant{}, single.Grant{}

		grant := func(r strategies.Request) single.Grant {
			r.Tokens = 1

			g, err := single.TryAcquire(t.Context(), strategy, r)
			if err != nil {
				t.Fatal(err)
			}

			return g
		}

		const brief = 500 * time.Millisecond

		for i, n := range []string{"before", "after"} {
			grants[i] = [3]single.Grant{
				grant(strategies.Request{Name: n + " joined", Owner: n, Mode: strategies.Shared, Lease: brief}),
				grant(strategies.Request{Name: n, Owner: n, Lease: brief}),
				grant(strategies.Request{Name: n + " read", Owner: n, Mode: strategies.Shared, Lease: brief}),
			}
			// The lease of the name's row runs as long as this reader's.
			another = grant(strategies.Request{Name: n + " joined", Owner: "another", Mode: strategies.Shared, Lease: time.Minute})
		}

		eventually(t, "the leases have expired", func() bool {
			for _, name := range []string{"before", "before read", "after", "after read"} {
				if status, _, err := strategy.Status(t.Context(), name); err != nil || status.Remaining > 0 {
					return false
				}
			}

			return true
		})

		for _, grant := range grants[0] {
			if err := grant.Renew(t.Context(), time.Minute); err != nil {
				t.Errorf("renewal before the fail-over: %v", err)
			}
		}

		promote(t, beside)

		if err := another.Renew(t.Context(), time.Minute); err != nil {
			t.Errorf("renewal of a reader's lease that runs in the pause: %v", err)
		}

		for _, all := range [][]strategies.Grant{
			{grants[1][0].Grant}, {grants[1][1].Grant}, {grants[1][2].Grant}, {grants[1][1].Grant, grants[0][1].Grant},
		} {
			for i, err := range strategy.Renew(t.Context(), all, time.Minute) {
				if runs := i == 1; runs != (err == nil) || !runs && !errors.Is(err, strategies.ErrLost) && !errors.Is(err, strategies.ErrNotBatched) {
					pause, failed := strategy.(strategies.Recoverer).Recovery(t.Context())
					t.Errorf("%d of %d, renewal of a lease that runs (%v) in the pause: %v, of phase %q; %+v, %v",
						i, len(all), runs, err, all[i].Phase, pause, failed)
				}
			}
		}
	})
}

// TestRecoveryTogether: many find a fail-over at once, each with a lease that is to be noted, in sessions that are isolated more strictly.
// Each is told of the pause, none of anything else, and what they noted is as long as the longest.
func TestRecoveryTogether(t *testing.T) {
	t.Parallel()

	const lockers = 8

	for _, server := range recoverable {
		for _, isolation := range []string{"repeatable read", "serializable"} {
			t.Run(server+"/"+isolation, func(t *testing.T) {
				t.Parallel()

				db, beside := isolated(t, server, isolation)

				all := make([]*sqllock.Locker, lockers)
				for i := range all {
					all[i] = lockerOn(t, cas.New(db), sqllock.WithLease(time.Minute))
				}

				kept := acquire(t, all[0], "kept")

				ask := func(what string, leases time.Duration, want error) {
					t.Helper()

					var asking sync.WaitGroup

					for i, locker := range all {
						asking.Go(func() {
							_, err := locker.TryAcquire(t.Context(), what+strconv.Itoa(i), sqllock.WithLease(leases+time.Duration(i)*time.Minute))
							if !errors.Is(err, want) {
								t.Errorf("%s: TryAcquire = %v, want %v", what, err, want)
							}
						})
					}

					asking.Wait()

					if st, err := all[0].Recovery(t.Context()); err != nil || st.Longest.Round(time.Second) != leases+(lockers-1)*time.Minute {
						t.Errorf("%s: Recovery = %+v, %v, want the longest lease of %d", what, st, err, lockers)
					}
				}

				ask("before", time.Minute, nil)
				promote(t, beside)
				ask("in the pause", time.Hour, sqllock.ErrRecovering)

				if err := errors.Join(kept.Extend(t.Context(), time.Minute), all[1].EndRecovery(t.Context(), "a test")); err != nil {
					t.Error(err)
				}

				ask("after its end", 2*time.Hour, nil)
			})
		}
	}
}

// TestRefusedTogether: of a batch that is refused it is asked once, and not of each name, whether nothing is granted.
func TestRefusedTogether(t *testing.T) {
	t.Parallel()

	for _, server := range recoverable {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, _ := databaseAndPool(t, server)
			faulty := sqllocktest.NewFaulty(db)
			s := cas.New(faulty)

			var (
				requests []strategies.Request
				waiters  []strategies.Waiter
			)

			for i := range 20 {
				name := fmt.Sprint("name", i)
				requests = append(requests, strategies.Request{Name: name, Owner: fmt.Sprintf("%032x", i), Lease: time.Minute})
				waiters = append(waiters, strategies.Waiter{Name: name, Process: "waits", ID: fmt.Sprint(i)})
			}

			grants, errs := s.Acquire(t.Context(), requests)
			_, released := s.Release(t.Context(), grants)

			// The names are free, and kept for those who wait.
			_, entered := s.Enqueue(t.Context(), waiters, time.Minute)
			if err := errors.Join(slices.Concat(errs, released, entered)...); err != nil {
				t.Fatal(err)
			}

			faulty.Reset()

			for i := range requests {
				requests[i].Owner = fmt.Sprintf("%032x", 100+i)
			}

			_, errs = s.Acquire(t.Context(), requests)
			for i, err := range errs {
				if held := new(strategies.HeldError); !errors.As(err, &held) || held.Recovering {
					t.Errorf("Acquire() of name %d = %v, want that it is kept for others", i, err)
				}
			}

			if n := faulty.Count("recovery.state"); n != 1 {
				t.Errorf("of %d names that were refused together it was asked %d times whether nothing is granted, want once", len(requests), n)
			}
		})
	}
}

// loweredAgo has it be so long, as "2 HOUR", since the longest promise was lowered.
func loweredAgo(t *testing.T, beside *sql.DB, database, ago string) {
	t.Helper()

	at := "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6) - INTERVAL " + ago + ")"
	if database == "postgres" {
		at = "clock_timestamp() - interval '" + ago + "'"
	}

	exec(t, beside, "UPDATE sqllock_recovery SET lowered_at = "+at)
}

// TestLongestPromise: a recovery pause is as long as the longest lease that there may be, which is noted before it is granted, and
// forgotten when there is none any more.
func TestLongestPromise(t *testing.T) {
	t.Parallel()

	eachRecoverable(t, catalog.Leased()[:1], func(t *testing.T, made func() strategies.Strategy, beside *sql.DB) {
		strategy := made()
		locker := lockerOn(t, strategy, sqllock.WithLease(2*time.Second))

		noted := func(want time.Duration) {
			t.Helper()

			st, err := locker.Recovery(t.Context())
			if err != nil || st.Longest.Round(time.Second) != want || st.LongestBy == "" {
				t.Errorf("the longest lease is %s, of %q (%v), want %s", st.Longest, st.LongestBy, err, want)
			}
		}

		short := acquire(t, locker, "short")
		noted(2 * time.Second)

		long := acquire(t, locker, "long", sqllock.WithLease(time.Minute), sqllock.WithLockDelay(time.Minute))
		noted(2 * time.Minute)

		if err := short.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}

		noted(time.Hour)

		reap := func(lowered string) {
			t.Helper()

			loweredAgo(t, beside, strategy.Features().Database, lowered)

			// Who looks for the first time, as every process does in the background.
			if _, _, err := made().ReapIdle(t.Context(), time.Hour, 1); err != nil {
				t.Fatal(err)
			}
		}

		reap("26 HOUR") // whoever grants for longer than allowed notes it, from now on
		noted(time.Hour)

		if err := short.Extend(t.Context(), time.Hour); err != nil {
			t.Errorf("renewal after the longest lease was set back: %v", err)
		}

		if err := errors.Join(short.Release(t.Context()), long.Release(t.Context())); err != nil {
			t.Fatal(err)
		}

		reap("66 MINUTE")
		noted(time.Hour)

		reap("26 HOUR")
		noted(time.Hour)

		// Nobody works under a lock that is kept for a while after its release.
		if err := acquire(t, locker, "kept", sqllock.WithMinHold(time.Hour)).Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		last := acquire(t, locker, "last")
		reap("59 MINUTE")
		noted(time.Hour)

		reap("66 MINUTE")
		noted(2 * time.Second)

		if err := last.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLockedRecovery: a transaction that has the row of recovery pauses locked keeps nobody from renewing nor from releasing. On MySQL and
// MariaDB nothing is granted while it lasts, and who tries is told why.
func TestLockedRecovery(t *testing.T) {
	t.Parallel()

	eachRecoverable(t, catalog.All(), func(t *testing.T, made func() strategies.Strategy, beside *sql.DB) {
		strategy := made()
		locker := lockerOn(t, strategy, sqllock.WithLease(time.Minute))

		kept := acquire(t, locker, "kept")

		renewed, errs := strategy.Acquire(t.Context(), []strategies.Request{
			{Name: "one", Owner: "one", Lease: time.Minute, Tokens: 1}, {Name: "another", Owner: "another", Lease: time.Minute, Tokens: 1},
		})
		if err := errors.Join(errs...); err != nil && strategy.Features().Several {
			t.Fatal(err)
		}

		if err := acquire(t, locker, "free").Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		exec(t, beside, "UPDATE sqllock_recovery SET longest_us = longest_us + 1") // which is to be forgotten

		tx, err := beside.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}

		defer func() { _ = tx.Rollback() }()

		if _, err := tx.ExecContext(t.Context(), "UPDATE sqllock_recovery SET reason = 'locked'"); err != nil {
			t.Fatal(err)
		}

		goesOn := []func() error{
			func() error { _, _, err := made().ReapIdle(t.Context(), time.Hour, 1); return err },
			func() error { return kept.Extend(t.Context(), time.Minute) },
			func() error { return kept.Release(t.Context()) },
		}

		if strategy.Features().Several {
			goesOn = append(goesOn, func() error { return errors.Join(strategy.Renew(t.Context(), renewed, time.Minute)...) })
		}

		ask := []func() error{
			func() error { _, err := locker.TryAcquire(t.Context(), "free"); return err },
			func() error { _, err := locker.TryAcquire(t.Context(), "new"); return err },
			func() error { _, err := locker.TryAcquire(t.Context(), "permits", sqllock.WithPermits(3)); return err },
			func() error {
				_, err := locker.TryAcquire(t.Context(), "longer", sqllock.WithLease(time.Hour))

				return err
			},
		}

		if strategy.Features().Shared {
			ask = append(ask, func() error { _, err := locker.TryAcquire(t.Context(), "read", sqllock.WithShared()); return err })
		}

		if strategy.Features().Strategy != "forupdate" {
			ask = append(ask, func() error {
				_, err := locker.TryAcquire(t.Context(), "several", sqllock.WithNames("free too"))

				return err
			})
		}

		longer := len(goesOn) + 3

		for i, ask := range slices.Concat(goesOn, ask) {
			began, wants := time.Now(), strategy.Features().Database == "postgres" && i != longer || i < len(goesOn)

			// The transaction goes on until all have returned: what succeeds has not waited for it.
			err := ask()
			if wants != (err == nil) || !wants && (!errors.Is(err, strategies.ErrBusy) || !strings.Contains(err.Error(), "sqllock_recovery")) {
				t.Errorf("call %d, while a transaction has the row: %v", i, err)
			}

			if took := time.Since(began); took > tryWithin {
				t.Errorf("call %d, while a transaction has the row, took %s", i, took)
			}
		}

		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}

		acquire(t, locker, "afterwards")
	})
}

// TestLostRepliesOfRecovery: what is noted of a fail-over may be noted once more, if the answer to it was lost.
func TestLostRepliesOfRecovery(t *testing.T) {
	t.Parallel()

	const lease = 30 * time.Second

	for _, server := range recoverable {
		for _, asynchronous := range []bool{false, true}[:1+strings.Count(server, "postgres")] {
			t.Run(fmt.Sprintf("%s/%v", server, asynchronous), func(t *testing.T) {
				t.Parallel()

				db, beside := databaseAndPool(t, server)
				faulty := sqllocktest.NewFaulty(db)
				locker := lockerOn(t, cas.New(faulty), sqllock.WithLease(lease), sqllock.WithTuning(sqllock.Tuning{AsynchronousCommit: asynchronous}))

				tries := func(when string, want error) {
					t.Helper()

					lock, err := locker.TryAcquire(t.Context(), "job")
					if err == nil {
						err = lock.Release(t.Context())
					}

					if !errors.Is(err, want) {
						t.Errorf("%s: %v, want %v", when, err, want)
					}
				}

				// A try asks once more after an answer that was lost.
				lose := func(statement string, want error) {
					t.Helper()
					faulty.Fail(statement, 1, sqllocktest.After, nil)

					before := faulty.Count(statement)
					tries("the answer to "+statement+" is lost", want)

					if faulty.Count(statement) == before {
						t.Errorf("%s was not sent", statement)
					}
				}

				lose("recovery.note", nil)

				if asynchronous {
					exec(t, beside, "DELETE FROM sqllock_run")
					lose("recovery.run", sqllock.ErrRecovering)

					if err := locker.EndRecovery(t.Context(), "test"); err != nil {
						t.Error(err)
					}

					tries("with a run that was noted twice", nil)
				}

				promote(t, beside)
				lose("recovery.note", sqllock.ErrRecovering)

				if st, err := locker.Recovery(t.Context()); err != nil || st.Remaining > lease || st.Previous != "the primary before" {
					t.Errorf("Recovery() = %+v, %v, want one pause", st, err)
				}

				faulty.Fail("recovery.end", 1, sqllocktest.After, nil)

				if err := locker.EndRecovery(t.Context(), "over"); !errors.Is(err, sqllock.ErrUnreachable) {
					t.Errorf("EndRecovery() whose answer is lost = %v, want ErrUnreachable", err)
				}

				if err := locker.EndRecovery(t.Context(), "over"); err != nil {
					t.Errorf("EndRecovery() once more = %v", err)
				}

				tries("after the end", nil)
				faulty.Fail("recovery.lossless", 1, sqllocktest.After, nil)

				if err := locker.SetLossless(t.Context(), true, "synchronous"); !errors.Is(err, sqllock.ErrUnreachable) {
					t.Errorf("SetLossless() whose answer is lost = %v, want ErrUnreachable", err)
				}

				if err := locker.SetLossless(t.Context(), true, "synchronous"); err != nil {
					t.Errorf("SetLossless() once more = %v", err)
				}

				if st, err := locker.Recovery(t.Context()); err != nil || !st.Lossless || st.Reason != "synchronous" {
					t.Errorf("Recovery() = %+v, %v, want that it is lossless, for the reason that was given", st, err)
				}
			})
		}
	}
}

// TestLostRepliesOfReaping: the longest lease may be lowered and forgotten once more, if the answer to that was lost.
func TestLostRepliesOfReaping(t *testing.T) {
	t.Parallel()

	for _, server := range recoverable {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, beside := databaseAndPool(t, server)
			faulty := sqllocktest.NewFaulty(db)
			locker := lockerOn(t, cas.New(db))

			hold := func(lease time.Duration) {
				t.Helper()

				if err := acquire(t, locker, "job", sqllock.WithLease(lease)).Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			// Each strategy looks when it removes idle names for the first time, as every process does in the background.
			reap := func() error {
				_, _, err := cas.New(faulty).ReapIdle(t.Context(), time.Hour, 1)

				return err
			}

			// Each step comes when the one before has long been made.
			twice := func(statement, since string, want time.Duration) {
				t.Helper()
				loweredAgo(t, beside, server, since)
				faulty.Fail(statement, 1, sqllocktest.After, nil)

				if err := reap(); !errors.Is(err, sqllock.ErrUnreachable) {
					t.Errorf("the answer to %s is lost: %v, want ErrUnreachable", statement, err)
				}

				if err := reap(); err != nil || faulty.Count(statement) < 2 {
					t.Errorf("once more: %v, and %s was sent %d times, want twice", err, statement, faulty.Count(statement))
				}

				st, err := locker.Recovery(t.Context())
				if err != nil || st.Longest != want {
					t.Errorf("after %s the longest lease is %s (%v), want %s", statement, st.Longest, err, want)
				}
			}

			hold(time.Hour)
			twice("recovery.lower", "26 HOUR", time.Hour)
			hold(2 * time.Second)
			twice("recovery.forget", "66 MINUTE", 2*time.Second)
		})
	}
}

// watchedGrants is a database that grants in a transaction, and has it looked before that commits.
type watchedGrants struct {
	databases.DB

	look func()
}

func (w watchedGrants) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := w.DB.Conn(ctx)

	return watchedConn{conn, w.look}, err
}

type watchedConn struct {
	databases.Conn

	look func()
}

func (w watchedConn) Run(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) (res databases.Result, err error) {
	if stmt.Name != "cas.acquire" {
		return w.Conn.Run(ctx, stmt, v, each)
	}

	if _, err = w.Conn.Run(ctx, databases.Statement{SQL: "BEGIN"}, nil, nil); err == nil {
		res, err = w.Conn.Run(ctx, stmt, v, each)
	}

	if err == nil && res.RowsAffected > 0 {
		w.look()
	}

	if err == nil {
		_, err = w.Conn.Run(ctx, databases.Statement{SQL: "COMMIT"}, nil, nil)
	}

	return res, err
}

// TestGrantsLockRecovery: whatever the isolation, an acquisition reads whether it may grant under a lock that it keeps until its commit.
// Whoever notes that another server has become the primary waits for it, or comes before it.
func TestGrantsLockRecovery(t *testing.T) {
	t.Parallel()

	for _, server := range recoverable[1:] {
		for _, isolation := range []string{"READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
			t.Run(server+"/"+isolation, func(t *testing.T) {
				t.Parallel()

				config := mysqlDatabase(t, mysqlConfig(t, server))
				beside := mysqlPool(t, config)
				config.Params = map[string]string{"transaction_isolation": "'" + isolation + "'"}

				looks := 0
				locker := lockerOn(t, cas.New(watchedGrants{mysql.New(mysqlPool(t, config)), func() {
					looks++

					var id int
					if err := beside.QueryRowContext(t.Context(), "SELECT id FROM sqllock_recovery FOR UPDATE NOWAIT").Scan(&id); err == nil {
						t.Error("while it is granted the row of recovery is not locked")
					}
				}}))

				for range 2 {
					if err := acquire(t, locker, "job").Release(t.Context()); err != nil {
						t.Fatal(err)
					}
				}

				if looks < 2 {
					t.Errorf("looked %d times, want twice", looks)
				}
			})
		}
	}
}

// TestServerIDOfASession: the server's id is compared, which a session of MariaDB keeps as it was, and may change for itself.
func TestServerIDOfASession(t *testing.T) {
	t.Parallel()

	config := mysqlDatabase(t, mysqlConfig(t, "mariadb"))
	other := config.Clone()
	other.Params = map[string]string{"server_id": "7777"}

	for _, config := range []*driver.Config{config, other} {
		locker := lockerOn(t, cas.New(mysql.New(mysqlPool(t, config))))
		if err := acquire(t, locker, "job").Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRecoveryEnds: an operator ends a pause, or says that there need be none; two servers that take writes by turns are refused.
func TestRecoveryEnds(t *testing.T) {
	t.Parallel()

	eachRecoverable(t, catalog.Leased()[:1], func(t *testing.T, made func() strategies.Strategy, beside *sql.DB) {
		locker := lockerOn(t, made(), sqllock.WithLease(time.Minute))

		tries := func(when string, want error) {
			t.Helper()

			lock, err := locker.TryAcquire(t.Context(), "job")
			if !errors.Is(err, want) {
				t.Errorf("%s: TryAcquire = %v, want %v", when, err, want)
			}

			if err == nil {
				if err := lock.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}

		tries("at first", nil)
		promote(t, beside)
		tries("after a fail-over", sqllock.ErrRecovering)

		if st, err := locker.Recovery(t.Context()); err != nil || st.Remaining < 50*time.Second || st.Remaining > time.Minute || st.Server != st.Noted {
			t.Errorf("Recovery() in the pause = %+v, %v, want a minute", st, err)
		}

		// Those behind the first in line are told the same.
		ended, waits := make(chan error, 1), lockerOn(t, made())

		go func() {
			lock, err := waits.Acquire(t.Context(), "job")
			if err == nil {
				err = lock.Release(t.Context())
			}

			ended <- err
		}()

		untilWaiting(t, locker, "job")
		tries("while another waits in the pause", sqllock.ErrRecovering)

		if _, err := locker.Acquire(t.Context(), "job", sqllock.WithMaxWait(500*time.Millisecond)); !errors.Is(err, sqllock.ErrRecovering) {
			t.Errorf("Acquire behind another one in the pause = %v, want ErrRecovering", err)
		}

		end := func(reason string) {
			t.Helper()

			if err := locker.EndRecovery(t.Context(), reason); err != nil {
				t.Errorf("EndRecovery() = %v", err)
			}

			if st, err := locker.Recovery(t.Context()); err != nil || st.Pause() != 0 {
				t.Errorf("Recovery() after its end = %+v, %v, want none", st, err)
			}

			tries("after its end", nil)
		}

		if err := locker.EndRecovery(t.Context(), "a switchover"); err != nil {
			t.Errorf("EndRecovery() = %v", err)
		}

		if err := <-ended; err != nil {
			t.Errorf("Acquire that waited in the pause = %v", err)
		}

		// Who has given up, or had its turn, leaves the line a moment later. Waiters does not list whose turn the last grant was.
		eventually(t, "nobody waits", func() bool {
			var left int

			err := beside.QueryRowContext(t.Context(), "SELECT count(*) FROM sqllock_queue WHERE name = 'job'").Scan(&left)

			return err == nil && left == 0
		})

		end("a switchover")
		end("twice")
		promote(t, beside)

		if st, err := locker.Recovery(t.Context()); err != nil || st.Pause() == 0 {
			t.Errorf("Recovery() before the pause = %+v, %v, want that it is pending", st, err)
		}

		end("before it began")

		promote(t, beside)
		tries("before it is said", sqllock.ErrRecovering)

		if err := locker.SetLossless(t.Context(), false, "or not \xff"); err != nil {
			t.Fatal(err)
		}

		if st, err := locker.Recovery(t.Context()); err != nil || !strings.Contains(st.Reason, "become the primary; or not ") {
			t.Errorf("Recovery = %+v, %v, want both reasons", st, err)
		}

		if err := locker.SetLossless(t.Context(), true, "the standby is synchronous"); err != nil {
			t.Fatal(err)
		}

		tries("in a pause that was over for it", nil)
		promote(t, beside)
		tries("where nothing is lost", nil)

		if st, err := locker.Recovery(t.Context()); err != nil || !st.Lossless || st.Reason != "the standby is synchronous" {
			t.Errorf("Recovery = %+v, %v", st, err)
		}

		if err := locker.SetLossless(t.Context(), false, "not any more"); err != nil {
			t.Fatal(err)
		}

		tries("where something is lost again", sqllock.ErrRecovering)

		back := func() {
			t.Helper()
			exec(t, beside, "UPDATE sqllock_recovery SET previous = server, server = 'the other one'")
		}

		end("before the switchover")
		back()
		tries("after a switchover", sqllock.ErrRecovering)
		back()
		tries("after a switchover was taken back", sqllock.ErrRecovering)
		back()
		tries("with servers that take turns", sqllock.ErrRecovering)
		back()
		tries("with servers that go on taking turns", sqllock.ErrUnsupported)
		end("one of them is gone")
	})
}

// acquire acquires a lock that ends with the test.
func acquire(t *testing.T, locker *sqllock.Locker, name string, options ...sqllock.LockOption) *sqllock.Lock {
	t.Helper()

	lock, err := locker.TryAcquire(t.Context(), name, options...)
	if err != nil {
		t.Fatal(err)
	}

	return lock
}

// TestAsynchronousCommit: what commits asynchronously is what may, and a crash of the server, which empties the table of its run, has a
// recovery pause also where no commit is lost by a fail-over.
func TestAsynchronousCommit(t *testing.T) {
	t.Parallel()

	asynchronous := sqllock.WithTuning(sqllock.Tuning{AsynchronousCommit: true})

	for _, strategy := range catalog.Leased() {
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			// Nobody waits for its end.
			const lease = time.Minute

			told := make(chan sqllock.Event, 100)
			observer := sqllock.WithObserver(func(_ context.Context, e sqllock.Event) {
				if e.Kind == sqllock.Recovering {
					told <- e
				}
			})

			db, beside := databaseAndPool(t, "postgres")
			made := strategy.Make(db)
			waits, locker := lockerOn(t, made, sqllock.WithLease(lease), observer), lockerOn(t, strategy.Make(db), sqllock.WithLease(lease), asynchronous)

			before := acquire(t, waits, "before")
			held := acquire(t, locker, "held")

			if err := before.Check(t.Context()); err != nil {
				t.Errorf("the first grant with asynchronous commit has ended another: %v", err)
			}

			if err := locker.SetLossless(t.Context(), true, "the standby is synchronous"); err != nil {
				t.Fatal(err)
			}

			crash := func(also, reason string) {
				t.Helper()
				exec(t, beside, "DELETE FROM sqllock_run; "+also)

				// A renewal may have noted the crash by now.
				if st, err := waits.Recovery(t.Context()); err != nil || st.Pause() == 0 {
					t.Errorf("Recovery after a crash = %+v, %v, want that there is a pause, or that one is pending", st, err)
				}

				for _, locker := range []*sqllock.Locker{waits, locker} {
					if _, err := locker.TryAcquire(t.Context(), "other"); !errors.Is(err, sqllock.ErrRecovering) || !strings.Contains(err.Error(), reason) {
						t.Errorf("TryAcquire after a crash = %v, want ErrRecovering: %s", err, reason)
					}

					// That is of fail-overs.
					if err := locker.SetLossless(t.Context(), true, "the standby is synchronous"); err != nil {
						t.Fatal(err)
					}
				}

				if _, err := locker.TryAcquire(t.Context(), "other"); !errors.Is(err, sqllock.ErrRecovering) {
					t.Errorf("TryAcquire after a crash = %v, want ErrRecovering", err)
				}
			}

			crashed := time.Now()
			crash("", "the server has crashed")
			wantPause(t, locker, crashed, lease)

			got := endsWaiting(t, waits, "other", beside, told)

			for _, lock := range []*sqllock.Lock{before, held, got} {
				if err := lock.Release(t.Context()); err != nil {
					t.Errorf("a lock that the server knows of: %v", err)
				}
			}

			// It is noted anew, and so is the next crash.
			if err := acquire(t, locker, "again").Release(t.Context()); err != nil {
				t.Fatal(err)
			}

			crash("UPDATE sqllock_recovery SET server = 'another'", "another server has become the primary")

			// Before its first use, and after it: a row of a logged table outlasts a crash.
			for _, before := range []string{"DELETE FROM sqllock_run; ALTER TABLE sqllock_run SET LOGGED", "ALTER TABLE sqllock_run SET LOGGED"} {
				exec(t, beside, before)

				if err := locker.EndRecovery(t.Context(), "it was a test"); err != nil {
					t.Fatal(err)
				}

				if _, err := locker.TryAcquire(t.Context(), "other"); !errors.Is(err, sqllock.ErrUnsupported) {
					t.Errorf("TryAcquire with a table that is logged = %v, want ErrUnsupported", err)
				}

				if err := acquire(t, waits, "other").Release(t.Context()); err != nil {
					t.Errorf("a lock that waits for the disk: %v", err)
				}

				exec(t, beside, "ALTER TABLE sqllock_run SET UNLOGGED")

				if err := acquire(t, locker, "again").Release(t.Context()); err != nil {
					t.Errorf("a lock with the table as it was made: %v", err)
				}
			}
		})
	}

	for server, strategy := range map[string][]catalog.Strategy{
		"postgres": catalog.ConnectionHeld(), "mysql": catalog.All(), "mariadb": catalog.All(), "sqlite": catalog.Leased(),
	} {
		for _, strategy := range strategy {
			t.Run("refused/"+server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				db, _ := databaseAndPool(t, server)

				_, err := sqllock.New(strategy.Make(db), asynchronous)
				if !errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), "AsynchronousCommit") {
					t.Errorf("New() = %v, want ErrUnsupported", err)
				}
			})
		}
	}
}

// TestAsynchronousSession: where nothing waits for the disk, what has to does not.
func TestAsynchronousSession(t *testing.T) {
	t.Parallel()

	config := postgresDatabase(t, postgresConfig(t))
	off := config.Copy()
	off.RuntimeParams["synchronous_commit"] = "off"

	for _, strategy := range catalog.Leased() {
		for when, lease := range map[string]time.Duration{"first": 10 * time.Second, "raised": time.Minute} {
			for _, options := range [][]sqllock.LockOption{nil, {sqllock.WithMinHold(time.Second)}} {
				locker := lockerOn(t, strategy.Make(postgres.NewStd(stdPool(t, off))), sqllock.WithLease(lease),
					sqllock.WithTuning(sqllock.Tuning{AsynchronousCommit: true}))

				if _, err := locker.TryAcquire(t.Context(), "job", options...); !errors.Is(err, sqllock.ErrUnsupported) ||
					!strings.Contains(err.Error(), "synchronous_commit is off") {
					t.Errorf("%s, %s, with %d options: TryAcquire = %v, want ErrUnsupported", strategy.Name, when, len(options), err)
				}
			}

			on := lockerOn(t, strategy.Make(postgres.NewStd(stdPool(t, config))), sqllock.WithTuning(sqllock.Tuning{AsynchronousCommit: true}))
			if err := acquire(t, on, "job").Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCommitsThatWait: a trigger notes how each change of a lock commits.
func TestCommitsThatWait(t *testing.T) {
	t.Parallel()

	for _, strategy := range catalog.Leased() {
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			db, beside := databaseAndPool(t, "postgres")

			exec(t, beside, `CREATE TABLE noted (what text, how text);
				CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					INSERT INTO noted SELECT NEW.name, current_setting('synchronous_commit'); RETURN NULL; END $$;
				CREATE TRIGGER note AFTER UPDATE OF expires_at ON sqllock_locks FOR EACH ROW WHEN (NEW.expires_at > 'epoch') EXECUTE FUNCTION note();
				CREATE TRIGGER note AFTER INSERT OR UPDATE ON sqllock_shares FOR EACH ROW EXECUTE FUNCTION note()`)

			made := strategy.Make(db)

			commits := func(what, want string, requests ...strategies.Request) {
				t.Helper()

				for i := range requests {
					requests[i].Owner, requests[i].Lease, requests[i].Tokens = strconv.Itoa(i)+what, time.Minute, max(1, requests[i].Tokens)
				}

				exec(t, beside, "TRUNCATE noted")

				granted, errs := made.Acquire(t.Context(), requests)
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("%s: %v", what, err)
				}

				if err := errors.Join(made.Renew(t.Context(), granted, 2*time.Minute)...); err != nil {
					t.Fatalf("%s: %v", what, err)
				}

				var all string
				if err := beside.QueryRowContext(t.Context(), "SELECT string_agg(how, ' ') FROM noted").Scan(&all); err != nil {
					t.Fatal(err)
				}

				if all != want {
					t.Errorf("%s: the commits of the grants and of their renewals are %q, want %q", what, all, want)
				}
			}

			exec(t, beside, `INSERT INTO sqllock_locks (name, acquired_at, token) VALUES ('ahead', now(), 9000000000000000),
				('ahead too', now(), 9000000000000000), ('beside', now(), 1)`)

			commits("by default", "on on", strategies.Request{Name: "default"})
			commits("asynchronous", "off off", strategies.Request{Name: "a", AsynchronousCommit: true})
			commits("with a token ahead of the clock", "on off", strategies.Request{Name: "ahead", AsynchronousCommit: true})
			commits("as a reader", "off off off off", strategies.Request{Name: "b", AsynchronousCommit: true, Mode: strategies.Shared})
			commits("with a minimum hold", "on on", strategies.Request{Name: "c", AsynchronousCommit: true, MinHold: time.Second})
			commits("several", "off off off off",
				strategies.Request{Name: "d", AsynchronousCommit: true}, strategies.Request{Name: "e", AsynchronousCommit: true})
			commits("several, not all", "on on on on",
				strategies.Request{Name: "f", AsynchronousCommit: true}, strategies.Request{Name: "g"})
			commits("several, one with a token ahead of the clock", "on on off off",
				strategies.Request{Name: "beside", AsynchronousCommit: true}, strategies.Request{Name: "ahead too", AsynchronousCommit: true})
		})
	}
}

// TestClaimInARecoveryPause: no claim is adopted in a pause, in which somebody may have adopted it already, and all are good after it.
func TestClaimInARecoveryPause(t *testing.T) {
	t.Parallel()

	eachRecoverable(t, catalog.Leased(), func(t *testing.T, made func() strategies.Strategy, beside *sql.DB) {
		holder, other := lockerOn(t, made()), lockerOn(t, made())

		claim, err := acquire(t, holder, "detached").Detach(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}

		held := acquire(t, holder, "held")

		promote(t, beside)

		if _, err := other.Adopt(t.Context(), claim); !errors.Is(err, sqllock.ErrRecovering) {
			t.Errorf("Adopt() in a pause = %v, want ErrRecovering", err)
		}

		if err := other.CheckClaim(t.Context(), claim); err != nil {
			t.Errorf("CheckClaim() in a pause = %v, want nil", err)
		}

		if _, err := held.Detach(t.Context(), time.Minute); !errors.Is(err, sqllock.ErrRecovering) {
			t.Errorf("Detach() in a pause = %v, want ErrRecovering", err)
		}

		if err := other.EndRecovery(t.Context(), "a test"); err != nil {
			t.Fatal(err)
		}

		adopted, err := other.Adopt(t.Context(), claim)
		if err != nil || adopted.Token() != claim.Token() {
			t.Fatalf("Adopt() after the pause = %v, want token %d", err, claim.Token())
		}

		if err := adopted.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v", err)
		}
	})
}
