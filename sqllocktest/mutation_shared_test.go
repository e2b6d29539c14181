package sqllocktest_test

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// sharedMutation replaces what is not nil of a strategy's shared locks.
type sharedMutation struct {
	acquire func(context.Context, *sqllocktest.Memory, strategies.Request) (strategies.Grant, error)
	token   func(int64, strategies.Request) int64
	renew   func(context.Context, *sharedGrant) error
	release func(context.Context, *sharedGrant) error
	join    func(context.Context, *sharedGrant) (bool, error)
	guard   func(context.Context, *sharedGrant, strategies.Tx) error
}

func sharing(m sharedMutation) func(*sqllocktest.Memory) strategies.Strategy {
	return func(memory *sqllocktest.Memory) strategies.Strategy { return sharedStrategy{memory, m} }
}

type sharedStrategy struct {
	*sqllocktest.Memory

	mutation sharedMutation
}

func (s sharedStrategy) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.acquire, s.Memory.Acquire)
}

func (s sharedStrategy) acquire(ctx context.Context, r strategies.Request) (grant strategies.Grant, err error) {
	if s.mutation.acquire != nil {
		grant, err = s.mutation.acquire(ctx, s.Memory, r)
	} else {
		grant, err = strategies.AcquireOne(ctx, s.Memory, r)
	}

	if reader, ok := grant.(memoryReader); ok && err == nil && r.Mode == strategies.Shared {
		return &sharedGrant{reader, s.Memory, r, s.mutation}, nil
	}

	return grant, err
}

// memoryReader is what the grant of a reader is.
type memoryReader interface {
	strategies.Grant
	calls.Held
	Phase() string
	Contended() bool
	Join(ctx context.Context, r strategies.Request) (bool, error)
}

type sharedGrant struct {
	memoryReader

	memory   *sqllocktest.Memory
	request  strategies.Request
	mutation sharedMutation
}

func (g *sharedGrant) Token() int64 {
	if g.mutation.token != nil {
		return g.mutation.token(g.memoryReader.Token(), g.request)
	}

	return g.memoryReader.Token()
}

func (g *sharedGrant) Renew(ctx context.Context, lease time.Duration) error {
	if g.mutation.renew != nil {
		return g.mutation.renew(ctx, g)
	}

	return g.memoryReader.Renew(ctx, lease)
}

func (g *sharedGrant) Release(ctx context.Context) error {
	if g.mutation.release != nil {
		return g.mutation.release(ctx, g)
	}

	return g.memoryReader.Release(ctx)
}

func (g *sharedGrant) Join(ctx context.Context, r strategies.Request) (bool, error) {
	if g.mutation.join != nil {
		return g.mutation.join(ctx, g)
	}

	return g.memoryReader.Join(ctx, r)
}

func (g *sharedGrant) Guard(ctx context.Context, tx strategies.Tx) error {
	if g.mutation.guard != nil {
		return g.mutation.guard(ctx, g, tx)
	}

	return g.memoryReader.Guard(ctx, tx)
}

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
func endPhase(ctx context.Context, g *sharedGrant) error {
	err := g.memoryReader.Release(ctx)
	if err == nil {
		_, err = g.memory.ForceRelease(ctx, strategies.Status{Name: g.request.Name, Token: g.Token()}, "a reader has left")
	}

	return err
}

// leaveTaken leaves the row to the phase when its last reader leaves.
func leaveTaken(ctx context.Context, g *sharedGrant) error {
	held, err := g.memory.List(ctx, strategies.Filter{Name: g.request.Name})
	if err != nil || len(held) == 1 {
		return err
	}

	return g.memoryReader.Release(ctx)
}

// leaveUnheard says nothing of a loss.
func leaveUnheard(ctx context.Context, g *sharedGrant) error {
	_ = g.memoryReader.Release(ctx)

	return nil
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
func renewNothing(ctx context.Context, g *sharedGrant) error { return g.Check(ctx) }

// joinAnyway lets more readers of the process in, whoever waits.
func joinAnyway(ctx context.Context, g *sharedGrant) (bool, error) {
	return true, g.Check(ctx)
}

// checkOnly is a guard that looks, and pins nothing.
func checkOnly(ctx context.Context, g *sharedGrant, _ strategies.Tx) error { return g.Check(ctx) }

// guardNothing is a guard that pins, and does not look.
func guardNothing(ctx context.Context, g *sharedGrant, tx strategies.Tx) error {
	if err := g.memoryReader.Guard(ctx, tx); !errors.Is(err, sqllock.ErrLost) {
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
