// Package calls is for strategies whose grants are renewed and released by methods of their own. It tells a call that is alone
// from several, which may share a statement.
package calls

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Held is the state of a grant that can be renewed, checked and released alone.
type Held interface {
	Renew(ctx context.Context, lease time.Duration) error
	Check(ctx context.Context) error
	Release(ctx context.Context) (contended bool, err error)
}

// Acquire makes one attempt by itself, and several together.
func Acquire(
	ctx context.Context, requests []strategies.Request,
	one func(context.Context, strategies.Request) (strategies.Grant, error),
	several func(context.Context, []strategies.Request) ([]strategies.Grant, []error),
) ([]strategies.Grant, []error) {
	if len(requests) != 1 {
		return several(ctx, requests)
	}

	var answer struct { // both in one allocation
		grants [1]strategies.Grant
		errs   [1]error
	}

	answer.grants[0], answer.errs[0] = one(ctx, requests[0])

	return answer.grants[:], answer.errs[:]
}

// Renew renews one grant by itself, and several together. With a lease of zero it checks them, which is done alone.
func Renew(
	ctx context.Context, grants []strategies.Grant, lease time.Duration,
	several func(context.Context, []strategies.Grant, time.Duration) []error,
) []error {
	switch {
	case len(grants) != 1 && lease != 0:
		return several(ctx, grants, lease)
	case lease == 0:
		return one(grants, func(g Held) error { return g.Check(ctx) })
	default:
		return one(grants, func(g Held) error { return g.Renew(ctx, lease) })
	}
}

// Release ends one grant by itself, and several together.
func Release(
	ctx context.Context, grants []strategies.Grant, several func(context.Context, []strategies.Grant) ([]bool, []error),
) (contended []bool, errs []error) {
	if len(grants) != 1 {
		return several(ctx, grants)
	}

	contended = make([]bool, 1)
	errs = one(grants, func(g Held) (err error) {
		contended[0], err = g.Release(ctx)

		return err
	})

	return contended, errs
}

// one does something with a grant that is alone.
func one(grants []strategies.Grant, do func(Held) error) []error {
	if len(grants) != 1 {
		return alone(len(grants))
	}

	held, ok := grants[0].State.(Held)
	if !ok {
		return []error{fmt.Errorf("%T is no grant of this strategy", grants[0].State)}
	}

	return []error{do(held)}
}

// Alone is embedded by strategies that renew and release their grants, which are Held, one at a time.
type Alone struct{}

// Renew renews a grant, or checks it.
func (Alone) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	return Renew(ctx, grants, lease, RenewAlone)
}

// Release ends a grant.
func (Alone) Release(ctx context.Context, grants []strategies.Grant) (contended []bool, errs []error) {
	return Release(ctx, grants, ReleaseAlone)
}

// AcquireAlone is the answer to several requests where there are no statements for several.
func AcquireAlone(_ context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return make([]strategies.Grant, len(requests)), alone(len(requests))
}

// RenewAlone is that to renewals.
func RenewAlone(_ context.Context, grants []strategies.Grant, _ time.Duration) []error {
	return alone(len(grants))
}

// ReleaseAlone is that to releases.
func ReleaseAlone(_ context.Context, grants []strategies.Grant) ([]bool, []error) {
	return make([]bool, len(grants)), alone(len(grants))
}

func alone(n int) []error { return slices.Repeat([]error{strategies.ErrNotBatched}, n) }
