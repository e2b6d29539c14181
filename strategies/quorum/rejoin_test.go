package quorum_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/quorum"
)

// taken lets another attempt have the name on one server for a while, as in the moment before it is given back.
func (c cluster) taken(name string, i int, d time.Duration) {
	r := strategies.Request{Name: name, Owner: "another", Lease: lease, First: true, Holder: strategies.Holder{Host: "h", PID: 1}}

	grant, err := single.TryAcquire(c.Context(), c.servers[i], r)
	if err != nil {
		c.Fatal(err)
	}

	time.AfterFunc(d, func() { _ = grant.Release(context.WithoutCancel(c.Context())) })
}

// contended acquires a lock while another attempt has the name on the third server.
func (p process) contended(c cluster, name string) *sqllock.Lock {
	c.taken(name, 2, 20*time.Millisecond)

	lock := p.acquire(name)
	if n := c.held(name); n != 3 {
		c.Fatalf("%d servers have the name, want 3, of which one is another's", n)
	}

	return lock
}

// TestContended: those who ask at the same time each get a part of the servers. A second after it was acquired a lock is on
// all, but for a few.
func TestContended(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		const (
			rounds    = 150
			processes = 4
		)

		c := newCluster(t, 3)

		var (
			workers     sync.WaitGroup
			all, partly atomic.Int64
		)

		for range processes {
			members := make([]strategies.Strategy, len(c.servers))
			for i, peer := range c.peers() {
				members[i] = far{Memory: peer}
			}

			locker, err := sqllock.New(quorum.New(members...), sqllock.WithLease(lease))
			if err != nil {
				t.Fatal(err)
			}

			workers.Go(func() {
				for all.Load() < rounds {
					lock, err := locker.Acquire(t.Context(), "a")
					if err != nil {
						t.Error(err)

						return
					}

					pass(time.Second)

					if all.Add(1); c.holders("a")[lock.Owner()] < 3 {
						partly.Add(1)
					}

					_ = lock.Release(t.Context())
				}

				_ = locker.Close(t.Context())
			})
		}

		workers.Wait()

		// Without being asked again it is one of six. Attempts of the others meet it there now and then.
		if n, of := partly.Load(), all.Load(); n > of/20 {
			t.Errorf("%d of %d locks were not on all servers a second after the grant, want one of twenty at most", n, of)
		}
	})
}

// holders says on how many servers the name is each owner's.
func (c cluster) holders(name string) map[string]int {
	owners := make(map[string]int)

	for _, server := range c.servers {
		status, _, err := server.Peer().Status(c.Context(), name)
		if err != nil {
			c.Error(err)
		}

		if status.Remaining > 0 {
			owners[status.Owner]++
		}
	}

	return owners
}

// TestFailsAfterContention: a lock that was contended outlasts the failure of a server that granted it.
func TestFailsAfterContention(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()
		lock := p.contended(c, "a")

		pass(time.Second)
		p.down(1)
		pass(3 * lease)

		if err := lock.Err(); err != nil {
			t.Errorf("Err() after one server failed = %v, want nil", err)
		}

		p.up(1)
		p.release(lock)
		p.close()
	})
}

// TestWipedAfterContention: a lock that was contended outlasts that a server which granted it loses its data, and nobody
// else is granted it.
func TestWipedAfterContention(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p, other := c.process(), c.process()
		lock := p.contended(c, "a")

		pass(time.Second)
		c.servers[1].Wipe()

		if second, err := other.TryAcquire(t.Context(), "a"); err == nil {
			t.Errorf("TryAcquire() while another holds the lock = token %d after %d, want an error", second.Token(), lock.Token())
		}

		pass(3 * lease)

		if err := lock.Err(); err != nil {
			t.Errorf("Err() after one server lost its data = %v, want nil", err)
		}

		_ = lock.Release(t.Context())
		p.close()
		other.close()
	})
}

// TestAskedWithoutMajority: a server that was down is asked in a renewal that has no majority, too.
func TestAskedWithoutMajority(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()
		p.down(2)

		lock := p.acquire("a")

		p.up(2)
		p.down(1)
		pass(3 * lease)

		if err := lock.Err(); err != nil {
			t.Errorf("Err() after one server failed as another came back = %v, want nil", err)
		}

		p.up(1)
		p.release(lock)
		p.close()
	})
}

// TestWiped: a server that lost its data is asked again after a lease, and until then the holder is told.
func TestWiped(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)

		var (
			renewed atomic.Value // the last event of a renewal
			logged  strings.Builder
		)

		p := c.process(
			sqllock.WithObserver(func(_ context.Context, e sqllock.Event) {
				if e.Kind == sqllock.Renewed {
					renewed.Store(e)
				}
			}),
			sqllock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
		)
		lock := p.acquire("a")

		pass(time.Second)
		c.servers[1].Wipe()
		pass(lease / 2)

		last := func() error {
			event, _ := renewed.Load().(sqllock.Event)

			return event.Err
		}

		if err := last(); err == nil || !strings.Contains(err.Error(), "2 of 3 servers renewed it: server 2 (memory): ") {
			t.Errorf("Renewed was told %v, want that one server has the lock no more", err)
		}

		if status, err := p.Inspect(t.Context(), "a"); err != nil || !strings.Contains(status.Detail, "held on 2 of 3 servers") {
			t.Errorf("Inspect() = %+v, %v, want a Detail that says on how many servers it is held", status, err)
		}

		if listed, err := p.Holders(t.Context(), sqllock.Filter{}); err != nil || len(listed) != 1 || listed[0].Detail == "" {
			t.Errorf("Holders() = %+v, %v, want one with a Detail", listed, err)
		}

		pass(2 * lease)

		if n := c.held("a"); n != 3 {
			t.Errorf("%d servers have the lock two leases after one lost its data, want 3", n)
		}

		if status, err := p.Inspect(t.Context(), "a"); err != nil || status.Detail != "" || last() != nil {
			t.Errorf("Inspect() of a lock that is on all = %+v, %v, and Renewed was told %v, want no Detail and nil", status, err, last())
		}

		p.release(lock)
		p.close()

		if n := strings.Count(logged.String(), "level=WARN msg=\"lock renewed, but not on all servers\""); n != 1 {
			t.Errorf("the log says %d times that the lock is not on all servers, want once:\n%s", n, logged.String())
		}
	})
}

// TestWipedWhileOthersWait: what says that the server lost its data is gone at once, as those who wait are granted the name
// there. It might have been freed by an administrator, too, who needs time for the next server. So it is asked later.
func TestWipedWhileOthersWait(t *testing.T) {
	t.Parallel()

	for _, forced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3)
			p, other := c.process(), c.process()
			lock := p.acquire("a")

			ctx, cancel := context.WithCancel(t.Context())

			var waiters sync.WaitGroup

			waiters.Go(func() { _, _ = other.Acquire(ctx, "a") })

			if forced {
				c.force(1, "a", "test")
			} else {
				c.servers[1].Wipe()
			}

			pass(5 * time.Minute)

			if n := c.holders("a")[lock.Owner()]; n != 2 {
				t.Errorf("forced %t: %d servers have the lock, want 2: others have been granted it on the third", forced, n)
			}

			pass(10 * time.Minute)

			if n := c.holders("a")[lock.Owner()]; n != 3 || lock.Err() != nil {
				t.Errorf("forced %t: %d servers have the lock, %v, want 3 and nil", forced, n, lock.Err())
			}

			cancel()
			waiters.Wait()
			p.release(lock)
			p.close()
			other.close()
		})
	}
}

// TestJoinsNoLoss: what was freed on a majority, as far as that could be reached, is lost, though a server has granted the
// name since that was free then.
func TestJoinsNoLoss(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p, admin := c.process(), c.process()

		c.taken("a", 2, 3*time.Second)

		lock := p.acquire("a") // on 1 and 2

		pass(time.Second)
		c.servers[2].Remove("a")

		seen, err := admin.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}

		admin.down(1)

		// Two are free of it then, and the third joins.
		if err := admin.ForceRelease(t.Context(), seen, "test"); err != nil {
			t.Errorf("ForceRelease() on two servers = %v, want nil", err)
		}

		pass(lease)

		if lock.Err() == nil {
			t.Errorf("the lock is held on %d servers after ForceRelease said that it was freed, want it lost", c.holders("a")[lock.Owner()])
		}

		_ = lock.Release(t.Context())
		admin.up(1)
		p.close()
		admin.close()
	})
}
