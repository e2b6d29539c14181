// Package advisory keeps a lock as an advisory lock of a database session:
// pg_try_advisory_lock on PostgreSQL, GET_LOCK on MySQL and MariaDB.
//
//	locker, err := sqllock.New(advisory.New(postgres.New(pool)))
//
// SQLite has none, and those of TiDB end after an hour. All locks of a locker share one connection, which is taken
// from the pool with the first lock and given back up to two seconds after the last, or by Close.
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
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

const name = "advisory"

// Strategy keeps locks as advisory locks. It is safe for concurrent use.
type Strategy struct {
	base

	store   *grants.Store
	sql     grants.Advisory
	checked atomic.Bool

	mu      sync.Mutex
	current *session
}

// base is what all strategies have.
type base = grants.Base

// New returns the strategy for a database. sqllock.New reports what is wrong with db:
// ErrUnsupported for TiDB and SQLite.
func New(db databases.DB) *Strategy {
	store := grants.New(db, name)

	return &Strategy{base: store.Base(), store: store, sql: store.Dialect().Advisory}
}

// refused says on what the strategy does not work, and why.
var refused = map[databases.Dialect]string{
	databases.SQLite: "on SQLite, which has no advisory locks",
	// Named locks are row locks of a transaction of the server's own. With max-txn-ttl set to ten seconds a second session was
	// given a lock by 8.5, while IS_USED_LOCK told the first one that it had it:
	// https://docs.pingcap.com/tidb/stable/tidb-configuration-file/#max-txn-ttl
	databases.TiDB: "on TiDB, whose named locks end without a word after an hour",
}

// Validate reports a database that cannot carry the strategy.
func (s *Strategy) Validate() error {
	return s.store.ValidateSessions(refused, ", which the locks would hold")
}

// Features says what the strategy can do.
func (s *Strategy) Features() strategies.Features {
	f := s.store.Features()
	f.ConnectionHeld, f.MaxLease, f.Shared = true, grants.MaxLease, s.sql.TryShared.SQL != ""

	return f
}

// Acquire takes the advisory locks that no session has.
//
// What is sent on the session is not cut short by ctx, because that would break
// the connection under the other locks; an acquisition that nobody waits for
// any more is given back by the core.
func (s *Strategy) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	made, errs, again := s.attempt(ctx, requests)
	if !again {
		return made, errs
	}

	broke := errs
	made, errs, _ = s.attempt(ctx, requests)

	// The answer was lost, and the session that has the lock has not ended yet; or there is no other, and the first
	// attempt, unlike the second, was sent.
	for i, r := range requests {
		held := new(strategies.HeldError)
		if errors.Is(errs[i], strategies.ErrNotSent) || errors.As(errs[i], &held) && held.Owner == r.Owner {
			errs[i] = broke[i]
		}
	}

	return made, errs
}

// attempt makes attempts on the session, all in one statement. again: it had been kept without locks, and the server may have
// ended it meanwhile. Then they are made again on another, unless they have brought something.
func (s *Strategy) attempt(ctx context.Context, requests []strategies.Request) (made []strategies.Grant, errs []error, again bool) {
	made = make([]strategies.Grant, len(requests))
	answer := func(err error) []error { return slices.Repeat([]error{err}, len(requests)) }
	longest := slices.MaxFunc(requests, func(a, b strategies.Request) int { return cmp.Compare(a.Lease, b.Lease) })
	lease, shared := longest.Lease, longest.Mode == strategies.Shared // of several none is

	if shared && s.sql.TryShared.SQL == "" {
		return made, answer(&strategies.UnsupportedError{
			Strategy: name, Where: "for readers on MySQL and MariaDB, whose GET_LOCK knows none", Instead: "cas",
		}), false
	}

	c, err := s.enter(ctx)
	if err != nil {
		return made, answer(grants.NotSent(err)), false
	}

	defer c.Leave()

	kept := c.conn != nil && len(c.grants) == 0

	if err := c.open(ctx); err != nil {
		return made, answer(grants.NotSent(err)), false
	}

	ctx, cancel := c.detach(ctx)
	defer cancel()

	switch err := c.ready(ctx, lease); {
	case err != nil:
		errs = answer(grants.NotSent(c.explain(err)))
	case shared:
		made[0], err = c.acquireShared(ctx, requests[0])
		errs = answer(err)
	default:
		made, errs = c.acquireAll(ctx, requests)
	}

	c.closeIfIdle(ctx)

	return made, errs, kept && s.store.Unreachable(c.gone)
}

// ForceRelease also ends the session that holds the lock, and with it the
// other locks of the same locker.
func (s *Strategy) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (found bool, err error) {
	var (
		values databases.Values
		before []int64
	)

	err = s.store.Use(ctx, func(on databases.Conn) error {
		namespace, _, err := s.namespace(ctx, on)
		if err != nil {
			return err
		}

		values = databases.Values{"key": s.key(namespace, seen.Name)}
		before, err = grants.Sessions(ctx, on, s.sql.Session, values, nil)

		return err
	})
	if err != nil {
		return false, err
	}

	found, err = s.base.ForceRelease(ctx, seen, reason)
	if err != nil || !found || len(before) == 0 {
		return found, err
	}

	// And not that of a successor, who may have the name by now.
	_, err = s.store.EndSessions(ctx, s.sql.Session, values, before, s.sql.Kill)

	return true, err
}

// namespace tells whose names a session locks, and its id.
func (s *Strategy) namespace(ctx context.Context, on databases.Session) (namespace string, id int64, err error) {
	_, err = grants.ReadOne(ctx, on, s.sql.Namespace, nil, &namespace, &id)

	return namespace, id, err
}

// enter returns the session of all locks, for this caller alone until it
// leaves.
func (s *Strategy) enter(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()

		if s.current == nil {
			s.current = &session{Gate: grants.NewGate(), strategy: s, grants: make(map[place]*grant), readers: make(map[any]int)}
		}

		cur := s.current
		s.mu.Unlock()

		if err := cur.Enter(ctx); err != nil {
			return nil, err
		}

		if !cur.ended {
			return cur, nil
		}

		cur.Leave()
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

// Close gives the session's connection back, unless a lock is on it.
func (s *Strategy) Close(ctx context.Context) {
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()

	if c != nil {
		c.close(ctx)
	}
}

// check makes sure, once, that the session is one, and that its locks hold for
// all.
func (s *Strategy) check(ctx context.Context, conn databases.Conn) error {
	if s.checked.Load() {
		return nil
	}

	err := s.store.RefuseManyPrimaries(ctx, conn)
	if err == nil {
		err = s.store.Use(ctx, func(other databases.Conn) error { return s.checkPooler(ctx, conn, other) })
	}

	s.checked.Store(err == nil)

	return err
}

// checkPooler looks for a proxy that pools transactions. Two connections of
// ours have two sessions, and keep them; behind such a proxy, with nothing
// going on, they have one. That finds most, not all: docs/strategies.md.
func (s *Strategy) checkPooler(ctx context.Context, conn, other databases.Conn) error {
	var ids [3]string

	for i, on := range []databases.Session{conn, other, conn} {
		if _, err := grants.ReadOne(ctx, on, s.sql.Identity, nil, &ids[i]); err != nil {
			return err
		}
	}

	if ids[0] != ids[1] && ids[0] == ids[2] {
		return nil
	}

	return &strategies.UnsupportedError{
		Strategy: name, Where: "behind a proxy that pools transactions, where two clients share a session",
		Fix: "connect to the server itself", Instead: "cas",
	}
}

// key is what the name is called in the server's lock table.
func (s *Strategy) key(namespace, name string) any {
	sum := sha256.Sum256([]byte("sqllock\x00" + namespace + "\x00" + name))

	if s.store.Dialect().Name == databases.Postgres {
		return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // any 64 bits will do
	}

	// At most 64 characters, and MySQL does not tell case: hexadecimal.
	return "sqllock:" + hex.EncodeToString(sum[:20])
}

// keys are several as they are bound.
func (s *Strategy) keys(keys []any) any {
	if s.store.Dialect().Name == databases.Postgres {
		return grants.Array(keys)
	}

	return grants.JSON(keys)
}
