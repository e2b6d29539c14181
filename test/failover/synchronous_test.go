package failover_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/test/servers"
)

// TestSynchronous: commits wait for the standby, so what the primary acknowledged
// is there when it was promoted.
func TestSynchronous(t *testing.T) {
	t.Parallel()

	c := start(t, servers.Synchronous)
	dsn := c.dsn(t)
	db := open(t, dsn)

	var (
		begun []func(t *testing.T, crashed time.Time)
		loads []*load
	)

	for _, s := range leased {
		begun = append(begun, beginLeased(t, s, dsn, db))
		loads = append(loads, newLoad(t, s, dsn))
	}

	for _, s := range connectionHeld {
		begun = append(begun, beginConnectionHeld(t, s, dsn))
	}

	stop := make(chan struct{})

	var working sync.WaitGroup

	for _, l := range loads {
		working.Go(func() { l.run(t.Context(), stop) })
	}

	// At once after the return of the acquisition that makes them enough.
	for _, l := range loads {
		select {
		case <-l.enough:
		case <-time.After(patience):
			t.Fatalf("%s: fewer than %d locks acquired within %s", l.strategy, enough, patience)
		}
	}

	crashed := c.failOver(t)

	close(stop)
	working.Wait()

	for _, l := range loads {
		t.Run("acknowledged/"+l.strategy, func(t *testing.T) {
			t.Parallel()
			l.check(t, db)
		})
	}

	for i, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			begun[i](t, crashed)
		})
	}
}

// beginLeased acquires locks of a lease strategy before a fail-over, and returns
// what must hold after it.
func beginLeased(t *testing.T, s strategy, dsn string, db *sql.DB) (after func(*testing.T, time.Time)) {
	t.Helper()

	name := func(is string) string { return s.Name + "/" + is }
	first, rival := newHolder(t, s, dsn), newRival(t, s, dsn)

	// One whose holder did not hear that it is another's by now.
	overtaken := mustAcquire(t, first.Locker, name("overtaken"), sqllock.WithoutRenewal(), sqllock.WithLease(outlastsAll))
	do(t, "force the release", func(ctx context.Context) error { return sqllocktest.ForceRelease(ctx, rival, overtaken.Name(), "test") })

	overtaker := newHolder(t, s, dsn)
	latest := mustAcquire(t, overtaker.Locker, overtaken.Name(), sqllock.WithLease(outlastsAll))

	kept := mustAcquire(t, first.Locker, name("kept"))
	abandoned := mustAcquire(t, first.Locker, name("abandoned"), sqllock.WithoutRenewal())

	return func(t *testing.T, _ time.Time) {
		t.Helper()

		wantHeld(t, rival, kept.Name(), kept.Token())
		first.wantRenewed(t, kept)
		wantHeld(t, rival, kept.Name(), kept.Token())

		if err := first.guard(t, kept); err != nil {
			t.Errorf("Guard() of the holder = %v, want nil", err)
		}

		if err := overtaker.guard(t, latest); err != nil {
			t.Errorf("Guard() of the latest holder = %v, want nil", err)
		}

		if overtaken.Err() != nil {
			t.Errorf("Err() of the holder before = %v, want nil: it has not asked", overtaken.Err())
		}

		wantLost(t, "Guard() of the holder before", first.guard(t, overtaken))

		// The one that is not renewed any more, by the database's clock.
		ends, _ := times(t, db, abandoned.Name())
		next := mustAcquire(t, rival, abandoned.Name())
		_, granted := times(t, db, abandoned.Name())

		if granted.Before(ends) {
			t.Errorf("%q was granted again %s before its lease ended", abandoned.Name(), ends.Sub(granted))
		}

		if next.Token() <= abandoned.Token() {
			t.Errorf("token after the fail-over = %d, want more than %d", next.Token(), abandoned.Token())
		}

		if err := kept.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	}
}

// times tells when a name's lease ends and when it was granted, by the database's
// clock.
func times(t *testing.T, db *sql.DB, name string) (ends, granted time.Time) {
	t.Helper()

	err := db.QueryRowContext(t.Context(), "SELECT expires_at, acquired_at FROM sqllock_locks WHERE name = $1", name).Scan(&ends, &granted)
	if err != nil {
		t.Fatalf("times of %q: %v", name, err)
	}

	return ends, granted
}

// beginConnectionHeld acquires a lock that ends with its session, and returns
// what must hold after a fail-over.
func beginConnectionHeld(t *testing.T, s strategy, dsn string) (after func(*testing.T, time.Time)) {
	t.Helper()

	first, rival := newHolder(t, s, dsn), newRival(t, s, dsn)
	guarded := mustAcquire(t, first.Locker, s.Name+"/guarded", sqllock.WithoutRenewal(), sqllock.WithLease(outlastsAll))

	lost := mustAcquire(t, first.Locker, s.Name+"/lost")
	end := watch(lost)

	return func(t *testing.T, crashed time.Time) {
		t.Helper()

		for _, lock := range []*sqllock.Lock{guarded, lost} {
			next := mustAcquire(t, rival, lock.Name())

			if next.Token() <= lock.Token() {
				t.Errorf("%q: token after the fail-over = %d, want more than %d", lock.Name(), next.Token(), lock.Token())
			}

			t.Logf("%q: granted again %s after the crash", lock.Name(), time.Since(crashed).Round(time.Millisecond))
		}

		wantLost(t, "Guard() of the holder before", first.guard(t, guarded))
		end.wantTold(t, crashed, sqllock.ReasonSessionGone)
	}
}

// load acquires names that nobody had before, one after the other.
type load struct {
	strategy string
	locker   *sqllock.Locker
	rival    *sqllock.Locker
	enough   chan struct{} // closed when there are enough

	mutex        sync.Mutex
	acknowledged []*sqllock.Lock
}

const (
	// enough locks of each strategy are acquired before the primary ends.
	enough = 20
	// workers acquire them.
	workers = 3
)

func newLoad(t *testing.T, s strategy, dsn string) *load {
	t.Helper()

	return &load{
		strategy: s.Name, locker: newHolder(t, s, dsn).Locker, rival: newRival(t, s, dsn), enough: make(chan struct{}),
	}
}

func (l *load) run(ctx context.Context, stop <-chan struct{}) {
	var working sync.WaitGroup

	for worker := range workers {
		working.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-ctx.Done():
					return
				default:
				}

				name := fmt.Sprintf("%s/load/%d/%d", l.strategy, worker, i)

				lock, err := l.locker.TryAcquire(ctx, name, sqllock.WithoutRenewal(), sqllock.WithLease(outlastsAll))
				if err == nil {
					l.add(lock)
				}
			}
		})
	}

	working.Wait()
}

func (l *load) add(lock *sqllock.Lock) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	l.acknowledged = append(l.acknowledged, lock)

	if len(l.acknowledged) == enough {
		close(l.enough)
	}
}

// check looks for every lock that was acknowledged, before the crash or after it.
func (l *load) check(t *testing.T, db *sql.DB) {
	t.Helper()
	t.Logf("%d locks were acknowledged", len(l.acknowledged))

	for _, lock := range l.acknowledged {
		var token int64

		err := db.QueryRowContext(t.Context(), "SELECT token FROM sqllock_locks WHERE name = $1", lock.Name()).Scan(&token)
		if err != nil || token != lock.Token() {
			t.Errorf("token of %q on the new primary = %d, %v, want %d, nil", lock.Name(), token, err, lock.Token())
		}

		wantHeld(t, l.rival, lock.Name(), lock.Token())
	}
}
