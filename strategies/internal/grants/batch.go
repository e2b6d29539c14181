package grants

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/strategies"
)

// AcquireAll makes one attempt for each request, all in one statement. It
// waits for nobody's row lock.
func (s *Store) AcquireAll(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	b := s.acquisitions(requests)

	if s.sql.Batch.Acquire.SQL == "" {
		return calls.AcquireAlone(ctx, requests)
	}

	conn, ctx, cancel, err := s.Attempt(ctx)
	defer b.answer(&err)

	if err != nil {
		return b.grants, b.errs
	}

	defer s.Return(conn, &err)
	defer cancel()

	sql, asked := &s.sql.Batch, requests

	// The second round follows the making of rows, once in a name's life.
	for round := 0; round < 2 && err == nil && len(asked) > 0; round++ {
		values := s.batchValues(sql.Acquire, asked)

		if err = b.draw(ctx, conn, sql.Acquire, values); err != nil {
			break
		}

		if asked, err = b.taken(ctx, conn, asked, values); err != nil || len(asked) == 0 {
			break
		}

		if len(sql.Create) > 0 {
			err = s.WithLockTimeout(ctx, conn, sql.Create, s.batchValues(sql.Create[0], asked))
		}
	}

	return b.grants, b.errs
}

// acquisitions are those of one statement.
type acquisitions struct {
	*Store

	requests []strategies.Request
	grants   []strategies.Grant
	errs     []error
	index    map[string]int       // by owner
	changed  bool                 // something, by the last statement, where the dialect has WithoutReturning
	orphans  []strategies.Request // whose records were taken, and whose rows are not there
}

func (s *Store) acquisitions(requests []strategies.Request) *acquisitions {
	b := &acquisitions{
		Store: s, requests: requests,
		grants: make([]strategies.Grant, len(requests)), errs: make([]error, len(requests)), index: make(map[string]int, len(requests)),
	}

	for i, r := range requests {
		b.index[r.Owner] = i
	}

	return b
}

// answer is deferred, with the address of an error that came for all: those that have
// no answer yet get that, or have to go alone.
func (b *acquisitions) answer(failed *error) {
	err := *failed
	if err == nil || !errors.Is(err, strategies.ErrUnsettled) && (b.Busy(err) || errors.Is(err, strategies.ErrBusy)) {
		err = strategies.ErrNotBatched
	}

	for i := range b.requests {
		if b.grants[i].None() && b.errs[i] == nil {
			b.errs[i] = err
		}
	}
}

// draw grants what is free.
func (b *acquisitions) draw(
	ctx context.Context, conn databases.Conn, statement databases.Statement, values databases.Values,
) error {
	if b.sql.WithoutReturning {
		// It does not say what it granted: look does.
		result, err := conn.Exec(ctx, statement, values)
		b.changed = result.RowsAffected > 0

		return err
	}

	var tokens map[string]int64

	err := b.withSideRows(ctx, conn, func(rows bool) (err error) {
		if tokens, err = byOwner[int64](ctx, conn, statement, values, len(b.requests)); err == nil && rows && len(tokens) > 0 {
			_, err = conn.Exec(ctx, b.sql.Rows.Make, values)
		}

		return err
	})
	if err != nil {
		return err
	}

	for owner, token := range tokens {
		b.granted(owner, token)
	}

	return nil
}

// byOwner sends a statement that returns a value for each owner that it was done
// for, of so many at most. There are none after an error: the rows come before the commit, which can
// still fail.
func byOwner[V any](
	ctx context.Context, conn databases.Conn, statement databases.Statement, values databases.Values, most int,
) (map[string]V, error) {
	answers := make(map[string]V, most)

	err := conn.Query(ctx, statement, values, func(row databases.Row) error {
		var (
			owner string
			value V
		)

		err := row(&owner, &value)
		answers[owner] = value

		return err
	})
	if err != nil {
		return nil, err
	}

	return answers, nil
}

func (b *acquisitions) granted(owner string, token int64) {
	i, ok := b.index[owner]
	if !ok {
		return
	}

	if b.errs[i] = sound(token); b.errs[i] == nil {
		b.grants[i] = b.Grant(b.requests[i], token).Granted()
	}
}

// look asks about those that were not granted, and returns those that have no
// rows. values are those of what was asked for, which has the names.
func (b *acquisitions) look(
	ctx context.Context, conn databases.Conn, statement databases.Statement, asked []strategies.Request, values databases.Values,
) ([]strategies.Request, error) {
	var open []strategies.Request

	for _, r := range asked {
		if i := b.index[r.Owner]; b.grants[i].None() && b.errs[i] == nil {
			open = append(open, r)
		}
	}

	if len(open) == 0 {
		return nil, nil
	}

	if len(open) < len(asked) {
		values = b.batchValues(statement, open)
	}

	states, err := b.states(ctx, conn, statement, values)
	if err != nil {
		return nil, err
	}

	var missing []strategies.Request

	for _, r := range open {
		i := b.index[r.Owner]

		switch st, found := states[r.Name]; {
		case !found, b.Unready(st.State):
			missing = append(missing, r)
		case b.inSteps() && st.Owner == r.Owner && (st.Left <= 0 || st.row != r.Owner):
			b.orphans = append(b.orphans, r)
		case st.Owner == r.Owner && st.Left > 0:
			b.granted(r.Owner, st.Token)
		default:
			b.errs[i] = b.Refused(ctx, conn, st.State, r)
		}
	}

	return missing, nil
}

// RenewAll renews grants in one statement.
func (s *Store) RenewAll(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	if s.sql.Batch.Acquire.SQL == "" {
		return calls.RenewAlone(ctx, grants, lease)
	}

	t := s.together(grants, func(*Grant) bool { return true })
	if len(t.requests) == 0 {
		return t.errs
	}

	conn, err := s.Conn(ctx)
	defer t.failed(&err)

	if err != nil {
		return t.errs
	}

	defer s.Return(conn, &err)

	err = t.renewOn(ctx, conn, lease)

	return t.errs
}

// renewOn renews them in one statement.
func (t *together) renewOn(ctx context.Context, conn databases.Conn, lease time.Duration) error {
	renew := t.sql.Batch.Renew
	values := t.batchValues(renew, t.requests)
	values["lease"] = t.lease(lease)

	if t.sql.WithoutReturning {
		return t.renewWithoutReturning(ctx, conn, renew, values)
	}

	return t.send(ctx, conn, renew, values)
}

// ReleaseAll ends grants in one statement. One with a minimum hold is released in
// another way, alone.
func (s *Store) ReleaseAll(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	if s.sql.Batch.Acquire.SQL == "" {
		return calls.ReleaseAlone(ctx, grants)
	}

	durable := false

	t := s.together(grants, func(g *Grant) bool {
		if g.request.MinHold > 0 {
			return false
		}

		g.released.Store(true)

		durable = durable || g.request.DurableRelease

		return true
	})
	if len(t.requests) == 0 {
		return t.contended, t.errs
	}

	conn, err := s.Conn(ctx)
	defer t.failed(&err)

	if err != nil {
		return t.contended, t.errs
	}

	defer s.Return(conn, &err)

	if s.sql.WithoutReturning {
		err = t.releaseWithoutReturning(ctx, conn, s.sql.Batch.Release)
	} else {
		values := s.batchValues(s.sql.Batch.Release, t.requests)
		values["durable"] = durable
		err = t.release(ctx, conn, values)
	}

	return t.contended, t.errs
}

// together are grants that one statement is about.
type together struct {
	*Store

	grants    []strategies.Grant
	requests  []strategies.Request
	index     map[string]int // by owner, of what is not done
	contended []bool
	errs      []error
}

// together takes those grants for which fit is true. The others have to go alone,
// as have those that the statement will not be done with.
func (s *Store) together(grants []strategies.Grant, fit func(*Grant) bool) *together {
	t := &together{
		Store: s, grants: grants, index: make(map[string]int, len(grants)), contended: make([]bool, len(grants)), errs: make([]error, len(grants)),
	}

	for i, g := range grants {
		t.errs[i] = strategies.ErrNotBatched

		if g, ok := g.State.(*Grant); ok && fit(g) {
			t.index[g.request.Owner] = i
			t.requests = append(t.requests, g.request)
		}
	}

	return t
}

// failed is deferred, with the address of an error that came for all: those that are
// not done get that, unless they have to go alone.
func (t *together) failed(failed *error) {
	if *failed == nil || t.Busy(*failed) {
		return
	}

	for _, i := range t.index {
		t.errs[i] = replaced(*failed)
	}
}

// send sends a statement that returns the owners that it was done for.
func (t *together) send(
	ctx context.Context, conn databases.Conn, statement databases.Statement, values databases.Values,
) error {
	contended, err := byOwner[bool](ctx, conn, statement, values, len(t.requests))
	if err == nil {
		t.allDone(contended)
	}

	return err
}

func (t *together) allDone(contended map[string]bool) {
	for owner, waits := range contended {
		t.done(owner, waits)
	}
}

func (t *together) done(owner string, contended bool) {
	if i, ok := t.index[owner]; ok {
		t.contended[i], t.errs[i] = contended, nil

		delete(t.index, owner)
	}
}
