package forupdate

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/internal/record"
)

// grant is a row lock on a connection, and the lease written down beside it.
type grant struct {
	*record.Grant
	strategy *Strategy

	// gate is the right to use what follows; a channel, so that waiting for it
	// can end with a context.
	gate  chan struct{}
	conn  databases.Conn // nil once the session is gone or given back
	limit time.Duration  // after which the server ends the session
	gone  error          // why conn is nil, if not released

	released bool // by Release, with this result
	result   error
}

// Renew tells the server that the holder lives, then extends the lease.
func (g *grant) Renew(ctx context.Context, lease time.Duration) error {
	err := g.use(ctx, func(ctx context.Context) error {
		limit := max(g.limit, lease)

		if err := g.strategy.exec(ctx, g.conn, g.strategy.sql.limit, g.Request(), limit); err != nil {
			return err
		}

		g.limit = limit

		return nil
	})
	if err != nil {
		return err
	}

	return g.dropIfLost(ctx, g.Grant.Renew(ctx, lease))
}

// Next is nil: the connection stays with one holder, whose end is the end of the lock.
func (*grant) Next() sqllock.Grant { return nil }

// Check asks the session and the lease.
func (g *grant) Check(ctx context.Context) error {
	err := g.use(ctx, func(ctx context.Context) error { return g.strategy.ping(ctx, g.conn) })
	if err != nil {
		return err
	}

	return g.dropIfLost(ctx, g.Grant.Check(ctx))
}

// use runs f on the session. An error there ends it: whether the lock is still
// held can not be known, so it is given up. The end of ctx is no such error:
// what was begun is finished, within a lease.
func (g *grant) use(ctx context.Context, f func(context.Context) error) error {
	if err := g.enter(ctx); err != nil {
		return err
	}

	defer g.leave()

	if g.conn == nil {
		return g.SessionGone(ctx, g.gone)
	}

	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Request().Lease)
	defer cancel()

	if err := f(detached); err != nil {
		g.drop(err)

		return g.SessionGone(ctx, err)
	}

	return nil
}

// dropIfLost gives up the session when its lease is gone: forced, or taken
// over by another strategy.
func (g *grant) dropIfLost(ctx context.Context, err error) error {
	if !errors.Is(err, sqllock.ErrLost) || g.enter(ctx) != nil {
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
	g.conn, g.gone = nil, cause
	g.strategy.held.Add(-1)
}

// Release ends the lease first, while the row lock still keeps others out, and
// then the transaction.
func (g *grant) Release(ctx context.Context) error {
	if err := g.enter(ctx); err != nil {
		return err
	}

	defer g.leave()

	if !g.released {
		g.released, g.result = true, g.release(ctx)
	}

	return g.result
}

func (g *grant) release(ctx context.Context) error {
	if g.conn == nil && g.gone != nil {
		lost := g.SessionGone(ctx, g.gone)
		// Its row may still say that it is held. The lease ends that, too.
		_ = g.Grant.Release(ctx)

		return lost
	}

	err := g.Grant.Release(ctx)

	if g.conn != nil {
		// Whether this ends the transaction or the session, the row is free
		// then, and has been kept until now as far as is known.
		_ = g.strategy.end(ctx, g.Request(), g.conn)
		g.conn = nil
		g.strategy.held.Add(-1)
	}

	// What became of the lease's row does not keep the next session out, so it
	// is no error, unless it says that the lock was not ours any more.
	if errors.Is(err, sqllock.ErrLost) {
		return err
	}

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

// Guard and ReleaseTx of the embedded grant: the first works, the second is
// switched off by Features, because the session's lock can not end with
// another transaction.
var _ sqllock.Guarder = (*grant)(nil)
