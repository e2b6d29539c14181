package sqllocktest_test

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// beside grants the name to somebody who is refused it.
func beside(ctx context.Context, m *sqllocktest.Memory, r strategies.Request, to strategies.Mode) (strategies.Grant, error) {
	grant, err := strategies.AcquireOne(ctx, m, r)

	held := new(strategies.HeldError)
	if !errors.As(err, &held) || held.Line != 0 || r.Mode != to {
		return grant, err
	}

	status, _, _ := m.Status(ctx, r.Name)
	if status.Shared == (to == strategies.Shared) {
		return grant, err
	}

	r.Name += " beside"

	return strategies.AcquireOne(ctx, m, r)
}

func readAnyway(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	return beside(ctx, m, r, strategies.Shared)
}

func writeAnyway(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	return beside(ctx, m, r, strategies.Exclusive)
}

// readFirst lets readers go first.
func readFirst(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	r.First = r.First || r.Mode == strategies.Shared

	return strategies.AcquireOne(ctx, m, r)
}

// stayInLine lets readers behind one that has the name.
func stayInLine(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	if r.Mode == strategies.Shared {
		r.Wait = ""
	}

	return strategies.AcquireOne(ctx, m, r)
}

// readForEver gives readers a lease that hardly ends.
func readForEver(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	if r.Mode == strategies.Shared {
		r.Lease = 1000 * time.Hour
	}

	return strategies.AcquireOne(ctx, m, r)
}

// endPhase ends the phase with whoever leaves.
func endPhase(ctx context.Context, g changedGrant) (bool, error) {
	contended, err := g.release(ctx)
	if err == nil {
		_, err = g.memory.ForceRelease(ctx, strategies.Status{Name: g.name, Token: g.Token}, "a reader has left")
	}

	return contended, err
}

// leaveTaken leaves the row to the phase when its last reader leaves.
func leaveTaken(ctx context.Context, g changedGrant) (bool, error) {
	held, err := g.memory.List(ctx, strategies.Filter{Name: g.name})
	if err != nil || len(held) == 1 {
		return false, err
	}

	return g.release(ctx)
}

// leaveUnheard says nothing of a loss.
func leaveUnheard(ctx context.Context, g changedGrant) (bool, error) {
	contended, _ := g.release(ctx)

	return contended, nil
}

// ownToken gives each reader another token.
func ownToken(token int64, r strategies.Request) int64 {
	return token + int64(r.Owner[0])<<8 + int64(r.Owner[1])
}

// tokenBefore gives a phase the token of the grant before, or a smaller one.
func tokenBefore(token int64, _ strategies.Request) int64 {
	return token - int64(time.Hour/time.Microsecond)
}

// renewNothing is a renewal that only looks.
func renewNothing(ctx context.Context, g changedGrant, _ time.Duration) error { return g.Check(ctx) }

// joinAnyway lets more readers of the process in, whoever waits.
func joinAnyway(ctx context.Context, g changedGrant) (bool, error) {
	return true, g.Check(ctx)
}

// checkOnly is a guard that looks, and pins nothing.
func checkOnly(ctx context.Context, g changedGrant, _ strategies.Tx) error { return g.Check(ctx) }

// guardNothing is a guard that pins, and does not look.
func guardNothing(ctx context.Context, g changedGrant, tx strategies.Tx) error {
	if err := g.Guard(ctx, tx); !errors.Is(err, sqllock.ErrLost) {
		return err
	}

	return nil
}

// listingOne lists one of several readers.
type listingOne struct{ *sqllocktest.Memory }

func (s listingOne) List(ctx context.Context, f strategies.Filter) ([]strategies.Status, error) {
	all, err := s.Memory.List(ctx, f)
	seen := map[string]bool{}

	var some []strategies.Status

	for _, status := range all {
		if !seen[status.Name] {
			some = append(some, status)
		}

		seen[status.Name] = true
	}

	return some, err
}
