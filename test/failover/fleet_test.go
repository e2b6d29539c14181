package failover_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
)

// fleet are the processes that use a pair's locks, for as long as there are fail-overs.
type fleet struct {
	cluster
	witness   *witness
	database  string
	address   *mover // of the primary, by the name that all dial
	teams     []*team
	failOvers int
}

// team are those who use one strategy: one process holds locks, and two want them.
type team struct {
	strategy               strategy
	holder, rival, another *sqllock.Locker
	kept                   []*keptLock
}

func newFleet(t *testing.T, database string, c cluster) *fleet {
	t.Helper()

	f := &fleet{cluster: c, witness: newWitness(), database: database, address: newMover("")}
	f.address.move(f.where(t, c.PrimaryDSN()))

	if database == "postgres" {
		migrate(t, open(t, c.PrimaryDSN()), databases.Postgres)
	} else {
		config := mariadbConfig(t, c.PrimaryDSN())
		config.ParseTime = true // goose reads times
		migrate(t, mariadbPool(t, config), databases.MySQL)
	}

	for _, s := range leased {
		member := func() *sqllock.Locker {
			locker := newLocker(t, s, f.connect(t))

			// Before the first lock its waits would end when the database cannot be reached.
			first := mustAcquire(t, locker, s.Name+"/first", sqllock.WithLease(shortestLease))
			do(t, "release", first.Release)

			return locker
		}
		m := &team{strategy: s, holder: member(), rival: member(), another: member()}

		for _, w := range wants {
			m.kept = append(m.kept, &keptLock{want: w, mode: s.Name + " " + w.kind, name: s.Name + "/kept/" + w.kind})
		}

		f.teams = append(f.teams, m)
	}

	return f
}

// connect is a process's pool, which dials the primary by its name.
func (f *fleet) connect(t *testing.T) databases.DB {
	t.Helper()

	if f.database != "postgres" {
		config := mariadbConfig(t, f.PrimaryDSN())
		config.DialFunc = f.address.dial
		config.Timeout = 5 * time.Second

		return mysql.New(mariadbPool(t, config))
	}

	config, err := pgxpool.ParseConfig(f.PrimaryDSN())
	if err != nil {
		t.Fatal(err)
	}

	config.MaxConns = poolSize
	config.ConnConfig.DialFunc = f.address.dial
	config.ConnConfig.ConnectTimeout = 5 * time.Second

	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(pool.Close)

	return postgres.New(pool)
}

// where the server of a DSN is.
func (f *fleet) where(t *testing.T, dsn string) string {
	t.Helper()

	if f.database == "postgres" {
		return address(t, dsn)
	}

	return mariadbConfig(t, dsn).Addr
}

// want is something to ask for, and what a rival asks for that conflicts with it.
type want struct {
	kind    string
	shared  bool
	permits int  // of the name; all of them are asked for
	reads   bool // the rival reads
	several bool // the lock has another name, too, and the rival wants that
}

var wants = []want{
	{kind: "alone"},
	{kind: "writer", reads: true},
	{kind: "reader", shared: true},
	{kind: "permits", permits: 2},
	{kind: "names", several: true},
}

func (w want) options(name string) []sqllock.LockOption {
	switch {
	case w.shared:
		return []sqllock.LockOption{sqllock.WithShared()}
	case w.permits > 0:
		return []sqllock.LockOption{sqllock.WithPermits(w.permits)}
	case w.several:
		return []sqllock.LockOption{sqllock.WithNames(name + "/other")}
	default:
		return nil
	}
}

// rival is what is not to be granted beside a lock of the name, with a short lease.
func (w want) rival(name string) (wanted string, options []sqllock.LockOption) {
	options = []sqllock.LockOption{sqllock.WithLease(rivalLease)}

	switch {
	case w.several:
		return name + "/other", options
	case w.reads:
		return name, append(options, sqllock.WithShared())
	case w.permits > 0:
		return name, append(options, sqllock.WithPermits(w.permits))
	default:
		return name, options
	}
}

func (w want) many() int { return max(w.permits, 1) }

// keptLock is one that the standby has heard of. It is held over all fail-overs.
type keptLock struct {
	want
	mode, name string
	lock       *sqllock.Lock
}

// lostLock is granted by the primary alone.
type lostLock struct {
	want
	mode, name string
	renewed    bool
	lock       *sqllock.Lock
}

// hold has a kept lock begin a lease.
func (f *fleet) hold(t *testing.T, m *team, k *keptLock) {
	t.Helper()

	if k.lock != nil {
		if k.lock.Extend(t.Context(), longestLease) == nil {
			return
		}

		f.witness.forget(k.lock)

		_ = k.lock.Release(t.Context()) // the names that are not lost
	}

	k.lock = mustAcquire(t, m.holder, k.name, append(k.options(k.name), sqllock.WithLease(longestLease))...)
	f.seen(t, k.mode, k.lock, k.shared)
}

// wantKept is after a fail-over.
func (f *fleet) wantKept(k *keptLock) {
	var gone *sqllock.LostError

	switch err := k.lock.Err(); {
	case err == nil:
		f.witness.count(k.mode, func(c *count) { c.kept++ })
	case errors.As(err, &gone) && (gone.Reason == sqllock.ReasonExpired || gone.Reason == sqllock.ReasonTakenOver):
		// The fail-over took too long. What was taken over too early is a second holder.
		f.witness.count(k.mode, func(c *count) { c.expired++ })
	default:
		f.witness.fault("%s: Err() of %q, of which the standby had heard, = %v, want nil", k.mode, k.name, err)
	}
}

// lose has a lock granted that is going to be lost.
func (f *fleet) lose(t *testing.T, m *team, l *lostLock) {
	t.Helper()

	options := append(l.options(l.name), sqllock.WithLease(longestLease))
	if !l.renewed {
		lease := shortestLease + rand.N(longestLease-shortestLease)
		options = append(l.options(l.name), sqllock.WithLease(lease), sqllock.WithoutRenewal())
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	lock, err := m.holder.Acquire(ctx, l.name, options...)
	if err != nil {
		t.Errorf("Acquire(%q) = %v, want the lock", l.name, err)

		return
	}

	f.seen(t, l.mode, lock, l.shared)

	l.lock = lock
}

// wantTold waits until a lost lock is not trusted any more. If it is renewed, a renewal has to say so.
func (f *fleet) wantTold(t *testing.T, l *lostLock) {
	t.Helper()

	<-l.lock.Done()
	f.witness.forget(l.lock)

	// Not that of the test, which may be over.
	defer func() { _ = l.lock.Release(context.WithoutCancel(t.Context())) }()

	var gone *sqllock.LostError

	switch {
	case !errors.As(l.lock.Err(), &gone):
		f.witness.fault("%s: Err() of %q = %v, want a LostError", l.mode, l.name, l.lock.Err())
	case !l.renewed:
	case gone.Reason == sqllock.ReasonUnknown, gone.Reason == sqllock.ReasonTakenOver:
		f.witness.count(l.mode, func(c *count) { c.told++ })
	case gone.Reason == sqllock.ReasonExpired: // the fail-over took too long for a renewal
		f.witness.count(l.mode, func(c *count) { c.late++ })
	default:
		f.witness.fault("%s: Err() of %q = %v, want a renewal to tell of the loss", l.mode, l.name, gone)
	}
}

// seen shows a grant to the witness.
func (f *fleet) seen(t *testing.T, mode string, lock *sqllock.Lock, shared bool) {
	t.Helper()

	beside, seconds := f.witness.granted(mode, lock, shared)

	for _, other := range beside {
		if seconds <= shown {
			t.Logf("%s: %q, slot %d: a second holder with token %d, beside token %d, which is trusted for another %s", mode,
				lock.Name(), lock.Slot(), lock.Token(), other.Token(), other.Remaining().Round(time.Millisecond))
		}
	}
}

// try asks for what another had, and may still trust, until it is granted.
func (f *fleet) try(ctx context.Context, t *testing.T, m *team, l *lostLock) {
	t.Helper()

	name, options := l.rival(l.name)

	for {
		lock, err := m.rival.TryAcquire(ctx, name, options...)
		if err == nil {
			f.use(ctx, t, l.mode, lock, l.reads)

			return
		}

		if !pause(ctx, pace) {
			f.witness.fault("%s: TryAcquire(%q) until %s after the crash = %v, want the lock at last", l.mode, name, patience, err)

			return
		}
	}
}

// wait stands in the line since before the crash.
func (f *fleet) wait(ctx context.Context, t *testing.T, m *team, l *lostLock) {
	t.Helper()

	name, options := l.rival(l.name)

	lock, err := m.another.Acquire(ctx, name, options...)
	if err != nil {
		f.witness.fault("%s: Acquire(%q) since before the crash, within %s = %v, want the lock", l.mode, name, patience, err)

		return
	}

	f.use(ctx, t, l.mode, lock, l.reads)
}

// tryKept asks for what another keeps, until the context ends.
func (f *fleet) tryKept(ctx context.Context, t *testing.T, m *team, k *keptLock) {
	t.Helper()

	name, options := k.rival(k.name)

	for pause(ctx, 3*pace) {
		// The name's second permit is free, and the other names if their lock is lost.
		if lock, err := m.rival.TryAcquire(ctx, name, options...); err == nil {
			f.use(ctx, t, k.mode, lock, k.reads)
		}
	}
}

// use holds a lock for a moment.
func (f *fleet) use(ctx context.Context, t *testing.T, mode string, lock *sqllock.Lock, shared bool) {
	t.Helper()

	f.seen(t, mode, lock, shared)
	pause(ctx, pace/4)
	f.witness.forget(lock)

	_ = lock.Release(context.WithoutCancel(ctx)) // or its lease ends
}

// pause waits about d, and says whether the context goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d + rand.N(d/2)):
		return true
	case <-ctx.Done():
		return false
	}
}
