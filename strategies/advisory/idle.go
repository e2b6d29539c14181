package advisory

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/databases"
)

const (
	// keepTime is how long the session is kept when the last lock on it has ended, and closeTime bounds what gives it back.
	keepTime  = 2 * time.Second
	closeTime = 5 * time.Second
	// leastLimit is the least limit on idle sessions with which one is kept: the server would end it meanwhile.
	leastLimit = 5 * time.Second
	// leastPool are the least connections of a pool with which one is kept: of fewer the program would miss it.
	leastPool = 4
)

// spare says whether the pool has a connection to spare.
func (s *Strategy) spare() bool {
	most := s.store.MaxConns()

	return most == 0 || most >= leastPool
}

// Close gives the session's connection back, unless a lock is on it.
func (s *Strategy) Close(ctx context.Context) { s.giveBack(ctx, 0) }

// keep has the session's connection given back later, if no other lock comes.
func (s *Strategy) keep(rest time.Duration) {
	if s.keeps.Swap(true) {
		return
	}

	time.AfterFunc(rest, func() {
		s.keeps.Store(false)

		ctx, cancel := context.WithTimeout(context.Background(), closeTime) //nolint:forbidigo // no call's: they have ended
		defer cancel()

		if again := s.giveBack(ctx, keepTime); again > 0 {
			s.keep(again)
		}
	})
}

// giveBack gives the session's connection back if no lock has been on it for so long. It returns when that may be so; zero if
// there is none, or a lock is on it, whose end has it looked at again.
func (s *Strategy) giveBack(ctx context.Context, after time.Duration) (again time.Duration) {
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()

	if c == nil {
		return 0
	}

	if err := c.enter(ctx); err != nil {
		return keepTime // it is in use
	}

	defer c.leave()

	switch rest := after - time.Since(c.idle); {
	case c.conn == nil || len(c.grants) > 0:
		return 0
	case rest > 0:
		return rest
	default:
		c.giveBack(ctx)

		return 0
	}
}

// closeIfIdle keeps the connection for a while when there are no locks on it, or gives it back.
func (c *session) closeIfIdle(ctx context.Context) {
	switch {
	case c.conn == nil || len(c.grants) > 0:
	case c.strategy.spare() && !c.killed && c.limit >= leastLimit:
		c.idle = time.Now()
		c.strategy.keep(keepTime) //nolint:contextcheck // it is given back when the call has ended
	default:
		c.giveBack(ctx)
	}
}

// giveBack gives the connection back.
func (c *session) giveBack(ctx context.Context) {
	if c.killed {
		// Not into the pool: it would end under whatever it is used for next.
		c.conn.Discard()
	} else {
		if err := c.conn.Query(ctx, c.strategy.sql.Reset, nil, func(databases.Row) error { return nil }); err != nil {
			c.breakDown(err)

			return
		}

		c.conn.Release()
	}

	c.conn, c.ended = nil, true
	c.strategy.forget(c)
}
