// Package forupdate keeps a lock as a row lock: SELECT ... FOR UPDATE in a
// transaction that stays open on a connection of its own.
//
//	locker, err := sqllock.New(forupdate.New(postgres.New(pool)))
//
// Databases: PostgreSQL, MySQL, MariaDB. SQLite has no row locks.
//
// The lock is free the moment its session ends, so a crashed holder is
// followed without waiting for its lease. That is also the price: whatever ends
// the session ends the lock (an operator, a fail-over, an idle limit of a
// proxy), and the holder hears of it at its next renewal, up to a third of the
// lease later. Lock.Guard and the token keep that harmless.
//
// Each lock holds one connection of the pool, and one more is used for a moment
// by each acquisition, renewal and release: a pool of n keeps n-1 locks. The
// open transaction holds back vacuum on PostgreSQL and purge on InnoDB.
//
// The lease is enforced by the server, which ends a session that it has not
// heard from: idle_in_transaction_session_timeout on PostgreSQL, wait_timeout
// (whole seconds, rounded up) on MySQL and MariaDB.
package forupdate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/internal/record"
)

const name = "forupdate"

// Strategy keeps locks as row locks. It is safe for concurrent use.
type Strategy struct {
	record.Admin
	store *record.Store
	sql   statements
	held  atomic.Int64 // locks, and attempts under way, each with a connection
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
		return fmt.Errorf("forupdate.New: %w on SQLite, which locks the whole file and no rows; use strategies/cas",
			sqllock.ErrUnsupported)
	case s.store.DB().MaxConns() == 1:
		return fmt.Errorf("forupdate.New: %w with a pool of one connection: a lock holds one and needs another for its lease; "+
			"allow two or more", sqllock.ErrUnsupported)
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

// TryAcquire takes the row lock if no session has it.
func (s *Strategy) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	if !s.reserve() {
		return nil, &sqllock.HeldError{
			Name:   r.Name,
			Detail: fmt.Sprintf("no connection to hold it: all but one of the pool's %d hold locks", s.store.DB().MaxConns()),
		}
	}

	r.Tokens = 1

	g, err := s.acquire(ctx, r)
	if err != nil {
		s.held.Add(-1)

		return nil, err
	}

	return g, nil // from here on the grant counts itself off
}

// reserve makes sure that a connection is left for renewals and releases.
func (s *Strategy) reserve() bool {
	limit := int64(s.store.DB().MaxConns())

	if held := s.held.Add(1); limit > 0 && held >= limit {
		s.held.Add(-1)

		return false
	}

	return true
}

func (s *Strategy) acquire(ctx context.Context, r sqllock.Request) (*grant, error) {
	// The second round follows the making of the row.
	for range 2 {
		conn, err := s.lock(ctx, r)

		switch {
		case err != nil:
			return nil, err
		case conn != nil:
			return s.record(ctx, r, conn)
		}

		if err := s.missing(ctx, r); err != nil {
			return nil, err
		}
	}

	return nil, &sqllock.HeldError{Name: r.Name, Detail: "its row comes and goes"}
}

// lock returns the connection that holds the row, or nil if the row is not to
// be had.
func (s *Strategy) lock(ctx context.Context, r sqllock.Request) (databases.Conn, error) {
	conn, err := s.store.Conn(ctx)
	if err != nil {
		return nil, err
	}

	if err := s.store.RefuseManyPrimaries(ctx, conn); err != nil {
		conn.Discard()

		return nil, err
	}

	locked := false

	for _, begin := range s.sql.begin {
		if err == nil {
			err = s.exec(ctx, conn, begin, r, 0)
		}
	}

	if err == nil {
		err = s.exec(ctx, conn, s.sql.limit, r, r.Lease)
	}

	if err == nil {
		err = conn.Query(ctx, s.sql.lock, s.values(r, 0), func(row databases.Row) error {
			locked = true

			var name string

			return row(&name)
		})
	}

	switch {
	case err != nil:
		conn.Discard()

		if s.store.Busy(err) {
			return nil, &sqllock.HeldError{Name: r.Name, Detail: err.Error()}
		}

		return nil, s.store.Explain(err)
	case locked:
		return conn, nil
	default:
		_ = s.end(ctx, r, conn)

		return nil, nil //nolint:nilnil // not to be had is no error
	}
}

// record draws the token and writes the lease down, on another connection.
func (s *Strategy) record(ctx context.Context, r sqllock.Request, conn databases.Conn) (*grant, error) {
	var token int64

	// What is there now may be replaced: the row's lock says that its session
	// has ended. What comes after, were this session to end, may not.
	st, _, err := s.store.State(ctx, conn, r.Name)
	if err != nil {
		conn.Discard()

		return nil, s.store.Explain(err)
	}

	err = s.store.On(ctx, func(other databases.Conn) (err error) {
		token, err = s.store.Acquire(ctx, other, r, record.Instead{Strategy: name, Token: st.Token})

		return err
	})
	switch {
	case errors.Is(err, sqllock.ErrTooManyConnections):
		// Others need this one: each would keep its own, and none get a second.
		conn.Discard()

		return nil, err
	case err != nil:
		_ = s.end(ctx, r, conn)

		return nil, err
	}

	// The row was locked all the while, if the session is still there. If it is
	// not, the core has what was written down settled.
	if err := s.ping(ctx, conn); err != nil {
		conn.Discard()

		return nil, s.store.Explain(err)
	}

	return &grant{
		Grant: s.store.Grant(r, token), strategy: s, gate: make(chan struct{}, 1), conn: conn, limit: r.Lease,
	}, nil
}

func (s *Strategy) ping(ctx context.Context, conn databases.Conn) error {
	return conn.Query(ctx, s.sql.ping, nil, func(databases.Row) error { return nil })
}

// missing makes the row if there is none; otherwise another session has it.
func (s *Strategy) missing(ctx context.Context, r sqllock.Request) error {
	return s.store.On(ctx, func(conn databases.Conn) error {
		exists := false

		err := conn.Query(ctx, s.sql.exists, s.values(r, 0), func(databases.Row) error {
			exists = true

			return nil
		})

		switch {
		case err != nil:
			return err
		case !exists:
			return s.exec(ctx, conn, s.sql.create, r, 0)
		}

		st, _, err := s.store.State(ctx, conn, r.Name)
		if err != nil {
			return err
		}

		held := st.Held(r.Name)
		if st.Left <= 0 {
			held.Detail = "a session holds its row, and has not written down whose"
		}

		return held
	})
}

// end frees the row and returns the connection, or discards it in doubt, and
// says whether the session is known to have lived until then.
func (s *Strategy) end(ctx context.Context, r sqllock.Request, conn databases.Conn) error {
	// Also though ctx has ended: the connection goes back to the pool.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()

	for _, statement := range s.sql.end {
		if err := s.exec(ctx, conn, statement, r, 0); err != nil {
			conn.Discard()

			return err
		}
	}

	conn.Release()

	return nil
}

const endTimeout = 2 * time.Second

func (s *Strategy) exec(
	ctx context.Context, conn databases.Conn, statement databases.Statement, r sqllock.Request, limit time.Duration,
) error {
	_, err := conn.Exec(ctx, statement, s.values(r, limit))

	return err
}

func (s *Strategy) values(r sqllock.Request, limit time.Duration) databases.Values {
	return databases.Values{
		"name": r.Name, "session": "sqllock:" + r.Owner, "limit": record.IdleLimit(s.store.Dialect(), limit),
	}
}
