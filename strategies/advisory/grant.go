package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// grant is an advisory lock of a session, and the lease written down beside it.
type grant struct {
	record  grants.Record
	session *session
	place   place

	// Under the session's gate.
	until    time.Time // when the lease ends unless it is renewed
	expired  bool      // unlocked by a sweep
	unlocked bool      // by a release, or after a loss: the session goes on without it

	releasing bool // Release has been called
	unsure    bool // whether the session has the key, after an error of a release
	outcome   grants.Outcome
	released  bool // nothing is left
}

// Renew extends the lease on the session, so that the server hears of that, too.
func (g *grant) Renew(ctx context.Context, lease time.Duration) error {
	started := time.Now()

	return g.use(ctx, lease, func(ctx context.Context) error {
		c := g.session

		if lease > c.limit {
			if err := c.setIdleLimit(ctx, lease); err != nil {
				return err
			}
		}

		if err := g.record.RenewOn(ctx, c.conn, lease); err != nil {
			return err
		}

		g.until = later(g.until, started.Add(lease))

		return c.sweep(ctx)
	})
}

// Record is what the database knows of the grant.
func (g *grant) Record() grants.Record { return g.record }

// granted is the grant as the core has it.
func (g *grant) granted() strategies.Grant {
	granted := g.record.Granted()
	granted.State = g

	return granted
}

// Check asks the session and the lease.
func (g *grant) Check(ctx context.Context) error {
	return g.use(ctx, g.record.Request().Lease, func(ctx context.Context) error {
		none := func(databases.Row) error { return nil }

		if err := g.session.conn.Query(ctx, g.session.strategy.sql.Ping, nil, none); err != nil {
			return err
		}

		return g.record.CheckOn(ctx, g.session.conn)
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

	ctx, cancel := c.detach(ctx, bound, g)
	defer cancel()

	err := f(ctx)

	switch {
	case err == nil:
		return nil
	case errors.Is(err, strategies.ErrLost):
		// Forced, or taken over by another strategy: the lock goes too.
		c.note(err)
		g.unlock(ctx)

		c.closeIfIdle(ctx)

		return err
	default:
		explained := c.explain(err)
		if c.ended {
			return g.record.SessionGone(ctx, err)
		}

		return explained
	}
}

var errExpired = &strategies.LostError{Reason: strategies.Expired, Detail: "not renewed for longer than its lease"}

// gone is why the lock is not on the session any more; nil if it is.
func (g *grant) gone(ctx context.Context) error {
	switch {
	case g.expired:
		return errExpired
	case g.session.conn == nil || g.unlocked:
		return g.record.SessionGone(ctx, g.session.gone)
	default:
		return nil
	}
}

// releaseTimeout bounds what a release sends on the session.
const releaseTimeout = 5 * time.Second

// Release ends the lease first, while the advisory lock still keeps others
// out, and then frees that.
func (g *grant) Release(ctx context.Context) (contended bool, err error) {
	c := g.session

	if err := c.enter(ctx); err != nil {
		return false, err
	}

	defer c.leave()

	if !g.releasing {
		g.releasing, g.outcome.Err = true, g.lostBefore()
	}

	if c.conn != nil && !g.expired && !g.unlocked {
		g.releaseOn(ctx)
	}

	if !g.released {
		if err := g.releaseElsewhere(ctx); err != nil {
			return false, err
		}
	}

	return g.record.Contended(), g.outcome.Err
}

// lostBefore is the loss that was known before the release; nil if there was none.
func (g *grant) lostBefore() error {
	switch {
	case g.expired:
		return errExpired
	case g.session.conn == nil && !g.unlocked:
		return &strategies.LostError{Reason: strategies.SessionGone, Err: g.session.gone}
	default:
		return nil // or the record tells
	}
}

// releaseOn releases on the session.
func (g *grant) releaseOn(ctx context.Context) {
	c := g.session

	ctx, cancel := c.detach(ctx, releaseTimeout, g)
	defer cancel()

	if !g.releaseInOne(ctx) && !c.ended {
		g.releaseApart(ctx)
	}
}

// releaseInOne ends the lease and frees the key in one statement, where there is one, and says whether it did. An error does
// not say whether the key is free.
func (g *grant) releaseInOne(ctx context.Context) bool {
	c, s := g.session, g.session.strategy

	record, ok := g.record.(*grants.Grant)
	if !ok || g.unsure {
		return false
	}

	call := grants.KeyedCall{On: c.conn, Statement: s.sql.Release, Keys: []any{g.place.key}}

	answers, err := s.store.ReleaseKeyed(ctx, call, []*grants.Grant{record})
	if err != nil {
		g.refused(err)

		return false
	}

	answer, ended := answers[record.Request().Owner]
	if ended {
		g.freed(answer.Unlocked)
	}

	if g.released {
		c.hinted(record.TellOn(ctx, c.conn))
	}

	c.closeIfIdle(ctx)

	return ended
}

// refused is for an error of a release in one: the key may be free already.
func (g *grant) refused(err error) {
	c := g.session

	if c.strategy.store.Clean(err) {
		g.unsure = true
	} else if !c.ended {
		c.breakDown(err)
	}
}

// freed takes in that the lease was ended, and whether the key was unlocked with it.
func (g *grant) freed(unlocked bool) {
	g.outcome.Note(nil)

	if !unlocked {
		g.notLocked(errNotLocked)

		return
	}

	g.session.drop(g.place)
	g.unlocked, g.released, g.outcome.Freed = true, true, true
}

// releaseApart ends the lease, and then frees the key.
func (g *grant) releaseApart(ctx context.Context) {
	c := g.session

	err := g.record.ReleaseOn(ctx, c.conn)
	if !c.strategy.store.Clean(err) {
		c.breakDown(err)

		return
	}

	c.note(err)
	g.outcome.Note(err)

	if g.unlock(ctx) {
		g.outcome.Freed, g.released = true, g.outcome.Recorded
		c.closeIfIdle(ctx)
	}
}

// unlock frees the key on the session, or else ends that, and says which.
func (g *grant) unlock(ctx context.Context) bool {
	c := g.session

	var err error

	if g.unsure {
		c.drop(g.place)
		err = c.unlockLeft(ctx, []any{g.place.key})
	} else {
		err = c.unlock(ctx, g.place)
	}

	if err == nil {
		g.unlocked = true

		return true
	}

	g.notLocked(err)

	return false
}

// notLocked ends the session, on which the key could not be unlocked.
func (g *grant) notLocked(err error) {
	g.session.breakDown(err)

	if errors.Is(err, errNotLocked) && g.outcome.Err == nil {
		g.outcome.Err = &strategies.LostError{Reason: strategies.SessionGone, Err: err}
	}
}

// releaseElsewhere is the release on other connections, after the session broke
// down or went on without the lock. The server may not have heard that a session
// has ended, so this makes sure of it. The record comes first here, too: it tells
// whether another has had the lock.
func (g *grant) releaseElsewhere(ctx context.Context) error {
	c := g.session

	if !g.outcome.Recorded {
		_, err := g.record.Release(ctx)
		if g.outcome.Note(err); !g.outcome.Recorded {
			return err
		}
	}

	if c.gone != nil && !g.unlocked {
		if err := c.strategy.endSession(ctx, c.id, g.place.key); err != nil {
			return err
		}
	}

	g.released = true

	return nil
}
