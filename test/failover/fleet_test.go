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

// failing are servers that lose commits, again and again.
type failing interface {
	PrimaryDSN() string
	StandbyDSN() string
	// CaughtUp has nothing lost that was committed before.
	CaughtUp(ctx context.Context) error
	// Cut has all lost that is committed from here on.
	Cut(ctx context.Context) error
	Crash(ctx context.Context) error
	// Promote returns when writes are taken where StandbyDSN says.
	Promote(ctx context.Context) error
	// Prepare has the next Succeed take less time, if it can.
	Prepare(ctx context.Context) error
	// Succeed lets it happen once more.
	Succeed(ctx context.Context) error
}

// fleet are the processes that use the servers' locks, for as long as there are fail-overs.
type fleet struct {
	failing
	witness   *witness
	database  string
	address   *mover // of the primary, by the name that all dial
	teams     []*team
	failOvers int
	times     int // how many there are to be

	longest time.Duration // lease of the locks that survive; none is longer
	// How long it takes on this machine: the grants that will be lost, the last time; a crash and a promotion, at most; until a new
	// standby follows, the last time.
	losing, failOver, followed time.Duration
}

// team are those who use one strategy: one process holds locks, and two want them.
type team struct {
	strategy
	witness                *witness
	wants                  []want
	holder, rival, another *sqllock.Locker
	kept                   []*keptLock

	survives bool // not all need be lost
}

func newFleet(t *testing.T, database string, times int, servers failing) *fleet {
	t.Helper()

	f := &fleet{failing: servers, witness: newWitness(), database: database, times: times, address: newMover(""), longest: longestLease}
	f.address.move(f.where(t, servers.PrimaryDSN()))

	return f
}

// crew has a team for each strategy whose locks are leases.
func (f *fleet) crew(t *testing.T) {
	t.Helper()

	if f.database == "postgres" {
		migrate(t, open(t, f.PrimaryDSN()), databases.Postgres)
	} else {
		config := mariadbConfig(t, f.PrimaryDSN())
		config.ParseTime = true // goose reads times
		migrate(t, mariadbPool(t, config), databases.MySQL)
	}

	for _, s := range leased {
		f.join(t, &team{strategy: s, witness: f.witness, wants: wants}, func() databases.DB { return f.connect(t, "") })
	}
}

// join adds a team, each of whose processes has a pool of its own.
func (f *fleet) join(t *testing.T, m *team, pool func() databases.DB, options ...sqllock.LockerOption) {
	t.Helper()

	member := func() *sqllock.Locker {
		locker := newLocker(t, m.strategy, pool(), options...)

		// Before the first lock its waits would end when the database cannot be reached.
		first := mustAcquire(t, locker, m.Name+"/first", sqllock.WithLease(shortestLease/2))
		do(t, "release", first.Release)

		return locker
	}
	m.holder, m.rival, m.another = member(), member(), member()

	for _, w := range m.wants {
		m.kept = append(m.kept, &keptLock{want: w, mode: m.Name + " " + w.kind, name: m.Name + "/kept/" + w.kind})
	}

	f.teams = append(f.teams, m)
}

// connect is a process's pool, which dials the primary by its name. PostgreSQL's may be of another database there.
func (f *fleet) connect(t *testing.T, name string) databases.DB {
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

	if name != "" {
		config.ConnConfig.Database = name
	}

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
	durable bool // what is granted of a name that there was is not lost
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
func (m *team) hold(t *testing.T, k *keptLock, lease time.Duration) {
	t.Helper()

	if k.lock != nil {
		if k.lock.Extend(t.Context(), lease) == nil {
			return
		}

		m.witness.forget(k.lock)

		_ = k.lock.Release(t.Context()) // the names that are not lost
	}

	k.lock = mustAcquire(t, m.holder, k.name, append(k.options(k.name), sqllock.WithLease(lease))...)
	m.seen(t, k.mode, k.lock, k.shared)
}

// wantKept is after a fail-over.
func (m *team) wantKept(k *keptLock) {
	var gone *sqllock.LostError

	switch err := k.lock.Err(); {
	case err == nil:
		m.witness.count(k.mode, func(c *count) { c.kept++ })
	case errors.As(err, &gone) && (gone.Reason == sqllock.ReasonExpired || gone.Reason == sqllock.ReasonTakenOver):
		// The fail-over took too long. What was taken over too early is a second holder.
		m.witness.count(k.mode, func(c *count) { c.expired++ })
	default:
		m.witness.fault("%s: Err() of %q, of which the standby had heard, = %v, want nil", k.mode, k.name, err)
	}
}

// lose has a lock granted that is going to be lost.
func (m *team) lose(t *testing.T, l *lostLock, longest time.Duration) {
	t.Helper()

	options := append(l.options(l.name), sqllock.WithLease(longest))
	if !l.renewed {
		lease := shortestLease + rand.N(longest-shortestLease)
		options = append(l.options(l.name), sqllock.WithLease(lease), sqllock.WithoutRenewal())
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	lock, err := m.holder.Acquire(ctx, l.name, options...)
	if err != nil {
		t.Errorf("Acquire(%q) = %v, want the lock", l.name, err)

		return
	}

	m.seen(t, l.mode, lock, l.shared)

	l.lock = lock
}

// wantTold waits until a lost lock is not trusted any more. If it is renewed, a renewal has to say so.
func (m *team) wantTold(t *testing.T, l *lostLock, longest time.Duration) {
	t.Helper()

	bound := patience + longest
	if m.survives {
		// Some renewals have come by then, and the next round is not when the server's log is written, every 10 s.
		bound = longest + shortestLease
	}

	select {
	case <-l.lock.Done():
	case <-time.After(bound):
	}

	m.witness.forget(l.lock)

	// Not that of the test, which may be over.
	defer func() { _ = l.lock.Release(context.WithoutCancel(t.Context())) }()

	var gone *sqllock.LostError

	switch {
	case m.survives && l.lock.Err() == nil:
		m.witness.count(l.mode, func(c *count) { c.kept++ })
	case !errors.As(l.lock.Err(), &gone):
		m.witness.fault("%s: Err() of %q = %v, want a LostError", l.mode, l.name, l.lock.Err())
	case !l.renewed:
	case gone.Reason == sqllock.ReasonUnknown, gone.Reason == sqllock.ReasonTakenOver:
		m.witness.count(l.mode, func(c *count) { c.told++ })
	case gone.Reason == sqllock.ReasonExpired: // the fail-over took too long for a renewal
		m.witness.count(l.mode, func(c *count) { c.late++ })
	default:
		m.witness.fault("%s: Err() of %q = %v, want a renewal to tell of the loss", l.mode, l.name, gone)
	}
}

// seen shows a grant to the witness.
func (m *team) seen(t *testing.T, mode string, lock *sqllock.Lock, shared bool) {
	t.Helper()

	beside, seconds := m.witness.granted(mode, lock, shared)

	for _, other := range beside {
		if seconds <= shown {
			t.Logf("%s: %q, slot %d: a second holder with token %d, beside token %d, which is trusted for another %s", mode,
				lock.Name(), lock.Slot(), lock.Token(), other.Token(), other.Remaining().Round(time.Millisecond))
		}
	}
}

// try asks for what another had, and may still trust, until it is granted.
func (m *team) try(ctx context.Context, t *testing.T, l *lostLock) {
	t.Helper()

	name, options := l.rival(l.name)

	for {
		began := time.Now()

		lock, err := m.rival.TryAcquire(ctx, name, options...)
		if err == nil {
			m.use(ctx, t, l.mode, lock, l.reads)

			return
		}

		if !pause(ctx, max(pace, time.Since(began))) {
			m.witness.fault("%s: TryAcquire(%q) long after the crash = %v, want the lock at last", l.mode, name, err)

			return
		}
	}
}

// wait stands in the line since before the crash.
func (m *team) wait(ctx context.Context, t *testing.T, l *lostLock) {
	t.Helper()

	name, options := l.rival(l.name)

	lock, err := m.another.Acquire(ctx, name, options...)
	if err != nil {
		m.witness.fault("%s: Acquire(%q) since before the crash = %v, want the lock", l.mode, name, err)

		return
	}

	m.use(ctx, t, l.mode, lock, l.reads)
}

// tryKept asks for what another keeps, until the context ends.
func (m *team) tryKept(ctx context.Context, t *testing.T, k *keptLock) {
	t.Helper()

	name, options := k.rival(k.name)

	for took := pace; pause(ctx, 3*max(pace, took)); {
		began := time.Now()
		lock, err := m.rival.TryAcquire(ctx, name, options...)
		took = time.Since(began)

		// The name's second permit is free, and the other names if their lock is lost.
		if err == nil {
			m.use(ctx, t, k.mode, lock, k.reads)
		}
	}
}

// use holds a lock for a moment.
func (m *team) use(ctx context.Context, t *testing.T, mode string, lock *sqllock.Lock, shared bool) {
	t.Helper()

	m.seen(t, mode, lock, shared)
	pause(ctx, pace/4)
	m.witness.forget(lock)

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
