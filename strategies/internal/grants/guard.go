package grants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Guard pins the grant, which its holder has under a token, in the caller's transaction.
func (g *Grant) Guard(ctx context.Context, tx strategies.Tx, token int64) error {
	on, err := session(tx)
	if err != nil {
		return err
	}

	if g.released.Load() {
		return strategies.ErrReleased
	}

	if err := g.date(ctx, token); err != nil {
		return err
	}

	current, err := g.pin(ctx, on)

	switch {
	case g.store.Busy(err):
		// The row changed since the transaction's snapshot was taken: by our
		// own acquisition, or by that of a successor.
		if lost := g.superseded(ctx); lost != nil {
			return lost
		}

		return fmt.Errorf("%w: %w", errInTheWay, err)
	case err != nil:
		return g.store.Explain(err)
	case current == g.last:
		return nil
	}

	// The caller's transaction may see an old snapshot; ask outside it.
	if lost := g.superseded(ctx); lost != nil {
		return lost
	}

	return errOldSnapshot
}

// pin keeps the next grant from a commit before that of the caller's transaction. It returns the row's token, or zero
// where the row is not the grant's, or not as the transaction sees it.
func (g *Grant) pin(ctx context.Context, on databases.Session) (token int64, err error) {
	many, err := g.store.manyPrimaries(ctx, on)
	if err != nil {
		return 0, err
	}

	if many != "" || g.store.sql.Guard.SQL == "" {
		return g.pinAll(ctx, on)
	}

	err = on.Query(ctx, g.store.sql.Guard, g.key(), func(row databases.Row) error { return row(&token) })

	return token, err
}

// pinAll is pin where a row lock holds on one node only, or not before the commit. It reads before it writes: what a transaction has written it
// sees, whatever its snapshot.
func (g *Grant) pinAll(ctx context.Context, on databases.Session) (token int64, err error) {
	acquired, seen := int64(0), false

	err = on.Query(ctx, g.store.sql.GuardSnapshot, g.key(), func(row databases.Row) error {
		seen = true

		return row(&acquired)
	})
	if err != nil || !seen {
		return 0, err
	}

	values := g.key()
	values["acquired"] = acquired

	result, err := on.Exec(ctx, g.store.sql.GuardWrite, values)
	if err != nil || result.RowsAffected == 0 {
		return 0, err
	}

	return g.last, nil
}

// key is what its row is found by.
func (g *Grant) key() databases.Values {
	return databases.Values{"name": g.request.Name, "owner": g.request.Owner, "token": g.last}
}

// date changes the row of a grant that was handed on, once and outside the caller's
// transaction. The database had no part in handing it on, so that without this a
// guard would pass in a snapshot from before, which does not show what the holders
// before wrote.
func (g *Grant) date(ctx context.Context, token int64) error {
	if token == first(g.request, g.last) || g.store.sql.Date.SQL == "" {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	select {
	case g.dating <- struct{}{}:
		defer func() { <-g.dating }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotDated, ctx.Err())
	}

	if g.dated == token {
		return nil
	}

	err := g.dateOutside(ctx)
	if err != nil && !errors.Is(err, strategies.ErrLost) {
		return fmt.Errorf("%w: %w", errNotDated, err)
	}

	if err == nil {
		g.dated = token
	}

	return err
}

// dateAgain is the pause after a try at a row that somebody else had locked, as an
// acquisition does for a moment.
const dateAgain = 5 * time.Millisecond

func (g *Grant) dateOutside(ctx context.Context) (err error) {
	conn, err := g.store.Conn(ctx)
	if err != nil {
		return err
	}

	defer g.store.Return(conn, &err)

	for {
		result, err := conn.Exec(ctx, g.store.sql.Date, g.key())
		if err != nil && !g.store.Busy(err) || result.RowsAffected > 0 {
			return err
		}

		st, _, err := ReadState(ctx, conn, g.store.sql.State, g.request.Name)

		switch {
		case err != nil:
			return err
		case st.Owner != g.request.Owner:
			return g.lost(st)
		}

		select {
		case <-time.After(dateAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// askTimeout bounds a question outside the caller's transaction, which has a
// connection already: the pool may have no other, and none before the guard
// returns.
const askTimeout = time.Second

// superseded asks outside the caller's transaction whether the grant is still
// the name's latest, though its lease may have run out.
func (g *Grant) superseded(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	conn, err := g.store.Conn(ctx)
	if err != nil {
		return err
	}

	defer g.store.Return(conn, &err)

	st, _, err := ReadState(ctx, conn, g.store.sql.State, g.request.Name)
	if err != nil || st.Owner == g.request.Owner {
		return err
	}

	return g.lost(st)
}

var (
	errRowLocked   = errors.New("it has the row of the name locked")
	errOldSnapshot = errors.New("the transaction's snapshot is older than the lock, or it is in another database or schema; " +
		"begin it after the lock is acquired, where the lock is")
	errElsewhere = errors.New("the transaction finds other tables than the lock is in; let it be in the same database and schema")
	errNotDated  = errors.New("the lock was handed on within the process, and that could not be written down outside of the transaction; " +
		"roll it back and begin again")
	errInTheWay = errors.New("another transaction is in the way, or this one's snapshot is older than the lock; " +
		"roll it back and begin again")
	errRenewed = errors.New("another transaction is in the way, or the lock was renewed since this one's snapshot; " +
		"roll it back and begin again, at READ COMMITTED")
)

// ReleaseTx ends the grant when the caller's transaction commits, and records the mark then, if there is one.
func (g *Grant) ReleaseTx(ctx context.Context, tx strategies.Tx, mark int64) error {
	on, err := session(tx)
	if err != nil {
		return err
	}

	if g.released.Load() {
		return strategies.ErrReleased
	}

	var result databases.Result

	release := g.store.sql.ReleaseTx
	if g.request.MinHold > 0 {
		release = g.store.sql.ReleaseLater
	}

	values := g.store.values(g.request)
	values["mark"] = mark

	before := g.store.sql.BeforeRelease
	if mark != 0 {
		// Only as long as the row has its owner.
		before = append(slices.Clip(before), g.store.sql.Mark)
	}

	if err = execAll(ctx, on, before, values); err == nil {
		result, err = on.Exec(ctx, release, values)
	}

	if err == nil && result.RowsAffected > 0 {
		return nil
	}

	// The caller's snapshot may not show what became of the lock; ask outside it. If
	// the lock is still the grant's there, this transaction has released it before.
	if err == nil || g.store.Busy(err) {
		if lost := g.superseded(ctx); errors.Is(lost, strategies.ErrLost) {
			return lost
		}
	}

	switch {
	case g.store.Busy(err):
		return fmt.Errorf("%w: %w", errRenewed, g.store.Explain(err))
	case err != nil:
		return g.store.Explain(err)
	}

	st, _, err := ReadState(ctx, on, g.store.sql.State, g.request.Name)

	switch {
	case err != nil:
		return g.store.Explain(err)
	case st.gone:
		return errElsewhere // outside it is there
	default:
		return g.lost(st)
	}
}

func session(tx strategies.Tx) (databases.Session, error) {
	on, ok := tx.(databases.Session)
	if !ok {
		return nil, fmt.Errorf("%w: a transaction of type %T; wrap yours with the Tx function of its database's package",
			strategies.ErrUnsupported, tx)
	}

	return on, nil
}
