package advisory

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

var (
	_ strategies.Queuer   = (*Strategy)(nil)
	_ strategies.Notifier = (*Strategy)(nil)
)

// Listen tells of releases on PostgreSQL.
func (s *Strategy) Listen(ctx context.Context, ready func(), released func(name string)) error {
	return s.store.Listen(ctx, ready, released)
}

// Register notes in the name's record that somebody waits.
func (s *Strategy) Register(ctx context.Context, name string, d time.Duration) (bool, error) {
	return s.store.Register(ctx, name, d)
}

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
