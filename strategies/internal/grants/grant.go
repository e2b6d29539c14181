package grants

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Grant is a grant whose lease is in the database: that of a writer, or of a reader in a phase.
type Grant struct {
	store   *Store
	request strategies.Request
	owner   string // of the name's row: the request's, or the phase; empty if that is not known
	last    int64  // of the tokens that are reserved; the one in the row

	// released refuses a guard from the moment that a release began. The row
	// that a guard looks at may not tell: a release leaves it alone where a
	// guard would stop it (MySQL).
	released  atomic.Bool
	tried     atomic.Bool // a release was sent that may have ended it
	contended atomic.Bool

	dating Gate  // the right to use dated, of a grant that may be handed on
	dated  int64 // the row has changed since the grant was handed on under this token
}

// Grant returns the grant that was made for a request with the token in its row,
// which is the last of those that the request reserves.
func (s *Store) Grant(r strategies.Request, last int64) *Grant {
	g := &Grant{store: s, request: r, owner: r.Owner, last: last}
	if s.tokens(r) > 1 {
		g.dating = NewGate()
	}

	return g
}

// Granted is the grant as the core has it, with a strategy's own state, or the grant itself.
func (g *Grant) Granted(state any) strategies.Grant {
	granted := strategies.Grant{Token: g.first(), Last: g.last, State: state}
	if g.Shared() {
		granted.Phase = g.owner
	}

	return granted
}

// Record is the grant itself. A strategy's own state of a grant says which it belongs to.
func (g *Grant) Record() *Grant { return g }

// recordOf is the record of a grant.
func recordOf(g strategies.Grant) *Grant {
	recorded, _ := g.State.(interface{ Record() *Grant }) // the strategy's own

	return recorded.Record()
}

// tokens is how many tokens the request reserves. The lock of a session is not handed on.
func (s *Store) tokens(r strategies.Request) int64 {
	if s.ofSessions() {
		return 1
	}

	return max(1, r.Tokens)
}

// first is the first of those tokens.
func (g *Grant) first() int64 { return g.last - g.store.tokens(g.request) + 1 }

// Request is what the grant was made for.
func (g *Grant) Request() strategies.Request { return g.request }

// Shared says whether the grant is a reader's.
func (g *Grant) Shared() bool { return g.request.Mode == strategies.Shared }

// Contended says, after the release, whether somebody was registered as waiting.
func (g *Grant) Contended() bool { return g.contended.Load() }

// values are what the statements about the grant bind.
func (g *Grant) values() databases.Values {
	values := g.store.Values(g.request)
	values["phase"] = g.owner

	return values
}

func (g *Grant) state(ctx context.Context, on databases.Session) (State, error) {
	return g.store.State(ctx, on, g.request.Name)
}

// use runs f on a connection of the pool.
func (g *Grant) use(ctx context.Context, f func(databases.Conn) error) error {
	return replaced(g.store.Use(ctx, f))
}

// replaced is for the error of a connection that was asked for. A database that is not
// the one any more where the lock was granted does not know of it.
func replaced(err error) error {
	if !errors.Is(err, databases.ErrReplaced) {
		return err
	}

	return &strategies.LostError{Reason: strategies.Unknown, Err: err}
}

// Renew extends the lease.
func (g *Grant) Renew(ctx context.Context, lease time.Duration) error {
	return replaced(g.store.useToRenew(ctx, func(on databases.Conn) error { return g.RenewOn(ctx, on, lease) }))
}

// RenewOn is Renew on a connection that the caller has.
func (g *Grant) RenewOn(ctx context.Context, on databases.Session, lease time.Duration) error {
	r := g.request
	r.Lease = lease

	if err := g.store.promise(ctx, on, r); err != nil {
		return err
	}

	values := g.store.Values(r)
	values["phase"] = g.owner

	began := time.Now()

	for noted := false; ; noted = true {
		renewed, err := g.renew(ctx, on, values, lease)
		if err != nil || renewed {
			return err
		}

		// Either it is not ours any more, or MySQL found the new value to be the old one.
		left, st, err := g.leftOf(ctx, on)

		switch {
		case err != nil || left+time.Since(began) >= lease:
			return err
		case noted:
			return g.lostOn(ctx, on, st)
		}

		// Or a server that has become the primary is not to renew it, or so long a lease has to be noted anew.
		if _, _, err := g.store.noteServer(ctx, on, r, false); err != nil {
			return err
		}
	}
}

// renew sends one renewal, and says whether it took effect. That of a reader keeps its own lease first, and then that of the name's row.
func (g *Grant) renew(ctx context.Context, on databases.Session, values databases.Values, lease time.Duration) (renewed bool, err error) {
	renew := g.store.sql.Renew

	if g.Shared() {
		renew = g.store.sql.Shares.Prolong
		began := time.Now()

		kept, err := g.store.retryBusy(ctx, on, g.store.sql.Shares.Keep, values)
		if err != nil {
			return false, err
		}

		if kept.RowsAffected == 0 {
			phase, left, err := g.readPhase(ctx, on)
			if err != nil || phase != g.owner || left+time.Since(began) < lease {
				return false, err
			}
		}
	}

	result, err := g.store.retryBusy(ctx, on, renew, values)

	return err == nil && result.RowsAffected > 0, err
}

// Check asks whether the lease is there.
func (g *Grant) Check(ctx context.Context) error {
	return g.use(ctx, func(on databases.Conn) error { return g.CheckOn(ctx, on) })
}

// CheckOn is Check on a connection that the caller has.
func (g *Grant) CheckOn(ctx context.Context, on databases.Session) error {
	return g.check(ctx, on, true)
}

// check reports a grant that is not there, or not the name's latest; or, if it has to run, whose lease has ended.
func (g *Grant) check(ctx context.Context, on databases.Session, runs bool) error {
	left, st, err := g.leftOf(ctx, on)
	if err == nil && runs && left <= 0 {
		return g.lostOn(ctx, on, st)
	}

	return err
}

// leftOf is how long the lease of the grant runs, negative if it has ended, and what its row says. The error says if the grant is not
// there, or not the name's latest.
func (g *Grant) leftOf(ctx context.Context, on databases.Session) (left time.Duration, st State, err error) {
	st, err = g.state(ctx, on)
	owner, left := st.Owner, st.Left

	if err == nil && owner == g.owner && g.Shared() {
		var reads time.Duration

		owner, reads, err = g.readPhase(ctx, on)
		left = min(left, reads)
	}

	if err == nil && owner != g.owner {
		err = g.lostOn(ctx, on, st)
	}

	return left, st, err
}

// Release ends the grant.
func (g *Grant) Release(ctx context.Context) (contended bool, err error) {
	err = g.use(ctx, func(on databases.Conn) error { return g.ReleaseOn(ctx, on) })

	return g.Contended(), err
}

// ReleaseOn is Release on a connection that the caller has.
func (g *Grant) ReleaseOn(ctx context.Context, on databases.Session) error {
	// Who has waited in line was hardly the only one.
	tells := g.request.Wait != "" && g.request.MinHold == 0 && !g.Shared()

	freed, err := g.end(ctx, on, tells)
	if err != nil || freed && tells {
		return err
	}

	return g.TellOn(ctx, on)
}

// Free is Release where the name cannot be had yet: it tells nobody, and TellOn has to follow.
func (g *Grant) Free(ctx context.Context) error {
	return g.use(ctx, func(on databases.Conn) error {
		_, err := g.end(ctx, on, false)

		return err
	})
}

// TellOn tells the first in line, if others wait and the statement that freed the name did
// not; all, if the name is taken until its minimum hold is over. Its error is that of a connection in doubt.
func (g *Grant) TellOn(ctx context.Context, on databases.Session) error {
	switch {
	case g.request.MinHold > 0:
		return g.store.hint(ctx, on, g.store.sql.TellAll, databases.Values{"name": g.request.Name})
	case g.Contended():
		return g.store.TellOn(ctx, on, []string{g.request.Name})
	default:
		return nil
	}
}

// end frees the name, or when its minimum hold is over, and may tell the first in line; a reader leaves. It says whether it
// did: an earlier release may have.
func (g *Grant) end(ctx context.Context, on databases.Session, tells bool) (freed bool, err error) {
	s, again, tried := g.store, g.released.Swap(true), g.tried.Swap(true)

	end := func() (err error) {
		if g.Shared() {
			freed, err = g.leave(ctx, on)
		} else {
			freed, err = g.endWriter(ctx, on, tells)
		}

		return err
	}

	// Most releases are the first and wait for nobody, and save the round trips.
	if !again {
		err = end()
	} else {
		err = s.withLockTimeout(ctx, on, end)
	}

	if err != nil || freed {
		return freed, s.busy(err, "another transaction is in the way of the release")
	}

	st, err := g.state(ctx, on)

	switch {
	case err != nil:
		return false, err
	case !st.gone && st.Owner == "" && st.Token == g.last && st.Ended == "":
		// Released before, in a transaction or by a try whose answer was lost, and with it whether others wait.
		g.contended.Store(true)

		return false, nil
	case tried && st.gone:
		return false, nil // so, too, and the row of the idle name has been removed since
	default:
		return false, g.lostOn(ctx, on, st)
	}
}

// endWriter frees the row that a writer has.
func (g *Grant) endWriter(ctx context.Context, on databases.Session, tells bool) (freed bool, err error) {
	sql, values := g.store.sql, g.values()

	if err := ExecAll(ctx, on, sql.BeforeRelease, values); err != nil {
		return false, err
	}

	switch {
	case g.request.MinHold > 0:
		result, err := on.Run(ctx, sql.ReleaseLater, values, nil)

		return result.RowsAffected > 0, err
	case tells:
		return g.free(ctx, on, sql.ReleaseTelling, sql.Release, values)
	default:
		return g.free(ctx, on, sql.Release, sql.Release, values)
	}
}

// free runs a statement that frees the name now, and says whether there was something to free.
func (g *Grant) free(
	ctx context.Context, on databases.Session, release, quiet databases.Statement, values databases.Values,
) (freed bool, err error) {
	if g.store.sql.WithoutReturning {
		result, err := on.Run(ctx, release, values, nil)
		g.contended.Store(result.LastInsertID != 0)

		return result.RowsAffected > 0, err
	}

	var contended bool

	err = g.store.quietly(release, quiet, func(release databases.Statement) (err error) {
		freed, err = ReadOne(ctx, on, release, values, &contended)

		return err
	})
	g.contended.Store(contended)

	return freed, err
}

// lostOn is lost, unless the session has looked into other tables.
func (g *Grant) lostOn(ctx context.Context, on databases.Session, st State) error {
	return g.store.unlessElsewhere(ctx, on, g.lost(st))
}

// lost says why a grant is gone, from what its row says now.
func (g *Grant) lost(st State) error {
	lost := &strategies.LostError{Reason: strategies.Unknown}

	switch {
	case st.gone:
		lost.Detail = "its row is gone from the database"
	case st.Owner == g.owner, st.Token == g.last && st.Ended == expired:
		lost.Reason, lost.Detail = strategies.Expired, "by the database's clock"
	case st.Token == g.last && strings.HasPrefix(st.Ended, forced):
		lost.Reason, lost.Detail = strategies.Forced, strings.TrimPrefix(st.Ended, forced)
	case st.Token == g.last && st.Owner == "":
		lost.Detail = "it was released"
	case st.Token >= g.last: // the same, if the grant went over to another owner
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
	var known *strategies.LostError
	if errors.As(g.Check(ctx), &known) && known.Reason == strategies.Forced {
		return known
	}

	return &strategies.LostError{Reason: strategies.SessionGone, Err: cause}
}

// Raise returns a grant under a token, if that is larger than its own. Where the answer to an earlier call was lost the row
// has the token already.
func (l Leased) Raise(ctx context.Context, granted strategies.Grant, token int64) (raised strategies.Grant, err error) {
	g := recordOf(granted)

	last, err := result(ctx, g.use, func(on databases.Conn) (int64, error) { return g.raise(ctx, on, token) })
	if err != nil {
		return raised, err
	}

	// One token: what was reserved is below it.
	r := g.request
	r.Tokens = 1

	made := g.store.Grant(r, last)

	return made.Granted(made), nil
}

// raise returns the token that the row has afterwards.
func (g *Grant) raise(ctx context.Context, on databases.Session, token int64) (last int64, err error) {
	const inTheWay = "another transaction is in the way of the token"

	values := g.values()
	values["token"] = token

	// Above Read Committed it is refused where another has changed the row since it began: a renewal, for example. Where
	// there is one writer it has waited for that already.
	err = g.store.retry(func() (err error) {
		last, err = g.store.draw(ctx, on, g.store.sql.Raise, values)

		return err
	})
	if err != nil || last > 0 {
		return last, g.store.busy(err, inTheWay)
	}

	if err := g.check(ctx, on, false); err != nil {
		return 0, err
	}

	return 0, busyError(inTheWay, errRowLocked)
}
