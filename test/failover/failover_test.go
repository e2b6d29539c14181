// Package failover shows on real servers what docs/guarantees.md says of a
// fail-over: a primary ends, its standby is promoted, and the pools of those who
// hold locks and of those who want them move there.
//
// Every test has a primary and a standby of its own; TestCrashedGrants has one
// server, which crashes and comes back. With PostgreSQL a holder is a process with
// pgx's pool, a rival one with database/sql.
package failover_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
	"github.com/sqllock/sqllock/test/schema"
	"github.com/sqllock/sqllock/test/servers"
)

type strategy = catalog.Strategy

var (
	leased         = catalog.Leased()
	connectionHeld = catalog.ConnectionHeld()
	all            = catalog.All()
)

const (
	// lease is long beside a fail-over here, and a third of it is short to wait for.
	lease = 30 * time.Second
	// told is how soon a holder whose renewal is refused hears of it: that is due
	// after a third of the lease, and each try of it ends within a fifth, or 5 s. The
	// rest is for a machine that has much else to do.
	told = lease/3 + 5*time.Second + 5*time.Second
	// patience bounds what has no bound of its own.
	patience = 90 * time.Second
	poolSize = 12
	// outlastsAll is the lease of locks that are to be held still, however long a server takes to come back, and a test to have its
	// turn.
	outlastsAll = time.Hour
)

// cluster is a primary with sqllock's tables, and its standby.
type cluster struct{ *servers.Replicated }

func start(t *testing.T, replication servers.Replication) cluster {
	t.Helper()

	c := startReplicated(t, "postgres", replication)
	db := open(t, c.PrimaryDSN())
	migrate(t, db, databases.Postgres)

	withoutPause(t, db)
	do(t, "catch up", c.CaughtUp)

	return c
}

// withoutPause has what the promoted standby knows seen at once. TestLostGrants has the pause.
func withoutPause(t *testing.T, db *sql.DB) {
	t.Helper()
	exec(t, db, "INSERT INTO sqllock_recovery (id, lossless) VALUES (1, true)")
}

func startReplicated(t *testing.T, name string, replication servers.Replication) cluster {
	t.Helper()

	if !slices.Contains(servers.Names(), name) {
		t.Skip("SQLLOCK_TEST_DATABASES leaves out " + name)
	}

	pair, err := servers.StartReplicated(t.Context(), name, replication, t.Output())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := pair.Close(); err != nil {
			t.Errorf("Close() of the servers = %v, want nil", err)
		}
	})

	return cluster{pair}
}

// failOver ends the primary, promotes the standby, and returns when the first was
// done.
func (c cluster) failOver(t *testing.T) (crashed time.Time) {
	t.Helper()

	crashed = time.Now()
	do(t, "crash", c.Crash)

	down := time.Now()
	do(t, "promote", c.Promote)

	t.Logf("the primary was down after %s, the standby promoted %s later",
		down.Sub(crashed).Round(time.Millisecond), time.Since(down).Round(time.Millisecond))

	return crashed
}

// dsn reaches the PostgreSQL server that takes writes.
func (c cluster) dsn(t *testing.T) string {
	t.Helper()

	both, err := url.Parse(c.PrimaryDSN())
	if err != nil {
		t.Fatal(err)
	}

	both.Host += "," + address(t, c.StandbyDSN())
	both.RawQuery += "&target_session_attrs=read-write&connect_timeout=5"

	return both.String()
}

// address is where the PostgreSQL server of a DSN listens.
func address(t *testing.T, dsn string) string {
	t.Helper()

	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}

	_, address := pgconn.NetworkAddress(config.Host, config.Port)

	return address
}

// mover dials what goes by one name, as in the DNS, and can move.
type mover struct {
	mu      sync.Mutex
	address string
	dialed  []net.Conn
}

func newMover(address string) *mover { return &mover{address: address} }

func (m *mover) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	m.mu.Lock()
	address := m.address
	m.mu.Unlock()

	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		m.mu.Lock()
		m.dialed = append(m.dialed, conn)
		m.mu.Unlock()
	}

	return conn, err
}

func (m *mover) move(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.address = address
}

// hangUp ends all connections, as if the server that had the name were gone.
func (m *mover) hangUp() {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, conn := range m.dialed {
		_ = conn.Close()
	}

	m.dialed = nil
}

func do(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	if err := f(ctx); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func migrate(t *testing.T, db *sql.DB, dialect databases.Dialect) {
	t.Helper()

	do(t, "migrate", func(ctx context.Context) error { return schema.Up(ctx, db, dialect) })
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()

	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}

	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(poolSize)
	t.Cleanup(func() { _ = db.Close() })

	return db
}

func exec(t *testing.T, db *sql.DB, query string) {
	t.Helper()

	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// holder is a process that holds locks.
type holder struct {
	*sqllock.Locker
	pool    *pgxpool.Pool
	renewed chan string // names of locks that were renewed; not all, if nobody reads
}

func newHolder(t *testing.T, s strategy, dsn string, configure ...func(*pgxpool.Config)) holder {
	t.Helper()

	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}

	config.MaxConns = poolSize

	for _, f := range configure {
		f(config)
	}

	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(pool.Close)

	renewed := make(chan string, 64)

	return holder{newLocker(t, s, postgres.New(pool), sqllock.WithObserver(func(_ context.Context, e sqllock.Event) {
		if e.Kind != sqllock.Renewed {
			return
		}

		select {
		case renewed <- e.Name:
		default:
		}
	})), pool, renewed}
}

// newRival is a process that wants the locks of others.
func newRival(t *testing.T, s strategy, dsn string) *sqllock.Locker {
	t.Helper()

	return newLocker(t, s, postgres.NewStd(open(t, dsn)))
}

func newLocker(t *testing.T, s strategy, db databases.DB, options ...sqllock.LockerOption) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(s.Make(db), append(options, sqllock.WithLease(lease))...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		// What was lost in the fail-over cannot be given back, and is not waited for.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()

		_ = locker.Close(ctx)
	})

	return locker
}

// mustAcquire has the lock, or the test ends.
func mustAcquire(t *testing.T, locker *sqllock.Locker, name string, options ...sqllock.LockOption) *sqllock.Lock {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	// The pool may have connections to a server that is gone, and more of them than an acquisition has tries.
	for {
		lock, err := locker.Acquire(ctx, name, options...)

		switch {
		case err == nil:
			return lock
		case ctx.Err() != nil, errors.Is(err, sqllock.ErrReadOnly):
			t.Fatalf("Acquire(%q) = %v, want the lock", name, err)
		}
	}
}

// wantHeld tries until the database answers, and wants it to say that the lock is
// that of the grant with the token.
func wantHeld(t *testing.T, locker *sqllock.Locker, name string, token int64) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		lock, err := locker.TryAcquire(ctx, name)

		var held *sqllock.HeldError

		switch {
		case errors.As(err, &held):
			if held.Token != token {
				t.Errorf("TryAcquire(%q) = %v of token %d, want token %d", name, err, held.Token, token)
			}

			return
		case err == nil:
			t.Errorf("TryAcquire(%q) = a lock with token %d beside that with token %d, want a HeldError", name, lock.Token(), token)

			return
		case ctx.Err() != nil:
			t.Fatalf("TryAcquire(%q) = %v, want a HeldError", name, err)
		}
	}
}

// guard has the lock guard transactions on the holder's own pool, until the database says what it thinks of that.
func (h holder) guard(t *testing.T, lock *sqllock.Lock) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		err := pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error { return lock.Guard(ctx, postgres.Tx(tx)) })

		if err == nil || errors.Is(err, sqllock.ErrLost) || ctx.Err() != nil {
			return err
		}
	}
}

// wantRenewed waits until a lock is renewed on a server that was promoted before.
func (h holder) wantRenewed(t *testing.T, lock *sqllock.Lock) {
	t.Helper()

	for len(h.renewed) > 0 {
		<-h.renewed // from before
	}

	deadline := time.After(lease)

	for {
		select {
		case name := <-h.renewed:
			if name == lock.Name() {
				return
			}
		case <-lock.Done():
			t.Fatalf("lock %q = %v, want it renewed on the new primary", lock.Name(), lock.Err())
		case <-deadline:
			t.Fatalf("lock %q was not renewed for the lease of %s", lock.Name(), lease)
		}
	}
}

// ending notes when a lock's context ends.
type ending struct {
	lock *sqllock.Lock
	at   chan time.Time
}

func watch(lock *sqllock.Lock) ending {
	e := ending{lock, make(chan time.Time, 1)}
	context.AfterFunc(lock.Context(), func() { e.at <- time.Now() })

	return e
}

// wantTold waits for the lock's loss, and wants it to be told by a renewal and
// not by the end of the trust window.
func (e ending) wantTold(t *testing.T, since time.Time, reasons ...sqllock.Reason) {
	t.Helper()

	select {
	case at := <-e.at:
		var lost *sqllock.LostError
		if !errors.As(e.lock.Err(), &lost) || !slices.Contains(reasons, lost.Reason) {
			t.Errorf("Err() of %q = %v, want a LostError with a reason of %q", e.lock.Name(), e.lock.Err(), reasons)
		}

		took := at.Sub(since)
		t.Logf("%q: told %s later: %v", e.lock.Name(), took.Round(time.Millisecond), e.lock.Err())

		if took > told {
			t.Errorf("%q: told %s later, want at most %s", e.lock.Name(), took, told)
		}
	case <-time.After(patience):
		t.Errorf("%q is not lost %s later", e.lock.Name(), time.Since(since))
	}
}

func wantLost(t *testing.T, call string, err error) {
	t.Helper()

	if !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("%s = %v, want ErrLost", call, err)
	}
}
