package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
	"github.com/sqllock/sqllock/test/schema"
)

// functionsDatabase is a database of PostgreSQL with the functions for other languages.
func functionsDatabase(t *testing.T) (databases.DB, caller) {
	t.Helper()

	config := postgresDatabase(t, postgresConfig(t))
	pool := stdPool(t, config)

	// They look for nothing in the schemas of their caller.
	config = pastProxy(t, config).Copy()
	config.RuntimeParams["search_path"] = "pg_catalog"
	config.RuntimeParams["application_name"] = "another language"

	if err := schema.Functions(t.Context(), pool); err != nil {
		t.Fatal(err)
	}

	return postgres.NewStd(pool), caller{stdPool(t, config), pool}
}

// caller is a program without the library. It finds the functions by their schema; beside has the tables.
type caller struct{ db, beside *sql.DB }

func (c caller) acquire(ctx context.Context, name, owner string, lease time.Duration) (token int64, err error) {
	err = c.db.QueryRowContext(ctx, "SELECT coalesce(public.sqllock_acquire($1, $2, $3::interval), 0)", name, owner, lease.String()).Scan(&token)

	return token, err
}

func (c caller) renew(ctx context.Context, name, owner string, lease time.Duration) (ok bool, err error) {
	err = c.db.QueryRowContext(ctx, "SELECT public.sqllock_renew($1, $2, $3::interval)", name, owner, lease.String()).Scan(&ok)

	return ok, err
}

func (c caller) release(ctx context.Context, name, owner string) (ok bool, err error) {
	err = c.db.QueryRowContext(ctx, "SELECT public.sqllock_release($1, $2)", name, owner).Scan(&ok)

	return ok, err
}

// guard is what a transaction does first that writes under the lock.
func guard(t *testing.T, tx *sql.Tx, name, owner string, token int64) error {
	t.Helper()

	_, err := tx.ExecContext(t.Context(), "SELECT public.sqllock_guard($1, $2, $3)", name, owner, token)

	return err
}

// anOwner is the owner of one acquisition.
func anOwner() string { return "owner-" + uniqueName() }

func mustAcquire(t *testing.T, c caller, name, owner string, lease time.Duration) int64 {
	t.Helper()

	token, err := c.acquire(t.Context(), name, owner, lease)
	if err != nil || token == 0 {
		t.Fatalf("sqllock_acquire(%q) = %d, %v; want a token", name, token, err)
	}

	return token
}

func mustNotAcquire(t *testing.T, c caller, name string) {
	t.Helper()

	if token, err := c.acquire(t.Context(), name, anOwner(), time.Minute); err != nil || token != 0 {
		t.Errorf("sqllock_acquire(%q) of a name that is taken = %d, %v; want NULL", name, token, err)
	}
}

func wantOK(t *testing.T, what string, got bool, err error, want bool) {
	t.Helper()

	if err != nil || got != want {
		t.Errorf("%s = %t, %v; want %t", what, got, err, want)
	}
}

// TestFunctions: the functions of PostgreSQL grant, renew and release by the rows that the library goes by.
func TestFunctions(t *testing.T) {
	t.Parallel()

	db, c := functionsDatabase(t)
	locker := lockerOn(t, cas.New(db))

	for name, check := range map[string]func(*testing.T, *sqllock.Locker, caller){
		"a grant from the first to the last": functionsGrant,
		"a lease that has expired":           functionsExpired,
		"a guard":                            functionsGuard,
		"the line":                           functionsLine,
		"a row that was removed":             functionsFloor,
		"a table that is locked":             functionsTable,
		"bad input":                          functionsBadInput,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, locker, c)
		})
	}
}

func functionsGrant(t *testing.T, locker *sqllock.Locker, c caller) {
	t.Helper()

	ctx, name, owner := t.Context(), uniqueName(), anOwner()
	first := mustAcquire(t, c, name, owner, time.Minute)

	if again := mustAcquire(t, c, name, owner, time.Minute); again != first {
		t.Errorf("the same owner's token = %d, want %d as before", again, first)
	}

	mustNotAcquire(t, c, name)

	held := new(sqllock.HeldError)
	if _, err := locker.TryAcquire(ctx, name); !errors.As(err, &held) || held.Holder.Label != "another language" {
		t.Errorf("TryAcquire() = %v, want an error that names application_name", err)
	}

	st, err := locker.Inspect(ctx, name)
	if err != nil || st.Token != first || st.Strategy != "cas" || st.Remaining < 50*time.Second {
		t.Errorf("Inspect() = %+v, %v; want token %d", st, err, first)
	}

	ok, err := c.renew(ctx, name, owner, time.Hour)
	wantOK(t, "sqllock_renew()", ok, err, true)

	if st, err := locker.Inspect(ctx, name); err != nil || st.Remaining < 50*time.Minute {
		t.Errorf("Inspect() after sqllock_renew() = %+v, %v; want an hour", st, err)
	}

	ok, err = c.renew(ctx, name, owner, time.Minute)
	wantOK(t, "sqllock_renew() for less", ok, err, true)

	if st, err := locker.Inspect(ctx, name); err != nil || st.Remaining < 50*time.Minute {
		t.Errorf("Inspect() after sqllock_renew() for less = %+v, %v; want an hour still", st, err)
	}

	ok, err = c.release(ctx, name, anOwner())
	wantOK(t, "sqllock_release() by another owner", ok, err, false)

	ok, err = c.release(ctx, name, owner)
	wantOK(t, "sqllock_release()", ok, err, true)

	ok, err = c.release(ctx, name, owner)
	wantOK(t, "sqllock_release() once more", ok, err, false)

	ok, err = c.renew(ctx, name, owner, time.Minute)
	wantOK(t, "sqllock_renew() after the release", ok, err, false)

	lock, err := locker.TryAcquire(ctx, name)
	if err != nil || lock.Token() <= first {
		t.Fatalf("TryAcquire() after the release = %v, %v; want a token above %d", lock, err, first)
	}

	mustNotAcquire(t, c, name)

	if err := lock.Release(ctx); err != nil {
		t.Fatal(err)
	}

	if token := mustAcquire(t, c, name, anOwner(), time.Minute); token <= lock.Token() {
		t.Errorf("sqllock_acquire() = %d, want a token above %d", token, lock.Token())
	}

	if st, err = locker.Inspect(ctx, name); err != nil {
		t.Fatal(err)
	}

	if err := locker.ForceRelease(ctx, st, "a test"); err != nil {
		t.Errorf("ForceRelease() = %v", err)
	}

	ok, err = c.renew(ctx, name, st.Owner, time.Minute)
	wantOK(t, "sqllock_renew() after ForceRelease", ok, err, false)
}

func functionsExpired(t *testing.T, locker *sqllock.Locker, c caller) {
	t.Helper()

	ctx, name, owner := t.Context(), uniqueName(), anOwner()
	first := mustAcquire(t, c, name, owner, 100*time.Millisecond)

	lock, err := locker.Acquire(ctx, name)
	if err != nil || lock.Token() <= first {
		t.Fatalf("Acquire() behind a lease that ends = %v, %v; want a token above %d", lock, err, first)
	}

	ok, err := c.renew(ctx, name, owner, time.Minute)
	wantOK(t, "sqllock_renew() of a lock that somebody else has", ok, err, false)

	ok, err = c.release(ctx, name, owner)
	wantOK(t, "sqllock_release() of a lock that somebody else has", ok, err, false)

	if err := lock.Release(ctx); err != nil {
		t.Fatal(err)
	}

	// What a lock delay keeps is not free.
	delayed, err := locker.Acquire(ctx, name, sqllock.WithLockDelay(time.Hour), sqllock.WithLease(100*time.Millisecond), sqllock.WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}

	<-delayed.Context().Done()
	mustNotAcquire(t, c, name)
}

func functionsGuard(t *testing.T, locker *sqllock.Locker, c caller) {
	t.Helper()

	ctx, name, owner := t.Context(), uniqueName(), anOwner()
	token := mustAcquire(t, c, name, owner, 100*time.Millisecond)

	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it is over by then, unless the test is

	if err := guard(t, tx, name, owner, token); err != nil {
		t.Fatalf("sqllock_guard() = %v", err)
	}

	// The lease ends, and still nobody is granted the name before the transaction ends.
	eventually(t, "the lease has ended", func() bool {
		st, err := locker.Inspect(ctx, name)

		return err == nil && st.Remaining == 0
	})
	mustNotAcquire(t, c, name)

	if _, err := locker.TryAcquire(ctx, name); !errors.Is(err, sqllock.ErrUnreachable) {
		t.Errorf("TryAcquire() of a name that is guarded = %v", err)
	}

	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}

	mustAcquire(t, c, name, anOwner(), time.Minute)

	late, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Rollback() //nolint:errcheck // it has failed

	if err := guard(t, late, name, owner, token); !refusedWith(err, "55000") {
		t.Errorf("sqllock_guard() of who has lost the lock = %v", err)
	}
}

// refusedWith says whether the functions refused with that code.
func refusedWith(err error, code string) bool {
	return isCode(err, code) && strings.Contains(err.Error(), "sqllock: ")
}

func isCode(err error, code string) bool {
	refused := new(pgconn.PgError)

	return errors.As(err, &refused) && refused.Code == code
}

func functionsLine(t *testing.T, locker *sqllock.Locker, c caller) {
	t.Helper()

	ctx, name, owner := t.Context(), uniqueName(), anOwner()
	mustAcquire(t, c, name, owner, time.Minute)

	var waiting sync.WaitGroup
	defer waiting.Wait()

	got := make(chan *sqllock.Lock, 1)

	waiting.Go(func() {
		lock, err := locker.Acquire(ctx, name)
		if err != nil {
			t.Errorf("Acquire() = %v", err)
		}

		got <- lock
	})

	eventually(t, "somebody is in line", func() bool {
		waiters, err := locker.Waiters(ctx, sqllock.WaiterFilter{Name: name})

		return err == nil && len(waiters) == 1
	})

	// The one in line is told, and is the first.
	exec(t, c.beside, "UPDATE sqllock_locks SET expires_at = 'epoch' WHERE name = $1", name)
	mustNotAcquire(t, c, name)
	exec(t, c.beside, "UPDATE sqllock_locks SET expires_at = pg_catalog.clock_timestamp() + interval '1 hour' WHERE name = $1 AND owner = $2", name, owner)

	released := time.Now()

	ok, err := c.release(ctx, name, owner)
	if err != nil {
		t.Error(err)
	}

	lock := <-got
	if lock == nil {
		return
	}

	if took := time.Since(released); ok && took > time.Second {
		t.Errorf("who waits was granted the name after %s, want at once", took)
	}

	if err := lock.Release(ctx); err != nil {
		t.Fatal(err)
	}

	// Whoever was in line has left. What the row says of that is not believed for ever.
	exec(t, c.beside, "UPDATE sqllock_locks SET waiting = 12345 WHERE name = $1", name)
	mustAcquire(t, c, name, anOwner(), time.Minute)

	var left int64
	if err := c.beside.QueryRowContext(ctx, "SELECT waiting FROM sqllock_locks WHERE name = $1", name).Scan(&left); err != nil || left != 0 {
		t.Errorf("the row says that %d waits, %v; want nobody", left, err)
	}
}

// functionsFloor: tokens go on growing when the row of a name was removed.
func functionsFloor(t *testing.T, locker *sqllock.Locker, c caller) {
	t.Helper()

	name, owner := uniqueName(), anOwner()
	mustAcquire(t, c, name, owner, time.Minute)

	// Ahead of the clock, so that the clock alone would go back.
	exec(t, c.beside, "UPDATE sqllock_locks SET token = 9000000000000000, owner = '', expires_at = 'epoch', acquired_at = 'epoch' WHERE name = $1", name)

	if _, err := locker.Reap(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}

	var rows int
	if err := c.beside.QueryRowContext(t.Context(), "SELECT pg_catalog.count(*) FROM sqllock_locks WHERE name = $1", name).Scan(&rows); err != nil || rows != 0 {
		t.Fatalf("%d rows, %v; want none after Reap", rows, err)
	}

	if token := mustAcquire(t, c, name, anOwner(), time.Minute); token <= 9000000000000000 {
		t.Errorf("sqllock_acquire() = %d after the row was removed, want a larger token", token)
	}
}

// functionsTable: an acquisition waits for nobody, also if somebody makes an index.
func functionsTable(t *testing.T, _ *sqllock.Locker, _ caller) {
	t.Helper()

	_, c := functionsDatabase(t) // of its own, which nobody else uses meanwhile
	name, owner := uniqueName(), anOwner()

	mustAcquire(t, c, name, owner, time.Minute)

	if ok, err := c.release(t.Context(), name, owner); err != nil || !ok {
		t.Fatalf("sqllock_release() = %t, %v", ok, err)
	}

	tx, err := c.beside.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing is to be kept

	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE sqllock_locks IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}

	mustNotAcquire(t, c, name)
	mustNotAcquire(t, c, uniqueName())
}

// TestFunctionsElsewhere: they are made beside the tables, or not at all.
func TestFunctionsElsewhere(t *testing.T) {
	t.Parallel()

	config := postgresDatabase(t, postgresConfig(t))
	exec(t, stdPool(t, config), "CREATE SCHEMA elsewhere")

	config = pastProxy(t, config).Copy()
	config.RuntimeParams["search_path"] = "elsewhere, public"

	if err := schema.Functions(t.Context(), stdPool(t, config)); err == nil || !strings.Contains(err.Error(), "its tables are not in schema elsewhere") {
		t.Errorf("the functions beside other tables: %v", err)
	}
}

func functionsBadInput(t *testing.T, _ *sqllock.Locker, c caller) {
	t.Helper()

	ctx, name, owner := t.Context(), uniqueName(), anOwner()

	for what, ask := range map[string]func() (int64, error){
		"an empty name":        func() (int64, error) { return c.acquire(ctx, "", owner, time.Minute) },
		"a long name":          func() (int64, error) { return c.acquire(ctx, strings.Repeat("ä", 128), owner, time.Minute) },
		"a slot":               func() (int64, error) { return c.acquire(ctx, "a\x1f0001", owner, time.Minute) },
		"no owner":             func() (int64, error) { return c.acquire(ctx, name, "", time.Minute) },
		"a guessed owner":      func() (int64, error) { return c.acquire(ctx, name, "me", time.Minute) },
		"an owner with blanks": func() (int64, error) { return c.acquire(ctx, name, "0123456789 0123456789", time.Minute) },
		"a reader":             func() (int64, error) { return c.acquire(ctx, name, "shared-0123456789", time.Minute) },
		"a detached owner":     func() (int64, error) { return c.acquire(ctx, name, "detached-0123456789", time.Minute) },
		"no lease":             func() (int64, error) { return c.acquire(ctx, name, owner, 0) },
		"a short lease":        func() (int64, error) { return c.acquire(ctx, name, owner, 99*time.Millisecond) },
		"a long lease":         func() (int64, error) { return c.acquire(ctx, name, owner, 367*24*time.Hour) },
	} {
		if token, err := ask(); !refusedWith(err, "22023") {
			t.Errorf("sqllock_acquire() of %s = %d, %v", what, token, err)
		}
	}

	// A server may know it, or not.
	if _, err := c.db.ExecContext(ctx, "SELECT public.sqllock_acquire($1, $2, 'infinity')", name, owner); !refusedWith(err, "22023") && !isCode(err, "22007") {
		t.Errorf("sqllock_acquire() of a lease without an end = %v", err)
	}

	var token sql.NullInt64
	if err := c.db.QueryRowContext(ctx, "SELECT public.sqllock_acquire(NULL, NULL, NULL)").Scan(&token); !refusedWith(err, "22023") {
		t.Errorf("sqllock_acquire(NULL, NULL, NULL) = %v, %v", token, err)
	}

	tx, err := c.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has failed

	if err := tx.QueryRowContext(ctx, "SELECT public.sqllock_acquire($1, $2, '1 minute')", name, owner).Scan(&token); !refusedWith(err, "25001") {
		t.Errorf("sqllock_acquire() at REPEATABLE READ = %v, %v", token, err)
	}
}

// TestFunctionsRecovery: when another server has taken over, nothing is granted for a while, and who has a lease keeps it.
func TestFunctionsRecovery(t *testing.T) {
	t.Parallel()

	_, c := functionsDatabase(t)
	ctx, kept, lost := t.Context(), uniqueName(), uniqueName()
	owner := anOwner()

	mustAcquire(t, c, kept, owner, time.Hour)
	mustAcquire(t, c, lost, owner, time.Hour)
	exec(t, c.beside, "UPDATE sqllock_locks SET expires_at = 'epoch' WHERE name = $1", lost)
	exec(t, c.beside, "UPDATE sqllock_recovery SET server = 'another one'")

	mustNotAcquire(t, c, uniqueName())

	var pause time.Duration
	if err := c.beside.QueryRowContext(ctx, `SELECT (pg_catalog.date_part('epoch', paused_until - pg_catalog.clock_timestamp()) * 1e9::float)::bigint
	                                           FROM sqllock_recovery WHERE previous = 'another one' AND changes = 1`).Scan(&pause); err != nil || pause < 50*time.Minute {
		t.Errorf("the recovery pause lasts %s, %v; want an hour, as the longest lease", pause, err)
	}

	mustNotAcquire(t, c, uniqueName())

	ok, err := c.renew(ctx, kept, owner, time.Hour)
	wantOK(t, "sqllock_renew() in a recovery pause", ok, err, true)

	ok, err = c.renew(ctx, lost, owner, time.Hour)
	wantOK(t, "sqllock_renew() of a lease that is over, in a recovery pause", ok, err, false)
}

// TestFunctionsUnderLoad: programs with the library and programs with the functions exclude each other, under tokens that grow.
func TestFunctionsUnderLoad(t *testing.T) {
	t.Parallel()

	for _, strategy := range catalog.All() {
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()

			db, c := functionsDatabase(t)
			locker := lockerOn(t, strategy.Make(db))
			names := []string{uniqueName(), uniqueName()}

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()

			var (
				workers sync.WaitGroup
				ground  witness
				grants  [2]atomic.Int64
			)

			// Until both were granted something, on a machine that is busy.
			began := time.Now()
			goesOn := func() bool {
				both := grants[0].Load() > 0 && grants[1].Load() > 0

				return ctx.Err() == nil && (!both || time.Since(began) < 3*time.Second)
			}

			for range 3 {
				workers.Go(func() {
					for goesOn() {
						lock, err := locker.Acquire(ctx, names[rand.IntN(len(names))], sqllock.WithMaxWait(time.Second))
						if err == nil {
							grants[0].Add(1)
							ground.under(t, lock.Name(), lock.Token())

							err = lock.Release(context.WithoutCancel(ctx))
						}

						// ErrUnreachable: all the time somebody had the row locked.
						if err != nil && !errors.Is(err, sqllock.ErrNotAcquired) && !errors.Is(err, sqllock.ErrUnreachable) && ctx.Err() == nil {
							t.Errorf("the library: %v", err)
						}

						time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond) //nolint:forbidigo // the work of a worker beside the locks
					}
				})
				workers.Go(func() {
					for goesOn() {
						grants[1].Add(c.work(ctx, t, &ground, names[rand.IntN(len(names))]))
						time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) //nolint:forbidigo // as above, or the pause before the next try
					}
				})
			}

			workers.Wait()

			t.Logf("grants: %d by the library, %d by the functions", grants[0].Load(), grants[1].Load())

			if grants[0].Load() == 0 || grants[1].Load() == 0 {
				t.Errorf("one of both was granted nothing within %s", patience)
			}
		})
	}
}

// work has a lock for a moment, if it gets it, and then releases it, or dies with a short lease.
func (c caller) work(ctx context.Context, t *testing.T, ground *witness, name string) (grants int64) {
	t.Helper()

	whole := context.WithoutCancel(ctx)
	owner, lease := anOwner(), time.Minute

	if rand.IntN(20) == 0 {
		lease = 100 * time.Millisecond
	}

	token, err := c.acquire(whole, name, owner, lease)
	if err != nil {
		t.Errorf("sqllock_acquire() = %v", err)
	}

	if token == 0 {
		return 0
	}

	if lease < time.Second {
		return 1 // it dies at once, before it does anything
	}

	ground.under(t, name, token)

	if ok, err := c.renew(whole, name, owner, lease); err != nil || !ok {
		t.Errorf("sqllock_renew() of who has the lock = %t, %v", ok, err)
	}

	if ok, err := c.release(whole, name, owner); err != nil || !ok {
		t.Errorf("sqllock_release() of who has the lock = %t, %v", ok, err)
	}

	return 1
}

// witness sees whether two work under a lock at a time, and whether a token is not larger than those before.
type witness struct {
	mu     sync.Mutex
	inside []string
	tokens map[string]int64
}

func (w *witness) under(t *testing.T, name string, token int64) {
	t.Helper()

	w.mu.Lock()
	if slices.Contains(w.inside, name) {
		t.Errorf("two hold %q, one with token %d", name, token)
	}

	if w.tokens[name] >= token {
		t.Errorf("token %d of %q, after %d", token, name, w.tokens[name])
	}

	if w.tokens == nil {
		w.tokens = make(map[string]int64)
	}

	w.tokens[name] = token
	w.inside = append(w.inside, name)
	w.mu.Unlock()

	time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) //nolint:forbidigo // the work under the lock

	w.mu.Lock()
	defer w.mu.Unlock()

	if i := slices.Index(w.inside, name); i >= 0 {
		w.inside = slices.Delete(w.inside, i, i+1)
	}
}
