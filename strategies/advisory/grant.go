package advisory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// grant is an advisory lock of a session, and the lease written down beside it.
type grant struct {
	record  *grants.Grant
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

// Record is what the database knows of the grant.
func (g *grant) Record() *grants.Grant { return g.record }

// together calls do with those grants of a call that are of one session, which is the caller's until do returns. Those that do
// does not answer, and those of other sessions, have to go alone.
func together(ctx context.Context, held []strategies.Grant, do func(c *session, all []*grant, answer func(*grant, error))) []error {
	errs := slices.Repeat([]error{strategies.ErrNotBatched}, len(held))
	all, at := make([]*grant, 0, len(held)), make(map[*grant]int, len(held))
	answer := func(g *grant, err error) { errs[at[g]] = err }

	for i, h := range held {
		if g, ok := h.State.(*grant); ok && (len(all) == 0 || g.session == all[0].session) {
			all, at[g] = append(all, g), i
		}
	}

	c := all[0].session
	if err := c.Enter(ctx); err != nil {
		for _, g := range all {
			answer(g, err)
		}

		return errs
	}

	defer c.Leave()

	do(c, all, answer)

	return errs
}

// Renew renews the leases of grants on the session, so that the server hears of that, too. With a lease of zero it asks the
// session, and for the lease.
func (s *Strategy) Renew(ctx context.Context, held []strategies.Grant, lease time.Duration) []error {
	return together(ctx, held, func(c *session, all []*grant, answer func(*grant, error)) {
		on := there(all)

		switch alone := len(held) == 1; {
		case alone && len(on) == 0:
			answer(all[0], all[0].gone(ctx))
		case len(on) > 0 && (alone || lease != 0):
			c.renew(ctx, on, lease, answer)
		}
	})
}

// renew renews the leases of grants, or checks one that is alone.
func (c *session) renew(ctx context.Context, on []*grant, lease time.Duration, answer func(*grant, error)) {
	started := time.Now()

	ctx, cancel := c.detach(ctx)
	defer cancel()

	errs, err := c.renewOn(ctx, on, lease)
	explained := c.explain(err)

	for n, g := range on {
		switch {
		case c.ended && len(on) == 1:
			answer(g, g.record.SessionGone(ctx, err))
		case err != nil:
			answer(g, explained)
		case errors.Is(errs[n], strategies.ErrLost):
			// Forced, or taken over by another strategy: the lock goes too.
			c.note(errs[n])
			g.unlock(ctx)
			answer(g, errs[n])
		case errs[n] == nil:
			g.until = later(g.until, started.Add(lease))
			answer(g, nil)
		}
	}

	c.closeIfIdle(ctx)
}

// renewOn sends what renews leases, or checks one. An error came for all.
func (c *session) renewOn(ctx context.Context, on []*grant, lease time.Duration) (errs []error, err error) {
	err = c.ready(ctx, lease, on...)
	if err == nil && lease == 0 {
		_, err = c.conn.Run(ctx, c.strategy.sql.Ping, nil, nil)
	}

	if err != nil {
		return nil, err
	}

	switch record := on[0].record; {
	case lease == 0:
		err = record.CheckOn(ctx, c.conn)
	case len(on) == 1:
		err = record.RenewOn(ctx, c.conn, lease)
	default:
		held := make([]strategies.Grant, len(on))
		for n, g := range on {
			held[n] = g.record.Granted(g.record)
		}

		return c.strategy.store.RenewAllOn(ctx, c.conn, held, lease)
	}

	if errors.Is(err, strategies.ErrLost) {
		return []error{err}, nil
	}

	return []error{nil}, err
}

var errExpired = &strategies.LostError{Reason: strategies.Expired, Detail: "not renewed for longer than its lease"}

// gone is why the lock is not on the session any more.
func (g *grant) gone(ctx context.Context) error {
	if g.expired {
		return errExpired
	}

	return g.record.SessionGone(ctx, g.session.gone)
}

// there says whether the lock is on the session still.
func (g *grant) there() bool { return g.session.conn != nil && !g.expired && !g.unlocked }

// there are those grants that are on their session still.
func there(all []*grant) []*grant {
	return slices.DeleteFunc(slices.Clone(all), func(g *grant) bool { return !g.there() })
}

// Release ends the leases first, while the keys still keep others out, and then frees those.
func (s *Strategy) Release(ctx context.Context, held []strategies.Grant) (contended []bool, errs []error) {
	contended = make([]bool, len(held))
	errs = together(ctx, held, func(c *session, all []*grant, answer func(*grant, error)) {
		c.release(ctx, all, len(held) == 1, answer)
	})

	for i, h := range held {
		if g, ok := h.State.(*grant); ok && (errs[i] == nil || errors.Is(errs[i], strategies.ErrLost)) {
			contended[i] = g.record.Contended()
		}
	}

	return contended, errs
}

// release releases grants in one statement, and in others one that is alone and was not released by that.
func (c *session) release(ctx context.Context, all []*grant, alone bool, answer func(*grant, error)) {
	for _, g := range all {
		if !g.releasing {
			g.releasing, g.outcome.Err = true, g.lostBefore()
		}
	}

	on := there(all)

	var failed error

	if len(on) > 0 {
		ctx, cancel := c.detach(ctx, on...)
		defer cancel()

		failed = c.releaseOn(ctx, on)

		if alone && on[0].there() {
			on[0].releaseApart(ctx)
		}

		c.closeIfIdle(ctx)
	}

	for _, g := range all {
		switch {
		case alone && !g.released:
			answer(g, g.releaseElsewhere(ctx))
		case g.released:
			answer(g, g.outcome.Err)
		case c.ended && failed != nil:
			answer(g, failed)
		}
	}
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

// releaseOn ends leases and frees their keys in one statement, as far as there is one. An error does not say whether the keys
// are free.
func (c *session) releaseOn(ctx context.Context, on []*grant) error {
	call, owners := grants.KeyedCall{On: c.conn}, make(map[string]*grant, len(on))

	var records []*grants.Grant

	for _, g := range on {
		if !g.record.Shared() && !g.unsure {
			records, call.Keys = append(records, g.record), append(call.Keys, g.place.key)
			owners[g.record.Request().Owner] = g
		}
	}

	if len(records) == 0 {
		return nil
	}

	answers, err := c.strategy.store.ReleaseKeyed(ctx, call, records)
	if err != nil {
		for _, g := range owners {
			g.unsure = true
		}

		return c.explain(err)
	}

	var waited []string

	for owner, answer := range answers {
		g := owners[owner]
		g.outcome.Note(nil)

		if !answer.Unlocked {
			g.notLocked(errNotLocked)

			continue
		}

		c.drop(g.place)
		g.unlocked, g.released, g.outcome.Freed = true, true, true

		if g.record.Contended() {
			waited = append(waited, g.record.Request().Name)
		}
	}

	if !c.ended {
		if err := c.strategy.store.TellOn(ctx, c.conn, waited); err != nil {
			c.breakDown(err)
		}
	}

	return nil
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
		s, values := c.strategy, databases.Values{"key": g.place.key}

		if left, err := s.store.EndSessions(ctx, s.sql.Session, values, []int64{c.id}, s.sql.Kill); err != nil || left {
			return cmp.Or(err, grants.ErrSessionEnds)
		}
	}

	g.released = true

	return g.outcome.Err
}
