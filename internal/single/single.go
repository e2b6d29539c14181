// Package single makes the calls of a strategy one by one, for tests.
package single

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Grant is a grant together with the strategy that made it.
type Grant struct {
	strategies.Grant

	Strategy strategies.Strategy
}

// TryAcquire makes an attempt for one request. Without a grant its Grant is None.
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
	_, err := strategies.ReleaseOne(ctx, g.Strategy, g.Grant)

	return err
}

// Guard pins the grant in a transaction.
func (g Grant) Guard(ctx context.Context, tx strategies.Tx) error {
	guarder, ok := g.Strategy.(strategies.Guarder)
	if !ok {
		return fmt.Errorf("%w: %T is no Guarder", strategies.ErrUnsupported, g.Strategy)
	}

	return guarder.Guard(ctx, tx, g.Grant)
}

// ReleaseTx releases the grant in a transaction, with a mark.
func (g Grant) ReleaseTx(ctx context.Context, tx strategies.Tx, mark int64) error {
	guarder, ok := g.Strategy.(strategies.Guarder)
	if !ok {
		return fmt.Errorf("%w: %T is no Guarder", strategies.ErrUnsupported, g.Strategy)
	}

	return guarder.ReleaseTx(ctx, tx, g.Grant, mark)
}

// Raise returns the grant under a token, if its strategy raises them.
func (g Grant) Raise(ctx context.Context, token int64) (Grant, error) {
	raiser, ok := g.Strategy.(strategies.Raiser)
	if !ok {
		return Grant{}, fmt.Errorf("%w: %T is no Raiser", strategies.ErrUnsupported, g.Strategy)
	}

	raised, err := raiser.Raise(ctx, g.Grant, token)

	return Grant{raised, g.Strategy}, err
}

// Next is the grant under the next of its tokens, as the core has it taken over; None if there is no other.
func (g Grant) Next() Grant {
	if g.Token >= g.Last {
		return Grant{}
	}

	g.Token++

	return g
}

// Enqueue puts one waiter into its line.
func Enqueue(ctx context.Context, q strategies.Queuer, w strategies.Waiter, ttl time.Duration) (bool, error) {
	taken, errs := q.Enqueue(ctx, []strategies.Waiter{w}, ttl)

	return taken[0], errs[0]
}
