package sqllocktest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// mutation replaces what is not nil of a strategy.
type mutation struct {
	token   func(int64) int64
	name    func(string) string
	owner   func(string) string
	held    func(context.Context, *sqllocktest.Memory, strategies.Request, error) (strategies.Grant, error)
	settle  func(context.Context, *sqllocktest.Memory, strategies.Request) error
	renew   func(context.Context, *changedGrant, time.Duration) error
	check   func(context.Context, *changedGrant) error
	release func(context.Context, *changedGrant) error
	guard   func(context.Context, *changedGrant, strategies.Tx) error
	raise   func(context.Context, *changedGrant, int64) (strategies.Grant, error)
	minHold bool // ignore it
	tick    bool // ReleaseTx forgets it
}

func changed(m mutation) func(*sqllocktest.Memory) strategies.Strategy {
	return func(memory *sqllocktest.Memory) strategies.Strategy { return &changedStrategy{memory, m} }
}

// changedStrategy is a Memory with a mutation. Embedded, Memory still is what
// the mutation does not replace.
type changedStrategy struct {
	*sqllocktest.Memory

	mutation mutation
}

func (s *changedStrategy) request(r strategies.Request) strategies.Request {
	if s.mutation.name != nil {
		r.Name = s.mutation.name(r.Name)
	}

	if s.mutation.owner != nil {
		r.Owner = s.mutation.owner(r.Owner)
	}

	if s.mutation.minHold {
		r.MinHold = 0
	}

	return r
}

func (s *changedStrategy) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.acquire, s.Memory.Acquire)
}

func (s *changedStrategy) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	changed := s.request(r)
	grant, err := strategies.AcquireOne(ctx, s.Memory, changed)

	if errors.Is(err, sqllock.ErrNotAcquired) && s.mutation.held != nil {
		grant, err = s.mutation.held(ctx, s.Memory, changed, err)
	}

	if held := new(strategies.HeldError); errors.As(err, &held) {
		held.Name = r.Name
	}

	if err != nil {
		return nil, err
	}

	return &changedGrant{single.Grant{Grant: grant, Strategy: s.Memory}, s.Memory, changed, s.mutation}, nil
}

func (s *changedStrategy) Settle(ctx context.Context, r strategies.Request) error {
	if s.mutation.settle != nil {
		return s.mutation.settle(ctx, s.Memory, r)
	}

	return s.Memory.Settle(ctx, s.request(r))
}

type changedGrant struct {
	single.Grant

	memory   *sqllocktest.Memory
	request  strategies.Request
	mutation mutation
}

func (g *changedGrant) Token() int64 {
	if g.mutation.token != nil {
		return g.mutation.token(g.Grant.Token())
	}

	return g.Grant.Token()
}

func (g *changedGrant) Renew(ctx context.Context, lease time.Duration) error {
	if g.mutation.renew != nil {
		return g.mutation.renew(ctx, g, lease)
	}

	return g.Grant.Renew(ctx, lease)
}

func (g *changedGrant) Check(ctx context.Context) error {
	if g.mutation.check != nil {
		return g.mutation.check(ctx, g)
	}

	return g.Grant.Check(ctx)
}

func (g *changedGrant) Release(ctx context.Context) error {
	if g.mutation.release != nil {
		return g.mutation.release(ctx, g)
	}

	return g.Grant.Release(ctx)
}

func (g *changedGrant) Guard(ctx context.Context, tx strategies.Tx) error {
	if g.mutation.guard != nil {
		return g.mutation.guard(ctx, g, tx)
	}

	return g.Grant.Guard(ctx, tx)
}

func (g *changedGrant) Raise(ctx context.Context, token int64) (strategies.Grant, error) {
	if g.mutation.raise != nil {
		return g.mutation.raise(ctx, g, token)
	}

	raiser, _ := g.Grant.Grant.(strategies.Raiser)

	return raiser.Raise(ctx, token)
}

func (g *changedGrant) ReleaseTx(ctx context.Context, tx strategies.Tx, tick int64) error {
	releaser, _ := g.Grant.Grant.(strategies.TxReleaser)

	if g.mutation.tick {
		tick = 0
	}

	return releaser.ReleaseTx(ctx, tx, tick)
}

// twiceGranting gives the grant of a name to all of a batch who ask for it.
type twiceGranting struct{ *sqllocktest.Memory }

func (s twiceGranting) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := s.Memory.Acquire(ctx, requests)

	for i, r := range requests {
		for j := range i {
			if requests[j].Name == r.Name && grants[j] != nil {
				grants[i], errs[i] = grants[j], nil
			}
		}
	}

	return grants, errs
}

// lockedForAMoment finds the row of the first of a batch locked, until it is asked again.
type lockedForAMoment struct {
	*sqllocktest.Memory

	asked sync.Map // by owner
}

func (s *lockedForAMoment) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if _, again := s.asked.LoadOrStore(requests[0].Owner, true); again {
		return s.Memory.Acquire(ctx, requests)
	}

	grants, errs := s.Memory.Acquire(ctx, requests[1:])

	return append([]strategies.Grant{nil}, grants...), append([]error{&strategies.HeldError{Name: requests[0].Name}}, errs...)
}

// unreserved hands on tokens that the row knows nothing of.
type unreserved struct{ *sqllocktest.Memory }

func (s unreserved) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.acquire, s.Memory.Acquire)
}

func (s unreserved) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	left := max(1, r.Tokens) - 1
	r.Tokens = 1

	grant, err := strategies.AcquireOne(ctx, s.Memory, r)
	if err != nil {
		return nil, err
	}

	held, _ := grant.(memoryHeld)

	return unreservedGrant{held, grant.Token(), left}, nil
}

// memoryHeld is what the grant of a writer is.
type memoryHeld interface {
	strategies.Grant
	calls.Held
}

type unreservedGrant struct {
	memoryHeld

	token, left int64
}

func (g unreservedGrant) Token() int64 { return g.token }

func (g unreservedGrant) Next() strategies.Grant {
	if g.left == 0 {
		return nil
	}

	return unreservedGrant{g.memoryHeld, g.token + 1, g.left - 1}
}

// unheard says that it noted a waiter, and did not.
type unheard struct{ *sqllocktest.Memory }

func (unheard) Enqueue(_ context.Context, all []strategies.Waiter, _ time.Duration) ([]bool, []error) {
	return slices.Repeat([]bool{true}, len(all)), make([]error, len(all))
}

// pushing lets everybody go first.
type pushing struct{ *sqllocktest.Memory }

func (s pushing) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.acquire, s.Memory.Acquire)
}

func (s pushing) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	r.First = true

	return strategies.AcquireOne(ctx, s.Memory, r)
}

// unordered sees nobody ahead, and tells of no turn.
type unordered struct{ *sqllocktest.Memory }

func (s unordered) Stand(ctx context.Context, process string) ([]strategies.Standing, error) {
	all, err := s.Memory.Stand(ctx, process)
	for i := range all {
		switch {
		case all[i].Ahead > 0:
			all[i].Ahead = 0
		case !all[i].Alone:
			all[i].Ahead = 1
		}
	}

	return all, err
}

func (unordered) Call(context.Context, []string) error { return nil }

func (unordered) Listen(context.Context, string, func(), func(string, string, int64), func()) error {
	return strategies.ErrUnsupported
}

// immortal believes for ever that somebody waits.
type immortal struct{ *sqllocktest.Memory }

func (s immortal) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	return s.Memory.Enqueue(ctx, all, 1000*ttl)
}

// staying never takes anybody out of a line.
type staying struct{ *sqllocktest.Memory }

func (staying) Leave(context.Context, string, []string) error { return nil }

// forgetful forgets that anybody waits, whatever the line was when it was seen.
type forgetful struct{ *sqllocktest.Memory }

func (s forgetful) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.acquire, s.Memory.Acquire)
}

func (s forgetful) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	if r.Line != 0 {
		// The number as it is now, from a newcomer who is refused.
		newcomer := r
		newcomer.Owner, newcomer.First = r.Owner+"/newcomer", false

		held := new(strategies.HeldError)
		if _, err := strategies.AcquireOne(ctx, s.Memory, newcomer); errors.As(err, &held) {
			r.Line = held.Line
		}
	}

	return strategies.AcquireOne(ctx, s.Memory, r)
}

// counting grants any slot while fewer are held than there may be, as a counter does: which of them
// are held does not matter, and a slot that is held already is one more holder.
type counting struct{ *sqllocktest.Memory }

func (s counting) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.acquire, s.Memory.Acquire)
}

func (s counting) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	name, slot := strategies.SplitSlot(r.Name)

	grant, err := strategies.AcquireOne(ctx, s.Memory, r)
	if err == nil || !errors.Is(err, sqllock.ErrNotAcquired) {
		return grant, err
	}

	held, err := s.List(ctx, strategies.Filter{Name: name})
	if err != nil || len(held) > slot+1 {
		return nil, &strategies.HeldError{Name: r.Name, Holder: r.Holder}
	}

	r.Name += " and one more"

	return strategies.AcquireOne(ctx, s.Memory, r)
}

// slotless takes a wait for several slots for one for the first.
type slotless struct{ *sqllocktest.Memory }

func (s slotless) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	all = slices.Clone(all)
	for i := range all {
		all[i].Slots = 1
	}

	return s.Memory.Enqueue(ctx, all, ttl)
}

// unfree never sees a slot that is free, and tells nobody of one.
type unfree struct{ *sqllocktest.Memory }

func (s unfree) Stand(ctx context.Context, process string) ([]strategies.Standing, error) {
	all, err := s.Memory.Stand(ctx, process)
	for i := range all {
		all[i].Free = 0
	}

	return all, err
}

func (unfree) Call(context.Context, []string) error { return nil }

func (unfree) Listen(context.Context, string, func(), func(string, string, int64), func()) error {
	return strategies.ErrUnsupported
}

// stubborn does not tell which locks can be given back.
type stubborn struct{ *sqllocktest.Memory }

func (s stubborn) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	all = slices.Clone(all)
	for i, w := range all {
		all[i] = held(w)
	}

	return s.Memory.Enqueue(ctx, all, ttl)
}

func held(w strategies.Waiter) strategies.Waiter {
	w.Holding = slices.Clone(w.Holding)
	for i, owner := range w.Holding {
		w.Holding[i] = strings.TrimPrefix(owner, "+")
	}

	return w
}

// alone sends each release of a batch by itself.
type alone struct{ *sqllocktest.Memory }

func (alone) Release(ctx context.Context, grants []strategies.Grant) []error {
	return calls.Release(ctx, grants, calls.ReleaseAlone)
}

// indiscriminate ends the latest grant, whichever was seen.
type indiscriminate struct{ *sqllocktest.Memory }

func (s indiscriminate) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (bool, error) {
	latest, _, err := s.Status(ctx, seen.Name)
	if err != nil {
		return false, err
	}

	return s.Memory.ForceRelease(ctx, latest, reason)
}
