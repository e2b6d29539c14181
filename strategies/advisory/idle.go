package advisory

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

var _ strategies.IdleKeeper = (*Strategy)(nil)

const (
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

// KeepIdle lets the session be kept when the last lock on it has ended.
func (s *Strategy) KeepIdle() { s.keeps.Store(true) }

// GiveBack gives the session's connection back if no lock has been on it for so long.
func (s *Strategy) GiveBack(ctx context.Context, after time.Duration) (again time.Duration) {
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()

	if c == nil {
		return 0
	}

	if err := c.enter(ctx); err != nil {
		return max(after, time.Second) // it is in use
	}

	defer c.leave()

	switch rest := after - time.Since(c.idle); {
	case c.conn == nil:
		return 0
	case len(c.grants) > 0:
		return max(after, time.Second)
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
	case c.strategy.keeps.Load() && c.strategy.spare() && !c.doomed && c.limit >= leastLimit:
		c.idle = time.Now()
	default:
		c.giveBack(ctx)
	}
}

// giveBack gives the connection back.
func (c *session) giveBack(ctx context.Context) {
	if c.doomed {
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
