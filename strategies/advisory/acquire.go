package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// attempt is one for a request.
type attempt struct {
	request strategies.Request
	place   place
	grant   strategies.Grant
	err     error
}

// acquireAll makes attempts on the open session, none of them for a reader.
func (c *session) acquireAll(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	all := make([]*attempt, len(requests))
	for i, r := range requests {
		all[i] = &attempt{request: r, place: place{key: c.strategy.key(c.namespace, r.Name)}}
	}

	c.try(ctx, all)

	made, errs := make([]strategies.Grant, len(all)), make([]error, len(all))
	for i, a := range all {
		made[i], errs[i] = a.grant, a.err
	}

	return made, errs
}

// try makes attempts, in the statements of one.
func (c *session) try(ctx context.Context, all []*attempt) {
	started := time.Now()
	open, err := c.plan(ctx, all)

	for round := 0; round < grants.MaxRounds && err == nil && len(open) > 0; round++ {
		if err = c.draw(ctx, open, started); err == nil {
			open, err = c.look(ctx, open)
		}
	}

	for _, a := range all {
		switch {
		case c.ended:
			a.grant, a.err = strategies.Grant{}, err // and what was granted has ended
		case !a.grant.None() || a.err != nil:
		case err != nil:
			a.err = err
		default:
			a.err = grants.ComesAndGoes(a.request.Name)
		}
	}
}

// plan returns those that are to be asked for. Of two with one key the second would be granted, too: it has to go alone.
func (c *session) plan(ctx context.Context, all []*attempt) (open []*attempt, err error) {
	asked := make(map[place]struct{}, len(all))

	for _, a := range all {
		if _, twice := asked[a.place]; twice {
			a.err = strategies.ErrNotBatched

			continue
		}

		switch a.grant, a.err = c.here(ctx, a.place, a.request); {
		case c.ended:
			return nil, a.err
		case a.grant.None() && a.err == nil:
			asked[a.place] = struct{}{}
			open = append(open, a)
		}
	}

	return open, nil
}

// draw takes the keys of names whose rows seem free, and grants those that are.
func (c *session) draw(ctx context.Context, open []*attempt, started time.Time) error {
	store, call := c.strategy.store, grants.KeyedCall{On: c.conn}

	for _, a := range open {
		call.Requests, call.Keys = append(call.Requests, a.request), append(call.Keys, a.place.key)
	}

	answers, err := store.AcquireKeyed(ctx, call)
	if err != nil {
		return c.unlockAfter(ctx, call, err)
	}

	var left []any

	for _, a := range open {
		switch answer := answers[a.request.Owner]; {
		case answer.Token != 0:
			a.grant, a.err = c.made(store.Grant(a.request, answer.Token), a.place, started.Add(a.request.Lease)), nil
		case answer.Locked:
			left = append(left, a.place.key)
		}
	}

	if len(left) == 0 {
		return nil
	}

	return c.unlockLeft(ctx, left)
}

// unlockAfter unlocks what an acquisition has locked that the server refused, which does not undo that. Of several that another
// transaction was in the way of, each has to go alone.
func (c *session) unlockAfter(ctx context.Context, call grants.KeyedCall, cause error) error {
	store := c.strategy.store
	together := store.Busy(cause) && len(call.Requests) > 1

	cause = store.AsHeld(ctx, c.conn, call.Requests[0].Name, cause)
	if !store.Clean(cause) {
		return c.explain(cause)
	}

	switch err := c.unlockLeft(ctx, call.Keys); {
	case err != nil:
		return err
	case together:
		return strategies.ErrNotBatched
	default:
		return c.explain(cause)
	}
}

// unlockLeft unlocks those of the keys that the session has, or else ends that.
func (c *session) unlockLeft(ctx context.Context, keys []any) error {
	sql := c.strategy.sql

	free := true

	_, err := c.conn.Run(ctx, sql.UnlockLeft, databases.Values{"keys": c.strategy.keys(keys)}, func(row databases.Row) error {
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

// look says of those that were not granted who has them, and returns those to ask for again: they had no rows, which it has made, or
// what was in the way is over.
func (c *session) look(ctx context.Context, open []*attempt) (again []*attempt, err error) {
	s, alone := c.strategy, len(open) == 1

	for _, a := range open {
		if !a.grant.None() {
			continue
		}

		st, locked, err := c.state(ctx, a.request.Name, a.place.key)
		if err != nil {
			return nil, c.explain(err)
		}

		if !s.store.Unready(st) {
			asks, err := s.store.Refused(ctx, c.conn, st, a.request)
			if a.err = c.explain(err); errors.Is(err, strategies.ErrBusy) {
				return nil, a.err // nobody waits for the same once more
			}

			// The statement about several leaves out what goes alone, however often it is asked.
			if asks && !locked && (alone || s.sql.Look.SQL == "") {
				again = append(again, a)
			} else {
				c.tryAlone(ctx, a, alone, locked)
			}
		} else if err := s.store.Create(ctx, c.conn, a.request); err != nil {
			a.err = c.explain(s.store.AsHeld(ctx, c.conn, a.request.Name, err))
		} else {
			again = append(again, a)
		}

		if c.ended {
			return nil, a.err
		}
	}

	return again, nil
}

// tryAlone tries for one of several what the statement about those leaves out on MySQL and MariaDB: a name that its owner has
// already, or that is free as far as the row tells. Then it says if a session has the key.
func (c *session) tryAlone(ctx context.Context, a *attempt, alone, locked bool) {
	held := new(strategies.HeldError)
	if !errors.As(a.err, &held) {
		return
	}

	free := held.Remaining == 0 && held.Line == 0

	switch {
	case free && locked:
		held.Detail = grants.SessionHolds
	case alone || c.strategy.sql.Look.SQL == "":
	case free || held.Owner == a.request.Owner:
		c.try(ctx, []*attempt{a})
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}
