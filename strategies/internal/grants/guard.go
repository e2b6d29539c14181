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

// Guard pins the grant in the caller's transaction.
func (Base) Guard(ctx context.Context, tx strategies.Tx, granted strategies.Grant) error {
	g := recordOf(granted)

	on, err := g.session(tx)
	if err != nil {
		return err
	}

	if err := g.date(ctx, granted.Token); err != nil {
		return err
	}

	pinned, err := g.pin(ctx, on)
	if err == nil && pinned {
		return nil
	}

	busy := g.store.Busy(err)
	if err != nil && !busy {
		return g.store.Explain(err)
	}

	// The caller's transaction may see an old snapshot; ask outside it.
	if lost := g.superseded(ctx); lost != nil {
		return lost
	}

	if busy {
		// The row changed since the transaction's snapshot was taken: by our own acquisition.
		return fmt.Errorf("%w: %w", errInTheWay, err)
	}

	return errOldSnapshot
}

// pin keeps the next grant from a commit before that of the caller's transaction. false: the row is not the grant's, or not
// as the transaction sees it.
func (g *Grant) pin(ctx context.Context, on databases.Session) (pinned bool, err error) {
	sql, values := g.store.sql, g.key()

	many, err := g.store.manyPrimaries(ctx, on)
	if err != nil {
		return false, err
	}

	if many == "" && sql.Guard.SQL != "" {
		var token int64

		_, err := ReadOne(ctx, on, sql.Guard, values, &token)

		return token == g.last, err
	}

	// A row lock holds on one node only, or not before the commit. It reads before it writes: what a transaction has written it
	// sees, whatever its snapshot.
	var acquired int64

	seen, err := ReadOne(ctx, on, sql.GuardSnapshot, values, &acquired)
	if err != nil || !seen {
		return false, err
	}

	values["acquired"] = acquired
	result, err := on.Run(ctx, sql.GuardWrite, values, nil)

	return result.RowsAffected > 0, err
}

// key is what its row is found by.
func (g *Grant) key() databases.Values {
	return databases.Values{"name": g.request.Name, "owner": g.owner, "token": g.last}
}

// date changes the row of a grant that was handed on, once and outside the caller's
// transaction. The database had no part in handing it on, so that without this a
// guard would pass in a snapshot from before, which does not show what the holders
// before wrote.
func (g *Grant) date(ctx context.Context, token int64) error {
	if token == g.first() || g.store.sql.Date.SQL == "" {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	if err := g.dating.Enter(ctx); err != nil {
		return fmt.Errorf("%w: %w", errNotDated, err)
	}

	defer g.dating.Leave()

	if g.dated == token {
		return nil
	}

	err := g.store.Use(ctx, func(on databases.Conn) error { return g.dateOn(ctx, on) })

	switch {
	case err == nil:
		g.dated = token
	case !errors.Is(err, strategies.ErrLost):
		return fmt.Errorf("%w: %w", errNotDated, err)
	}

	return err
}

// dateAgain is the pause after a try at a row that somebody else had locked, as an
// acquisition does for a moment.
const dateAgain = 5 * time.Millisecond

func (g *Grant) dateOn(ctx context.Context, on databases.Session) error {
	for {
		result, err := on.Run(ctx, g.store.sql.Date, g.key(), nil)
		if err != nil && !g.store.Busy(err) || result.RowsAffected > 0 {
			return err
		}

		if err := g.check(ctx, on, false); err != nil {
			return err
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

// superseded asks outside the caller's transaction whether the grant is still the name's latest.
func (g *Grant) superseded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	return g.store.Use(ctx, func(on databases.Conn) error { return g.check(ctx, on, false) })
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

// ReleaseTx ends a grant when the caller's transaction commits, and records the mark then, if there is one. A session's lock does
// not end with its record.
func (b Base) ReleaseTx(ctx context.Context, tx strategies.Tx, granted strategies.Grant, mark int64) error {
	g, ok := granted.State.(*Grant)
	if !ok || g.Shared() {
		return &strategies.UnsupportedError{
			Strategy: b.store.strategy, Where: "for the release of a session's or a reader's lock in a transaction", Fix: "release it after that", Instead: "cas",
		}
	}

	on, err := g.session(tx)
	if err != nil {
		return err
	}

	freed, err := g.freeTx(ctx, on, mark)
	if err == nil && freed {
		return nil
	}

	busy := g.store.Busy(err)
	if err != nil && !busy {
		return g.store.Explain(err)
	}

	// The caller's snapshot may not show what became of the lock; ask outside it. If
	// the lock is still the grant's there, this transaction has released it before.
	if lost := g.superseded(ctx); errors.Is(lost, strategies.ErrLost) {
		return lost
	}

	if busy {
		return fmt.Errorf("%w: %w", errRenewed, g.store.Explain(err))
	}

	st, err := g.state(ctx, on)

	switch {
	case err != nil:
		return g.store.Explain(err)
	case st.gone:
		return errElsewhere // outside it is there
	default:
		return g.lost(st)
	}
}

// freeTx frees the name in a transaction, and says whether there was something to free.
func (g *Grant) freeTx(ctx context.Context, on databases.Session, mark int64) (freed bool, err error) {
	sql, values := g.store.sql, g.values()
	values["mark"] = mark

	before, release := sql.BeforeRelease, sql.ReleaseTx
	if mark != 0 {
		before = append(slices.Clip(before), sql.Mark) // only as long as the row has its owner
	}

	if g.request.MinHold > 0 {
		release = sql.ReleaseLater
	}

	if err := ExecAll(ctx, on, before, values); err != nil {
		return false, err
	}

	result, err := on.Run(ctx, release, values, nil)

	return result.RowsAffected > 0, err
}

// session is what the grant's statements are sent on in the caller's transaction, as long as it has not been released.
func (g *Grant) session(tx strategies.Tx) (databases.Session, error) {
	on, ok := tx.(databases.Session)

	switch {
	case !ok:
		return nil, fmt.Errorf("%w: a transaction of type %T; wrap yours with the Tx function of its database's package",
			strategies.ErrUnsupported, tx)
	case g.released.Load():
		return nil, strategies.ErrReleased
	default:
		return on, nil
	}
}
