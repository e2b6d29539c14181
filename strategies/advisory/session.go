package advisory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// session is the database session that holds the locks of a strategy.
type session struct {
	grants.Gate // the right to use what follows

	strategy  *Strategy
	conn      databases.Conn // nil before open and after the end
	namespace string
	id        int64         // the server's, to end it by
	limit     time.Duration // after which the server ends the session
	idle      *time.Timer   // gives the connection back when no lock has been on it for a while; nil before the first time
	grants    map[place]*grant
	readers   map[any]int // by key, how many of those are
	killed    bool        // a release was forced: who did that ends the session, too
	ended     bool
	gone      error // why it ended, if it did not just have no locks any more
}

// place is what a lock of the session is known by. A session gets a lock that it has again, so that the key
// alone tells those apart that exclude each other; of readers it has several.
type place struct {
	key    any
	reader string // its owner; empty if it is none
}

// detach returns a context for what is sent on the session. It does not end with ctx, because its end breaks the connection
// under the locks of the session, but when the first of their leases does that are not to be ended: without an answer
// until then that is lost in any case. Without locks, or soon before, it has the time of an attempt. Nobody else can use the session
// meanwhile.
func (c *session) detach(ctx context.Context, ending ...*grant) (context.Context, context.CancelFunc) {
	var first time.Time

	now := time.Now()

	for _, g := range c.grants {
		// There may be thousands, most of which are being ended: those are looked for only if it comes to that.
		if g.until.After(now) && (first.IsZero() || g.until.Before(first)) && !slices.Contains(ending, g) {
			first = g.until
		}
	}

	return context.WithDeadline(context.WithoutCancel(ctx), later(first, now.Add(strategies.AttemptTime)))
}

// open checks out the connection, if there is none yet.
func (c *session) open(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}

	s := c.strategy

	conn, err := s.store.Conn(ctx)
	if err != nil {
		return err
	}

	c.conn = conn

	if err = s.check(ctx, conn); err == nil {
		c.namespace, c.id, err = s.namespace(ctx, conn)
	}

	if err != nil {
		err = s.store.Recheck(conn, err)
		c.breakDown(err)

		return s.store.Explain(err)
	}

	return nil
}

// setIdleLimit makes the idle limit that of the longest lease among the locks, with one more.
func (c *session) setIdleLimit(ctx context.Context, lease time.Duration) error {
	limit := lease
	if len(c.grants) > 0 {
		limit = max(c.limit, lease)
	}

	if limit == c.limit {
		return nil
	}

	_, err := c.conn.Run(ctx, c.strategy.sql.Limit, databases.Values{"limit": c.strategy.store.Dialect().IdleLimit(limit)}, nil)
	if err == nil {
		c.limit = limit
	}

	return err
}

// acquireShared takes a reader's lock on the open session.
func (c *session) acquireShared(ctx context.Context, r strategies.Request) (granted strategies.Grant, err error) {
	s := c.strategy
	started := time.Now()
	at := place{key: s.key(c.namespace, r.Name), reader: r.Owner}

	if granted, err = c.here(ctx, at, r); !granted.None() || err != nil {
		return granted, err
	}

	var locked, readOnly bool

	_, err = grants.ReadOne(ctx, c.conn, s.sql.TryShared, databases.Values{"key": at.key}, &locked, &readOnly)

	switch {
	case err != nil:
		return granted, c.explain(err)
	case readOnly:
		return granted, c.explain(grants.ErrReplica)
	case !locked:
		return granted, c.held(ctx, r.Name)
	}

	// On the session itself: while it is written, the session has the lock.
	// Others have it, too.
	record, err := s.store.Grants(ctx, c.conn, r, grants.Replaces{Strategy: name})
	if err == nil {
		c.readers[at.key]++

		return c.made(record, at, started.Add(r.Lease)), nil
	}

	if s.store.Clean(err) {
		if failed := c.unlock(ctx, at); failed != nil {
			c.breakDown(failed)
		}
	}

	return granted, c.explain(err)
}

// ready makes the open session ready for a lease, of the grants that it is for if there are any.
func (c *session) ready(ctx context.Context, lease time.Duration, on ...*grant) error {
	if err := c.sweep(ctx, on); err != nil {
		return err
	}

	return c.setIdleLimit(ctx, lease)
}

// made is the grant of a record whose key the session has.
func (c *session) made(record *grants.Grant, at place, until time.Time) strategies.Grant {
	g := &grant{record: record, session: c, place: at, until: until}
	c.grants[at] = g

	return record.Granted(g)
}

// here is the answer to a request whose key the session has: the same grant to the same owner, who asks again because the
// answer was lost, with a lease from now on, and to others that it is held. The key itself would not say so. Otherwise there is none.
func (c *session) here(ctx context.Context, at place, r strategies.Request) (none strategies.Grant, err error) {
	other := c.inTheWay(at)
	if other == nil {
		return none, nil
	}

	request := other.record.Request()
	if request.Owner != r.Owner || other.releasing {
		return none, &strategies.HeldError{
			Name: r.Name, Holder: request.Holder, Token: other.record.Granted(nil).Token, Shared: other.place.reader != "", Remaining: time.Until(other.until),
			Detail: "in this process",
		}
	}

	started := time.Now()
	err = other.record.RenewOn(ctx, c.conn, r.Lease)

	switch {
	case err == nil:
		other.until = later(other.until, started.Add(r.Lease))

		return other.record.Granted(other), nil
	case !errors.Is(err, strategies.ErrLost):
		return none, c.explain(err)
	}

	c.note(err)

	if !other.unlock(ctx) {
		return none, c.strategy.store.Explain(c.gone)
	}

	return none, nil // it was taken away, and nobody is in the way any more
}

// inTheWay returns the lock of this session that excludes another one; nil if there is none.
func (c *session) inTheWay(at place) *grant {
	if writer := c.grants[place{key: at.key}]; writer != nil || at.reader != "" || c.readers[at.key] == 0 {
		return writer
	}

	for held, g := range c.grants {
		if held.key == at.key {
			return g
		}
	}

	return nil
}

// state reads a name's rows, and whether a session is known to have its key.
func (c *session) state(ctx context.Context, name string, key any) (st grants.State, locked bool, err error) {
	s := c.strategy

	if s.sql.State.SQL == "" {
		st, err = s.store.State(ctx, c.conn, name)

		return st, false, err
	}

	var readOnly bool

	st, err = grants.ReadState(ctx, c.conn, s.sql.State, databases.Values{"name": name, "key": key}, &readOnly, &locked)
	if err == nil && readOnly {
		err = grants.ErrReplica
	}

	return st, locked, err
}

// held tells who has a name that another session has locked.
func (c *session) held(ctx context.Context, name string) error {
	st, err := c.strategy.store.State(ctx, c.conn, name)
	if err == nil {
		err = c.strategy.store.HeldBySession(ctx, c.conn, name, st)
	}

	return c.explain(err)
}

var errNotLocked = errors.New("the server says that the session did not have the lock")

// unlock frees a key. That it was not locked puts the whole session in doubt.
func (c *session) unlock(ctx context.Context, at place) error {
	unlock := c.strategy.sql.Unlock
	if at.reader != "" {
		unlock = c.strategy.sql.UnlockShared
	}

	c.drop(at)

	unlocked := false

	_, err := grants.ReadOne(ctx, c.conn, unlock, databases.Values{"key": at.key}, &unlocked)
	if err == nil && !unlocked {
		err = errNotLocked
	}

	return err
}

// drop forgets a lock of the session.
func (c *session) drop(at place) {
	if _, had := c.grants[at]; had && at.reader != "" {
		if c.readers[at.key]--; c.readers[at.key] == 0 {
			delete(c.readers, at.key)
		}
	}

	delete(c.grants, at)
}

// sweep frees locks whose lease expired with nobody to renew or release them,
// while other locks keep the session alive.
func (c *session) sweep(ctx context.Context, except []*grant) error {
	for at, g := range c.grants {
		if time.Until(g.until) > 0 || slices.Contains(except, g) {
			continue
		}

		g.expired = true

		if err := c.unlock(ctx, at); err != nil {
			return err
		}
	}

	return nil
}

// explain is for an error on the session: unless the server has just refused
// something, the session is in doubt and all its locks are given up.
func (c *session) explain(err error) error {
	if c.conn != nil {
		err = c.strategy.store.Recheck(c.conn, err)
	}

	if !c.strategy.store.Clean(err) {
		c.breakDown(err)
	}

	return c.strategy.store.Explain(err)
}

// breakDown ends the session and its locks. Its connection is in doubt, if it still has it.
func (c *session) breakDown(cause error) {
	if c.conn != nil {
		c.conn.Discard()
	}

	c.conn, c.ended, c.gone = nil, true, cause
	c.strategy.forget(c)
}

// note takes in whether a record says that the release of a grant was forced.
func (c *session) note(err error) {
	lost := new(strategies.LostError)
	c.killed = c.killed || errors.As(err, &lost) && lost.Reason == strategies.Forced
}

const (
	// keepTime is how long the session is kept when the last lock on it has ended, and closeTime bounds what gives it back.
	keepTime  = 2 * time.Second
	closeTime = 5 * time.Second
	// leastLimit is the least limit on idle sessions with which one is kept: the server would end it meanwhile.
	leastLimit = 5 * time.Second
	// leastPool are the least connections of a pool with which one is kept: of fewer the program would miss it.
	leastPool = 4
)

// close gives the connection back, unless a lock is on it.
func (c *session) close(ctx context.Context) {
	if c.Enter(ctx) != nil {
		return
	}

	defer c.Leave()

	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()

	if c.conn != nil && len(c.grants) == 0 {
		c.giveBack(ctx)
	}
}

// closeIfIdle gives the connection back when there are no locks on it, or keeps it for a while, for the next one.
func (c *session) closeIfIdle(ctx context.Context) {
	most := c.strategy.store.MaxConns()
	spare := most == 0 || most >= leastPool

	switch {
	case c.conn == nil || len(c.grants) > 0:
	case !spare || c.killed || c.limit < leastLimit:
		c.giveBack(ctx)
	case c.idle != nil:
		c.idle.Reset(keepTime)
	default:
		c.idle = time.AfterFunc(keepTime, func() { c.close(context.Background()) }) //nolint:contextcheck,forbidigo // no call's: they have ended
	}
}

// giveBack gives the connection back.
func (c *session) giveBack(ctx context.Context) {
	var err error

	// A session that is ended does not go into the pool: it would end under whatever it is used for next.
	if !c.killed {
		if _, err = c.conn.Run(ctx, c.strategy.sql.Reset, nil, nil); err == nil {
			c.conn.Release()
			c.conn = nil
		}
	}

	c.breakDown(err)
}
