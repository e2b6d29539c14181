package insert

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

var _ strategies.Batcher = (*Strategy)(nil)

// Records and rows of many names change together on PostgreSQL and SQLite. On MySQL they change in steps that each commit by
// themselves, as for one name.

// TryAcquireAll takes the records that are free and makes their rows, in as many
// statements as for one name.
func (s *Strategy) TryAcquireAll(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return s.store.TryAcquireAll(ctx, requests)
}

// RenewAll renews grants in one statement.
func (s *Strategy) RenewAll(ctx context.Context, held []strategies.Grant, lease time.Duration) []error {
	return s.store.RenewAll(ctx, held, lease)
}

// ReleaseAll deletes the rows of grants and frees their records.
func (s *Strategy) ReleaseAll(ctx context.Context, held []strategies.Grant) []error {
	return s.store.ReleaseAll(ctx, held)
}
