package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sqllock/sqllock/databases"
)

// Faulty is a database beneath a strategy whose statements fail, stop or
// repeat as its Script says. It also counts connections: those that were not
// given back, and those that were given back although they should not have
// been.
type Faulty struct {
	*Script

	db databases.DB

	mu        sync.Mutex
	out       int
	discarded int
	misuse    []string
	undone    string // the statement whose next call Undo is about
	full      int    // how many connections to come are refused
}

// errFull is the error of a connection that Full refuses.
var errFull = errors.New("sqllocktest: the server is full")

// NewFaulty wraps a database.
func NewFaulty(db databases.DB) *Faulty { return &Faulty{Script: &Script{}, db: db} }

// Dialect is the database's.
func (f *Faulty) Dialect() databases.Dialect { return f.db.Dialect() }

// Conn checks out a connection that is counted.
func (f *Faulty) Conn(ctx context.Context) (databases.Conn, error) {
	if f.refuses() {
		return nil, errFull
	}

	conn, err := f.db.Conn(ctx)
	if err != nil {
		return nil, err
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.out++

	return &faultyConn{faulty: f, Conn: conn}, nil
}

// Verify is the database's; its statements are under the script.
func (f *Faulty) Verify(ctx context.Context, s databases.Session) error { return f.db.Verify(ctx, s) }

// Classify is the database's, and that of connections refused by Full.
func (f *Faulty) Classify(err error) databases.Class {
	if errors.Is(err, errFull) {
		return databases.Full
	}

	return f.db.Classify(err)
}

// MaxConns is the database's.
func (f *Faulty) MaxConns() int { return f.db.MaxConns() }

// Wakes is the database's.
func (f *Faulty) Wakes() bool {
	waker, ok := f.db.(databases.Waker)

	return ok && waker.Wakes()
}

// Listen is the database's, if it has one. Its connection is not under the
// script.
func (f *Faulty) Listen(
	ctx context.Context, channels []string, ready func(), notified func(channel, payload string),
) error {
	listener, ok := f.db.(databases.Listener)
	if !ok {
		return databases.ErrNoNotifications
	}

	return listener.Listen(ctx, channels, ready, notified)
}

// Validate is the database's, if it has one.
func (f *Faulty) Validate() error {
	if v, ok := f.db.(interface{ Validate() error }); ok {
		return v.Validate()
	}

	return nil
}

// Undo lets the next call of the statement deliver its rows, fail, and have had no
// effect: a server sends what a statement returns before it commits.
func (f *Faulty) Undo(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.undone = name
}

// Full refuses the next n connections, as a server does that takes no more.
func (f *Faulty) Full(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.full = n
}

// refuses says whether a connection is one of those that Full was asked for.
func (f *Faulty) refuses() bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	full := f.full > 0
	if full {
		f.full--
	}

	return full
}

// undoes says whether a call is the one that Undo was asked for.
func (f *Faulty) undoes(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	undo := f.undone != "" && matches(f.undone, name)
	if undo {
		f.undone = ""
	}

	return undo
}

// Tx puts a caller's transaction under the script, for Guard and ReleaseTx.
func (f *Faulty) Tx(tx databases.Tx) databases.Tx { return faultyTx{f, tx} }

// Leaks is how many connections are checked out at this moment. A strategy
// that is at rest and holds no connection-held lock has none.
func (f *Faulty) Leaks() int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.out
}

// Discarded is how many connections were discarded.
func (f *Faulty) Discarded() int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.discarded
}

// Misuse lists breaches of the contract of databases.Conn: a connection in
// doubt that was returned to its pool, one that was ended twice or used after
// its end.
func (f *Faulty) Misuse() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.Clone(f.misuse)
}

func (f *Faulty) blame(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.misuse = append(f.misuse, fmt.Sprintf(format, args...))
}

// run makes a statement under the script and says whether a fault struck.
func (f *Faulty) run(
	ctx context.Context, s databases.Statement, call func(answered bool) error,
) (struck bool, err error) {
	ran, runs := error(nil), 0

	err = f.play(ctx, s.Name, func() error {
		runs++
		// A lost answer has no rows, and of two only the first is seen.
		callErr := call(runs == 1 && !f.losesReply(s.Name))
		if runs == 1 {
			ran = callErr
		}

		return callErr
	})

	return err != nil && (runs == 0 || ran == nil), err
}

// faultyConn is a connection under the script.
type faultyConn struct {
	databases.Conn

	faulty *Faulty

	mu     sync.Mutex
	broken error  // what every later statement returns
	doubt  string // the statement that left the connection in doubt
	ended  bool
}

func (c *faultyConn) Run(
	ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error,
) (first databases.Result, err error) {
	if each != nil && c.faulty.undoes(s.Name) {
		return first, c.undo(ctx, s, v, each)
	}

	var own error // what the caller's function said, which puts no connection in doubt

	read := each
	if each != nil {
		read = func(row databases.Row) error {
			own = each(row)

			return own
		}
	}

	err = c.run(ctx, s, func(answered bool) error {
		result, err := c.Conn.Run(ctx, s, v, heard(answered, read))

		switch {
		case !answered:
			return err
		case own != nil:
			return nil //nolint:nilerr // the suite's own verdict on a row is told below
		default:
			first = result

			return err
		}
	})
	if err != nil {
		return databases.Result{}, err
	}

	return first, own
}

// heard is what reads the rows of a statement, if anything does, and none of an answer that is lost.
func heard(answered bool, each func(databases.Row) error) func(databases.Row) error {
	if answered || each == nil {
		return each
	}

	return func(databases.Row) error { return nil }
}

// Pipeline sends the statements together where the database can and the script has nothing to do with one of them.
func (c *faultyConn) Pipeline(ctx context.Context, steps []databases.Step) error {
	pipeliner, ok := c.Conn.(databases.Pipeliner)
	if !ok || c.faulty.meddles(steps) {
		return databases.Pipeline(ctx, struct{ databases.Session }{c}, steps...)
	}

	names := make([]string, len(steps))
	for i, step := range steps {
		names[i] = step.Statement.Name
	}

	c.faulty.note(names...)

	return c.watch(strings.Join(names, ", "), func() (bool, error) { return false, pipeliner.Pipeline(ctx, steps) })
}

// meddles says whether the script, or Undo, has to do with one of the statements.
func (f *Faulty) meddles(steps []databases.Step) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.ContainsFunc(steps, func(s databases.Step) bool {
		return f.concerns(s.Statement.Name) || f.undone != "" && matches(f.undone, s.Statement.Name)
	})
}

// undo runs a statement in a transaction that it rolls back.
func (c *faultyConn) undo(
	ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error,
) error {
	if _, err := c.Conn.Run(ctx, databases.Statement{Name: "begin", SQL: "BEGIN"}, nil, nil); err != nil {
		return err
	}

	_, err := c.Conn.Run(ctx, s, v, each)
	_, failed := c.Conn.Run(ctx, databases.Statement{Name: "rollback", SQL: "ROLLBACK"}, nil, nil)

	c.mu.Lock()
	defer c.mu.Unlock()

	c.broken, c.doubt = ErrBroken, s.Name+" broke off"

	return errors.Join(ErrBroken, err, failed)
}

func (c *faultyConn) run(ctx context.Context, s databases.Statement, call func(answered bool) error) error {
	return c.watch(s.Name, func() (bool, error) { return c.faulty.run(ctx, s, call) })
}

// watch makes a call, which says whether a fault struck, and notes what it leaves the connection in.
func (c *faultyConn) watch(name string, call func() (struck bool, err error)) error {
	c.mu.Lock()
	broken, ended := c.broken, c.ended
	c.mu.Unlock()

	if ended {
		c.faulty.blame("%s on a connection that was given back", name)
	}

	if broken != nil {
		return broken
	}

	struck, err := call()
	if err == nil || !doubtful(c.faulty.Classify(err)) {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.doubt = fmt.Sprintf("%s returned %q", name, err)

	if struck {
		c.broken = ErrBroken
	}

	return err
}

// doubtful says whether an error of the class leaves the connection in doubt.
func doubtful(class databases.Class) bool {
	return class == databases.Unknown || class == databases.Unreachable
}

func (c *faultyConn) Release() {
	doubt, first := c.end()

	switch {
	case !first:
		return
	case doubt != "":
		c.faulty.blame("a connection in doubt was returned to the pool: %s", doubt)
		// As it would be with a connection that is broken in truth.
		c.Conn.Discard()
	default:
		c.Conn.Release()
	}
}

func (c *faultyConn) Discard() {
	if _, first := c.end(); !first {
		return
	}

	c.Conn.Discard()

	c.faulty.mu.Lock()
	defer c.faulty.mu.Unlock()

	c.faulty.discarded++
}

func (c *faultyConn) end() (doubt string, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.ended {
		c.faulty.blame("a connection was given back twice")

		return c.doubt, false
	}

	c.ended = true

	c.faulty.mu.Lock()
	defer c.faulty.mu.Unlock()

	c.faulty.out--

	return c.doubt, true
}

// faultyTx is a caller's transaction under the script.
type faultyTx struct {
	faulty *Faulty

	databases.Tx
}

func (t faultyTx) Run(
	ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	_, err = t.faulty.run(ctx, s, func(answered bool) error {
		r, err := t.Tx.Run(ctx, s, v, heard(answered, each))
		if answered {
			result = r
		}

		return err
	})

	return result, err
}
