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
	token   func(int64, strategies.Request) int64
	name    func(string) string
	owner   func(string) string
	acquire func(context.Context, *sqllocktest.Memory, strategies.Request) (strategies.Grant, error)
	settle  func(context.Context, *sqllocktest.Memory, strategies.Request) error
	renew   func(context.Context, changedGrant, time.Duration) error
	check   func(context.Context, changedGrant) error
	release func(context.Context, changedGrant) (contended bool, err error)
	join    func(context.Context, changedGrant) (bool, error)
	guard   func(context.Context, changedGrant, strategies.Tx) error
	raise   func(context.Context, changedGrant, int64) (strategies.Grant, error)
	tick    bool // ReleaseTx forgets it
	readers bool // of grants, it is for those of readers only
}

func changed(m mutation) func(*sqllocktest.Memory) strategies.Strategy {
	return func(memory *sqllocktest.Memory) strategies.Strategy {
		return &changedStrategy{Memory: memory, mutation: m}
	}
}

// sharing is changed for the grants of readers only.
func sharing(m mutation) func(*sqllocktest.Memory) strategies.Strategy {
	m.readers = true

	return changed(m)
}

// changedStrategy is a Memory with a mutation. Embedded, Memory still is what
// the mutation does not replace. Several calls are made one after the other, so that each has it.
type changedStrategy struct {
	*sqllocktest.Memory

	mutation mutation
	names    sync.Map // of grants, by their State
}

// changedGrant is a grant with the mutation that it has. Its own methods are those of the Memory.
type changedGrant struct {
	single.Grant

	memory   *sqllocktest.Memory
	name     string
	mutation mutation
}

func (s *changedStrategy) grant(g strategies.Grant) changedGrant {
	changed := changedGrant{Grant: single.Grant{Grant: g, Strategy: s.Memory}, memory: s.Memory}

	if name, ok := s.names.Load(g.State); ok {
		changed.name, _ = name.(string)
	}

	if !s.mutation.readers || g.Phase != "" {
		changed.mutation = s.mutation
	}

	return changed
}

// release is single.Grant.Release, and tells whether others wait, too.
func (g changedGrant) release(ctx context.Context) (contended bool, err error) {
	return strategies.ReleaseOne(ctx, g.memory, g.Grant.Grant)
}

func (s *changedStrategy) request(r strategies.Request) strategies.Request {
	if s.mutation.name != nil {
		r.Name = s.mutation.name(r.Name)
	}

	if s.mutation.owner != nil {
		r.Owner = s.mutation.owner(r.Owner)
	}

	return r
}

func (s *changedStrategy) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := make([]strategies.Grant, len(requests)), make([]error, len(requests))
	for i, r := range requests {
		grants[i], errs[i] = s.acquire(ctx, r)
	}

	return grants, errs
}

func (s *changedStrategy) acquire(ctx context.Context, r strategies.Request) (grant strategies.Grant, err error) {
	changed := s.request(r)

	if s.mutation.acquire != nil {
		grant, err = s.mutation.acquire(ctx, s.Memory, changed)
	} else {
		grant, err = strategies.AcquireOne(ctx, s.Memory, changed)
	}

	if held := new(strategies.HeldError); errors.As(err, &held) {
		held.Name = r.Name
	}

	if err != nil {
		return strategies.Grant{}, err
	}

	s.names.Store(grant.State, changed.Name)

	if token := s.grant(grant).mutation.token; token != nil {
		grant.Token = token(grant.Token, r)
		grant.Last = grant.Token
	}

	return grant, nil
}

func (s *changedStrategy) Settle(ctx context.Context, r strategies.Request) error {
	if s.mutation.settle != nil {
		return s.mutation.settle(ctx, s.Memory, r)
	}

	return s.Memory.Settle(ctx, s.request(r))
}

func (s *changedStrategy) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	errs := make([]error, len(grants))

	for i := range grants {
		switch g := s.grant(grants[i]); {
		case lease == 0 && g.mutation.check != nil:
			errs[i] = g.mutation.check(ctx, g)
		case lease != 0 && g.mutation.renew != nil:
			errs[i] = g.mutation.renew(ctx, g, lease)
		default:
			errs[i] = g.Renew(ctx, lease)
		}
	}

	return errs
}

func (s *changedStrategy) Release(ctx context.Context, grants []strategies.Grant) (contended []bool, errs []error) {
	contended, errs = make([]bool, len(grants)), make([]error, len(grants))

	for i := range grants {
		if g := s.grant(grants[i]); g.mutation.release != nil {
			contended[i], errs[i] = g.mutation.release(ctx, g)
		} else {
			contended[i], errs[i] = g.release(ctx)
		}
	}

	return contended, errs
}

func (s *changedStrategy) Join(ctx context.Context, held strategies.Grant, r strategies.Request) (bool, error) {
	if g := s.grant(held); g.mutation.join != nil {
		return g.mutation.join(ctx, g)
	}

	return s.Memory.Join(ctx, held, r)
}

func (s *changedStrategy) Guard(ctx context.Context, tx strategies.Tx, held strategies.Grant) error {
	if g := s.grant(held); g.mutation.guard != nil {
		return g.mutation.guard(ctx, g, tx)
	}

	return s.Memory.Guard(ctx, tx, held)
}

func (s *changedStrategy) ReleaseTx(ctx context.Context, tx strategies.Tx, held strategies.Grant, tick int64) error {
	if s.mutation.tick {
		tick = 0
	}

	return s.Memory.ReleaseTx(ctx, tx, held, tick)
}

func (s *changedStrategy) Raise(ctx context.Context, held strategies.Grant, token int64) (strategies.Grant, error) {
	if g := s.grant(held); g.mutation.raise != nil {
		return g.mutation.raise(ctx, g, token)
	}

	return s.Memory.Raise(ctx, held, token)
}

// raiseNothing is a raise that the row does not know.
func raiseNothing(_ context.Context, g changedGrant, token int64) (strategies.Grant, error) {
	g.Token, g.Last = token, token

	return g.Grant.Grant, nil
}

// ignoreMinHold is an attempt without a minimum hold.
func ignoreMinHold(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	r.MinHold = 0

	return strategies.AcquireOne(ctx, m, r)
}

// twiceGranting gives the grant of a name to all of a batch who ask for it.
type twiceGranting struct{ *sqllocktest.Memory }

func (s twiceGranting) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := s.Memory.Acquire(ctx, requests)

	for i, r := range requests {
		for j := range i {
			if requests[j].Name == r.Name && !grants[j].None() {
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

	return append([]strategies.Grant{{}}, grants...), append([]error{&strategies.HeldError{Name: requests[0].Name}}, errs...)
}

// reserveOne brings tokens to hand on that the row knows nothing of.
func reserveOne(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	asked := max(1, r.Tokens)
	r.Tokens = 1

	grant, err := strategies.AcquireOne(ctx, m, r)
	grant.Last += asked - 1

	return grant, err
}

// unheard says that it noted a waiter, and did not.
type unheard struct{ *sqllocktest.Memory }

func (unheard) Enqueue(_ context.Context, all []strategies.Waiter, _ time.Duration) ([]bool, []error) {
	return slices.Repeat([]bool{true}, len(all)), make([]error, len(all))
}

// pushIn lets everybody go first.
func pushIn(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	r.First = true

	return strategies.AcquireOne(ctx, m, r)
}

// unordered sees nobody ahead, and tells of no turn.
type unordered struct{ *sqllocktest.Memory }

func (s unordered) Stand(ctx context.Context, process string, ttl time.Duration) ([]strategies.Standing, error) {
	all, err := s.Memory.Stand(ctx, process, ttl)
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

func (unordered) Listen(context.Context, string, func(), func(string, string, int64), func(string, bool)) error {
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

// forgetLine forgets that anybody waits, whatever the line was when it was seen.
func forgetLine(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	if r.Line != 0 {
		// The number as it is now, from a newcomer who is refused.
		newcomer := r
		newcomer.Owner, newcomer.First = r.Owner+"/newcomer", false

		held := new(strategies.HeldError)
		if _, err := strategies.AcquireOne(ctx, m, newcomer); errors.As(err, &held) {
			r.Line = held.Line
		}
	}

	return strategies.AcquireOne(ctx, m, r)
}

// countOnly grants any slot while fewer are held than there may be, as a counter does: which of them
// are held does not matter, and a slot that is held already is one more holder.
func countOnly(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	name, slot := strategies.SplitSlot(r.Name)

	grant, err := strategies.AcquireOne(ctx, m, r)
	if err == nil || !errors.Is(err, sqllock.ErrNotAcquired) {
		return grant, err
	}

	held, err := m.List(ctx, strategies.Filter{Name: name})
	if err != nil || len(held) > slot+1 {
		return grant, &strategies.HeldError{Name: r.Name, Holder: r.Holder}
	}

	r.Name += " and one more"

	return strategies.AcquireOne(ctx, m, r)
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

// unkept keeps nobody in line who looks.
type unkept struct{ *sqllocktest.Memory }

func (s unkept) Stand(ctx context.Context, process string, _ time.Duration) ([]strategies.Standing, error) {
	return s.Memory.Stand(ctx, process, 0)
}

// unfree never sees a slot that is free, and tells nobody of one.
type unfree struct{ *sqllocktest.Memory }

func (s unfree) Stand(ctx context.Context, process string, ttl time.Duration) ([]strategies.Standing, error) {
	all, err := s.Memory.Stand(ctx, process, ttl)
	for i := range all {
		all[i].Free = 0
	}

	return all, err
}

func (unfree) Call(context.Context, []string) error { return nil }

func (unfree) Listen(context.Context, string, func(), func(string, string, int64), func(string, bool)) error {
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

func (alone) Release(ctx context.Context, grants []strategies.Grant) (contended []bool, errs []error) {
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
