package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/quorum"
)

const lease = 30 * time.Second

// errDown is what a server answers that is down: nothing was sent.
var errDown = errors.Join(strategies.ErrNotSent, strategies.ErrUnreachable, errors.New("connection refused"))

// cluster is several servers in memory.
type cluster struct {
	*testing.T

	servers []*sqllocktest.Memory
}

func newCluster(t *testing.T, n int) cluster {
	c := cluster{t, make([]*sqllocktest.Memory, n)}
	for i := range c.servers {
		c.servers[i] = sqllocktest.NewMemory()
	}

	return c
}

// peers are the same servers as another process sees them, with scripts of their own.
func (c cluster) peers() []*sqllocktest.Memory {
	peers := make([]*sqllocktest.Memory, len(c.servers))
	for i, server := range c.servers {
		peers[i] = server.Peer()
	}

	return peers
}

// process is a locker, over servers as it sees them.
type process struct {
	*sqllock.Locker

	t       *testing.T
	servers []*sqllocktest.Memory
}

func (c cluster) process(options ...sqllock.LockerOption) process {
	peers := c.peers()

	l, err := sqllock.New(over(peers), append([]sqllock.LockerOption{sqllock.WithLease(lease)}, options...)...)
	if err != nil {
		c.Fatal(err)
	}

	return process{l, c.T, peers}
}

// down lets a server refuse all that the process asks, until it is up again.
func (p process) down(i int) { p.servers[i].Fail("*", 1_000_000, sqllocktest.Before, errDown) }

func (p process) up(i int) { p.servers[i].Reset() }

func (p process) acquire(name string) *sqllock.Lock {
	lock, err := p.Acquire(p.t.Context(), name, sqllock.WithMaxWait(time.Minute))
	if err != nil {
		p.t.Fatalf("Acquire(%q) = %v, want the lock", name, err)
	}

	return lock
}

func (p process) release(lock *sqllock.Lock) {
	if err := lock.Release(p.t.Context()); err != nil {
		p.t.Errorf("Release() = %v, want nil", err)
	}
}

func (p process) close() {
	if err := p.Close(p.t.Context()); err != nil {
		p.t.Errorf("Close() = %v, want nil", err)
	}
}

// tokens are what the servers' rows of the name have.
func (c cluster) tokens(name string) []int64 {
	tokens := make([]int64, len(c.servers))

	for i, server := range c.servers {
		status, _, err := server.Peer().Status(c.Context(), name)
		if err != nil {
			c.Fatal(err)
		}

		tokens[i] = status.Token
	}

	return tokens
}

// force frees a name on one server, as an administrator of that server does.
func (c cluster) force(i int, name, reason string) {
	seen, _, err := c.servers[i].Status(c.Context(), name)
	if err == nil {
		_, err = c.servers[i].ForceRelease(c.Context(), seen, reason)
	}

	if err != nil {
		c.Fatal(err)
	}
}

// held says how many servers say that somebody holds the name.
func (c cluster) held(name string) (n int) {
	for _, server := range c.servers {
		status, _, err := server.Peer().Status(c.Context(), name)
		if err != nil {
			c.Fatal(err)
		}

		if status.Remaining > 0 {
			n++
		}
	}

	return n
}

// pass lets time pass, which is virtual here.
func pass(d time.Duration) { <-time.After(d) }

func TestValidate(t *testing.T) {
	t.Parallel()

	a, b, c := sqllocktest.NewMemory(), sqllocktest.NewMemory(), sqllocktest.NewMemory()

	for _, test := range []struct {
		what    string
		members []strategies.Strategy
		want    error
		says    string
	}{
		{"two", []strategies.Strategy{a, b}, sqllock.ErrInvalidOption, "needs three servers at least"},
		{"a nil", []strategies.Strategy{a, nil, c}, sqllock.ErrInvalidOption, "strategy 2 is nil"},
		{"a nil pointer", []strategies.Strategy{a, b, (*sqllocktest.Memory)(nil)}, sqllock.ErrInvalidOption, "strategy 3 is nil"},
		{"one twice", []strategies.Strategy{a, b, a}, sqllock.ErrInvalidOption, "strategies 1 and 3 are the same"},
		{"one that is wrong", []strategies.Strategy{a, b, wrong{Memory: c}}, errWrong, "strategy 3: it is wrong"},
		{"a session's", []strategies.Strategy{a, wrong{Memory: b, session: true}, c}, sqllock.ErrUnsupported, "given as 2: its locks end with a connection"},
		{"a quorum", []strategies.Strategy{a, b, quorum.New(a, b, c)}, sqllock.ErrUnsupported, "given as 3: its tokens cannot be raised"},
		{"three", []strategies.Strategy{a, b, c}, nil, ""},
	} {
		_, err := sqllock.New(quorum.New(test.members...))

		switch {
		case test.want == nil && err != nil, !errors.Is(err, test.want):
			t.Errorf("New() over %s = %v, want %v", test.what, err, test.want)
		case err != nil && !strings.Contains(err.Error(), test.says):
			t.Errorf("New() over %s = %v, want that it says %q", test.what, err, test.says)
		}
	}
}

var errWrong = errors.New("it is wrong")

// wrong is a strategy that cannot be one of a quorum.
type wrong struct {
	*sqllocktest.Memory

	session bool
}

func (w wrong) Features() strategies.Features {
	f := w.Memory.Features()
	f.ConnectionHeld = w.session

	return f
}

func (w wrong) Validate() error {
	if w.session {
		return nil
	}

	return errWrong
}

// TestGuardIsRefused also shows that a refusal says what to do instead.
func TestGuardIsRefused(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()
		lock := p.acquire("a")

		err := lock.Guard(t.Context(), c.servers[0].Begin())
		if !errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), "compare the lock's token") {
			t.Errorf("Guard() = %v, want ErrUnsupported and what to do", err)
		}

		p.release(lock)
		p.close()
	})
}

// TestOneToken: the servers' clocks differ by hours, and each has the largest token before the grant is announced.
func TestOneToken(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.servers[1].Skew(5 * time.Hour)
		c.servers[2].Skew(-5 * time.Hour)

		p := c.process()
		lock := p.acquire("a")

		for i, token := range c.tokens("a") {
			if token != lock.Token() {
				t.Errorf("token on server %d = %d, want %d as on all", i+1, token, lock.Token())
			}
		}

		if d := lock.Token() - time.Now().UnixMicro(); d < (4 * time.Hour).Microseconds() {
			t.Errorf("token is %d µs ahead of the clock, want that of the server whose clock is", d)
		}

		p.release(lock)
		p.close()
	})
}

// TestClocksThatDiffer: whichever majority a grant has, its token is larger than that of the one before, though the
// servers' clocks are hours apart.
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		last := int64(0)

		// Each pair follows each other one, whatever the clocks are.
		for round := range 18 {
			c.servers[round%3].Skew(time.Duration(round%5-2) * 7 * time.Hour)

			for down := range 3 {
				p := c.process()
				p.down((down + round) % 3)

				lock := p.acquire("a")
				if lock.Token() <= last {
					t.Errorf("round %d, without server %d: token %d, want more than %d", round, (down+round)%3+1, lock.Token(), last)
				}

				last = lock.Token()
				p.release(lock)
				p.close()
				pass(time.Second)
			}
		}
	})
}

// TestServerDown: one of three is down, nothing is missing; two are, and nobody is said to have the lock.
func TestServerDown(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p, other := c.process(), c.process()

		p.down(0)
		other.down(0)

		lock := p.acquire("a")

		var held *sqllock.HeldError
		if _, err := other.TryAcquire(t.Context(), "a"); !errors.As(err, &held) || held.Token != lock.Token() {
			t.Errorf("TryAcquire() of a held lock = %v, want ErrNotAcquired with token %d", err, lock.Token())
		}

		pass(3 * lease)

		if err := lock.Check(t.Context()); err != nil {
			t.Errorf("Check() after renewals without one server = %v, want nil", err)
		}

		p.release(lock)

		p.down(1)

		if _, err := p.TryAcquire(t.Context(), "a"); !errors.Is(err, sqllock.ErrUnreachable) || errors.Is(err, sqllock.ErrNotAcquired) {
			t.Errorf("TryAcquire() without two servers = %v, want ErrUnreachable, and not ErrNotAcquired", err)
		}

		if n := c.held("a"); n != 0 {
			t.Errorf("%d servers have the lock after the attempt that failed, want 0", n)
		}

		p.close()
		other.close()
	})
}

// TestLostWithItsMajority: when too few servers renew it, the lock ends in time, and another has it after the lease.
func TestLostWithItsMajority(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p, other := c.process(), c.process()
		lock := p.acquire("a")

		p.down(0)
		p.down(1)

		began := time.Now()

		<-lock.Done()

		if took := time.Since(began); took >= lease {
			t.Errorf("the lock ended %s after its renewals failed, want less than the lease of %s", took, lease)
		}

		if err := lock.Err(); !errors.Is(err, sqllock.ErrLost) || !strings.Contains(err.Error(), "1 of 3 servers renewed") {
			t.Errorf("Err() = %v, want ErrLost that says how many servers renewed it", err)
		}

		next := other.acquire("a")
		if next.Token() <= lock.Token() {
			t.Errorf("token of the next = %d, want more than %d", next.Token(), lock.Token())
		}

		other.release(next)

		_ = lock.Release(t.Context())
		p.up(0)
		p.up(1)
		p.close()
		other.close()
	})
}

// TestServerSlow: a server answers later than it may. The lock is had without it, and what it grants then is part of the
// lock, or given back.
func TestServerSlow(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()

		_, resume := p.servers[2].Hang("acquire", sqllocktest.After)

		began := time.Now()
		lock := p.acquire("a")

		if took := time.Since(began); took > time.Second {
			t.Errorf("Acquire() beside a server that is slow took %s, want less than a second", took)
		}

		pass(time.Second)
		resume()
		synctest.Wait()

		// It counts: another one may fail.
		p.down(0)
		pass(3 * lease)

		if err := lock.Err(); err != nil {
			t.Errorf("Err() after another server failed = %v, want nil", err)
		}

		if tokens := c.tokens("a"); tokens[2] < lock.Token() {
			t.Errorf("token on the server that was slow = %d, want %d", tokens[2], lock.Token())
		}

		p.release(lock)
		p.up(0)

		if err := p.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if n := c.held("a"); n != 0 {
			t.Errorf("%d servers have the lock after Close, want 0", n)
		}
	})
}

// TestSlowAndReleased: the answer of the slow server comes when the lock was released, and when the attempt had failed.
func TestSlowAndReleased(t *testing.T) {
	t.Parallel()

	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3)
			p, other := c.process(), c.process()

			if fails {
				// Two servers are another's.
				p.servers[0].Fail("acquire", 1, sqllocktest.Before, &strategies.HeldError{Name: "a", Owner: "x", Token: 7, Holder: strategies.Holder{Host: "h"}})
				p.servers[1].Fail("acquire", 1, sqllocktest.Before, &strategies.HeldError{Name: "a", Owner: "x", Token: 7, Holder: strategies.Holder{Host: "h"}})
			}

			// The answer is late, and so is the attempt itself.
			_, resume := p.servers[2].Hang("acquire", sqllocktest.Before)

			lock, err := p.TryAcquire(t.Context(), "a")
			if held := new(sqllock.HeldError); fails && (!errors.As(err, &held) || held.Token != 7) || !fails && err != nil {
				t.Fatalf("TryAcquire() = %v", err)
			}

			if !fails {
				p.release(lock)
			}

			time.AfterFunc(4*time.Second, resume)

			if err := p.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}

			if n := c.held("a"); n != 0 {
				t.Errorf("failed %t: %d servers have the lock after Close, want 0", fails, n)
			}

			other.release(other.acquire("a"))
			other.close()
		})
	}
}

// TestServerSilent: a server takes all that is sent and says nothing, and its driver does not return.
func TestServerSilent(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()

		_, resume := p.servers[1].Hang("*", sqllocktest.Before)

		began := time.Now()
		lock := p.acquire("a")
		acquired := time.Since(began)

		pass(2 * lease)

		if err := lock.Err(); err != nil {
			t.Errorf("Err() beside a server that is silent = %v, want nil", err)
		}

		began = time.Now()

		p.release(lock)

		if released := time.Since(began); acquired > time.Second || released > time.Second {
			t.Errorf("acquired in %s and released in %s beside a server that is silent, want less than a second", acquired, released)
		}

		// What it may have left is not known.
		if err := p.Close(t.Context()); err == nil || !strings.Contains(err.Error(), `not confirmed that it is free of "a"`) {
			t.Errorf("Close() = %v, want that it says what may be left", err)
		}

		resume()
		pass(2 * time.Minute) // what goes on in the background ends
	})
}

// TestRollingRestart: each server is away once while the lock is held. It is had again on each, so that the next may go.
func TestRollingRestart(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()

		p.down(0)

		lock := p.acquire("a")

		for i := range 6 {
			p.up(i % 3)
			pass(lease / 2) // a renewal
			p.down((i + 1) % 3)
			pass(2 * lease)

			if err := lock.Err(); err != nil {
				t.Fatalf("Err() after %d restarts = %v, want nil", i+1, err)
			}
		}

		p.up(0)
		p.release(lock)
		p.close()
	})
}

// TestForcedOnOne: what an administrator frees on one server is not acquired there again.
func TestForcedOnOne(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()
		lock := p.acquire("a")

		c.force(0, "a", "test")

		pass(2 * lease)

		if n := c.held("a"); n != 2 || lock.Err() != nil {
			t.Errorf("%d servers have the lock, %v, want 2 and nil", n, lock.Err())
		}

		c.force(1, "a", "test")

		<-lock.Done()

		var lost *sqllock.LostError
		if err := lock.Err(); !errors.As(err, &lost) || lost.Reason != sqllock.ReasonForced {
			t.Errorf("Err() = %v, want ReasonForced", err)
		}

		_ = lock.Release(t.Context())
		p.close()

		if n := c.held("a"); n != 0 {
			t.Errorf("%d servers have the lock after Close, want 0", n)
		}
	})
}

// TestWhoLostIt: what is told of a lock that no majority confirms names all servers that are in the way, also those that
// are not asked any more.
func TestWhoLostIt(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()
		lock := p.acquire("a")

		c.force(0, "a", "by hand")

		pass(lease)
		p.down(1)

		if err := lock.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "1 of 3 servers confirmed") ||
			!strings.Contains(err.Error(), "server 1 (memory): ") || !strings.Contains(err.Error(), "by hand") ||
			!strings.Contains(err.Error(), "server 2 (memory): ") || strings.ContainsAny(err.Error(), "\n\t") {
			t.Errorf("Check() = %v, want it to name both servers, in one line", err)
		}

		p.up(1)
		p.release(lock)
		p.close()
	})
}

// TestForceRelease frees a majority, or says that it did not.
func TestForceRelease(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p, admin := c.process(), c.process()
		lock := p.acquire("a")

		seen, err := admin.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}

		admin.down(0)
		admin.down(1)

		if err := admin.ForceRelease(t.Context(), seen, "test"); err == nil || errors.Is(err, sqllock.ErrNotHeld) ||
			!strings.Contains(err.Error(), "1 of 3 servers are free of it, and its holder may have lost it: ") {
			t.Errorf("ForceRelease() on one server = %v, want that it says so", err)
		}

		// Nothing was freed this time.
		if err := admin.ForceRelease(t.Context(), seen, "test"); err == nil || !strings.Contains(err.Error(), "1 of 3 servers are free of it: ") {
			t.Errorf("ForceRelease() on one server that is free = %v, want that it says so", err)
		}

		admin.up(0)

		if err := admin.ForceRelease(t.Context(), seen, "test"); err != nil {
			t.Errorf("ForceRelease() on two servers = %v, want nil", err)
		}

		admin.release(admin.acquire("a"))

		if err := lock.Check(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Check() = %v, want ErrLost", err)
		}

		_ = lock.Release(t.Context())

		pass(time.Second) // it goes on in the background, because it was lost
		admin.up(1)

		if err := admin.ForceRelease(t.Context(), seen, "test"); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("ForceRelease() of nobody = %v, want ErrNotHeld", err)
		}

		p.close()
		admin.close()
	})
}

// TestForcedWithAnError: where the lock was on a bare majority, one server less ends it, though the others did not answer.
func TestForcedWithAnError(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p, admin := c.process(), c.process()
		p.down(2)

		lock := p.acquire("a") // on 1 and 2

		seen, err := admin.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}

		admin.down(1)
		admin.down(2)

		if err := admin.ForceRelease(t.Context(), seen, "test"); err == nil || !strings.Contains(err.Error(), "its holder may have lost it") {
			t.Errorf("ForceRelease() on one server = %v, want that the lock may be lost", err)
		}

		<-lock.Done()

		var lost *sqllock.LostError
		if err := lock.Err(); !errors.As(err, &lost) || lost.Reason != sqllock.ReasonForced {
			t.Errorf("Err() = %v, want ReasonForced", err)
		}

		_ = lock.Release(t.Context())
		p.up(2)
		admin.up(1)
		admin.up(2)
		p.close()
		admin.close()
	})
}

// TestNamesTheHolder: where two servers of three are down, what the third says names the holder, and a loss has no empty
// brackets.
func TestNamesTheHolder(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p, other := c.process(), c.process()
		lock := p.acquire("a")

		other.down(1)
		other.down(2)

		_, err := other.TryAcquire(t.Context(), "a")
		if err == nil || strings.Contains(err.Error(), "()") || !strings.Contains(err.Error(), fmt.Sprintf(", pid %d", os.Getpid())) {
			t.Errorf("TryAcquire() with one server, on which the name is held = %v, want it to name the holder", err)
		}

		c.servers[0].Lose("a")
		p.down(1)

		if err := lock.Check(t.Context()); err == nil || strings.Contains(err.Error(), "()") ||
			!strings.Contains(err.Error(), "grant lost: taken over (since then granted with token ") {
			t.Errorf("Check() = %v, want it to say how the grant was lost on the first server", err)
		}

		p.up(1)
		_ = lock.Release(t.Context())
		other.up(1)
		other.up(2)
		p.close()
		other.close()
	})
}

// TestInspect: what one server says is nobody's lock, and what may be a majority is not said to be free.
func TestInspect(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()
		left := strategies.Request{Name: "a", Owner: "left", Lease: lease, First: true, Holder: strategies.Holder{Host: "h", PID: 1}}

		if _, err := single.TryAcquire(t.Context(), c.servers[0], left); err != nil {
			t.Fatal(err)
		}

		if status, err := p.Inspect(t.Context(), "a"); err != nil || status.Owner != "" || status.Remaining != 0 {
			t.Errorf("Inspect() of what a minority has = %+v, %v, want nobody", status, err)
		}

		p.down(1)

		if status, err := p.Inspect(t.Context(), "a"); !errors.Is(err, sqllock.ErrUnreachable) {
			t.Errorf("Inspect() of what may be a majority = %+v, %v, want ErrUnreachable", status, err)
		}

		p.down(2)

		if _, err := p.Holders(t.Context(), sqllock.Filter{}); !errors.Is(err, sqllock.ErrUnreachable) {
			t.Errorf("Holders() on one server = %v, want ErrUnreachable", err)
		}

		p.up(1)
		p.up(2)

		if listed, err := p.Holders(t.Context(), sqllock.Filter{}); err != nil || len(listed) != 0 {
			t.Errorf("Holders() of what a minority has = %v, %v, want nothing", listed, err)
		}

		lock := p.acquire("b")

		if listed, err := p.Holders(t.Context(), sqllock.Filter{Limit: 1}); err != nil || len(listed) != 1 || listed[0].Owner != lock.Owner() {
			t.Errorf("Holders() = %v, %v, want b", listed, err)
		}

		p.release(lock)
		p.close()
	})
}

// TestSplitVote: each of three has one server. Nobody is said to hold the name, and in the end somebody has it.
func TestSplitVote(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		ends := make([]func(), 2)

		// Two servers each have another owner, as in the middle of attempts.
		for i := range ends {
			r := strategies.Request{Name: "a", Owner: string(rune('x' + i)), Lease: lease, First: true, Holder: strategies.Holder{Host: "same", PID: 1}}

			grant, err := single.TryAcquire(t.Context(), c.servers[i], r)
			if err != nil {
				t.Fatal(err)
			}

			ends[i] = func() { _ = grant.Release(context.WithoutCancel(t.Context())) }
		}

		p := c.process()

		if _, err := p.TryAcquire(t.Context(), "a"); errors.Is(err, sqllock.ErrNotAcquired) || !errors.Is(err, sqllock.ErrUnreachable) ||
			!strings.Contains(err.Error(), "nobody is known to hold it") {
			t.Errorf("TryAcquire() of a name that is split = %v, want ErrUnreachable", err)
		}

		if n := c.held("a"); n != 2 {
			t.Errorf("%d servers have the name, want the two of the others: the third is given back at once", n)
		}

		// A try looks for a second.
		time.AfterFunc(300*time.Millisecond, func() { ends[0]() })

		lock, err := p.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatalf("TryAcquire() of a name that a majority frees = %v, want the lock", err)
		}

		p.release(lock)
		ends[1]()
		p.close()
	})
}

// TestRestoredWithoutData: a server that lost its data breaks the exclusion, until the next renewal of the earlier holder.
func TestRestoredWithoutData(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p, other := c.process(), c.process()

		p.down(2)

		first := p.acquire("a") // on 1 and 2
		began := time.Now()

		pass(time.Second)
		c.servers[1].Wipe()
		p.up(2)

		// Two holders. The clocks agree, so that the later token is the larger one.
		second := other.acquire("a") // on 2 and 3
		if first.Err() != nil || second.Token() <= first.Token() {
			t.Errorf("tokens %d and then %d, %v, want that they grow and that the first does not know", first.Token(), second.Token(), first.Err())
		}

		<-first.Done()

		if took := time.Since(began); took > lease/3+time.Second {
			t.Errorf("the first learned of it after %s, want by its next renewal, within %s", took, lease/3)
		}

		if err := second.Check(t.Context()); err != nil {
			t.Errorf("Check() of the second = %v, want nil", err)
		}

		_ = first.Release(t.Context())
		other.release(second)
		p.close()
		other.close()
	})
}

// TestRestoredWithoutDataAndClock: the server that lost its data was the only one of both majorities. With it the memory of
// the larger token is gone, where the clock that drew it is ahead of the others.
func TestRestoredWithoutDataAndClock(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.servers[0].Skew(5 * time.Hour)

		p, other := c.process(), c.process()
		p.down(2)

		first := p.acquire("a") // on 1 and 2, with the clock of 1
		p.release(first)
		c.servers[1].Wipe()

		other.down(0)

		second := other.acquire("a") // on 2 and 3, with their clocks
		if second.Token() >= first.Token() {
			t.Errorf("token %d after %d: want the smaller one, which docs say of this case", second.Token(), first.Token())
		}

		other.release(second)
		p.close()
		other.close()
	})
}

// TestCancelledBesideADownServer: what was sent is answered and given back, so that Close has nothing to wait for.
func TestCancelledBesideADownServer(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		p := c.process()
		p.down(2)

		ctx, cancel := context.WithCancel(t.Context())
		reached, resume := p.servers[0].Hang("acquire", sqllocktest.After)

		go func() {
			<-reached
			cancel()
			pass(100 * time.Millisecond)
			resume()
		}()

		if _, err := p.Acquire(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire() that was cancelled = %v, want context.Canceled", err)
		}

		began := time.Now()

		p.close()

		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close() took %s, want less than two seconds", took)
		}

		if n := c.held("a"); n != 0 {
			t.Errorf("%d servers have the lock after Close, want 0", n)
		}
	})
}
