package forupdate

import (
	"context"

	"github.com/sqllock/sqllock/strategies"
)

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

// Close has nothing to give back.
func (*Strategy) Close(context.Context) {}
