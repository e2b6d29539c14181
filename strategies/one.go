package strategies

import (
	"context"
	"time"
)

// AcquireOne makes an attempt for one request, as Strategy.Acquire has it.
func AcquireOne(ctx context.Context, s Strategy, r Request) (Grant, error) {
	grants, errs := s.Acquire(ctx, []Request{r})

	return grants[0], errs[0]
}

// RenewOne renews one grant of a strategy, or checks it if the lease is zero, as Strategy.Renew has it.
func RenewOne(ctx context.Context, s Strategy, g Grant, lease time.Duration) error {
	return s.Renew(ctx, []Grant{g}, lease)[0]
}

// ReleaseOne ends one grant of a strategy, as Strategy.Release has it.
func ReleaseOne(ctx context.Context, s Strategy, g Grant) (contended bool, err error) {
	waited, errs := s.Release(ctx, []Grant{g})

	return waited[0], errs[0]
}
