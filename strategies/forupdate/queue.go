package forupdate

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

var _ strategies.Queuer = (*Strategy)(nil)

// Enqueue notes that w waits.
func (s *Strategy) Enqueue(ctx context.Context, w strategies.Waiter, ttl time.Duration) error {
	return s.store.Enqueue(ctx, w, ttl)
}

// Keep gives all that was noted for a process another ttl.
func (s *Strategy) Keep(ctx context.Context, process string, ttl time.Duration) (int, error) {
	return s.store.Keep(ctx, process, ttl)
}

// Leave ends what Enqueue noted.
func (s *Strategy) Leave(ctx context.Context, w strategies.Waiter) error {
	return s.store.Leave(ctx, w)
}

// Waiters lists those who wait, of whatever strategy.
func (s *Strategy) Waiters(ctx context.Context, f strategies.WaiterFilter) ([]strategies.Waiter, error) {
	return s.store.Waiters(ctx, f)
}
