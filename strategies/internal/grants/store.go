// Package grants keeps what the database knows of each grant, whatever the strategy:
// the name's row with token, owner, lease and holder, its history, and who waits.
// No strategy grants a name whose row says that another holds it.
//
// What is sent is data, in one file for each dialect: postgres.sql, mysql.sql, tidb.sql
// and sqlite.sql. A [Dialect] has those statements, and what else is to be known of a
// family of servers. Each method here names the statement that it sends, as a field of
// s.sql, whose tag is the name of its section in the files.
//
// Methods that are sent on a connection which the caller has end with On, or take it
// as an argument. The others check one out and return it: see Store.Use. What a query returns is read by ReadOne and its likes.
package grants

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Store runs the statements of one strategy on one database.
type Store struct {
	db          databases.DB
	strategy    string
	sql         *Dialect
	take        Take // Acquire, or what a strategy has in its place
	verified    atomic.Bool
	reached     atomic.Bool            // the server has been asked what it is, and answered
	place       atomic.Pointer[place]  // what the first session found, with tables that were not dropped since; nil before
	primaries   atomic.Pointer[string] // the setting that says that there are several, or nothing; nil before it is asked
	noted       atomic.Int64           // how long a grant may last, as this store has noted it in the database
	cluster     atomic.Pointer[string] // why no server lacks a commit of the one before, or nothing
	swept       atomic.Bool            // what dead waiters left
	lowered     atomic.Int64           // when it was looked last whether the longest lease is over, in Unix seconds
	sharesSwept atomic.Bool            // what dead readers left
	invalid     error
}

// New returns the store of a strategy. An error is kept for Validate.
func New(db databases.DB, strategy string) *Store {
	s := &Store{db: db, strategy: strategy, sql: &Dialect{}}
	s.take = s.Acquire
	s.cluster.Store(new(string))

	if db == nil {
		s.invalid = fmt.Errorf("%s.New: %w: the database is nil", strategy, strategies.ErrInvalidOption)

		return s
	}

	name := db.Dialect()

	if read, ok := dialects[name]; ok {
		*s.sql = read(strategy)
	} else {
		s.invalid = &strategies.UnsupportedError{Op: strategy + ".New", Strategy: strategy, Where: "on " + string(name)}
	}

	s.sql.Name = name

	if v, ok := db.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			s.invalid = fmt.Errorf("%s.New: %w: %w", name, strategies.ErrInvalidOption, err)
		}
	}

	return s
}

// Dialect is the database's; zero but for its name if there is none.
func (s *Store) Dialect() *Dialect { return s.sql }

// Features are those of a strategy of this name, without what it can do.
func (s *Store) Features() strategies.Features {
	return strategies.Features{Strategy: s.strategy, Database: string(s.sql.Name), LeavesLine: s.sql.LeavesLine, Calls: s.wakes(), Slots: true, Several: true, Unbatched: s.sql.Batch.Acquire.SQL == "", Recovers: s.recoverable()}
}

// wakes says whether a release has to wake others.
func (s *Store) wakes() bool {
	waker, ok := s.db.(databases.Waker)

	return ok && s.sql.Call.SQL != "" && waker.Wakes()
}

// MaxConns is the most connections that the pool opens; zero is no limit.
func (s *Store) MaxConns() int { return s.db.MaxConns() }

// Conn checks out a connection, for the caller to give to Return, or to release or
// discard. The first one is asked whether the server will do.
func (s *Store) Conn(ctx context.Context) (databases.Conn, error) {
	return s.conn(ctx, s.pooled, false)
}

func (s *Store) pooled(ctx context.Context) (databases.Conn, error) { return s.db.Conn(ctx) }

// Return returns a connection to the pool. It is deferred with the address of the
// error that its caller returns: after one that leaves the connection in doubt, and in
// a panic, that is discarded. The error becomes sqllock's where it means one, and nil where only a hint failed.
func (s *Store) Return(conn databases.Conn, err *error) {
	if cause := recover(); cause != nil {
		conn.Discard()
		panic(cause)
	}

	*err = s.Recheck(conn, *err)

	if s.Clean(*err) {
		conn.Release()
	} else {
		conn.Discard()
	}

	if isUnheard(*err) {
		*err = nil
	}

	*err = s.Explain(*err)
}

// Attempt runs f on a connection of the pool for what takes a lock, with the context of what is sent: see Checkout.
func (s *Store) Attempt(ctx context.Context, f func(ctx context.Context, on databases.Conn) error) (err error) {
	conn, ctx, cancel, err := s.Checkout(ctx)
	if err != nil {
		return err
	}

	defer s.Return(conn, &err)
	defer cancel()

	return f(ctx, conn)
}

// Checkout returns a connection for what takes a lock, as Conn does, and the context of what is sent. The
// end of ctx ends the wait for a connection, and nothing that was sent: a statement
// that its client has given up goes on at the server, and its grant may come after
// everything that was to end it.
func (s *Store) Checkout(ctx context.Context) (databases.Conn, context.Context, context.CancelFunc, error) {
	conn, err := s.Conn(ctx)
	if err != nil {
		return nil, nil, nil, err
	}

	if err := ctx.Err(); err != nil {
		conn.Release()

		return nil, nil, nil, s.Explain(notSent(err))
	}

	sent, cancel := context.WithTimeout(context.WithoutCancel(ctx), strategies.AttemptTime)

	return conn, sent, cancel, nil
}

// connToRenew is Conn for a renewal.
func (s *Store) connToRenew(ctx context.Context) (databases.Conn, error) {
	connect := s.pooled
	if renewer, ok := s.db.(databases.Renewer); ok {
		connect = renewer.ConnToRenew
	}

	return s.conn(ctx, connect, false)
}

func (s *Store) conn(
	ctx context.Context, connect func(context.Context) (databases.Conn, error), looking bool,
) (databases.Conn, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}

	conn, err := connect(ctx)
	if err != nil {
		return nil, s.noConn(err)
	}

	if s.verified.Load() {
		return conn, nil
	}

	// Who only looks may do so on a server that takes no writes. A later acquisition asks again.
	if err := s.verify(ctx, conn); err != nil && (!looking || !errors.Is(err, databases.ErrReadOnly)) {
		conn.Discard()

		return nil, notSent(s.Explain(err))
	}

	return conn, nil
}

// verify asks the server what it is, and a session which tables it finds.
func (s *Store) verify(ctx context.Context, on databases.Session) error {
	if err := s.db.Verify(ctx, on); err != nil {
		return err
	}

	located, err := s.locate(ctx, on)
	if err == nil && located {
		err = s.Recheck(on, s.checkProtocol(ctx, on))
	}

	if err == nil {
		err = s.findCluster(ctx, on)
	}

	if err == nil {
		s.verified.Store(located)
		s.reached.Store(true)
	}

	return err
}

// checkProtocol refuses tables that a program has to speak another protocol for. A migration that raises it makes the statements fail
// that there were before: see Recheck.
func (s *Store) checkProtocol(ctx context.Context, on databases.Session) error {
	var protocol int64

	_, err := ReadOne(ctx, on, s.sql.Protocol, nil, &protocol)

	switch {
	case err != nil || protocol == strategies.Protocol:
		return err
	case protocol < strategies.Protocol:
		return &strategies.SchemaError{Err: fmt.Errorf("their protocol is %d, and this program speaks %d", protocol, strategies.Protocol)}
	}

	return &strategies.UnsupportedError{
		Strategy: s.strategy, Where: fmt.Sprintf("on tables of protocol %d, while this program speaks %d", protocol, strategies.Protocol),
		Fix: "use the version of sqllock that migrated them",
	}
}

// place is what a session finds.
type place struct {
	tables string // those of sqllock; empty if it finds none
	there  bool   // the tables that were found first are still there
	user   string // as whom it acts
	mixed  bool   // it finds some tables elsewhere than others
}

func (s *Store) find(ctx context.Context, on databases.Session) (found place, err error) {
	_, err = ReadOne(ctx, on, s.sql.Where, databases.Values{"where": s.Where()}, &found.tables, &found.there, &found.user, &found.mixed)

	return found, err
}

// elsewhere says whether a session finds other tables than the first one did, which are still there.
func (p place) elsewhere(first *place) bool {
	return first != nil && p.there && (p.mixed || p.tables != first.tables)
}

var errOtherTables = errors.New("the session finds other tables than before")

// locate notes which tables a session finds, or refuses it: a program may have set it to look elsewhere. It says whether there are any.
func (s *Store) locate(ctx context.Context, on databases.Session) (located bool, err error) {
	if s.sql.Where.SQL == "" {
		return true, nil
	}

	found, err := s.find(ctx, on)
	first := s.place.Load()

	switch {
	case err != nil:
		return false, err
	case found.elsewhere(first):
		return false, s.changed(errOtherTables)
	case found.mixed:
		return false, &databases.ServerError{
			Found: "the session finds some of sqllock's tables in one schema and some in another, or a temporary one",
			Fix:   "let search_path lead to one set of tables; sqllock doctor says where they are",
		}
	case found.tables != "" && (first == nil || !found.there):
		s.place.Store(&found)
	}

	return found.tables != "", nil // if not, the statement that follows says so
}

// unlessElsewhere returns what a session has answered of a lock, unless it finds other tables than the first one did. If it cannot
// be asked that stands, and its connection is in doubt.
func (s *Store) unlessElsewhere(ctx context.Context, on databases.Session, answer error) error {
	first := s.place.Load()
	if first == nil {
		return answer
	}

	switch found, err := s.find(ctx, on); {
	case err != nil:
		return Doubt(answer)
	case found.elsewhere(first):
		return s.changed(errOtherTables)
	default:
		return answer
	}
}

// changed is the error of a session that the program has changed, which is to be given up. The next connection is looked at before it
// is used. What the server said of this one is text: that tables are missing, for example, which are not.
func (s *Store) changed(err error) error {
	s.verified.Store(false)

	return Doubt(busyError(changed, errors.New(err.Error())))
}

// Recheck is for an error of a session. Where tables are missing, a newer program may have migrated them. Where tables or privileges are
// missing that there were, the program may have changed the session: then the tables are not missing, and another session will do. If
// the session cannot be asked its connection is in doubt.
func (s *Store) Recheck(on databases.Session, err error) error {
	if err == nil || verdict(err) {
		return err
	}

	class := s.db.Classify(err)
	if class != databases.NoSchema && class != databases.NotAllowed {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), patientTime) //nolint:forbidigo // the caller's may have ended
	defer cancel()

	if class == databases.NoSchema {
		if newer := s.checkProtocol(ctx, on); errors.Is(newer, strategies.ErrUnsupported) {
			return newer
		}
	}

	first := s.place.Load()
	if first == nil {
		return err
	}

	switch found, failed := s.find(ctx, on); {
	case failed != nil:
		return Doubt(err)
	case found.elsewhere(first), found.there && found.user != first.user:
		return s.changed(err)
	default:
		return err
	}
}

// Where is what statements bind that work only there; empty before the first connection.
func (s *Store) Where() string {
	if first := s.place.Load(); first != nil {
		return first.tables
	}

	return ""
}
