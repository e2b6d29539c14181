package forupdate

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// grant is a row lock on a connection, and the lease written down beside it.
type grant struct {
	record   *grants.Grant
	strategy *Strategy

	grants.Gate // the right to use what follows

	conn  databases.Conn // nil once the session is gone or given back
	limit time.Duration  // after which the server ends the session
	until time.Time      // the lease does not end before
	gone  error          // why conn is nil, if not released

	doubt bool // the session was ended from here, and the server may not have heard

	outcome  grants.Outcome
	released bool // nothing is left
}

// Record is what the database knows of the grant.
func (g *grant) Record() *grants.Grant { return g.record }

// Renew tells the server that the holder lives, then extends the lease.
func (g *grant) Renew(ctx context.Context, lease time.Duration) error {
	return g.use(ctx, lease, func(ctx context.Context) error { return g.record.Renew(ctx, lease) })
}

// Check asks the session and the lease.
func (g *grant) Check(ctx context.Context) error { return g.use(ctx, 0, g.record.Check) }

// use tells the server that the holder lives, and then sends what is about the lease. It gives up the session if that is gone:
// forced, or taken over by another strategy.
func (g *grant) use(ctx context.Context, lease time.Duration, about func(context.Context) error) error {
	if err := g.beat(ctx, lease); err != nil {
		return err
	}

	until := time.Now().Add(lease)
	err := about(ctx)
	lost := errors.Is(err, strategies.ErrLost)

	if err != nil && !lost || g.Enter(ctx) != nil {
		return err
	}

	defer g.Leave()

	switch {
	case lost && g.conn != nil:
		g.drop(err)
	case !lost && until.After(g.until):
		g.until = until
	}

	return err
}

// beat tells the server that the holder lives. An error there ends the session: whether the lock is still
// held cannot be known, so it is given up. The end of ctx is no such error:
// what was begun is finished, within a lease.
func (g *grant) beat(ctx context.Context, lease time.Duration) error {
	if err := g.Enter(ctx); err != nil {
		return err
	}

	defer g.Leave()

	if g.conn == nil {
		return g.record.SessionGone(ctx, g.gone)
	}

	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.record.Request().Lease)
	defer cancel()

	g.limit = max(g.limit, lease)

	if err := g.strategy.beat(detached, g.conn, g.record.Request(), g.limit); err != nil {
		g.drop(err)

		return g.record.SessionGone(ctx, err)
	}

	return nil
}

// drop ends the session.
func (g *grant) drop(cause error) {
	g.conn.Discard()
	g.conn, g.gone, g.doubt = nil, cause, true
	g.strategy.places.leave(g.record.Request().Owner)
}

// Release ends the lease first, while the row lock still keeps others out, and
// then the transaction.
func (g *grant) Release(ctx context.Context) (contended bool, err error) {
	if err := g.Enter(ctx); err != nil {
		return false, err
	}

	defer g.Leave()

	// A release ends the session itself, and so this was before the first of them.
	if g.gone != nil && g.outcome.Err == nil {
		g.outcome.Err = &strategies.LostError{Reason: strategies.SessionGone, Err: g.gone}
	}

	if !g.released {
		if err := g.release(ctx); err != nil {
			return false, err
		}
	}

	return g.record.Contended(), g.outcome.Err
}

func (g *grant) release(ctx context.Context) error {
	var failed error

	// The next in line is told when it can have the row.
	if !g.outcome.Recorded {
		if g.conn != nil {
			failed = g.record.Free(ctx)
		} else {
			_, failed = g.record.Release(ctx)
		}

		g.outcome.Note(failed)
	}

	if g.conn != nil {
		// Who has forced the release ends the session, too.
		until := time.Time{}
		if failed == nil {
			until = g.until
		}

		// Whether this ends the transaction or the session, the row has been kept
		// until now as far as is known; and if not, the record tells.
		err := g.strategy.end(ctx, g.record.Request(), g.conn, until, g.record.TellOn)
		g.conn, g.outcome.Freed, g.doubt = nil, err == nil, err != nil
		g.strategy.places.leave(g.record.Request().Owner)
	}

	if !g.outcome.Recorded {
		return failed
	}

	if g.doubt {
		// A session that broke down has the owner's mark, which no other has.
		s := g.strategy
		if left, err := s.endSessions(ctx, s.sql.Session, s.values(g.record.Request(), 0)); err != nil || left {
			return cmp.Or(err, grants.ErrSessionEnds)
		}
	}

	g.released = true

	return nil
}
