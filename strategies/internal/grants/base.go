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
)

// Base returns what a strategy of the store embeds.
func (s *Store) Base() Base { return Base{s} }

// Validate reports a database that is nil, or that has no statements.
func (b Base) Validate() error { return b.store.Validate() }

// Settle ends whatever attempts by r.Owner left behind.
func (b Base) Settle(ctx context.Context, r strategies.Request) error { return b.store.Settle(ctx, r) }

// List returns the names that are held or taken, of whatever strategy.
func (b Base) List(ctx context.Context, f strategies.Filter) ([]strategies.Status, error) {
	return b.store.List(ctx, f)
}

// Status returns what is known of a name's latest grant; false if nothing is.
func (b Base) Status(ctx context.Context, name string) (strategies.Status, bool, error) {
	return b.store.Status(ctx, name)
}

// ForceRelease ends the grant that was seen, or what keeps the name taken after it.
func (b Base) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (bool, error) {
	return b.store.ForceRelease(ctx, seen, reason)
}

// Reap ends grants that expired, and removes what is left of them and of idle names.
func (b Base) Reap(ctx context.Context, retention time.Duration) (strategies.Reaped, error) {
	return b.store.Reap(ctx, retention)
}

// Close has nothing to give back.
func (Base) Close(context.Context) {}

// Leased is what a strategy embeds whose locks are leases in the database, and nothing else of a session.
type Leased struct{ Base }

var _ strategies.Raiser = Leased{}

// Leased returns what such a strategy of the store embeds.
func (s *Store) Leased() Leased { return Leased{s.Base()} }

// Renew renews grants, or checks them.
func (l Leased) Renew(ctx context.Context, held []strategies.Grant, lease time.Duration) []error {
	return calls.Renew(ctx, held, lease, l.store.RenewAll)
}

// Release ends grants.
func (l Leased) Release(ctx context.Context, held []strategies.Grant) (contended []bool, errs []error) {
	return calls.Release(ctx, held, l.store.ReleaseAll)
}

// Raise returns a grant under a larger token.
func (l Leased) Raise(ctx context.Context, held strategies.Grant, token int64) (strategies.Grant, error) {
	return l.store.Raise(ctx, held, token)
}

// Guard pins a grant in the caller's transaction.
func (Base) Guard(ctx context.Context, tx strategies.Tx, g strategies.Grant) error {
	record, err := recordOf(g)
	if err != nil {
		return err
	}

	return record.Guard(ctx, tx, g.Token)
}

// ReleaseTx ends a grant when the caller's transaction commits, and records the mark then, if there is one. A session's lock does
// not end with its record.
func (b Base) ReleaseTx(ctx context.Context, tx strategies.Tx, g strategies.Grant, mark int64) error {
	writer, ok := g.State.(*Grant)
	if !ok {
		return &strategies.UnsupportedError{
			Strategy: b.store.strategy, Where: "for the release of a session's or a reader's lock in a transaction", Fix: "release it after that", Instead: "cas",
		}
	}

	return writer.ReleaseTx(ctx, tx, mark)
}

// Join says whether more readers of the process may have a reader's grant, too.
func (Base) Join(ctx context.Context, g strategies.Grant, r strategies.Request) (bool, error) {
	record, err := recordOf(g)
	if err != nil {
		return false, err
	}

	reader, ok := record.(*Share)
	if !ok {
		return false, notOurs(g)
	}

	return reader.Join(ctx, r)
}
