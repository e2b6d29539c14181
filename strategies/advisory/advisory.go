// Package advisory keeps a lock as an advisory lock of a database session:
// pg_try_advisory_lock on PostgreSQL, GET_LOCK on MySQL and MariaDB.
//
//	locker, err := sqllock.New(advisory.New(postgres.New(pool)))
//
// SQLite has none. All locks of a locker share one connection, which is taken
// from the pool with the first lock and given back with the last.
//
// The locks are free the moment their session ends, so a crashed holder is
// followed without waiting for its lease. That is also the price: whatever ends
// the session ends all of its locks (an operator, a fail-over, an idle limit of
// a proxy), and the holders hear of it at their next renewal, up to a third of
// the lease later. Lock.Guard and the token keep that harmless.
//
// The lease is enforced by the server, which ends a session that it has not
// heard from for the longest lease among its locks: idle_session_timeout on
// PostgreSQL 14 and later, wait_timeout (whole seconds, rounded up) on MySQL and
// MariaDB.
//
// It does not work behind a proxy that pools transactions, where two clients
// can have one session, and refuses one that it sees. It does not work on
// replicas, on Galera, or in a replication group with several primaries, where
// each node grants the same lock, and refuses those.
//
// Names become keys by SHA-256: the first 64 bits on PostgreSQL, 160 on MySQL.
// Two names with one key exclude each other, which takes about a million names
// to happen once in thirty million times.
package advisory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/internal/record"
)

const name = "advisory"

// Strategy keeps locks as advisory locks. It is safe for concurrent use.
type Strategy struct {
	record.Admin
	store   *record.Store
	sql     statements
	checked atomic.Bool

	mu      sync.Mutex
	current *session
}

// New returns the strategy for a database. What is wrong with db, if anything,
// sqllock.New reports: ErrUnsupported for SQLite.
func New(db databases.DB) *Strategy {
	store := record.New(db, name, record.Lease)

	return &Strategy{Admin: store.Admin(), store: store, sql: dialects[store.Dialect()]}
}

// Validate reports a database that can not carry the strategy.
func (s *Strategy) Validate() error {
	if err := s.Admin.Validate(); err != nil {
		return err
	}

	switch {
	case s.store.Dialect() == databases.SQLite:
		return fmt.Errorf("advisory.New: %w on SQLite, which has no advisory locks; use strategies/cas",
			sqllock.ErrUnsupported)
	case s.store.DB().MaxConns() == 1:
		return fmt.Errorf("advisory.New: %w with a pool of one connection, which the locks would hold; allow two or more",
			sqllock.ErrUnsupported)
	default:
		return nil
	}
}

// Features says what the strategy can do.
func (s *Strategy) Features() sqllock.Features {
	return sqllock.Features{
		Strategy: name, Database: string(s.store.Dialect()), ConnectionHeld: true, Guard: true, Administer: true,
	}
}

// TryAcquire takes the advisory lock if no session has it.
//
// What is sent on the session is not cut short by ctx, because that would break
// the connection under the other locks; an acquisition that nobody waits for
// any more is given back by the core.
func (s *Strategy) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	r.Tokens = 1

	cur, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}

	defer cur.leave()

	if err := cur.open(ctx, r.Lease); err != nil {
		return nil, err
	}

	ctx, cancel := detach(ctx, r.Lease)
	defer cancel()

	g, err := cur.acquire(ctx, r)
	cur.closeIfIdle(ctx)

	return g, err
}

// ForceRelease also ends the session that holds the lock, and with it the
// other locks of the same locker.
func (s *Strategy) ForceRelease(ctx context.Context, name, reason string) error {
	var (
		values databases.Values
		before []int64
	)

	err := s.store.On(ctx, func(conn databases.Conn) (err error) {
		var namespace string

		err = conn.Query(ctx, s.sql.namespace, nil, func(row databases.Row) error { return row(&namespace) })
		if err != nil {
			return err
		}

		values = databases.Values{"key": s.key(namespace, name)}
		before, err = s.store.Sessions(ctx, conn, s.sql.session, values)

		return err
	})
	if err != nil {
		return err
	}

	if err := s.Admin.ForceRelease(ctx, name, reason); err != nil {
		return err
	}

	return s.store.On(ctx, func(conn databases.Conn) error {
		after, err := s.store.Sessions(ctx, conn, s.sql.session, values)
		if err != nil {
			return err
		}

		// Not that of a successor, who may have it by now.
		after = slices.DeleteFunc(after, func(id int64) bool { return !slices.Contains(before, id) })

		return s.store.Kill(ctx, conn, after, s.sql.kill)
	})
}

// enter returns the session of all locks, for this caller alone until it
// leaves.
func (s *Strategy) enter(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()

		if s.current == nil {
			s.current = &session{strategy: s, gate: make(chan struct{}, 1), grants: make(map[any]*grant)}
		}

		cur := s.current
		s.mu.Unlock()

		if err := cur.enter(ctx); err != nil {
			return nil, err
		}

		if !cur.ended {
			return cur, nil
		}

		cur.leave()
	}
}

// forget makes room for the next session.
func (s *Strategy) forget(ended *session) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.current == ended {
		s.current = nil
	}
}

// check makes sure, once, that the session is one, and that its locks hold for
// all.
func (s *Strategy) check(ctx context.Context, conn databases.Conn) error {
	if s.checked.Load() {
		return nil
	}

	if err := s.store.RefuseManyPrimaries(ctx, conn); err != nil {
		return err
	}

	if err := s.checkPooler(ctx, conn); err != nil {
		return err
	}

	s.checked.Store(true)

	return nil
}

// checkPooler looks for a proxy that pools transactions. Two connections of
// ours have two sessions, and keep them; behind such a proxy, with nothing
// going on, they have one. That finds most, not all: docs/strategies.md.
func (s *Strategy) checkPooler(ctx context.Context, conn databases.Conn) error {
	var first, second, again string

	identify := func(on databases.Session, id *string) error {
		return on.Query(ctx, s.sql.identity, nil, func(row databases.Row) error { return row(id) })
	}

	if err := identify(conn, &first); err != nil {
		return err
	}

	err := s.store.On(ctx, func(other databases.Conn) error { return identify(other, &second) })
	if err != nil {
		return err
	}

	if err := identify(conn, &again); err != nil {
		return err
	}

	if first == second || first != again {
		return fmt.Errorf("strategy advisory: %w behind a proxy that pools transactions, where two clients share a session; "+
			"connect to the server itself, or use strategies/cas", sqllock.ErrUnsupported)
	}

	return nil
}

// key is what the name is called in the server's lock table.
func (s *Strategy) key(namespace, name string) any {
	sum := sha256.Sum256([]byte("sqllock\x00" + namespace + "\x00" + name))

	if s.store.Dialect() == databases.Postgres {
		return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // any 64 bits will do
	}

	// At most 64 characters, and MySQL does not tell case: hexadecimal.
	return "sqllock:" + hex.EncodeToString(sum[:20])
}

// detach returns a context that ends after d and not with ctx.
func detach(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
