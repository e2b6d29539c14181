package insert

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Validate reports a database that is nil, or that cannot carry the strategy.
func (s *Strategy) Validate() error { return s.store.Validate() }

// Settle ends whatever attempts by r.Owner left behind.
func (s *Strategy) Settle(ctx context.Context, r strategies.Request) error {
	return s.store.Settle(ctx, r)
}

// List returns the names that are held or taken, of whatever strategy.
func (s *Strategy) List(ctx context.Context, f strategies.Filter) ([]strategies.Status, error) {
	return s.store.List(ctx, f)
}

// Status returns what is known of a name's latest grant; false if nothing is.
func (s *Strategy) Status(ctx context.Context, name string) (strategies.Status, bool, error) {
	return s.store.Status(ctx, name)
}

// ForceRelease ends the grant that was seen, or what keeps the name taken after it.
func (s *Strategy) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (bool, error) {
	return s.store.ForceRelease(ctx, seen, reason)
}

// Reap ends grants that expired, and removes what is left of them and of idle names.
func (s *Strategy) Reap(ctx context.Context, retention time.Duration) (strategies.Reaped, error) {
	return s.store.Reap(ctx, retention)
}

// Close has nothing to give back.
func (*Strategy) Close(context.Context) {}
