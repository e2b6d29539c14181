// Package record keeps what every strategy writes down of a grant: the name's
// row with token, owner, lease and holder. For package cas that row is the
// lock; for the others it stands beside what is.
//
// sql.go has the statements. Which of them a method sends is its first line or
// two.
package record

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// Store runs the statements of one strategy on one database.
type Store struct {
	db         databases.DB
	strategy   string
	statements Statements
	shared     Shared
	verified   atomic.Bool
	onePrimary atomic.Bool
	invalid    error
}

// New returns the store of a strategy with the statements given for db's
// dialect. ok says whether there are any. An error is kept for Validate.
func New(db databases.DB, strategy string, statements func(databases.Dialect) (Statements, bool)) *Store {
	s := &Store{db: db, strategy: strategy}

	if db == nil {
		s.invalid = fmt.Errorf("%s.New: %w: the database is nil", strategy, sqllock.ErrInvalidOption)

		return s
	}

	if v, ok := db.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			s.invalid = fmt.Errorf("%s.New: %w: %s: %w", strategy, sqllock.ErrInvalidOption, db.Dialect(), err)

			return s
		}
	}

	var ok bool
	if s.statements, ok = statements(db.Dialect()); !ok {
		s.invalid = fmt.Errorf("%s.New: %w on %s", strategy, sqllock.ErrUnsupported, db.Dialect())
	}

	s.shared = shared[db.Dialect()]

	return s
}

// Validate reports what New found wrong.
func (s *Store) Validate() error { return s.invalid }

// Dialect is the database's; empty if it is nil.
func (s *Store) Dialect() databases.Dialect {
	if s.db == nil {
		return ""
	}

	return s.db.Dialect()
}

// DB is the database.
func (s *Store) DB() databases.DB { return s.db }

// On checks out a connection, runs f on it, and returns it to the pool. After
// an error that leaves the connection in doubt it is discarded. Errors come
// back as sqllock's where they mean one.
func (s *Store) On(ctx context.Context, f func(databases.Conn) error) error {
	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}

	err = f(conn)
	if s.Clean(err) {
		conn.Release()
	} else {
		conn.Discard()
	}

	return s.Explain(err)
}

// Conn checks out a connection for the caller to release or discard. The first
// one is asked whether the server will do.
func (s *Store) Conn(ctx context.Context) (databases.Conn, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}

	conn, err := s.db.Conn(ctx)
	if err != nil {
		err = fmt.Errorf("connect: %w", err)
		if s.db.Classify(err) == databases.Full {
			err = fmt.Errorf("%w: %w", sqllock.ErrTooManyConnections, err)
		}

		return nil, err
	}

	if s.verified.Load() {
		return conn, nil
	}

	if err := s.db.Verify(ctx, conn); err != nil {
		conn.Discard()

		return nil, s.Explain(err)
	}

	s.verified.Store(true)

	return conn, nil
}

// doubtful is an error after which the connection is in doubt, whatever the
// error itself would say.
type doubtful struct{ error }

func (d doubtful) Unwrap() error { return d.error }

// Doubt marks an error after which the connection must be discarded.
func Doubt(err error) error { return doubtful{err} }

// Clean says whether a connection can go back to its pool after err, outside
// a transaction.
func (s *Store) Clean(err error) bool {
	var d doubtful

	switch {
	case errors.As(err, &d):
		return false
	case err == nil, verdict(err):
		return true
	default:
		class := s.db.Classify(err)

		return class == databases.Busy || class == databases.NoSchema
	}
}

// verdict says whether err is an answer of ours rather than of the driver.
func verdict(err error) bool {
	return errors.Is(err, sqllock.ErrNotAcquired) || errors.Is(err, sqllock.ErrLost) || errors.Is(err, sqllock.ErrNotHeld)
}

// Explain adds to an error what it means to sqllock.
func (s *Store) Explain(err error) error {
	switch {
	case err == nil, verdict(err):
		return err
	case errors.Is(err, databases.ErrWrongServer):
		return fmt.Errorf("%w: %w", sqllock.ErrUnsupported, err)
	case errors.Is(err, databases.ErrReadOnly), s.db.Classify(err) == databases.ReadOnly:
		// A pool that followed a fail-over may reach another server next time.
		s.verified.Store(false)

		return fmt.Errorf("%w: %w", sqllock.ErrReadOnly, err)
	case s.db.Classify(err) == databases.NoSchema:
		return fmt.Errorf("%w: run \"sqllock migrate up\", or your own goose with the files of package migrations: %w",
			sqllock.ErrNoSchema, err)
	default:
		return err
	}
}

// Busy says whether the server refused because of somebody else's transaction,
// so that nothing was done.
func (s *Store) Busy(err error) bool {
	var d doubtful

	return err != nil && !errors.As(err, &d) && s.db.Classify(err) == databases.Busy
}

// values are what the statements about a request bind.
func (s *Store) values(r sqllock.Request) databases.Values {
	return databases.Values{
		"name": r.Name, "owner": r.Owner, "strategy": s.strategy,
		"lease": s.lease(r.Lease), "delay": ceil(r.LockDelay), "min_hold": ceil(r.MinHold), "durable": r.DurableRelease, "tokens": tokens(r),
		"host": r.Holder.Host, "pid": int64(r.Holder.PID), "label": r.Holder.Label, "metadata": r.Holder.Metadata,
	}
}

// State is what the database knows of a name.
type State struct {
	// Owner of the grant; empty if the name is free.
	Owner string
	// Token of the latest grant.
	Token int64
	// Ended says why the latest grant ended, if not by its own release.
	Ended string
	// Left of the lease, negative if it ran out; Delay comes on top.
	Left   time.Duration
	Delay  time.Duration
	Holder sqllock.Holder
}

// State reads a name's rows. found is false if there are none.
func (s *Store) State(ctx context.Context, on databases.Session, name string) (st State, found bool, err error) {
	err = on.Query(ctx, s.statements.State, databases.Values{"name": name}, func(row databases.Row) (err error) {
		found = true
		st, err = scan(row)

		return err
	})

	return st, found, err
}

// scan reads a row of a statement for State, with more columns before its own.
func scan(row databases.Row, more ...any) (st State, err error) {
	var left, delay, pid int64

	err = row(append(more, &st.Owner, &st.Token, &st.Ended, &left, &delay,
		&st.Holder.Host, &pid, &st.Holder.Label, &st.Holder.Metadata)...)

	st.Left, st.Delay = micros(left), micros(delay)
	st.Holder.PID = int(pid)

	return st, err
}

// Held is the error for a name that the state says somebody has.
func (st State) Held(name string) *sqllock.HeldError {
	held := &sqllock.HeldError{Name: name, Remaining: max(0, st.Left+st.Delay)}

	switch {
	case st.Owner != "" && st.Left > 0:
		held.Holder, held.Token = st.Holder, st.Token
	case st.Owner != "" && st.Left+st.Delay > 0:
		held.Detail = "its lease ran out, and its lock delay has not"
	case st.Left > 0:
		held.Detail = "released, until its minimum hold is over"
	default:
		held.Detail = "it changes hands, or a transaction with a guard has not ended"
	}

	return held
}

// Create makes the name's rows.
func (s *Store) Create(ctx context.Context, on databases.Session, name string) error {
	for _, statement := range s.statements.Create {
		if _, err := on.Exec(ctx, statement, databases.Values{"name": name}); err != nil {
			return err
		}
	}

	return nil
}

// Instead names grants that an acquisition may replace though their lease
// runs, because the caller has the lock of the session that they were made in.
type Instead struct {
	// Strategy of those grants; empty for none.
	Strategy string
	// Token that the caller saw under the session's lock: a later grant is not
	// replaced by a statement that was held up on its way. AnyToken where the
	// statement is sent on the session itself.
	Token int64
}

// AnyToken is no token.
const AnyToken = -1

// Acquire grants the name to the request's owner, if it is free, and returns
// the token.
func (s *Store) Acquire(ctx context.Context, on databases.Session, r sqllock.Request, instead Instead) (int64, error) {
	values := s.values(r)
	values["session"], values["seen"] = instead.Strategy, instead.Token

	if r.Waiting && instead.Strategy == "" {
		// Who waits finds it held as a rule: a look costs no lock.
		st, found, err := s.State(ctx, on, r.Name)
		if err != nil {
			return 0, err
		}

		if found && st.Owner != r.Owner && st.Left+st.Delay > 0 {
			return 0, st.Held(r.Name)
		}
	}

	// The second round follows the making of the row, once in a name's life.
	for range 2 {
		token, err := s.draw(ctx, on, s.statements.Acquire, values)
		if token != 0 || err != nil {
			return token, s.held(r.Name, err)
		}

		st, found, err := s.State(ctx, on, r.Name)

		switch {
		case err != nil:
			return 0, err
		case found:
			return 0, st.Held(r.Name)
		}

		if err := s.Create(ctx, on, r.Name); err != nil {
			return 0, s.held(r.Name, err)
		}
	}

	return 0, &sqllock.HeldError{Name: r.Name, Detail: "its row comes and goes"}
}

// held turns a refusal by the server into the answer that it is.
func (s *Store) held(name string, err error) error {
	if s.Busy(err) {
		return &sqllock.HeldError{Name: name, Detail: err.Error()}
	}

	return err
}

// draw runs a statement that grants and returns the token, zero if it did not.
func (s *Store) draw(
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values,
) (token int64, err error) {
	if s.Dialect() == databases.MySQL {
		result, err := on.Exec(ctx, statement, values)

		return result.LastInsertID, err
	}

	err = on.Query(ctx, statement, values, func(row databases.Row) error { return row(&token) })

	return token, err
}

// Draw runs a statement of the strategy's own that draws the request's token.
func (s *Store) Draw(
	ctx context.Context, on databases.Session, statement databases.Statement, r sqllock.Request,
) (int64, error) {
	return s.draw(ctx, on, statement, s.values(r))
}

// Exec runs a statement of the strategy's own about a request.
func (s *Store) Exec(
	ctx context.Context, on databases.Session, statement databases.Statement, r sqllock.Request,
) (databases.Result, error) {
	return on.Exec(ctx, statement, s.values(r))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// lease is what the database adds to its clock for a lease. SQLite's shows the
// millisecond that began last, so that a lease that begins within it would end as
// much too early.
func (s *Store) lease(d time.Duration) int64 {
	if s.Dialect() == databases.SQLite {
		d += time.Millisecond
	}

	return ceil(d)
}

// ceil returns microseconds, rounded up: with WithClockMargin(0, 0) the database
// would otherwise end a lease before its holder stops to trust it.
func ceil(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }
