package reach_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// patience is how long one who waits does so after the fault is over.
const patience = 30 * time.Second

// renewal is when a holder hears at the latest that its session is gone: the next one is due after a third of the lease, and
// takes a fifth at most. The rest is for a machine that has much else to do.
const renewal = lease/3 + lease/5 + time.Second

// pair is a holder on the node that fails, and one who waits for its lock elsewhere.
type pair struct {
	strategy string
	leased   bool
	waiter   *sqllock.Locker

	held *sqllock.Lock
	lost time.Time // zero if it was kept

	next    *sqllock.Lock
	err     error // of who waited
	granted time.Time
	trusted bool // held was, when next was granted
}

// pairs are one of each strategy that the cluster takes.
func (s site) pairs(ctx context.Context, t *testing.T) (made []*pair) {
	t.Helper()

	strategies := catalog.All()
	if s.several {
		strategies = catalog.Leased()
	}

	for i, strategy := range strategies {
		held, err := s.locker(t, s.processes[0], strategy).Acquire(ctx, "there-"+strategy.Name, sqllock.WithLease(lease))
		if err != nil {
			t.Fatalf("%s: %v", strategy.Name, err)
		}

		made = append(made, &pair{
			strategy: strategy.Name, leased: i < len(catalog.Leased()), held: held, waiter: s.locker(t, s.processes[1], strategy),
		})
	}

	return made
}

// wait acquires the lock as soon as it is free.
func (p *pair) wait(t *testing.T) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), before+failing+patience)
	defer cancel()

	p.next, p.err = p.waiter.Acquire(ctx, p.held.Name(), sqllock.WithLease(lease))
	p.granted, p.trusted = time.Now(), p.held.Err() == nil

	if p.err == nil {
		_ = p.next.Release(ctx)
	}
}

// hold waits until the lock is lost, or the fault is over.
func (p *pair) hold(ctx context.Context, l *load) {
	select {
	case <-p.held.Done():
		if errors.Is(p.held.Err(), sqllock.ErrLost) {
			p.lost = time.Now()
			l.hears("the holder with "+p.strategy, p.held.Err())
		}
	case <-ctx.Done():
	}
}

// check says what became of both. A lock that a session holds is free as soon as its server is gone, and its holder is told
// at the next renewal: docs/guarantees.md.
func (p *pair) check(t *testing.T, struck, begun time.Time, mustLose bool) {
	t.Helper()

	if p.err != nil {
		t.Errorf("%s: who waited for the lock on the node that failed was told %v", p.strategy, p.err)

		return
	}

	if p.next.Token() <= p.held.Token() {
		t.Errorf("%s: the next token is %d, want more than %d", p.strategy, p.next.Token(), p.held.Token())
	}

	granted := p.granted.Sub(struck).Round(time.Millisecond)

	if p.lost.IsZero() {
		t.Logf("%s: the holder kept its lock; who waited had it %s after the fault", p.strategy, granted)

		if mustLose {
			t.Errorf("%s: the holder on the node that failed was told nothing", p.strategy)
		}
	}

	lost := p.lost.Sub(struck).Round(time.Millisecond)

	switch both := lost - granted; {
	case p.lost.IsZero():
	case both > 0:
		t.Logf("%s: the holder was told after %s, %s after another had its lock", p.strategy, lost, both)

		if both > renewal {
			t.Errorf("%s: both had the lock for %s, want no longer than to the next renewal, %s", p.strategy, both, renewal)
		}
	default:
		t.Logf("%s: the holder was told after %s, and who waited had the lock after %s", p.strategy, lost, granted)
	}

	if p.lost.After(begun.Add(lease)) {
		t.Errorf("%s: the holder was told %s after the fault, want before its lease of %s ends", p.strategy, p.lost.Sub(begun), lease)
	}

	if p.leased && p.trusted {
		t.Errorf("%s: the lock was granted as %d while %d was trusted", p.strategy, p.next.Token(), p.held.Token())
	}
}
