package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// Grant is a grant whose lease is in the database.
type Grant struct {
	store   *Store
	request sqllock.Request
	token   int64
	last    int64 // of the tokens that are reserved; the one in the row

	// released refuses a guard from the moment that a release began. The row
	// that a guard looks at may not tell: a release leaves it alone where a
	// guard would stop it (MySQL).
	released atomic.Bool
	crowded  atomic.Bool
}

// Grant returns the grant that was made for a request with the token in its row,
// which is the last of those that the request reserves.
func (s *Store) Grant(r sqllock.Request, last int64) *Grant {
	return &Grant{store: s, request: r, token: first(r, last), last: last}
}

// tokens is how many tokens the request reserves.
func tokens(r sqllock.Request) int64 { return max(1, r.Tokens) }

// first is the first of those tokens.
func first(r sqllock.Request, last int64) int64 { return last - tokens(r) + 1 }

// Next is the grant under its next token.
func (g *Grant) Next() sqllock.Grant {
	if g.token == g.last {
		return nil
	}

	g.released.Store(true)

	return &Grant{store: g.store, request: g.request, token: g.token + 1, last: g.last}
}

// Token is the fencing token.
func (g *Grant) Token() int64 { return g.token }

// Request is what the grant was made for.
func (g *Grant) Request() sqllock.Request { return g.request }

// Renew extends the lease.
func (g *Grant) Renew(ctx context.Context, lease time.Duration) error {
	return g.store.On(ctx, func(conn databases.Conn) error { return g.RenewOn(ctx, conn, lease) })
}

// RenewOn is Renew on a connection that the caller has.
func (g *Grant) RenewOn(ctx context.Context, on databases.Session, lease time.Duration) error {
	values := g.store.values(g.request)
	values["lease"] = g.store.lease(lease)

	result, err := on.Exec(ctx, g.store.statements.Renew, values)
	if err != nil || result.RowsAffected > 0 {
		return err
	}

	// No row changed. Either it is not ours any more, or MySQL found the new
	// value to be the old one.
	st, found, err := g.store.State(ctx, on, g.request.Name)
	if err != nil || found && st.Owner == g.request.Owner {
		return err
	}

	return g.lost(st)
}

// Check asks whether the lease is there.
func (g *Grant) Check(ctx context.Context) error {
	return g.store.On(ctx, func(conn databases.Conn) error { return g.CheckOn(ctx, conn) })
}

// CheckOn is Check on a connection that the caller has.
func (g *Grant) CheckOn(ctx context.Context, on databases.Session) error {
	st, _, err := g.store.State(ctx, on, g.request.Name)
	if err != nil || st.Owner == g.request.Owner && st.Left > 0 {
		return err
	}

	return g.lost(st)
}

// Release ends the grant.
func (g *Grant) Release(ctx context.Context) error {
	return g.store.On(ctx, func(conn databases.Conn) error { return g.ReleaseOn(ctx, conn) })
}

// ReleaseOn is Release on a connection that the caller has.
func (g *Grant) ReleaseOn(ctx context.Context, on databases.Session) error {
	g.released.Store(true)

	freed, err := g.free(ctx, on)
	if err != nil || freed {
		return err
	}

	st, found, err := g.store.State(ctx, on, g.request.Name)

	switch {
	case err != nil:
		return err
	case found && st.Owner == "" && st.Token == g.last && st.Ended == "":
		// Released before: the answer of an earlier try was lost.
		return nil
	default:
		return g.lost(st)
	}
}

// free frees the name, at once or when its minimum hold is over, and says whether
// there was something to free.
func (g *Grant) free(ctx context.Context, on databases.Session) (freed bool, err error) {
	s, values := g.store, g.store.values(g.request)

	if g.request.MinHold > 0 {
		result, err := on.Exec(ctx, s.statements.ReleaseLater, values)

		return result.RowsAffected > 0, err
	}

	if notes := s.statements.Register.SQL != ""; !notes || s.Dialect() == databases.MySQL {
		result, err := on.Exec(ctx, s.statements.Release, values)
		// Where nobody can note that they wait, others may have waited all the
		// while that the lock went round in this process.
		g.crowded.Store(result.LastInsertID != 0 || !notes && g.token > first(g.request, g.last))

		return result.RowsAffected > 0, err
	}

	err = on.Query(ctx, s.statements.Release, values, func(row databases.Row) error {
		var crowded bool

		freed, err = true, row(&crowded)
		g.crowded.Store(crowded)

		return err
	})

	return freed, err
}

// Crowded says, after the release, whether somebody was registered as waiting, or
// may be waiting.
func (g *Grant) Crowded() bool { return g.crowded.Load() }

// lost says why a grant is gone, from what its row says now.
func (g *Grant) lost(st State) error {
	lost := &sqllock.LostError{Name: g.request.Name, Token: g.token, Reason: sqllock.ReasonUnknown}

	switch {
	case st.Owner == g.request.Owner, st.Token == g.last && st.Ended == expired:
		lost.Reason, lost.Detail = sqllock.ReasonExpired, "by the database's clock"
	case st.Token == g.last && strings.HasPrefix(st.Ended, forced):
		lost.Reason, lost.Detail = sqllock.ReasonForced, strings.TrimPrefix(st.Ended, forced)
	case st.Token > g.last && st.Owner != "":
		lost.Reason, lost.Detail = sqllock.ReasonTakenOver, fmt.Sprintf("by %s with token %d", st.Holder, st.Token)
	case st.Token > g.last:
		lost.Reason, lost.Detail = sqllock.ReasonTakenOver, fmt.Sprintf("since then granted with token %d", st.Token)
	}

	return lost
}

// SessionGone is the loss of a grant whose session has ended. The lease's row
// may tell why: an operator who forces a release ends the session, too.
func (g *Grant) SessionGone(ctx context.Context, cause error) error {
	var known *sqllock.LostError
	if errors.As(g.Check(ctx), &known) && known.Reason == sqllock.ReasonForced {
		return known
	}

	return &sqllock.LostError{
		Name: g.request.Name, Token: g.token, Reason: sqllock.ReasonSessionGone, Err: cause,
	}
}

// Guard pins the grant in the caller's transaction.
func (g *Grant) Guard(ctx context.Context, tx sqllock.Tx) error {
	on, err := session(tx)
	if err != nil {
		return err
	}

	if g.released.Load() {
		return sqllock.ErrReleased
	}

	values := databases.Values{"name": g.request.Name, "owner": g.request.Owner, "token": g.last}
	token := int64(0)

	err = on.Query(ctx, g.store.shared.Guard, values, func(row databases.Row) error { return row(&token) })

	switch {
	case g.store.Busy(err):
		// The row changed since the transaction's snapshot was taken: by our
		// own acquisition, or by that of a successor.
		if lost := g.superseded(ctx); lost != nil {
			return fmt.Errorf("%w: %w", lost, err)
		}

		return fmt.Errorf("%w: %w", errInTheWay, err)
	case err != nil:
		return g.store.Explain(err)
	case token == g.last:
		return nil
	}

	// The caller's transaction may see an old snapshot; ask outside it.
	if lost := g.superseded(ctx); lost != nil {
		return lost
	}

	return errOldSnapshot
}

// askTimeout bounds a question outside the caller's transaction, which has a
// connection already: the pool may have no other, and none before the guard
// returns.
const askTimeout = time.Second

// superseded asks outside the caller's transaction whether the grant is still
// the name's latest, though its lease may have run out.
func (g *Grant) superseded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	return g.store.On(ctx, func(conn databases.Conn) error {
		st, _, err := g.store.State(ctx, conn, g.request.Name)
		if err != nil || st.Owner == g.request.Owner {
			return err
		}

		return g.lost(st)
	})
}

var (
	errOldSnapshot = errors.New("the transaction's snapshot is older than the lock; begin it after the lock is acquired")
	errInTheWay    = errors.New("another transaction is in the way, or this one's snapshot is older than the lock; " +
		"roll it back and begin again")
)

// ReleaseTx ends the grant when the caller's transaction commits.
func (g *Grant) ReleaseTx(ctx context.Context, tx sqllock.Tx) error {
	on, err := session(tx)
	if err != nil {
		return err
	}

	if g.released.Load() {
		return sqllock.ErrReleased
	}

	var result databases.Result

	release := g.store.statements.ReleaseTx
	if g.request.MinHold > 0 {
		release = g.store.statements.ReleaseLater
	}

	for _, statement := range append(slices.Clone(g.store.statements.BeforeReleaseTx), release) {
		if result, err = on.Exec(ctx, statement, g.store.values(g.request)); err != nil {
			return g.store.Explain(err)
		}
	}

	if result.RowsAffected > 0 {
		return nil
	}

	st, _, err := g.store.State(ctx, on, g.request.Name)
	if err != nil {
		return g.store.Explain(err)
	}

	return g.lost(st)
}

func session(tx sqllock.Tx) (databases.Session, error) {
	on, ok := tx.(databases.Session)
	if !ok {
		return nil, fmt.Errorf("%w: a transaction of type %T; wrap yours with the Tx function of its database's package",
			sqllock.ErrUnsupported, tx)
	}

	return on, nil
}
