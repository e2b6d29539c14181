package grants

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/strategies"
)

// Base is what every strategy here embeds: all of the contract that does not depend on how it keeps its locks. Some have
// methods of their own in the place of these.
type Base struct{ store *Store }

var (
	_ strategies.Queuer  = Base{}
	_ strategies.Guarder = Base{}
	_ strategies.Noter   = Base{}

	_ strategies.Recoverer = Base{}
)

// Base returns what a strategy of the store embeds.
func (s *Store) Base() Base { return Base{s} }

// Validate reports a database that is nil, or that has no statements.
func (b Base) Validate() error { return b.store.invalid }

// Close has nothing to give back.
func (Base) Close(context.Context) {}

// Leased is what a strategy embeds whose locks are leases in the database, and nothing else of a session. It can do everything.
type Leased struct{ Base }

var _ strategies.Raiser = Leased{}

// Leased returns what such a strategy of the store embeds. It takes the row by take, which is [Store.Acquire] if that is all.
func (s *Store) Leased(take Take) Leased {
	s.take = take

	return Leased{s.Base()}
}

// Features says what the strategy can do.
func (l Leased) Features() strategies.Features {
	f := l.store.Features()
	f.MinHold, f.LockDelay, f.Shared, f.Passes = true, true, true, true
	f.AsynchronousCommit = l.store.sql.Recovery.Run.SQL != ""

	return f
}

// Acquire takes the rows that are free. One is not passed on to functions of its own: this is what most acquisitions go through.
func (l Leased) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if len(requests) != 1 {
		return l.store.AcquireAll(ctx, requests)
	}

	made, errs := make([]strategies.Grant, 1), make([]error, 1)

	conn, ctx, cancel, err := l.store.Checkout(ctx)
	if errs[0] = err; err != nil {
		return made, errs
	}

	defer l.store.Return(conn, &errs[0])
	defer cancel()

	var g *Grant

	if r := requests[0]; r.From != nil {
		g, err = l.store.pass(ctx, conn, r)
	} else if r.Mode == strategies.Shared {
		g, err = l.store.share(ctx, conn, r, Replaces{})
	} else if token, failed := l.store.take(ctx, conn, r, Replaces{}); failed == nil {
		g = l.store.Grant(r, token)
	} else {
		err = l.store.AsHeld(ctx, conn, r.Name, failed)
	}

	if errs[0] = err; err == nil {
		made[0] = g.Granted(g)
	}

	return made, errs
}

// Renew renews grants, or checks them.
func (l Leased) Renew(ctx context.Context, held []strategies.Grant, lease time.Duration) []error {
	return calls.Renew(ctx, held, lease, l.store.RenewAll)
}

// Release ends grants.
func (l Leased) Release(ctx context.Context, held []strategies.Grant) (contended []bool, errs []error) {
	return calls.Release(ctx, held, l.store.ReleaseAll)
}
