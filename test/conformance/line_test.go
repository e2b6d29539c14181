package conformance_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

// Who is kept in line by one statement is taken out of it by another, with its grant. If each waited for rows that the other has,
// PostgreSQL would look for the deadlock after a second, and nobody of the process would be served until then.
func TestKeepBesideAGrant(t *testing.T) { eachDefaultIsolation(t, keepBesideAGrant) }

func keepBesideAGrant(t *testing.T, strategy *cas.Strategy, pool *sql.DB) {
	t.Helper()

	for i := range 3 {
		enter(t, strategy, strategies.Waiter{Name: fmt.Sprint("kept/", i), Process: "p"})
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()

	locked(t, pool, "DELETE FROM sqllock_queue WHERE name = 'kept/1'", func() {
		kept, err := strategy.Keep(ctx, "p", time.Hour)
		if kept != 2 || err != nil {
			t.Errorf("Keep() beside the grant of one of three = %d, %v, want 2", kept, err)
		}

		wantLong(t, pool, 2, time.Hour)

		if _, err := strategy.Stand(ctx, "p", 2*time.Hour); err != nil {
			t.Errorf("Stand() beside the grant of one of three = %v, want nil", err)
		}

		wantLong(t, pool, 2, 2*time.Hour)
	})
}

// eachDefaultIsolation runs f on PostgreSQL with each isolation level that an application may have made the default.
func eachDefaultIsolation(t *testing.T, f func(t *testing.T, strategy *cas.Strategy, pool *sql.DB)) {
	t.Helper()
	t.Parallel()

	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()

			db, pool := isolated(t, "postgres", level)
			f(t, cas.New(db), pool)
		})
	}
}

// wantLong fails unless so many entries are believed for so long.
func wantLong(t *testing.T, pool *sql.DB, want int, ttl time.Duration) {
	t.Helper()

	if n := number(t, pool, "SELECT count(*) FROM sqllock_queue WHERE expires_at > now() + make_interval(secs => $1)", ttl.Seconds()-60); n != want {
		t.Errorf("%d are believed for %s to be in line, want %d", n, ttl, want)
	}
}

// The row of a name changes with each who waits for it, but not with one who comes behind three others, who waits for nobody then: whoever
// comes back to a crowded name at once meets the next one's grant.
func TestEntryBehindOthers(t *testing.T) { eachDefaultIsolation(t, entryBehindOthers) }

func entryBehindOthers(t *testing.T, strategy *cas.Strategy, pool *sql.DB) {
	t.Helper()

	const line = "SELECT waiting FROM sqllock_locks WHERE name = 'crowded'"

	for _, name := range []string{"crowded", "other"} {
		if _, err := single.TryAcquire(t.Context(), strategy, strategies.Request{Name: name, Owner: rand.Text(), Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}

	for others := range 5 {
		waiter := strategies.Waiter{Name: "crowded", Process: rand.Text(), ID: rand.Text(), Slots: 1}

		locked(t, pool, "SELECT 1 FROM sqllock_locks WHERE name = 'crowded' FOR UPDATE", func() {
			all := []strategies.Waiter{waiter, {Name: "other", Process: waiter.Process, ID: rand.Text(), Slots: 1}}

			switch taken, errs := strategy.Enqueue(t.Context(), all, time.Minute); {
			case others < 3 && !errors.Is(errs[0], strategies.ErrNotBatched):
				t.Errorf("Enqueue() of a locked name behind %d others = %v, want ErrNotBatched", others, errs)
			case others >= 3 && (errs[0] != nil || !taken[0]):
				t.Errorf("Enqueue() of a locked name behind %d others = %t, %v, want that it is taken", others, taken[0], errs[0])
			}

			taken, err := single.Enqueue(t.Context(), strategy, waiter, time.Minute)
			if others < 3 && !errors.Is(err, strategies.ErrBusy) || others >= 3 && (err != nil || !taken) {
				t.Errorf("Enqueue() of one, of a locked name behind %d others = %t, %v", others, taken, err)
			}
		})

		before := number(t, pool, line)
		enter(t, strategy, waiter)

		if changed := number(t, pool, line) != before; changed != (others < 3) {
			t.Errorf("with one behind %d others the number of the line changes: %t", others, changed)
		}
	}

	exec(t, pool, "UPDATE sqllock_locks SET waiting = 0")
	enter(t, strategy, strategies.Waiter{Name: "crowded", Process: rand.Text()})

	if number(t, pool, line) == 0 {
		t.Error("a line that was forgotten has no number when one more comes")
	}
}

// locked runs f while a transaction has rows locked.
func locked(t *testing.T, pool *sql.DB, query string, f func()) {
	t.Helper()

	tx, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()

	if _, err := tx.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}

	f()
}

// number is what a query answers.
func number(t *testing.T, pool *sql.DB, query string, args ...any) (n int) {
	t.Helper()

	if err := pool.QueryRowContext(context.WithoutCancel(t.Context()), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}

	return n
}

// enter puts one into the line of its name.
func enter(t *testing.T, s strategies.Queuer, w strategies.Waiter) {
	t.Helper()

	if w.Slots = 1; w.ID == "" {
		w.ID = rand.Text()
	}

	if _, err := single.Enqueue(t.Context(), s, w, time.Minute); err != nil {
		t.Fatal(err)
	}
}
