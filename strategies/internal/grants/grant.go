package grants

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/strategies"
)

// Grant is a grant whose lease is in the database.
type Grant struct {
	store   *Store
	request strategies.Request
	last    int64 // of the tokens that are reserved; the one in the row

	// released refuses a guard from the moment that a release began. The row
	// that a guard looks at may not tell: a release leaves it alone where a
	// guard would stop it (MySQL).
	released  atomic.Bool
	contended atomic.Bool

	// dating is the right to use dated, of a grant that may be handed on; a channel, so
	// that waiting for it can end with a context.
	dating chan struct{}
	dated  int64 // the row has changed since the grant was handed on under this token
}

// Grant returns the grant that was made for a request with the token in its row,
// which is the last of those that the request reserves.
func (s *Store) Grant(r strategies.Request, last int64) *Grant {
	g := &Grant{store: s, request: r, last: last}
	if tokens(r) > 1 {
		g.dating = make(chan struct{}, 1)
	}

	return g
}

// Granted is the grant as the core has it.
func (g *Grant) Granted() strategies.Grant {
	return strategies.Grant{Token: first(g.request, g.last), Last: g.last, State: g}
}

// Record is the grant itself.
func (g *Grant) Record() Record { return g }

// tokens is how many tokens the request reserves.
func tokens(r strategies.Request) int64 { return max(1, r.Tokens) }

// first is the first of those tokens.
func first(r strategies.Request, last int64) int64 { return last - tokens(r) + 1 }

// Request is what the grant was made for.
func (g *Grant) Request() strategies.Request { return g.request }

// Renew extends the lease.
func (g *Grant) Renew(ctx context.Context, lease time.Duration) (err error) {
	conn, err := g.store.Conn(ctx)
	if err != nil {
		return replaced(err)
	}

	defer g.store.Return(conn, &err)

	return g.RenewOn(ctx, conn, lease)
}

// replaced is for the error of a connection that was asked for. A database that is not
// the one any more where the lock was granted does not know of it.
func replaced(err error) error {
	if !errors.Is(err, databases.ErrReplaced) {
		return err
	}

	return &strategies.LostError{Reason: strategies.Unknown, Err: err}
}

// RenewOn is Renew on a connection that the caller has.
func (g *Grant) RenewOn(ctx context.Context, on databases.Session, lease time.Duration) error {
	values := g.store.values(g.request)
	values["lease"] = g.store.lease(lease)

	result, err := g.store.retryBusy(ctx, on, g.store.sql.Renew, values)
	if err != nil || result.RowsAffected > 0 {
		return err
	}

	// No row changed. Either it is not ours any more, or MySQL found the new
	// value to be the old one.
	st, found, err := ReadState(ctx, on, g.store.sql.State, g.request.Name)
	if err != nil || found && st.Owner == g.request.Owner {
		return err
	}

	return g.lost(st)
}

// Check asks whether the lease is there.
func (g *Grant) Check(ctx context.Context) (err error) {
	conn, err := g.store.Conn(ctx)
	if err != nil {
		return replaced(err)
	}

	defer g.store.Return(conn, &err)

	return g.CheckOn(ctx, conn)
}

// CheckOn is Check on a connection that the caller has.
func (g *Grant) CheckOn(ctx context.Context, on databases.Session) error {
	st, _, err := ReadState(ctx, on, g.store.sql.State, g.request.Name)
	if err != nil || st.Owner == g.request.Owner && st.Left > 0 {
		return err
	}

	return g.lost(st)
}

// Release ends the grant.
func (g *Grant) Release(ctx context.Context) (contended bool, err error) {
	conn, err := g.store.Conn(ctx)
	if err != nil {
		return false, replaced(err)
	}

	defer g.store.Return(conn, &err)

	err = g.ReleaseOn(ctx, conn)

	return g.Contended(), err
}

// ReleaseOn is Release on a connection that the caller has.
func (g *Grant) ReleaseOn(ctx context.Context, on databases.Session) error {
	// Who has waited in line was hardly the only one.
	tells := g.request.Wait != "" && g.request.MinHold == 0

	freed, err := g.end(ctx, on, tells)
	if err != nil || freed && tells {
		return err
	}

	return g.TellOn(ctx, on)
}

// Free is Release where the name cannot be had yet: it tells nobody, and TellOn has to follow.
func (g *Grant) Free(ctx context.Context) (err error) {
	conn, err := g.store.Conn(ctx)
	if err != nil {
		return replaced(err)
	}

	defer g.store.Return(conn, &err)

	_, err = g.end(ctx, conn, false)

	return err
}

// TellOn tells the first in line, if others wait and the statement that freed the name did
// not; all, if the name is taken until its minimum hold is over. Its error is that of a connection in doubt.
func (g *Grant) TellOn(ctx context.Context, on databases.Session) error {
	switch {
	case g.request.MinHold > 0:
		return g.store.hint(ctx, on, g.store.sql.TellAll, databases.Values{"name": g.request.Name})
	case g.Contended() && g.store.sql.Tell.SQL != "":
		return g.store.TellOn(ctx, on, []string{g.request.Name})
	default:
		return nil
	}
}

// end frees the name, or when its minimum hold is over, and may tell the first in line. It says whether it freed it: an
// earlier release may have.
func (g *Grant) end(ctx context.Context, on databases.Session, tells bool) (freed bool, err error) {
	again := g.released.Swap(true)

	s, values := g.store, g.store.values(g.request)

	if err := execAll(ctx, on, s.sql.BeforeRelease, values); err != nil {
		return false, err
	}

	release, quiet := s.sql.Release, s.sql.Release

	switch {
	case g.request.MinHold > 0:
		release = s.sql.ReleaseLater
	case tells:
		release = s.sql.ReleaseTelling
	}

	freed, err = ending(ctx, s, on, again, func() (bool, error) { return g.free(ctx, on, release, quiet, values) })

	switch {
	case s.Busy(err):
		return false, busyError{"another transaction is in the way of the release", err}
	case err != nil || freed:
		return freed, err
	}

	st, found, err := ReadState(ctx, on, g.store.sql.State, g.request.Name)

	switch {
	case err != nil:
		return false, err
	case found && st.Owner == "" && st.Token == g.last && st.Ended == "":
		// Released before, in a transaction or by a try whose answer was lost, and with it whether others wait.
		g.contended.Store(true)

		return false, nil
	case again && !found:
		return false, nil // so, too, and the row of the idle name has been removed since
	default:
		return false, g.lost(st)
	}
}

// free runs a statement that frees the name, and says whether there was something to
// free. That which frees it when its minimum hold is over does not say whether anybody waits.
func (g *Grant) free(
	ctx context.Context, on databases.Session, release, quiet databases.Statement, values databases.Values,
) (freed bool, err error) {
	if inID := g.store.sql.WithoutReturning; inID || g.request.MinHold > 0 {
		result, err := on.Exec(ctx, release, values)
		g.contended.Store(inID && result.LastInsertID != 0)

		return result.RowsAffected > 0, err
	}

	err = g.store.quietly(release, quiet, func(release databases.Statement) error {
		freed = false

		return on.Query(ctx, release, values, func(row databases.Row) error {
			var contended bool

			err := row(&contended)
			freed = true
			g.contended.Store(contended)

			return err
		})
	})

	return freed, err
}

// Contended says, after the release, whether somebody was registered as waiting.
func (g *Grant) Contended() bool { return g.contended.Load() }

// lost says why a grant is gone, from what its row says now.
func (g *Grant) lost(st State) error {
	lost := &strategies.LostError{Reason: strategies.Unknown}

	switch {
	case st.gone:
		lost.Detail = "its row is gone from the database"
	case st.Owner == g.request.Owner, st.Token == g.last && st.Ended == expired:
		lost.Reason, lost.Detail = strategies.Expired, "by the database's clock"
	case st.Token == g.last && strings.HasPrefix(st.Ended, forced):
		lost.Reason, lost.Detail = strategies.Forced, strings.TrimPrefix(st.Ended, forced)
	case st.Token > g.last:
		lost.Reason, lost.SuccessorToken = strategies.TakenOver, st.Token

		if st.Owner != "" {
			lost.Successor = st.Holder
		}
	}

	return lost
}

// SessionGone is the loss of a grant whose session has ended. The lease's row
// may tell why: an operator who forces a release ends the session, too.
func (g *Grant) SessionGone(ctx context.Context, cause error) error {
	return sessionGone(g.Check(ctx), cause)
}

func sessionGone(checked, cause error) error {
	var known *strategies.LostError
	if errors.As(checked, &known) && known.Reason == strategies.Forced {
		return known
	}

	return &strategies.LostError{Reason: strategies.SessionGone, Err: cause}
}

// Record is the grant of a writer or a reader, beside which a strategy may have another lock.
type Record interface {
	calls.Held

	Request() strategies.Request
	Granted() strategies.Grant
	Contended() bool
	Guard(ctx context.Context, tx strategies.Tx, token int64) error
	RenewOn(ctx context.Context, on databases.Session, lease time.Duration) error
	CheckOn(ctx context.Context, on databases.Session) error
	ReleaseOn(ctx context.Context, on databases.Session) error
	Free(ctx context.Context) error
	TellOn(ctx context.Context, on databases.Session) error
	SessionGone(ctx context.Context, cause error) error
}

var (
	_ Record = (*Grant)(nil)
	_ Record = (*Share)(nil)
)

// recordOf is the record of a grant. A strategy's own state of a grant says which that is.
func recordOf(g strategies.Grant) (Record, error) {
	recorded, ok := g.State.(interface{ Record() Record })
	if !ok {
		return nil, notOurs(g)
	}

	return recorded.Record(), nil
}

func notOurs(g strategies.Grant) error {
	return fmt.Errorf("%T is no grant of this strategy", g.State)
}
