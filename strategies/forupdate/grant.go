package forupdate

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// grant is a row lock on a connection, and the lease written down beside it.
type grant struct {
	record   grants.Record
	strategy *Strategy
	until    atomic.Pointer[time.Time] // the lease does not end before

	// gate is the right to use what follows; a channel, so that waiting for it
	// can end with a context.
	gate  chan struct{}
	conn  databases.Conn // nil once the session is gone or given back
	limit time.Duration  // after which the server ends the session
	gone  error          // why conn is nil, if not released

	doubt bool // the session was ended from here, and the server may not have heard

	releasing bool // Release has been called
	outcome   grants.Outcome
	released  bool // nothing is left
}

// Renew tells the server that the holder lives, then extends the lease.
func (g *grant) Renew(ctx context.Context, lease time.Duration) error {
	err := g.use(ctx, func(ctx context.Context) error {
		limit := max(g.limit, lease)

		if err := g.strategy.beat(ctx, g.conn, g.record.Request(), limit); err != nil {
			return err
		}

		g.limit = limit

		return nil
	})
	if err != nil {
		return err
	}

	until := time.Now().Add(lease)

	err = g.dropIfLost(ctx, g.record.Renew(ctx, lease))
	if err == nil {
		g.until.Store(&until)
	}

	return err
}

// Record is what the database knows of the grant.
func (g *grant) Record() grants.Record { return g.record }

// Check asks the session and the lease.
func (g *grant) Check(ctx context.Context) error {
	err := g.use(ctx, func(ctx context.Context) error { return g.strategy.beat(ctx, g.conn, g.record.Request(), g.limit) })
	if err != nil {
		return err
	}

	return g.dropIfLost(ctx, g.record.Check(ctx))
}

// use runs f on the session. An error there ends it: whether the lock is still
// held cannot be known, so it is given up. The end of ctx is no such error:
// what was begun is finished, within a lease.
func (g *grant) use(ctx context.Context, f func(context.Context) error) error {
	if err := g.enter(ctx); err != nil {
		return err
	}

	defer g.leave()

	if g.conn == nil {
		return g.record.SessionGone(ctx, g.gone)
	}

	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.record.Request().Lease)
	defer cancel()

	if err := f(detached); err != nil {
		g.drop(err)

		return g.record.SessionGone(ctx, err)
	}

	return nil
}

// dropIfLost gives up the session when its lease is gone: forced, or taken
// over by another strategy.
func (g *grant) dropIfLost(ctx context.Context, err error) error {
	if !errors.Is(err, strategies.ErrLost) || g.enter(ctx) != nil {
		return err
	}

	defer g.leave()

	if g.conn != nil {
		g.drop(err)
	}

	return err
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
	if err := g.enter(ctx); err != nil {
		return false, err
	}

	defer g.leave()

	if !g.releasing {
		g.releasing = true

		if g.gone != nil {
			g.outcome.Err = &strategies.LostError{Reason: strategies.SessionGone, Err: g.gone}
		}
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
	if !g.outcome.Recorded && g.conn != nil {
		failed = g.record.Free(ctx)
		g.outcome.Note(failed)
	} else if !g.outcome.Recorded {
		_, failed = g.record.Release(ctx)
		g.outcome.Note(failed)
	}

	if g.conn != nil {
		// Who has forced the release ends the session, too.
		until := time.Time{}
		if failed == nil {
			until = *g.until.Load()
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
		if err := g.strategy.endSession(ctx, g.record.Request()); err != nil {
			return err
		}
	}

	g.released = true

	return nil
}

func (g *grant) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	select {
	case g.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		// Not its cause, which may be another lock's loss.
		return ctx.Err()
	}
}

func (g *grant) leave() { <-g.gate }
