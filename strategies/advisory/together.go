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

// attempts are those of one statement.
type attempts struct {
	*session

	started  time.Time
	requests []strategies.Request
	places   []place
	grants   []strategies.Grant
	errs     []error
}

// acquireAll makes attempts on the open session, none of them for a reader.
func (c *session) acquireAll(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	a := &attempts{
		session: c, started: time.Now(), requests: requests, places: make([]place, len(requests)),
		grants: make([]strategies.Grant, len(requests)), errs: make([]error, len(requests)),
	}

	if err := c.ready(ctx, longestLease(requests)); err != nil {
		return a.failed(err)
	}

	open, err := a.plan(ctx)
	if err != nil {
		return a.failed(err)
	}

	// The second round follows the making of rows, once in a name's life.
	for round := 0; round < 2 && len(open) > 0; round++ {
		if err = a.draw(ctx, open); err != nil {
			return a.failed(err)
		}

		if open, err = a.look(ctx, open); err != nil {
			return a.failed(err)
		}
	}

	for _, i := range open {
		a.errs[i] = &strategies.HeldError{Name: requests[i].Name, Detail: "its row comes and goes"}
	}

	return a.grants, a.errs
}

// failed is the answer after an error: those that have none yet get that.
func (a *attempts) failed(err error) ([]strategies.Grant, []error) {
	for i := range a.requests {
		switch {
		case a.ended:
			a.grants[i], a.errs[i] = strategies.Grant{}, err // and what was granted has ended
		case a.grants[i].None() && a.errs[i] == nil:
			a.errs[i] = err
		}
	}

	return a.grants, a.errs
}

// plan returns those that are to be asked for. Of two with one key the second would be granted, too: it has to go alone.
func (a *attempts) plan(ctx context.Context) ([]int, error) {
	open, asked := make([]int, 0, len(a.requests)), make(map[any]struct{}, len(a.requests))

	for i, r := range a.requests {
		at := place{key: a.strategy.key(a.namespace, r.Name)}
		a.places[i] = at

		if _, twice := asked[at.key]; twice {
			a.errs[i] = strategies.ErrNotBatched

			continue
		}

		switch a.grants[i], a.errs[i] = a.here(ctx, at, r); {
		case a.ended:
			return nil, a.errs[i]
		case a.grants[i].None() && a.errs[i] == nil:
			asked[at.key] = struct{}{}
			open = append(open, i)
		}
	}

	return open, nil
}

// draw takes the keys of names whose rows seem free, and grants those that are.
func (a *attempts) draw(ctx context.Context, open []int) error {
	s := a.strategy
	requests := make([]strategies.Request, len(open))
	held := make([]any, len(open))

	for n, i := range open {
		requests[n], held[n] = a.requests[i], a.places[i].key
	}

	call := grants.KeyedCall{On: a.conn, Statement: s.sql.AcquireAll, Look: s.sql.Look, Requests: requests, Keys: held}

	if len(open) == 1 {
		if call.Statement = s.sql.Acquire; requests[0].Wait != "" {
			call.Statement = s.sql.AcquireFromLine
		}
	}

	answers, err := s.store.AcquireKeyed(ctx, call)
	if err != nil {
		return a.unlockAfter(ctx, held, requests, err)
	}

	var left []any

	for n, i := range open {
		switch answer := answers[requests[n].Owner]; {
		case answer.Token != 0:
			record := s.store.Grant(requests[n], answer.Token)
			a.grants[i] = a.made(record, a.places[i], a.started.Add(requests[n].Lease))
		case answer.Locked:
			left = append(left, held[n])
		}
	}

	if len(left) == 0 {
		return nil
	}

	return a.unlockLeft(ctx, left)
}

// unlockAfter unlocks what an acquisition has locked that the server refused, which does not undo that. Of several that another
// transaction was in the way of, each has to go alone.
func (c *session) unlockAfter(ctx context.Context, keys []any, requests []strategies.Request, cause error) error {
	store := c.strategy.store
	together := store.Busy(cause) && len(requests) > 1

	cause = store.AsHeld(ctx, c.conn, requests[0].Name, cause)
	if !store.Clean(cause) {
		return c.explain(cause)
	}

	switch err := c.unlockLeft(ctx, keys); {
	case err != nil:
		return err
	case together:
		return strategies.ErrNotBatched
	default:
		return store.Explain(cause)
	}
}

// unlockLeft unlocks those of the keys that the session has, or else ends that.
func (c *session) unlockLeft(ctx context.Context, keys []any) error {
	sql := c.strategy.sql

	free := true

	err := c.conn.Query(ctx, sql.UnlockLeft, databases.Values{"keys": c.strategy.keys(keys)}, func(row databases.Row) error {
		var unlocked bool

		err := row(&unlocked)
		free = free && unlocked

		return err
	})
	if err == nil && !free {
		err = errNotLocked
	}

	if err != nil {
		c.breakDown(err)
	}

	return c.strategy.store.Explain(err)
}

// look says of those that were not granted who has them, and returns those that had no rows, which it has made.
func (a *attempts) look(ctx context.Context, open []int) (missing []int, err error) {
	s := a.strategy

	for _, i := range open {
		if !a.grants[i].None() {
			continue
		}

		r := a.requests[i]

		st, found, locked, err := a.state(ctx, r.Name, a.places[i].key)
		if err != nil {
			return nil, a.explain(err)
		}

		if found && !s.store.Unready(st) {
			a.errs[i] = a.refused(ctx, st, r)
			a.tryAlone(ctx, i, len(open) == 1, locked)
		} else if err := s.store.Create(ctx, a.conn, r); err != nil {
			a.errs[i] = a.explain(s.store.AsHeld(ctx, a.conn, r.Name, err))
		} else {
			missing = append(missing, i)
		}

		if a.ended {
			return nil, a.errs[i]
		}
	}

	return missing, nil
}

// tryAlone tries for one of several what the statement about those leaves out on MySQL and MariaDB: a name that its owner has
// already, or that is free as far as the row tells. Then it says if a session has the key.
func (a *attempts) tryAlone(ctx context.Context, i int, alone, locked bool) {
	held := new(strategies.HeldError)
	if !errors.As(a.errs[i], &held) {
		return
	}

	free := held.Remaining == 0 && held.Line == 0

	switch {
	case free && locked:
		held.Detail = sessionHolds
	case alone || a.strategy.sql.Look.SQL == "":
	case free || held.Owner == a.requests[i].Owner:
		made, errs := a.acquireAll(ctx, a.requests[i:i+1])
		a.grants[i], a.errs[i] = made[0], errs[0]
	}
}

// refused is the answer to a request whose row says that the name is not free, or whose key another session has.
func (c *session) refused(ctx context.Context, st grants.State, r strategies.Request) error {
	err := c.strategy.store.Refused(ctx, c.conn, st, r)

	return c.explain(err)
}

// releaseAll is Release in one statement.
func (s *Strategy) releaseAll(ctx context.Context, held []strategies.Grant) (contended []bool, errs []error) {
	contended, errs = make([]bool, len(held)), slices.Repeat([]error{strategies.ErrNotBatched}, len(held))

	c := sessionOf(held)
	if c == nil {
		return contended, errs
	}

	if err := c.enter(ctx); err != nil {
		return contended, slices.Repeat([]error{err}, len(held))
	}

	defer c.leave()

	releasing := c.there(held)
	if len(releasing) == 0 {
		return contended, errs
	}

	ctx, cancel := c.detach(ctx, releaseTimeout, nil)
	defer cancel()

	c.releaseAll(ctx, releasing, contended, errs)
	c.closeIfIdle(ctx)

	return contended, errs
}

// releaseAll releases grants on the session, and puts the answers where the numbers of the grants say. What it does not
// answer has to go alone.
func (c *session) releaseAll(ctx context.Context, releasing map[*grant]int, contended []bool, errs []error) {
	var (
		s       = c.strategy
		records = make([]*grants.Grant, 0, len(releasing))
		keys    = make([]any, 0, len(releasing))
	)

	for g := range releasing {
		record, ok := g.record.(*grants.Grant)
		if !ok {
			delete(releasing, g)

			continue
		}

		g.releasing = true
		records, keys = append(records, record), append(keys, g.place.key)
	}

	var waited []string

	answers, err := s.store.ReleaseKeyed(ctx, grants.KeyedCall{On: c.conn, Statement: s.sql.ReleaseAll, Look: s.sql.Look, Keys: keys}, records)

	for g, i := range releasing {
		answer, ended := answers[g.record.Request().Owner]

		switch {
		case err != nil:
			if g.refused(err); c.ended {
				errs[i] = s.store.Explain(err)
			}
		case ended:
			if g.freed(answer.Unlocked); g.released {
				contended[i], errs[i] = g.record.Contended(), nil

				if contended[i] {
					waited = append(waited, g.record.Request().Name)
				}
			}
		}
	}

	if !c.ended {
		c.hinted(s.store.TellOn(ctx, c.conn, waited))
	}
}

// hinted takes in whether telling others has left the session in doubt.
func (c *session) hinted(err error) {
	if err != nil {
		c.breakDown(err)
	}
}

// renewAll is Renew in one statement.
func (s *Strategy) renewAll(ctx context.Context, held []strategies.Grant, lease time.Duration) []error {
	errs := slices.Repeat([]error{strategies.ErrNotBatched}, len(held))

	c := sessionOf(held)
	if c == nil {
		return errs
	}

	if err := c.enter(ctx); err != nil {
		return slices.Repeat([]error{err}, len(held))
	}

	defer c.leave()

	there := c.there(held)
	if len(there) == 0 {
		return errs
	}

	ctx, cancel := c.detach(ctx, lease, nil)
	defer cancel()

	if err := c.renewAll(ctx, there, errs, lease); err != nil {
		err = c.explain(err)

		for _, i := range there {
			errs[i] = err // and who asks again hears that the session is gone
		}
	}

	c.closeIfIdle(ctx)

	return errs
}

// renewAll renews the leases of grants, and answers those that it has renewed.
func (c *session) renewAll(ctx context.Context, there map[*grant]int, errs []error, lease time.Duration) error {
	started := time.Now()

	if lease > c.limit {
		if err := c.setIdleLimit(ctx, lease); err != nil {
			return err
		}
	}

	records := make([]strategies.Grant, 0, len(there))
	order := make([]*grant, 0, len(there))

	for g := range there {
		records, order = append(records, g.record.Granted()), append(order, g)
	}

	answers, err := c.strategy.store.RenewAllOn(ctx, c.conn, records, lease)
	if err != nil {
		return err
	}

	for n, g := range order {
		if errs[there[g]] = answers[n]; answers[n] == nil {
			g.until = later(g.until, started.Add(lease))
		}
	}

	return c.sweep(ctx)
}

// longestLease is the longest of the requests', of which there is one at least.
func longestLease(requests []strategies.Request) time.Duration {
	byLease := func(a, b strategies.Request) int { return cmp.Compare(a.Lease, b.Lease) }

	return slices.MaxFunc(requests, byLease).Lease
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// sessionOf is the session of grants; nil if they have none. They may be readers'.
func sessionOf(held []strategies.Grant) *session {
	for _, h := range held {
		if g, ok := h.State.(*grant); ok {
			return g.session
		}
	}

	return nil
}

// there are those grants that are still on the session, and their numbers.
func (c *session) there(held []strategies.Grant) map[*grant]int {
	there := make(map[*grant]int, len(held))

	for i, h := range held {
		if g, ok := h.State.(*grant); ok && g.session == c && c.conn != nil && !g.expired && !g.unlocked {
			there[g] = i
		}
	}

	return there
}
