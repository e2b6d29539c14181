package failover_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/servers"
)

// TestAsynchronous: the standby lags, so what the primary acknowledged last is
// not there when it was promoted, although somebody has said that no commit is lost. Two can have a lock then; their tokens tell
// which of them is the later, and a guard lets only that one through.
func TestAsynchronous(t *testing.T) {
	t.Parallel()

	c := start(t, servers.Asynchronous)
	dsn := c.dsn(t)

	var begun []*forgotten

	for _, s := range all {
		// Names that the standby knows, with their last tokens, and names that it does not.
		begun = append(begun, &forgotten{strategy: s, known: true}, &forgotten{strategy: s})
	}

	for _, f := range begun {
		f.prepare(t, dsn)
	}

	do(t, "catch up", c.CaughtUp)
	do(t, "cut the link", c.Cut)

	for _, f := range begun {
		f.acquire(t)
	}

	crashed := c.failOver(t)

	for _, f := range begun {
		name := f.strategy.Name + "/new"
		if f.known {
			name = f.strategy.Name + "/known"
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.check(t, crashed)
		})
	}
}

// forgotten are grants that the primary acknowledged and the standby never heard of.
type forgotten struct {
	strategy strategy
	known    bool // the names had been granted before

	first holder
	rival *sqllock.Locker

	guarded, unrivaled, extended, renewed *sqllock.Lock
	end                                   ending
}

func (f *forgotten) name(is string) string {
	if f.known {
		return f.strategy.Name + "/known/" + is
	}

	return f.strategy.Name + "/new/" + is
}

// prepare has all names of a kind granted once.
func (f *forgotten) prepare(t *testing.T, dsn string) {
	t.Helper()

	f.first, f.rival = newHolder(t, f.strategy, dsn), newRival(t, f.strategy, dsn)

	if !f.known {
		return
	}

	for _, is := range []string{"guarded", "unrivaled", "extended", "renewed"} {
		lock := mustAcquire(t, f.rival, f.name(is))

		if err := lock.Release(t.Context()); err != nil {
			t.Fatalf("Release() = %v, want nil", err)
		}
	}
}

// acquire has them granted by the primary alone.
func (f *forgotten) acquire(t *testing.T) {
	t.Helper()

	for is, lock := range map[string]**sqllock.Lock{
		"guarded": &f.guarded, "unrivaled": &f.unrivaled, "extended": &f.extended,
	} {
		*lock = mustAcquire(t, f.first.Locker, f.name(is), sqllock.WithoutRenewal(), sqllock.WithLease(outlastsAll))
	}

	f.renewed = mustAcquire(t, f.first.Locker, f.name("renewed"))
	f.end = watch(f.renewed)
}

// check is after the fail-over.
func (f *forgotten) check(t *testing.T, crashed time.Time) {
	t.Helper()

	// Also where nobody else was granted the name yet.
	wantLost(t, "Guard() of a grant that the server does not know", f.first.guard(t, f.unrivaled))

	wantLost(t, "Extend() of a grant that the server does not know", f.extend(t))

	reasons := []sqllock.Reason{sqllock.ReasonSessionGone} // whoever came
	if !f.first.Features().ConnectionHeld {
		reasons = []sqllock.Reason{sqllock.ReasonUnknown, sqllock.ReasonTakenOver} // before the rival, and after
	}

	// Not promised, and not prevented: two have a lock. For so long only the tokens tell.
	for _, lock := range []*sqllock.Lock{f.guarded, f.renewed} {
		next := mustAcquire(t, f.rival, lock.Name())

		if next.Token() <= lock.Token() {
			t.Errorf("%q: token after the fail-over = %d, want more than that of the lost grant, %d",
				lock.Name(), next.Token(), lock.Token())
		}
	}

	if f.guarded.Err() != nil {
		t.Errorf("Err() = %v, want nil: that a second has the lock is not known here", f.guarded.Err())
	}

	wantLost(t, "Guard() of the lost grant", f.first.guard(t, f.guarded))
	f.end.wantTold(t, crashed, reasons...)
}

// extend renews until the pool has found a server that answers.
func (f *forgotten) extend(t *testing.T) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		err := f.extended.Extend(ctx, outlastsAll)
		if err == nil || errors.Is(err, sqllock.ErrLost) || ctx.Err() != nil {
			return err
		}
	}
}
