package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/internal/record"
)

// grant is an advisory lock of a session, and the lease written down beside it.
type grant struct {
	*record.Grant
	session *session
	key     any

	// Under the session's gate.
	until    time.Time // when the lease ends unless it is renewed
	expired  bool      // unlocked by a sweep
	released bool
}

// Renew tells the server that the session lives, then extends the lease.
func (g *grant) Renew(ctx context.Context, lease time.Duration) error {
	started := time.Now()

	return g.use(ctx, lease, func(ctx context.Context) error {
		c := g.session

		if err := c.beat(ctx, lease); err != nil {
			return err
		}

		if err := g.RenewOn(ctx, c.conn, lease); err != nil {
			return err
		}

		if until := started.Add(lease); until.After(g.until) {
			g.until = until
		}

		return c.sweep(ctx)
	})
}

// Next is nil: the session stays with one holder, whose end is the end of the lock.
func (*grant) Next() sqllock.Grant { return nil }

// Check asks the session and the lease.
func (g *grant) Check(ctx context.Context) error {
	return g.use(ctx, g.Request().Lease, func(ctx context.Context) error {
		none := func(databases.Row) error { return nil }

		if err := g.session.conn.Query(ctx, g.session.strategy.sql.ping, nil, none); err != nil {
			return err
		}

		return g.CheckOn(ctx, g.session.conn)
	})
}

// use runs f on the session, if the lock is still there.
func (g *grant) use(ctx context.Context, bound time.Duration, f func(context.Context) error) error {
	c := g.session

	if err := c.enter(ctx); err != nil {
		return err
	}

	defer c.leave()

	if err := g.gone(ctx); err != nil {
		return err
	}

	ctx, cancel := detach(ctx, bound)
	defer cancel()

	err := f(ctx)

	switch {
	case err == nil:
		return nil
	case errors.Is(err, sqllock.ErrLost):
		// Forced, or taken over by another strategy: the lock goes too.
		g.released = true

		if failed := c.unlock(ctx, g.key); failed != nil {
			c.breakDown(failed)
		}

		c.closeIfIdle(ctx)

		return err
	default:
		if err = c.explain(err); c.ended {
			return g.SessionGone(ctx, err)
		}

		return err
	}
}

// gone is why the lock is not on the session any more; nil if it is.
func (g *grant) gone(ctx context.Context) error {
	switch {
	case g.expired:
		return &sqllock.LostError{
			Name: g.Request().Name, Token: g.Token(), Reason: sqllock.ReasonExpired,
			Detail: "not renewed for longer than its lease",
		}
	case g.session.conn == nil || g.released:
		return g.SessionGone(ctx, g.session.gone)
	default:
		return nil
	}
}

// releaseTimeout bounds what a release sends on the session.
const releaseTimeout = 5 * time.Second

// Release ends the lease first, while the advisory lock still keeps others
// out, and then frees that.
func (g *grant) Release(ctx context.Context) error {
	c := g.session

	if err := c.enter(ctx); err != nil {
		return err
	}

	defer c.leave()

	if g.released {
		return nil
	}

	ctx, cancel := detach(ctx, releaseTimeout)
	defer cancel()

	if err := g.gone(ctx); err != nil {
		// Its row may still say that it is held. The lease ends that, too.
		_ = c.strategy.Settle(ctx, g.Request())

		return err
	}

	g.released = true
	recorded := g.ReleaseOn(ctx, c.conn)

	// Whether this unlocks the key or ends the session, the lock is free then,
	// and has been kept until now as far as is known. What became of the
	// lease's row does not keep the next session out.
	if !c.strategy.store.Clean(recorded) {
		c.breakDown(recorded)

		return nil
	}

	if err := c.unlock(ctx, g.key); err != nil {
		c.breakDown(err)

		if errors.Is(err, errNotLocked) {
			return g.SessionGone(ctx, err)
		}

		return nil
	}

	c.closeIfIdle(ctx)

	if errors.Is(recorded, sqllock.ErrLost) {
		return recorded
	}

	return nil
}

var _ sqllock.Guarder = (*grant)(nil)
