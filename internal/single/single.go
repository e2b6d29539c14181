// Package single makes the calls of a strategy one by one, for tests.
package single

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Grant is a grant together with the strategy that made it.
type Grant struct {
	strategies.Grant

	Strategy strategies.Strategy
}

// TryAcquire makes an attempt for one request. Without a grant its Grant is nil.
func TryAcquire(ctx context.Context, s strategies.Strategy, r strategies.Request) (Grant, error) {
	grant, err := strategies.AcquireOne(ctx, s, r)

	return Grant{grant, s}, err
}

// Renew renews the lease.
func (g Grant) Renew(ctx context.Context, lease time.Duration) error {
	return strategies.RenewOne(ctx, g.Strategy, g.Grant, lease)
}

// Check asks the database whether the grant is still there.
func (g Grant) Check(ctx context.Context) error {
	return strategies.RenewOne(ctx, g.Strategy, g.Grant, 0)
}

// Release ends the grant.
func (g Grant) Release(ctx context.Context) error {
	return strategies.ReleaseOne(ctx, g.Strategy, g.Grant)
}

// Enqueue puts one waiter into its line.
func Enqueue(ctx context.Context, q strategies.Queuer, w strategies.Waiter, ttl time.Duration) (bool, error) {
	taken, errs := q.Enqueue(ctx, []strategies.Waiter{w}, ttl)

	return taken[0], errs[0]
}
