package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// session is the database session that holds the locks of a strategy.
type session struct {
	strategy *Strategy

	// gate is the right to use what follows; a channel, so that waiting for it
	// can end with a context.
	gate      chan struct{}
	conn      databases.Conn // nil before open and after the end
	namespace string
	id        int64         // the server's, to end it by
	limit     time.Duration // after which the server ends the session
	grants    map[place]*grant
	readers   map[any]int // by key, how many of those are
	doomed    bool        // a release was forced: who did that ends the session, too
	ended     bool
	gone      error // why it ended, if it did not just have no locks any more
}

// place is what a lock of the session is known by. A session gets a lock that it has again, so that the key
// alone tells those apart that exclude each other; of readers it has several.
type place struct {
	key    any
	reader string // its owner; empty if it is none
}

func (c *session) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	select {
	case c.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		// Not its cause, which may be another lock's loss.
		return ctx.Err()
	}
}

func (c *session) leave() { <-c.gate }

// detach returns a context for what is sent on the session. It does not end with
// ctx but after d, and not before the leases of other locks than own have ended,
// because its end breaks the connection under them.
func (c *session) detach(ctx context.Context, d time.Duration, own *grant) (context.Context, context.CancelFunc) {
	for _, g := range c.grants {
		if g != own {
			d = max(d, time.Until(g.until))
		}
	}

	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// open checks out the connection, if there is none yet.
func (c *session) open(ctx context.Context, lease time.Duration) error {
	if c.conn != nil {
		return nil
	}

	s := c.strategy

	conn, err := s.store.Conn(ctx)
	if err != nil {
		return err
	}

	c.conn = conn

	err = s.check(ctx, conn)

	if err == nil {
		err = conn.Query(ctx, s.sql.namespace, nil, func(row databases.Row) error { return row(&c.namespace, &c.id) })
	}

	if err == nil {
		err = c.beat(ctx, lease)
	}

	if err != nil {
		c.breakDown(err)

		return s.store.Explain(err)
	}

	return nil
}

// beat is the heartbeat, and raises the idle limit if need be.
func (c *session) beat(ctx context.Context, lease time.Duration) error {
	limit := max(c.limit, lease)

	_, err := c.conn.Exec(ctx, c.strategy.sql.limit, databases.Values{"limit": c.strategy.store.Dialect().IdleLimit(limit)})
	if err == nil {
		c.limit = limit
	}

	return err
}

// acquire takes a lock on the open session.
func (c *session) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	s := c.strategy
	started := time.Now()

	if r.Lease > c.limit {
		if err := c.beat(ctx, r.Lease); err != nil {
			return nil, c.explain(err)
		}
	}

	if err := c.sweep(ctx); err != nil {
		return nil, c.explain(err)
	}

	at, try := place{key: s.key(c.namespace, r.Name)}, s.sql.try
	if r.Mode == strategies.Shared {
		at.reader, try = r.Owner, s.sql.tryShared
	}

	if other := c.inTheWay(at); other != nil {
		request := other.record.Request()

		return nil, &strategies.HeldError{
			Name: r.Name, Holder: request.Holder, Token: other.Token(), Shared: other.place.reader != "", Remaining: time.Until(other.until),
			Detail: "in this process",
		}
	}

	var locked, readOnly bool

	err := c.conn.Query(ctx, try, databases.Values{"key": at.key}, func(row databases.Row) error {
		return row(&locked, &readOnly)
	})

	switch {
	case err != nil:
		return nil, c.explain(err)
	case readOnly:
		err := fmt.Errorf("%w: advisory locks of a replica exclude nobody", databases.ErrReadOnly)
		c.breakDown(err)

		return nil, s.store.Explain(err)
	case !locked:
		return nil, c.held(ctx, r.Name)
	}

	// On the session itself: while it is written, the session has the lock.
	// Of readers others have it, too.
	record, err := s.store.Grants(ctx, c.conn, r, true, func(ctx context.Context, r strategies.Request, seen grants.State) (int64, error) {
		instead := grants.Instead{Strategy: name, Token: grants.AnyToken}
		if at.reader != "" {
			instead.Token = seen.Token
		}

		return s.store.Acquire(ctx, c.conn, r, instead)
	})
	if err != nil {
		return nil, c.giveUp(ctx, at, err)
	}

	g := &grant{record: record, session: c, place: at, until: started.Add(r.Lease)}
	c.grants[at] = g

	if sharer, ok := record.(strategies.Sharer); ok {
		c.readers[at.key]++

		return sharedGrant{g, sharer}, nil
	}

	return g, nil
}

// sharedGrant is that of a reader.
type sharedGrant struct {
	*grant
	strategies.Sharer
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

// held tells who has a name that another session has locked.
func (c *session) held(ctx context.Context, name string) error {
	st, _, err := c.strategy.store.State(ctx, c.conn, name)
	if err == nil {
		err = c.strategy.store.ReadHolder(ctx, c.conn, name, &st)
	}

	if err != nil {
		return c.explain(err)
	}

	held := st.Held(name)
	if st.Left <= 0 {
		held.Detail = "a session holds it, and has not written down whose"
	}

	return held
}

// giveUp unlocks what was locked, after an error that came later.
func (c *session) giveUp(ctx context.Context, at place, cause error) error {
	if c.strategy.store.Clean(cause) {
		if err := c.unlock(ctx, at); err != nil {
			c.breakDown(err)
		}
	}

	return c.explain(cause)
}

var errNotLocked = errors.New("the server says that the session did not have the lock")

// unlock frees a key. That it was not locked puts the whole session in doubt.
func (c *session) unlock(ctx context.Context, at place) error {
	unlock := c.strategy.sql.unlock
	if at.reader != "" {
		unlock = c.strategy.sql.unlockShared
	}

	if _, had := c.grants[at]; had && at.reader != "" {
		if c.readers[at.key]--; c.readers[at.key] == 0 {
			delete(c.readers, at.key)
		}
	}

	delete(c.grants, at)

	unlocked := false

	err := c.conn.Query(ctx, unlock, databases.Values{"key": at.key}, func(row databases.Row) error {
		return row(&unlocked)
	})
	if err == nil && !unlocked {
		err = errNotLocked
	}

	return err
}

// sweep frees locks whose lease expired with nobody to renew or release them,
// while other locks keep the session alive.
func (c *session) sweep(ctx context.Context) error {
	for at, g := range c.grants {
		if time.Until(g.until) > 0 {
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
	if !c.strategy.store.Clean(err) {
		c.breakDown(err)
	}

	return c.strategy.store.Explain(err)
}

// breakDown ends the session and its locks.
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
	c.doomed = c.doomed || errors.As(err, &lost) && lost.Reason == strategies.Forced
}

// closeIfIdle gives the connection back when there are no locks on it.
func (c *session) closeIfIdle(ctx context.Context) {
	if c.conn == nil || len(c.grants) > 0 {
		return
	}

	if c.doomed {
		// Not into the pool: it would end under whatever it is used for next.
		c.conn.Discard()
	} else {
		if err := c.conn.Query(ctx, c.strategy.sql.reset, nil, func(databases.Row) error { return nil }); err != nil {
			c.breakDown(err)

			return
		}

		c.conn.Release()
	}

	c.conn, c.ended = nil, true
	c.strategy.forget(c)
}
