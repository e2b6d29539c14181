package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// severalCases are about several names at once.
func severalCases() []testCase {
	return []testCase{
		{"several/refused where each lock holds a connection", nil, severalRefused},
		{"several/all or none", severalOnly, severalAll},
		{"several/a minimum hold of all or none", both(severalOnly, minHoldOnly), severalMinHold},
		{"several/in one statement", both(severalOnly, batchesOnly), severalStatement},
		{"several/beside a row that somebody has locked", both(severalOnly, databaseOnly), severalLocked},
		{"several/one that is lost ends the context of all", severalOnly, severalLost},
		{"several/all are guarded and released in one transaction", both(severalOnly, releaseTxOnly), severalGuarded},
		{"several/a release in a transaction fails for the last", both(severalOnly, releaseTxOnly), severalReleaseTxFails},
		{"several/holding those before the one that is waited for", severalOnly, severalWaits},
		{"several/in whatever order they are given", severalOnly, severalInAnyOrder},
		{"several/nobody sleeps while all are free", both(severalOnly, queuesOnly), severalAwake},
		{"several/giving way to who holds one and wants another", both(severalOnly, queuesOnly), severalGiveWay},
		{"several/a deadlock that giving back does not end", both(severalOnly, queuesOnly), severalDeadlock},
		{"several/a wait that ends leaves the line and gives all back", both(severalOnly, queuesOnly), severalLeave},
		{"several/an answer that is lost", severalOnly, severalUnanswered},
		{"several/every statement twice", both(severalOnly, leaseOnly), severalTwice},
		{"several/hammer", severalOnly, severalHammer},
		{"several/as many as can be", severalOnly, severalMany},
	}
}

func severalOnly(e *env) string {
	if !e.features.Several {
		return "the strategy takes one name at a time"
	}

	return ""
}

// A strategy that cannot says so, and leaves nothing.
func severalRefused(e *env) {
	if e.features.Several {
		e.Skip("the strategy takes several names")
	}

	names := e.several(2)

	if _, err := e.a.Acquire(e.ctx(), names[0], sqllock.WithNames(names...)); !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("Acquire() = %v, want ErrUnsupported", err)
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names[:1]))
	e.release(e.acquireName(e.a, names[1]))
}

func batchesOnly(e *env) string {
	if e.features.Unbatched || e.harness.Plain {
		return "the strategy has no batches, or not here"
	}

	return ""
}

// several are n names of the case, the first of which is its own.
func (e *env) several(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = e.name
		if i > 0 {
			names[i] += fmt.Sprintf("/%03d", i)
		}
	}

	return names
}

func (e *env) acquireSeveral(l *sqllock.Locker, names []string) *sqllock.Lock {
	e.Helper()

	locks, err := l.Acquire(e.ctx(), names[0], sqllock.WithNames(names...))
	if err != nil {
		e.Fatalf("Acquire(%q) = %v, want the locks%s", names, err, e.holder(e.name))
	}

	return locks
}

func (e *env) releaseSeveral(locks *sqllock.Lock) {
	e.Helper()

	if err := locks.Release(e.ctx()); err != nil {
		e.Errorf("Release() of %q = %v, want nil", locks.Names(), err)
	}
}

// waitingForSeveral acquires several names in the background.
func (e *env) waitingForSeveral(l *sqllock.Locker, names []string) <-chan *sqllock.Lock {
	gives, ctx := make(chan *sqllock.Lock, 1), e.ctx()

	go func() {
		defer close(gives)

		locks, err := l.Acquire(ctx, names[0], sqllock.WithNames(names...))
		if err != nil {
			e.Errorf("Acquire(%q) = %v, want the locks%s", names, err, e.holder(e.name))

			return
		}

		gives <- locks
	}()

	return gives
}

// getSeveral takes the lock of several names that is acquired in the background.
func (e *env) getSeveral(all <-chan *sqllock.Lock) *sqllock.Lock {
	e.Helper()

	locks, ok := <-all
	if !ok {
		e.FailNow()
	}

	return locks
}

// allWait waits until somebody is in the line of each name.
func (e *env) allWait(names []string) {
	e.Helper()

	e.poll("all stand in their lines", func() error {
		waiters, err := e.b.Waiters(e.ctx(), sqllock.WaiterFilter{Prefix: e.name})

		for _, name := range names {
			if !slices.ContainsFunc(waiters, func(w sqllock.Waiter) bool { return w.Name == name }) {
				return errors.Join(err, fmt.Errorf("nobody is in the line of %q", name))
			}
		}

		return err
	})
}

func severalAll(e *env) {
	names := e.several(3)
	one := e.acquireName(e.a, names[1])

	_, err := e.b.TryAcquire(e.ctx(), names[0], sqllock.WithNames(names...))

	held := new(sqllock.HeldError)
	if !errors.As(err, &held) || held.Name != names[1] || held.Token != one.Token() || errors.Is(err, sqllock.ErrUnreachable) {
		e.Fatalf("TryAcquire() beside a holder of %q = %v, want a *HeldError that tells of it", names[1], err)
	}

	// Nothing is left of it.
	others := []*sqllock.Lock{e.acquireName(e.a, names[0]), e.acquireName(e.a, names[2])}
	for _, lock := range append(others, one) {
		e.release(lock)
	}

	locks := e.acquireSeveral(e.b, []string{names[2], names[0], names[1], names[0]})

	if !slices.Equal(locks.Names(), names) {
		e.Errorf("Names() = %q, want each of %q once", locks.Names(), names)
	}

	for i, earlier := range []*sqllock.Lock{others[0], one, others[1]} {
		e.grow("a release of "+names[i], earlier.Token(), locks.TokenOf(names[i]))
		e.refusedName(e.a, names[i])
	}

	e.alive(locks)

	if name, token := locks.Name(), locks.Token(); name != names[2] || token != locks.TokenOf(name) {
		e.Errorf("Name() and Token() = %q, %d, want those of %q, which was given first", name, token, names[2])
	}

	e.releaseSeveral(locks)
	e.ended(locks, "all were released")

	if err := locks.Release(e.ctx()); err != nil {
		e.Errorf("Release() again = %v, want nil", err)
	}

	for _, name := range names {
		e.release(e.acquireName(e.a, name))
	}
}

// severalMinHold looks what is left of an attempt that did not get the last of its names.
func severalMinHold(e *env) {
	names := e.several(2)
	one := e.acquireName(e.a, names[1])

	if _, err := e.b.TryAcquire(e.ctx(), names[0], sqllock.WithNames(names...), sqllock.WithMinHold(time.Hour)); !errors.Is(err, sqllock.ErrNotAcquired) {
		e.Fatalf("TryAcquire() beside a holder of %q = %v, want ErrNotAcquired", names[1], err)
	}

	lock, err := e.a.TryAcquire(e.ctx(), names[0])
	if err != nil {
		e.Fatalf("TryAcquire(%q) after that = %v, want the lock%s", names[0], err, e.holder(names[0]))
	}

	e.release(lock)
	e.release(one)
}

// Names that are free take one statement, however many they are, and so does their release. What is slow to come, on a machine
// that has much else to do, goes in another: then it is tried again.
func severalStatement(e *env) {
	names := e.several(20)
	e.releaseSeveral(e.acquireSeveral(e.a, names))

	for _, operation := range []string{"acquire", "release"} {
		fewest := len(names)

		for range 20 {
			before := e.script.Count(operation)

			e.releaseSeveral(e.acquireSeveral(e.a, names))

			if fewest = min(fewest, e.script.Count(operation)-before); fewest == 1 {
				break
			}
		}

		if fewest != 1 {
			e.Errorf("Acquire() and Release() of %d names = %d times %s, want once", len(names), fewest, operation)
		}
	}
}

// A transaction guards one of the names, released since: none of them is had, and nobody waits for the
// transaction.
func severalLocked(e *env) {
	names := e.several(3)
	e.releaseSeveral(e.acquireSeveral(e.a, names))

	lock := e.acquireName(e.a, names[1])
	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v, want nil", err)
	}

	if oneWriter(e) == "" {
		e.release(lock)
	}

	if _, err := e.b.TryAcquire(e.ctx(), names[0], sqllock.WithNames(names...)); err == nil {
		e.Errorf("TryAcquire() beside a guard = nil, want an error")
	}

	if oneWriter(e) == "" {
		for _, name := range []string{names[0], names[2]} {
			e.release(e.acquireName(e.a, name))
		}
	}

	e.commit(tx)

	if oneWriter(e) != "" {
		e.release(lock)
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names))
}

func severalLost(e *env) {
	names := e.several(3)
	locks := e.acquireSeveral(e.a, names)

	if err := ForceRelease(e.ctx(), e.b, names[1], "the reason"); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	e.lost("Check() of one that was taken away", locks.Check(e.ctx()), sqllock.ReasonForced, sqllock.ReasonSessionGone)
	e.poll("the context of all ends with one", func() error {
		if locks.Context().Err() == nil {
			return errors.New("the context goes on")
		}

		return nil
	})

	for what, err := range map[string]error{
		"Err()": locks.Err(), "Cause()": context.Cause(locks.Context()),
	} {
		e.lost(what, err, sqllock.ReasonForced, sqllock.ReasonSessionGone)
	}

	if leaseOnly(e) == "" { // or else they may be of the same session
		e.refusedName(e.b, names[0])
		e.refusedName(e.b, names[2])
	}

	if err := locks.Release(e.ctx()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Release() of locks that were lost = %v, want ErrLost", err)
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names))
}

// All that are not lost are held as before, and renewed.
func severalReleaseTxFails(e *env) {
	names := e.several(3)
	locks := e.acquireSeveral(e.a, names)

	if err := ForceRelease(e.ctx(), e.b, names[2], "the reason"); err != nil {
		e.Fatalf("ForceRelease() = %v", err)
	}

	tx := e.begin("")

	if err := locks.ReleaseTx(e.ctx(), tx.Tx); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("ReleaseTx() of locks of which one was taken away = %v, want ErrLost", err)
	}

	e.rollback(tx)

	for _, name := range names[:2] {
		e.refusedName(e.b, name)
	}

	if err := locks.Release(e.ctx()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Release() of locks of which one was taken away = %v, want ErrLost", err)
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names))
}

func severalGuarded(e *env) {
	names := e.several(3)
	locks := e.acquireSeveral(e.a, names)
	tx := e.begin("")

	if err := locks.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() of all = %v, want nil", err)
	}

	if err := locks.ReleaseTx(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("ReleaseTx() of all = %v, want nil", err)
	}

	e.commit(tx)

	next := e.acquireSeveral(e.b, names)

	if err := locks.Release(e.ctx()); err != nil {
		e.Errorf("Release() after the transaction = %v, want nil", err)
	}

	for _, name := range names {
		e.grow("a release in a transaction", locks.TokenOf(name), next.TokenOf(name))
	}

	e.alive(next)

	// One of them has had a later holder: the guard of all says so.
	old := e.begin("")
	if err := locks.Guard(e.ctx(), old.Tx); err == nil {
		e.Errorf("Guard() of locks that were released = nil, want an error")
	}

	e.rollback(old)
	e.releaseSeveral(next)
}

// Whoever waits for one name holds those before it, and none behind it.
func severalWaits(e *env) {
	names := e.several(3)
	one := e.acquireName(e.a, names[1])
	all := e.waitingForSeveral(e.b, names)

	e.poll("the names before the one that is waited for are held", func() error {
		status, err := e.a.Inspect(e.ctx(), names[0])
		if err == nil && !status.Held() {
			err = fmt.Errorf("Inspect(%q) = %+v, want that somebody holds it", names[0], status)
		}

		return err
	})

	e.release(e.acquireName(e.a, names[2]))

	select {
	case <-all:
		e.Fatal("Acquire() has ended while one of the names is held")
	default:
	}

	e.release(one)

	e.releaseSeveral(e.getSeveral(all))
}

func severalInAnyOrder(e *env) {
	names := e.several(2)

	var group sync.WaitGroup

	for i, locker := range []*sqllock.Locker{e.a, e.b, e.locker(e.Strategy), e.locker(e.Other)} {
		mine := slices.Clone(names)
		if i%2 == 0 {
			slices.Reverse(mine)
		}

		group.Go(func() {
			for range 5 {
				locks, err := locker.Acquire(e.ctx(), mine[0], sqllock.WithNames(mine...))
				if err != nil {
					e.Errorf("Acquire(%q) = %v, want the locks", mine, err)

					return
				}

				e.releaseSeveral(locks)
			}
		})
	}

	group.Wait()
}

// Several goroutines of several processes want some of the same names, and hold them for a moment. While nobody has any of them,
// nobody waits for the next look at a line.
func severalAwake(e *env) {
	const rounds = 12

	var (
		names = e.several(3)
		group sync.WaitGroup
		free  idleTime
	)

	looker := e.locker(e.Other)

	defer free.begin(func() { _, _ = looker.Holders(e.ctx(), sqllock.Filter{Name: e.name + "/nobody"}) })()

	for _, locker := range []*sqllock.Locker{e.a, e.b, e.locker(e.Strategy), e.locker(e.Other)} {
		for range 2 {
			group.Go(func() {
				for range rounds {
					mine := slices.Clone(names)
					rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })

					free.wants(1)

					locks, err := locker.Acquire(e.ctx(), mine[0], sqllock.WithNames(mine[:1+rand.IntN(len(mine))]...))
					if err != nil {
						e.Errorf("Acquire() = %v, want the locks", err)

						return
					}

					free.holds(1)
					free.wants(-1)
					e.elapse(rand.N(5 * time.Millisecond))
					free.holds(-1)
					e.releaseSeveral(locks)
				}
			})
		}
	}

	group.Wait()

	longest := time.Duration(free.longest) * awakeTick
	e.Logf("all was free and somebody waited for %s at a time", longest)

	// It is looked every two seconds how a line stands. A wake-up that is lost costs as much, but for a few ticks.
	if longest >= 1800*time.Millisecond {
		e.Errorf("for %s all was free and somebody waited, want less than two seconds", longest)
	}
}

// idleTime is for how long nobody had all of what it wanted. It is counted in ticks, of which there are none while this process
// gets no processor, or the database has no answer: on a busy machine nobody takes what is free, either.
type idleTime struct {
	ticks atomic.Int64

	mu         sync.Mutex
	want, hold int
	idle       bool // somebody wants, and nobody has anything
	since      int64
	longest    int64
}

const awakeTick = 10 * time.Millisecond

// begin counts ticks, each with a question to the database, until the function that it returns is called.
func (t *idleTime) begin(ask func()) (end func()) {
	ticker, ended := time.NewTicker(awakeTick), make(chan struct{})

	go func() {
		for {
			select {
			case <-ticker.C:
				ask()
				t.ticks.Add(1)
			case <-ended:
				return
			}
		}
	}()

	return func() {
		ticker.Stop()
		close(ended)
	}
}

func (t *idleTime) wants(n int) { t.count(&t.want, n) }

func (t *idleTime) holds(n int) { t.count(&t.hold, n) }

func (t *idleTime) count(what *int, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	*what += n

	switch idle := t.want > 0 && t.hold == 0; {
	case idle && !t.idle:
		t.idle, t.since = true, t.ticks.Load()
	case !idle && t.idle:
		t.idle, t.longest = false, max(t.longest, t.ticks.Load()-t.since)
	}
}

// Who waits for one name and holds another one gives that to who waits for it and holds the first.
func severalGiveWay(e *env) {
	names := e.several(2)
	outer := e.acquireName(e.a, names[1])
	all := e.waitingForSeveral(e.b, names)
	e.allWait(names[1:])

	if err := <-e.nested(e.a, outer, names[0]); err != nil {
		e.Errorf("Acquire() of the holder, which wants what others hold who wait for it = %v, want the lock", err)
	}

	e.release(outer)

	e.releaseSeveral(e.getSeveral(all))
}

// Each of two holds a lock, and wants that of the other and a name that sorts before both: whoever has that gives it back to the
// other, who waits for the first then.
func severalDeadlock(e *env) {
	names := e.several(3)
	lockers := []*sqllock.Locker{e.a, e.b}
	outer := []*sqllock.Lock{e.acquireName(e.a, names[1]), e.acquireName(e.b, names[2])}

	type result struct {
		who int
		err error
	}

	ends := make(chan result, len(outer))

	for i, lock := range outer {
		ctx, cancel := context.WithTimeout(lock.Context(), e.patience)
		defer cancel()

		go func() {
			locks, err := lockers[i].Acquire(ctx, names[0], sqllock.WithNames(names[2-i]))
			if err == nil {
				err = locks.Release(ctx)
			}

			ends <- result{i, err}
		}()
	}

	first := <-ends

	var deadlock *sqllock.DeadlockError

	switch {
	case !errors.Is(first.err, sqllock.ErrDeadlock) || !errors.As(first.err, &deadlock):
		e.Errorf("Acquire() of what the other holds and of what both want = %v, want a *DeadlockError", first.err)
	case len(deadlock.Cycle) != 2 || deadlock.Name != names[2-first.who] || deadlock.Cycle[1].Name != names[1+first.who]:
		e.Errorf("DeadlockError = %+v, want the names that both hold", deadlock)
	}

	// Who waits is listed once, for what it waits for.
	e.poll("the other one waits", func() error {
		waiters, err := e.b.Waiters(e.ctx(), sqllock.WaiterFilter{Prefix: e.name, Limit: 1})
		if err == nil && (len(waiters) != 1 || waiters[0].Name != names[1+first.who]) {
			err = fmt.Errorf("Waiters() = %+v, want the one who waits for %q", waiters, names[1+first.who])
		}

		return err
	})

	e.release(outer[first.who])

	if second := <-ends; second.err != nil {
		e.Errorf("Acquire() of the other = %v, want the locks", second.err)
	}

	e.release(outer[1-first.who])
	e.nobodyWaits("after the deadlock")
}

func severalLeave(e *env) {
	names := e.several(3)
	one := e.acquireName(e.a, names[1])
	e.release(e.acquireName(e.b, names[2])) // it has a connection then

	_, err := e.b.Acquire(e.ctx(), names[0], sqllock.WithNames(names...), sqllock.WithMaxWait(3*time.Second))

	held := new(sqllock.HeldError)
	if !errors.As(err, &held) || held.Name != names[1] || held.Token != one.Token() {
		e.Errorf("Acquire() with a limit = %v, want a *HeldError of %q", err, names[1])
	}

	e.nobodyWaits("after the limit")

	ctx, cancel := context.WithCancel(e.ctx())
	ended := make(chan error, 1)

	go func() {
		_, err := e.b.Acquire(ctx, names[0], sqllock.WithNames(names...))
		ended <- err
	}()

	e.elapse(50 * time.Millisecond)
	cancel()

	if err := <-ended; !errors.Is(err, context.Canceled) {
		e.Errorf("Acquire() that was cancelled = %v, want Canceled", err)
	}

	e.nobodyWaits("after a wait was cancelled")

	for _, name := range []string{names[0], names[2]} {
		e.release(e.acquireName(e.a, name))
	}

	e.release(one)
}

// Nothing that was granted by a statement whose answer was lost is left, wherever that is; and who enters the lines by one
// whose answer was lost gets on.
func severalUnanswered(e *env) {
	names := e.several(3)

	operation := "acquire-all"
	if batchesOnly(e) != "" {
		operation = "acquire"
	}

	for _, when := range []When{Before, After} {
		e.script.Fail(e.op(operation), 1, when, nil)

		locks := e.acquireSeveral(e.a, names)
		e.alive(locks)
		e.releaseSeveral(locks)

		one := e.acquireName(e.a, names[1])
		e.script.Fail("enqueue", 1, when, nil)

		all := e.waitingForSeveral(e.b, names)
		e.elapse(200 * time.Millisecond)
		e.release(one)
		e.releaseSeveral(e.getSeveral(all))
		e.script.Reset()
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names))
}

// As behind a driver or a proxy that repeats what it has sent.
func severalTwice(e *env) {
	names := e.several(3)
	one := e.acquireName(e.a, names[1])

	e.script.Twice("*")

	all := e.waitingForSeveral(e.b, names)
	e.elapse(200 * time.Millisecond)
	e.release(one)

	locks := e.getSeveral(all)

	e.alive(locks)

	for _, name := range names {
		e.refusedName(e.a, name)
	}

	e.releaseSeveral(locks)
	e.script.Reset()
	e.releaseSeveral(e.acquireSeveral(e.a, names))
}

// Each of several lockers takes some of the names, in random order, and alone has them.
func severalHammer(e *env) {
	const (
		workers = 6
		rounds  = 12
	)

	names := e.several(4)
	lockers := []*sqllock.Locker{e.a, e.b, e.locker(e.Strategy)}

	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		holds  = map[string]int{}
		tokens = map[string]int64{}
	)

	for worker := range workers {
		group.Go(func() {
			for range rounds {
				mine := slices.Clone(names)
				rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				mine = mine[:1+rand.IntN(3)]

				locks, err := lockers[worker%len(lockers)].Acquire(e.ctx(), mine[0], sqllock.WithNames(mine...))
				if err != nil {
					e.Errorf("Acquire(%q) = %v, want the locks", mine, err)

					return
				}

				mu.Lock()

				for _, name := range locks.Names() {
					if holds[name]++; holds[name] > 1 {
						e.Errorf("%q has two holders", name)
					}

					if token := locks.TokenOf(name); token <= tokens[name] {
						e.Errorf("the token of %q goes from %d to %d", name, tokens[name], token)
					} else {
						tokens[name] = token
					}
				}

				mu.Unlock()

				mu.Lock()

				for _, name := range locks.Names() {
					holds[name]--
				}

				mu.Unlock()
				e.releaseSeveral(locks)
			}
		})
	}

	group.Wait()
}

func severalMany(e *env) {
	n := sqllock.MaxNames
	if oneWriter(e) != "" || e.features.Unbatched {
		n /= 5 // SQLite in Go takes 30 times as long under the race detector; TiDB is asked for each of them
	}

	names := e.several(n)

	// Where each of them takes a statement, a slow machine takes long for all.
	started := time.Now()

	e.releaseSeveral(e.acquireSeveral(e.a, names[:n/10]))

	long := max(e.patience, 3*10*time.Since(started))

	ctx, cancel := context.WithTimeout(e.Context(), long)
	defer cancel()

	locks, err := e.a.Acquire(ctx, names[0], sqllock.WithNames(names...), sqllock.WithLease(lease+long))
	if err != nil {
		e.Fatalf("Acquire() of %d names = %v, want the locks", n, err)
	}

	if n := len(locks.Names()); n != len(names) {
		e.Errorf("Acquire() of %d names = %d locks", len(names), n)
	}

	e.refusedName(e.b, names[len(names)-1])

	if err := locks.Release(ctx); err != nil {
		e.Errorf("Release() of %d names = %v, want nil", n, err)
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names[:3]))
}
