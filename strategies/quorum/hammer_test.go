package quorum_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/quorum"
)

// far is a server that takes its time, each way. moody: sometimes longer than a server may take.
type far struct {
	*sqllocktest.Memory

	moody bool
}

func (f far) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	f.travel()
	defer f.travel()

	return f.Memory.Acquire(ctx, requests)
}

func (f far) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	f.travel()
	defer f.travel()

	return f.Memory.Renew(ctx, grants, lease)
}

func (f far) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	f.travel()
	defer f.travel()

	return f.Memory.Release(ctx, grants)
}

func (f far) Raise(ctx context.Context, g strategies.Grant, token int64) (strategies.Grant, error) {
	f.travel()
	defer f.travel()

	return f.Memory.Raise(ctx, g, token)
}

func (f far) Settle(ctx context.Context, r strategies.Request) error {
	f.travel()
	defer f.travel()

	return f.Memory.Settle(ctx, r)
}

// travel is how long a message takes.
func (f far) travel() {
	d := rand.N(3 * time.Millisecond)
	if f.moody && rand.N(100) == 0 {
		d = rand.N(time.Second)
	}

	pass(d)
}

// witness sees who has the lock, and what they say of it.
type witness struct {
	*testing.T

	mu      sync.Mutex
	holder  *sqllock.Lock
	last    int64
	grants  int
	lost    int
	refused map[string]int
}

// acquired checks that nobody else trusts the lock, and that tokens grow.
func (w *witness) acquired(lock *sqllock.Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if before := w.holder; before != nil && before.Err() == nil && lock.Err() == nil {
		w.Errorf("two holders: token %d is trusted for another %s when %d is acquired", before.Token(), before.Remaining(), lock.Token())
	}

	if lock.Token() <= w.last {
		w.Errorf("token %d after %d, want that they grow", lock.Token(), w.last)
	}

	w.holder, w.last = lock, lock.Token()
	w.grants++
}

// releases notes that a holder stops.
func (w *witness) releases(lock *sqllock.Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if lock.Err() != nil {
		w.lost++
	}

	if w.holder == lock {
		w.holder = nil
	}
}

// TestHammer: many goroutines of several processes want one lock of servers that fail, are late, and lose answers, for each
// process apart, and whose clocks differ. Two never trust it at the same time, tokens grow, and in the end nothing is left.
func TestHammer(t *testing.T) {
	t.Parallel()

	for _, n := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) { hammer(t, n) })
	}
}

func hammer(t *testing.T, n int) {
	const (
		processes  = 4
		goroutines = 3
		lease      = 3 * time.Second
		lasts      = 10 * time.Minute
	)

	c := newCluster(t, n)
	for i, server := range c.servers {
		server.Skew(time.Duration(i*i) * time.Hour)
	}

	w := &witness{T: t, refused: make(map[string]int)}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)

	defer cancel()

	var all, workers sync.WaitGroup

	for range processes {
		peers := c.peers()
		members := make([]strategies.Strategy, n)

		for i, peer := range peers {
			members[i] = far{peer, true}
			all.Go(func() { disturb(ctx, peer) })
		}

		locker, err := sqllock.New(quorum.New(members...), sqllock.WithLease(lease))
		if err != nil {
			t.Fatal(err)
		}

		var of sync.WaitGroup

		for range goroutines {
			of.Go(func() { w.work(ctx, locker, lease) })
		}

		workers.Go(func() {
			of.Wait()

			// Some close at once, others when what was in doubt is settled.
			_ = locker.Close(context.WithoutCancel(ctx))
		})
	}

	workers.Wait()
	all.Wait()
	pass(2 * lease)

	if n := c.held("a"); n != 0 {
		t.Errorf("%d servers have the lock at the end, want 0", n)
	}

	t.Logf("%d servers: %d grants, %d lost, refusals %v", n, w.grants, w.lost, w.refused)

	// Each time as many as chance has it, and with five servers fewer: 250 to 400.
	if w.grants < 150 || w.lost == 0 {
		t.Errorf("%d grants, %d of them lost: want more, or the test shows nothing", w.grants, w.lost)
	}
}

// work has the lock for a while, again and again.
func (w *witness) work(ctx context.Context, locker *sqllock.Locker, lease time.Duration) {
	for ctx.Err() == nil {
		lock, err := w.get(ctx, locker, lease)
		if err != nil {
			w.refusal(err)

			continue
		}

		w.acquired(lock)

		select {
		case <-lock.Done():
		case <-time.After(rand.N([]time.Duration{10 * time.Millisecond, lease / 2, 3 * lease}[rand.N(3)])):
		}

		w.releases(lock)

		_ = lock.Release(ctx)
	}
}

// get waits, or tries, or gives up half way.
func (w *witness) get(ctx context.Context, locker *sqllock.Locker, lease time.Duration) (*sqllock.Lock, error) {
	switch rand.N(4) {
	case 0:
		defer pass(rand.N(lease / 4))

		return locker.TryAcquire(ctx, "a")
	case 1:
		ctx, cancel := context.WithTimeout(ctx, rand.N(lease/2))
		defer cancel()

		return locker.Acquire(ctx, "a")
	default:
		return locker.Acquire(ctx, "a")
	}
}

// refusal counts errors by their kinds. Only the database says that somebody has the lock.
func (w *witness) refusal(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for what, kind := range map[string]error{"held": sqllock.ErrNotAcquired, "unreachable": sqllock.ErrUnreachable} {
		if errors.Is(err, kind) {
			w.refused[what]++
		}
	}
}

// disturb lets a server fail for one process, now and then.
func disturb(ctx context.Context, server *sqllocktest.Memory) {
	operations := []string{"acquire", "renew", "release", "raise", "settle", "check", "*"}

	for ctx.Err() == nil {
		pass(rand.N(4 * time.Second))

		operation := operations[rand.N(len(operations))]
		when := []sqllocktest.When{sqllocktest.Before, sqllocktest.After}[rand.N(2)]

		switch rand.N(5) {
		case 0: // an answer is lost, or two
			server.Fail(operation, 1+rand.N(2), when, nil)
		case 1: // down
			server.Fail("*", 1_000_000, sqllocktest.Before, errDown)
			pass(rand.N(6 * time.Second))
			server.Reset()
		case 2: // silent, and what was sent arrives later
			_, resume := server.Hang(operation, when)
			pass(rand.N(4 * time.Second))
			resume()
		case 3: // silent, and calls return with their context
			_, resume := server.Pause(operation, when)
			pass(rand.N(4 * time.Second))
			resume()
		case 4: // all twice
			server.Twice(operation)
			pass(rand.N(2 * time.Second))
			server.Reset()
		}
	}

	server.Reset()
}
