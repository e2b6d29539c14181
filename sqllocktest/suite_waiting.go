package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func waitingCases() []testCase {
	return []testCase{
		{"waiting/until released", nil, waitUntilReleased},
		{"waiting/of many ends for all", nil, waitMany},
		{"waiting/one contender of a process asks", nil, waitOneContender},
		{"waiting/holds no connection", leaseOnly, waitNoConnection},
		{"waiting/for a server that takes no more connections", nil, waitFull},
		{"waiting/for at most so long", nil, waitMaxWait},
		{"waiting/max wait zero is one attempt", nil, waitZero},
		{"waiting/until the deadline", nil, waitDeadline},
		{"waiting/until cancelled", nil, waitCancelled},
		{"waiting/does not starve the holder", nil, waitHolder},
		{"waiting/each of three has its turn", queuesOnly, waitFair},
		{"waiting/free names share few connections", connectionHeldOnly, waitPlaces},
	}
}

func waitUntilReleased(e *env) {
	first := e.acquire(e.a)
	locks := e.waiting(e.b)
	e.stillWaiting(locks, "another holds it")
	e.release(first)

	second := e.get(locks)
	e.grow("a release", first.Token(), second.Token())
	e.release(second)
}

func waitMany(e *env) {
	const waiters = 6

	first := e.acquire(e.a)
	served := make(chan *sqllock.Lock, waiters)

	for i := range waiters {
		locks := e.waiting([]*sqllock.Locker{e.a, e.b}[i%2])

		go func() { served <- <-locks }()
	}

	e.release(first)

	last := first.Token()

	for range waiters {
		lock := <-served
		if lock == nil {
			e.FailNow()
		}

		e.grow("a release", last, lock.Token())
		last = lock.Token()
		e.release(lock)
	}
}

func waitOneContender(e *env) {
	const (
		waiters = 8
		pause   = 60 * time.Millisecond // jitter makes it half of that at least
		watched = 2 * time.Second
	)

	// Once before, so that the time is not over while it connects.
	e.release(e.acquire(e.a))

	first := e.acquire(e.b)
	before := e.script.Count(e.op("attempt"))
	ctx, cancel := context.WithTimeout(e.ctx(), watched)

	defer cancel()

	started := time.Now()
	ended := make(chan error, waiters)

	for range waiters {
		go func() {
			_, err := e.a.Acquire(ctx, e.name, sqllock.WithTuning(sqllock.Tuning{PollMin: pause, PollMax: pause}))
			ended <- err
		}()
	}

	for range waiters {
		if err := <-ended; !errors.Is(err, sqllock.ErrNotAcquired) {
			e.Errorf("Acquire() of a held lock = %v, want ErrNotAcquired", err)
		}
	}

	most := int(time.Since(started)/(pause/2)) + 2

	if n := e.script.Count(e.op("attempt")) - before; n > most {
		e.Errorf("%d waiters sent %d statements %q in %s, want those of one, at most %d",
			waiters, n, e.op("attempt"), time.Since(started), most)
	}

	e.struck("attempt", before+1)
	e.release(first)
}

func waitNoConnection(e *env) {
	if e.Faulty == nil {
		e.Skip("the strategy has no database")
	}

	first := e.acquire(e.b)
	locks := e.waiting(e.a, sqllock.WithTuning(sqllock.Tuning{PollMin: time.Second, PollMax: time.Second}))

	e.poll("an attempt was made", func() error {
		if n := e.script.Count(e.op("attempt")); n == 0 {
			return fmt.Errorf("Count(%q) = 0", e.op("attempt"))
		}

		return nil
	})

	e.poll("a waiting Acquire holds no connection", func() error {
		if n := e.Faulty.Leaks(); n != 0 {
			return fmt.Errorf("Leaks() = %d, want 0", n)
		}

		return nil
	})

	e.release(first)
	e.release(e.get(locks))
}

func waitFull(e *env) {
	// More than what ends a wait by attempts without an answer.
	const refused = 8

	e.full(1000)

	if lock, err := e.a.TryAcquire(e.ctx(), e.name); err == nil {
		e.Fatalf("TryAcquire() at a full server = token %d, want ErrTooManyConnections", lock.Token())
	} else if !errors.Is(err, sqllock.ErrTooManyConnections) {
		e.Errorf("TryAcquire() at a full server = %v, want ErrTooManyConnections", err)
	}

	if lock, err := e.a.Acquire(e.ctx(), e.name, sqllock.WithMaxWait(200*time.Millisecond)); err == nil {
		e.Fatalf("Acquire() at a full server = token %d, want ErrTooManyConnections", lock.Token())
	} else if errors.Is(err, sqllock.ErrNotAcquired) || !errors.Is(err, sqllock.ErrTooManyConnections) {
		e.Errorf("Acquire() at a full server = %v, want ErrTooManyConnections, and not ErrNotAcquired", err)
	}

	e.full(refused)

	lock := e.acquire(e.a)
	e.alive(lock)
	e.refused(e.b)
	e.release(lock)
}

// full lets the database refuse the next n connections of the first strategy.
func (e *env) full(n int) {
	if e.Faulty != nil {
		e.Faulty.Full(n)
	} else {
		e.script.Reset()
		e.script.Fail(e.op("acquire"), n, Before, sqllock.ErrTooManyConnections)
	}
}

func waitMaxWait(e *env) {
	const most = time.Second

	e.release(e.acquire(e.b)) // So that it need not connect within the wait.

	lock := e.acquire(e.a)
	started := time.Now()
	_, err := e.b.Acquire(e.ctx(), e.name, sqllock.WithMaxWait(most))

	var held *sqllock.HeldError
	if !errors.Is(err, sqllock.ErrNotAcquired) || !errors.As(err, &held) {
		e.Errorf("Acquire() after WithMaxWait = %v, want ErrNotAcquired and the *HeldError of the last attempt", err)
	}

	if took := time.Since(started); took < most/2 || e.late(took, most+e.harness.TryWithin) {
		e.Errorf("Acquire() with WithMaxWait(%s) returned after %s", most, took)
	}

	e.alive(lock)
	e.release(lock)
}

func waitZero(e *env) {
	lock := e.acquire(e.a)

	e.within(e.harness.TryWithin, "Acquire(WithMaxWait(0))", func() {
		if _, err := e.b.Acquire(e.ctx(), e.name, sqllock.WithMaxWait(0)); !errors.Is(err, sqllock.ErrNotAcquired) {
			e.Errorf("Acquire(WithMaxWait(0)) = %v, want ErrNotAcquired", err)
		}
	})

	e.release(lock)
	e.release(e.acquire(e.b, sqllock.WithMaxWait(0)))
}

func waitDeadline(e *env) {
	// Long enough for an answer of a server that has much to do.
	const deadline = 2 * time.Second

	e.release(e.acquire(e.b)) // connected

	lock := e.acquire(e.a)

	ctx, cancel := context.WithTimeout(e.ctx(), deadline)
	defer cancel()

	started := time.Now()
	_, err := e.b.Acquire(ctx, e.name)

	if !errors.Is(err, sqllock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("Acquire() after the deadline = %v, want ErrNotAcquired and context.DeadlineExceeded", err)
	}

	if took := time.Since(started); e.late(took, deadline+e.harness.TryWithin) {
		e.Errorf("Acquire() with a deadline of %s returned after %s", deadline, took)
	}

	e.alive(lock)
	e.release(lock)
	e.release(e.acquire(e.b))
}

func waitCancelled(e *env) {
	lock := e.acquire(e.b)
	ctx, cancel := context.WithCancelCause(e.ctx())
	reason := errors.New("the caller's reason")
	ended := make(chan error, 1)

	go func() {
		_, err := e.a.Acquire(ctx, e.name, sqllock.WithTuning(sqllock.Tuning{NoNotifications: true}))
		ended <- err
	}()

	// Another attempt, or a look at the line, follows the answer to the first.
	e.poll("it waits", func() error {
		if n := e.script.Count(e.op("attempt")) + e.script.Count("stand"); n < 2 {
			return fmt.Errorf("%d attempts and looks", n)
		}

		return nil
	})
	cancel(reason)

	err := <-ended
	for _, target := range []error{sqllock.ErrNotAcquired, context.Canceled, reason} {
		if !errors.Is(err, target) {
			e.Errorf("Acquire() that was cancelled = %v, want that it matches %q", err, target)
		}
	}

	e.alive(lock)
	e.release(lock)
	e.release(e.acquire(e.a))
}

// Waiters of the holder's own process and pool leave it the connection that it
// needs to renew and release.
func waitHolder(e *env) {
	const waiters = 12

	lock := e.acquire(e.a)

	var all []<-chan *sqllock.Lock
	for range waiters {
		all = append(all, e.waiting(e.locker(e.Strategy)))
	}

	e.elapse(100 * time.Millisecond)

	for range 3 {
		if err := lock.Extend(e.ctx(), lease); err != nil {
			e.Errorf("Extend() beside %d waiters = %v, want nil", waiters, err)
		}
	}

	e.release(lock)

	served := make(chan *sqllock.Lock, waiters)

	for _, locks := range all {
		go func() { served <- <-locks }()
	}

	for range waiters {
		next := <-served
		if next == nil {
			e.FailNow()
		}

		e.release(next)
	}
}

// Of three that have the lock in turns none waits while the two others take it
// again and again. Whose turn it is is left to chance: on a busy machine some wait
// for fifty turns now and then. It counts from when one is seen in line: how long it
// takes to get there is the machine's.
func waitFair(e *env) {
	const (
		grants = 100
		most   = 12
	)

	type call struct {
		label  string
		began  time.Time
		inLine time.Time
		missed int
	}

	var (
		group   sync.WaitGroup
		mu      sync.Mutex
		waiting = map[*call]struct{}{}
		served  int
	)

	begins := func(label string) *call {
		mu.Lock()
		defer mu.Unlock()

		if served >= grants {
			return nil
		}

		c := &call{label: label, began: time.Now()}
		waiting[c] = struct{}{}

		return c
	}

	granted := func(c *call) {
		mu.Lock()
		defer mu.Unlock()

		served++
		delete(waiting, c)

		for other := range waiting {
			if !other.inLine.IsZero() && c.began.After(other.inLine) {
				other.missed++
			}
		}

		if c.missed > most {
			e.Errorf("%d calls had the lock that began after one was in line, want at most %d", c.missed, most)
		}

		line, err := e.a.Waiters(e.ctx(), sqllock.WaiterFilter{Name: e.name})
		if err != nil {
			e.Errorf("Waiters() = %v", err)
		}

		for other := range waiting {
			if other.inLine.IsZero() && slices.ContainsFunc(line, func(w sqllock.Waiter) bool { return w.Holder.Label == other.label }) {
				other.inLine = time.Now()
			}
		}
	}

	for i, l := range []*sqllock.Locker{e.a, e.b, e.locker(e.Strategy)} {
		label := strconv.Itoa(i)

		group.Go(func() {
			for c := begins(label); c != nil; c = begins(label) {
				lock, err := l.Acquire(e.ctx(), e.name, sqllock.WithLabel(label))
				if err != nil {
					e.Errorf("Acquire() = %v, want the lock%s", err, e.holder(e.name))

					return
				}

				granted(c)

				// Whoever comes back finds that somebody waits.
				e.elapse(8 * time.Millisecond)
				e.release(lock)
				e.elapse(2 * time.Millisecond)
			}
		})
	}

	group.Wait()
}

// A pool that has a connection for one lock only: names that are free get it in
// turns. A TryAcquire is told at once, and not that somebody holds the name.
func waitPlaces(e *env) {
	if _, ok := e.Strategy.(strategies.Placer); !ok {
		e.Skip("locks need no connections of their own")
	}

	const names, rounds = 5, 8

	for i := range e.Faulty.MaxConns() - 2 {
		e.acquireName(e.a, fmt.Sprintf("%s/held/%d", e.name, i))
	}

	last := e.acquire(e.a)

	e.within(e.harness.TryWithin, "TryAcquire() without a connection", func() {
		_, err := e.a.TryAcquire(e.ctx(), e.name+"/free")
		if !errors.Is(err, sqllock.ErrTooManyConnections) || errors.Is(err, sqllock.ErrNotAcquired) {
			e.Errorf("TryAcquire() of a free name without a connection = %v, want ErrTooManyConnections", err)
		}
	})

	ctx, cancel := context.WithCancel(e.ctx())
	defer cancel()

	var (
		group  sync.WaitGroup
		counts [names]atomic.Int64
		total  atomic.Int64
	)

	for i := range 2 * names {
		group.Go(func() {
			for {
				lock, err := e.a.Acquire(ctx, fmt.Sprintf("%s/free/%d", e.name, i%names))
				if err != nil {
					return
				}

				counts[i%names].Add(1)

				if total.Add(1) == names*rounds {
					cancel()
				}

				e.release(lock)
			}
		})
	}

	e.release(last)
	group.Wait()

	for i := range counts {
		if n := counts[i].Load(); n < rounds/2 {
			e.Errorf("%d free names shared a connection: number %d was granted %d of %d times, want about %d",
				names, i, n, total.Load(), rounds)
		}
	}
}
