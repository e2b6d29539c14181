// Package forupdate keeps a lock as a row lock: SELECT ... FOR UPDATE in a
// transaction that stays open on a connection of its own.
//
//	locker, err := sqllock.New(forupdate.New(postgres.New(pool)))
//
// Databases: PostgreSQL, MySQL, MariaDB. SQLite has no row locks, and those of TiDB end
// after an hour.
//
// The lock is free the moment its session ends, so a crashed holder is
// followed without waiting for its lease. That is also the price: whatever ends
// the session ends the lock (an operator, a fail-over, an idle limit of a
// proxy), and the holder hears of it at its next renewal, up to a third of the
// lease later. Lock.Guard and the token keep that harmless.
//
// Each lock holds one connection of the pool, and one more is used for a moment
// by each acquisition, renewal and release: a pool of n keeps n-1 locks. Beyond
// that an Acquire waits in order of arrival, whatever its name, and a TryAcquire
// returns ErrTooManyConnections. The open transaction holds back vacuum on PostgreSQL and purge on InnoDB.
//
// The lease is enforced by the server, which ends a session that it has not
// heard from: idle_in_transaction_session_timeout on PostgreSQL, wait_timeout
// (whole seconds, rounded up) on MySQL and MariaDB.
package forupdate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

const name = "forupdate"

// Strategy keeps locks as row locks. It is safe for concurrent use.
type Strategy struct {
	base
	alone

	store  *grants.Store
	sql    grants.ForUpdate
	places *places
}

// base is what all strategies have; alone is for those that renew and release their grants one at a time.
type (
	base  = grants.Base
	alone = calls.Alone
)

// New returns the strategy for a database. sqllock.New reports what is wrong with db:
// ErrUnsupported for TiDB and SQLite.
func New(db databases.DB) *Strategy {
	store := grants.New(db, name)

	return &Strategy{base: store.Base(), store: store, sql: store.Dialect().ForUpdate, places: newPlaces(func() int { return db.MaxConns() })}
}

// refused says on what the strategy does not work, and why.
var refused = map[databases.Dialect]string{
	databases.SQLite: "on SQLite, which locks the whole file and no rows",
	// max-txn-ttl, an hour by default: https://docs.pingcap.com/tidb/stable/tidb-configuration-file/#max-txn-ttl
	databases.TiDB: "on TiDB, whose row locks end without a word when their transaction is an hour old",
}

// Validate reports a database that cannot carry the strategy.
func (s *Strategy) Validate() error {
	return s.store.ValidateSessions(refused, ": a lock holds one and needs another for its lease")
}

// Features says what the strategy can do.
func (s *Strategy) Features() strategies.Features {
	f := s.store.Features()
	f.ConnectionHeld, f.MaxLease, f.Several, f.Shared, f.Unbatched = true, grants.MaxLease, false, true, true

	return f
}

// Place waits for a connection of the pool to hold the lock with.
func (s *Strategy) Place(ctx context.Context, holding []string, waits func(why error)) (any, error) {
	if err := s.places.wait(ctx, holding, waits); err != nil {
		return nil, err
	}

	return s.places, nil
}

// Acquire takes the row lock if no session has it. Without a place from Place it
// takes one that is free.
func (s *Strategy) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.acquire, calls.AcquireAlone)
}

func (s *Strategy) acquire(ctx context.Context, r strategies.Request) (made strategies.Grant, err error) {
	if r.Place == nil {
		if err := s.places.take(); err != nil {
			return made, err
		}
	}

	s.places.keep(r.Owner)

	defer func() {
		if err != nil {
			s.places.leave(r.Owner)
		}
	}()

	// The second round follows the making of the row.
	for range 2 {
		conn, held, seen, err := s.lock(ctx, r)

		switch {
		case err != nil:
			// What was sent leaves nothing: the session's end frees the row.
			return made, grants.NotSent(err)
		case conn != nil:
			return s.record(ctx, r, conn, grants.Replaces{Strategy: name, Token: seen.Token, Held: held})
		}

		err = s.store.Use(ctx, func(on databases.Conn) error { return s.missing(ctx, on, r, seen) })
		if err != nil {
			return made, grants.NotSent(err)
		}
	}

	return made, grants.ComesAndGoes(r.Name)
}

// lock returns the connection that holds the row, or nil if the row is not to
// be had, what the server knows the lock by, and what the record said before.
func (s *Strategy) lock(
	ctx context.Context, r strategies.Request,
) (conn databases.Conn, held string, seen grants.State, err error) {
	conn, ctx, cancel, err := s.store.Checkout(ctx)
	if err != nil {
		return nil, "", seen, err
	}

	defer cancel()

	started := time.Now()
	held, seen, err = s.lockOn(ctx, conn, r)

	switch {
	case err != nil:
		err = s.refused(r, s.store.Recheck(conn, err))
		conn.Discard()
	case seen.Waits(r):
		err = seen.Refused(r) // nobody has it, and the first in line is to find its row free
		conn.Release()
	case held != "":
		return conn, held, seen, nil
	default:
		_ = s.end(ctx, r, conn, started.Add(r.Lease), nil)
	}

	return nil, "", seen, err
}

// lockOn opens the transaction and locks the row, if no session has it and it is the request's turn.
func (s *Strategy) lockOn(ctx context.Context, conn databases.Conn, r strategies.Request) (held string, seen grants.State, err error) {
	if err := s.store.RefuseManyPrimaries(ctx, conn); err != nil {
		return "", seen, err
	}

	// Before the transaction: one that has read the table keeps the lock of the
	// table until it ends. Whoever would change the table then waits for that, and in
	// line behind them the renewals of all other locks.
	seen, err = s.store.State(ctx, conn, r.Name)
	if err != nil || seen.Waits(r) {
		return "", seen, err
	}

	lock := s.sql.Lock
	if r.Mode == strategies.Shared {
		lock = s.sql.LockShared
	}

	values := s.values(r, r.Lease)

	var steps []databases.Step
	for _, begin := range s.sql.Begin {
		steps = append(steps, databases.Step{Statement: begin, Values: values})
	}

	steps = append(steps, databases.Step{Statement: lock, Values: values, Each: func(row databases.Row) error { return row(&held) }})
	for _, locked := range s.sql.Locked {
		steps = append(steps, databases.Step{Statement: grants.Written(locked, values["limit"]), Values: values})
	}

	err = databases.Pipeline(ctx, conn, steps...)

	return held, seen, err
}

// refused is what an error of a session means that was to lock the row.
func (s *Strategy) refused(r strategies.Request, err error) error {
	switch {
	case strings.Contains(err.Error(), "statement pooling mode"): // PgBouncer's words (seen with 1.18 and 1.24)
		return &strategies.UnsupportedError{
			Strategy: name, Where: "through PgBouncer in statement mode, which allows no transactions",
			Fix: "let it pool sessions or transactions", Instead: "cas",
		}
	case s.store.Busy(err):
		return &strategies.HeldError{Name: r.Name, Detail: err.Error()}
	default:
		return s.store.Explain(err)
	}
}

// record makes the grant, whose token and lease are written down on another connection.
func (s *Strategy) record(
	ctx context.Context, r strategies.Request, conn databases.Conn, instead grants.Replaces,
) (made strategies.Grant, err error) {
	until := time.Now().Add(r.Lease)

	var record *grants.Grant

	// What was seen may be replaced: its session had the row before, and the row's
	// lock says that it has ended. What came after the look may not, as this
	// session may end, too, while this is on its way.
	// What a reader has seen since then it has seen under its own lock.
	err = s.store.Attempt(ctx, func(ctx context.Context, conn databases.Conn) (err error) {
		record, err = s.store.Grants(ctx, conn, r, instead)

		return err
	})

	switch {
	case errors.Is(err, strategies.ErrTooManyConnections):
		// Others need this one: each would keep its own, and none get a second.
		conn.Discard()

		return made, err
	case err != nil:
		// Nobody else need have the name if the session has ended.
		if ended := s.end(ctx, r, conn, time.Time{}, nil); ended != nil && errors.As(err, new(*strategies.HeldError)) {
			return made, s.store.Explain(ended)
		}

		return made, err
	}

	// A writer's record was written while the session had the row. A reader may have joined others, of which the
	// record says nothing of sessions. If its session is not there, the core has what was written down settled. Also
	// though ctx has ended: it would have to, too, and could not tell whether it is needed.
	if r.Mode == strategies.Shared {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()

		if err := s.beat(ctx, conn, r, r.Lease); err != nil {
			conn.Discard()

			return made, s.store.Explain(err)
		}
	}

	g := &grant{Gate: grants.NewGate(), record: record, strategy: s, conn: conn, limit: r.Lease, until: until}

	return record.Granted(g), nil
}

// beat tells the server that the holder lives.
func (s *Strategy) beat(ctx context.Context, conn databases.Conn, r strategies.Request, limit time.Duration) error {
	_, err := conn.Run(ctx, grants.Written(s.sql.Limit, s.store.Dialect().IdleLimit(limit)), s.values(r, limit), nil)

	return err
}

// missing makes the row if there is none; otherwise another session has it.
func (s *Strategy) missing(ctx context.Context, conn databases.Conn, r strategies.Request, seen grants.State) error {
	exists, err := grants.ReadOne(ctx, conn, s.sql.Exists, s.values(r, 0), new(int64))

	switch {
	case err != nil:
		return err
	case !exists:
		return s.store.WithLockTimeout(ctx, conn, []databases.Statement{s.sql.Create}, s.values(r, 0))
	}

	if seen.Owner == "" || seen.Left <= 0 {
		// Whoever has the row came after the look, or had not written it down.
		if seen, err = s.store.State(ctx, conn, r.Name); err != nil {
			return err
		}
	}

	return s.store.HeldBySession(ctx, conn, r.Name, seen)
}

// end frees the row and gives the connection back, and says whether the session is
// known to have lived until then. It returns the connection to the pool until the time
// when others may look for the session, to end it, and discards it from then on: they
// might end what it is used for next. A reaper looks for it when the lease has expired.
// Between the two it runs freed on the connection, unless that is nil, and discards one that this leaves in doubt.
func (s *Strategy) end(
	ctx context.Context, r strategies.Request, conn databases.Conn, until time.Time, freed func(context.Context, databases.Session) error,
) error {
	// Also though ctx has ended: the connection goes back to the pool.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()

	if err := grants.ExecAll(ctx, conn, s.sql.End, s.values(r, 0)); err != nil {
		conn.Discard()

		return err
	}

	if freed != nil && freed(ctx, conn) != nil {
		until = time.Time{}
	}

	if time.Now().Before(until) {
		conn.Release()
	} else {
		conn.Discard()
	}

	return nil
}

const endTimeout = 2 * time.Second

func (s *Strategy) values(r strategies.Request, limit time.Duration) databases.Values {
	return databases.Values{
		"name": r.Name, "where": s.store.Where(), "session": "sqllock:" + r.Owner, "limit": s.store.Dialect().IdleLimit(limit),
	}
}

// Reap also ends the sessions of holders whose lease expired. The server does
// so by itself, unless something keeps such a session busy.
func (s *Strategy) Reap(ctx context.Context, retention time.Duration) (strategies.Reaped, error) {
	if _, err := s.endSessions(ctx, s.sql.Sessions, nil); err != nil {
		return strategies.Reaped{}, err
	}

	return s.base.Reap(ctx, retention)
}

// ForceRelease also ends the session of the holder whose grant it ended, or those of all readers.
func (s *Strategy) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (bool, error) {
	owner, found, err := s.store.Force(ctx, seen, reason)
	if err != nil || owner == "" {
		return found, err
	}

	owners, err := s.store.Owners(ctx, seen.Name, owner)
	if err != nil {
		return true, err
	}

	for _, owner := range owners {
		if _, err := s.endSessions(ctx, s.sql.Session, s.values(strategies.Request{Name: seen.Name, Owner: owner}, 0)); err != nil {
			return true, err
		}
	}

	return true, nil
}

// endSessions ends the sessions that a statement lists.
func (s *Strategy) endSessions(ctx context.Context, list databases.Statement, values databases.Values) (left bool, err error) {
	return s.store.EndSessions(ctx, list, values, nil, s.sql.Kill)
}
