package advisory

import (
	"context"
	"errors"
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

	open, err := a.plan(ctx)

	for round := 0; round < grants.MaxRounds && err == nil && len(open) > 0; round++ {
		if err = a.draw(ctx, open); err == nil {
			open, err = a.look(ctx, open)
		}
	}

	for i, r := range requests {
		switch {
		case a.ended:
			a.grants[i], a.errs[i] = strategies.Grant{}, err // and what was granted has ended
		case !a.grants[i].None() || a.errs[i] != nil:
		case err != nil:
			a.errs[i] = err
		default:
			a.errs[i] = grants.ComesAndGoes(r.Name)
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

	answers, err := s.store.AcquireKeyed(ctx, grants.KeyedCall{On: a.conn, Requests: requests, Keys: held})
	if err != nil {
		return a.unlockAfter(ctx, held, requests, err)
	}

	var left []any

	for n, i := range open {
		switch answer := answers[requests[n].Owner]; {
		case answer.Token != 0:
			record := s.store.Grant(requests[n], answer.Token)
			a.grants[i], a.errs[i] = a.made(record, a.places[i], a.started.Add(requests[n].Lease)), nil
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
func (a *attempts) look(ctx context.Context, open []int) (again []int, err error) {
	s := a.strategy

	for _, i := range open {
		if !a.grants[i].None() {
			continue
		}

		r := a.requests[i]

		st, locked, err := a.state(ctx, r.Name, a.places[i].key)
		if err != nil {
			return nil, a.explain(err)
		}

		if !s.store.Unready(st) {
			asks, err := s.store.Refused(ctx, a.conn, st, r)
			if a.errs[i] = a.explain(err); errors.Is(err, strategies.ErrBusy) {
				return nil, a.errs[i] // nobody waits for the same once more
			}

			// The statement about several leaves out what goes alone, however often it is asked.
			if asks && !locked && (len(open) == 1 || s.sql.Look.SQL == "") {
				again = append(again, i)
			} else {
				a.tryAlone(ctx, i, len(open) == 1, locked)
			}
		} else if err := s.store.Create(ctx, a.conn, r); err != nil {
			a.errs[i] = a.explain(s.store.AsHeld(ctx, a.conn, r.Name, err))
		} else {
			again = append(again, i)
		}

		if a.ended {
			return nil, a.errs[i]
		}
	}

	return again, nil
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
		held.Detail = grants.SessionHolds
	case alone || a.strategy.sql.Look.SQL == "":
	case free || held.Owner == a.requests[i].Owner:
		made, errs := a.acquireAll(ctx, a.requests[i:i+1])
		a.grants[i], a.errs[i] = made[0], errs[0]
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}
