package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// togetherCases are about several names at once.
func togetherCases() []testCase {
	return []testCase{
		{"together/refused where each lock holds a connection", nil, togetherRefused},
		{"together/all or none", severalOnly, togetherAll},
		{"together/a minimum hold of all or none", both(severalOnly, minHoldOnly), togetherMinHold},
		{"together/in one statement", both(severalOnly, groupersOnly), togetherStatement},
		{"together/beside a row that somebody has locked", both(severalOnly, both(groupersOnly, databaseOnly)), togetherLocked},
		{"together/one that is lost ends all", severalOnly, togetherLost},
		{"together/all are guarded and released in one transaction", both(severalOnly, releaseTxOnly), togetherGuarded},
		{"together/holding none while waiting", severalOnly, togetherWaits},
		{"together/first in all lines", both(severalOnly, both(queuesOnly, queueBatchersOnly)), togetherInLine},
		{"together/in whatever order they are given", severalOnly, togetherInAnyOrder},
		{"together/no deadlock with who holds one and wants another", both(severalOnly, queuesOnly), togetherPassed},
		{"together/no deadlock over who waits behind it", both(severalOnly, both(queuesOnly, queueBatchersOnly)), togetherPassedOver},
		{"together/names that others have waited for", both(severalOnly, both(queuesOnly, groupersOnly)), togetherWaitedFor},
		{"together/a wait that ends leaves all lines", both(severalOnly, queuesOnly), togetherLeaves},
		{"together/an answer that is lost", severalOnly, togetherUnanswered},
		{"together/every statement twice", both(severalOnly, leaseOnly), togetherTwice},
		{"together/hammer", severalOnly, togetherHammer},
		{"together/as many as can be", both(severalOnly, groupersOnly), togetherMany},
	}
}

func severalOnly(e *env) string {
	if !e.features.Several {
		return "the strategy takes one name at a time"
	}

	return ""
}

// A strategy that cannot says so, and leaves nothing.
func togetherRefused(e *env) {
	if e.features.Several {
		e.Skip("the strategy takes several names")
	}

	names := e.several(2)

	if _, err := e.a.AcquireAll(e.ctx(), names); !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("AcquireAll() = %v, want ErrUnsupported", err)
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names[:1]))
	e.release(e.acquireName(e.a, names[1]))
}

func groupersOnly(e *env) string {
	if _, ok := e.Strategy.(strategies.Grouper); !ok || e.features.Ungrouped {
		return "the strategy has no Grouper, or not on this database"
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

func (e *env) acquireSeveral(l *sqllock.Locker, names []string) *sqllock.Locks {
	e.Helper()

	locks, err := l.AcquireAll(e.ctx(), names)
	if err != nil {
		e.Fatalf("AcquireAll(%q) = %v, want the locks%s", names, err, e.holder(e.name))
	}

	return locks
}

func (e *env) releaseSeveral(locks *sqllock.Locks) {
	e.Helper()

	if err := locks.Release(e.ctx()); err != nil {
		e.Errorf("Release() of %q = %v, want nil", locks.Names(), err)
	}
}

// waitingForSeveral runs AcquireAll in the background.
func (e *env) waitingForSeveral(l *sqllock.Locker, names []string) <-chan *sqllock.Locks {
	gives, ctx := make(chan *sqllock.Locks, 1), e.ctx()

	go func() {
		defer close(gives)

		locks, err := l.AcquireAll(ctx, names)
		if err != nil {
			e.Errorf("AcquireAll(%q) = %v, want the locks%s", names, err, e.holder(e.name))

			return
		}

		gives <- locks
	}()

	return gives
}

// getSeveral takes the locks of an AcquireAll in the background.
func (e *env) getSeveral(all <-chan *sqllock.Locks) *sqllock.Locks {
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

func togetherAll(e *env) {
	names := e.several(3)
	one := e.acquireName(e.a, names[1])

	_, err := e.b.TryAcquireAll(e.ctx(), names)

	held := new(sqllock.HeldError)
	if !errors.As(err, &held) || held.Name != names[1] || held.Token != one.Token() || errors.Is(err, sqllock.ErrUnreachable) {
		e.Fatalf("TryAcquireAll() beside a holder of %q = %v, want a *HeldError that tells of it", names[1], err)
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
		e.grow("a release of "+names[i], earlier.Token(), locks.Lock(names[i]).Token())
		e.alive(locks.Lock(names[i]))
		e.refusedName(e.a, names[i])
	}

	if err := locks.Err(); err != nil {
		e.Errorf("Err() of locks that are held = %v, want nil", err)
	}

	e.releaseSeveral(locks)

	if err := locks.Release(e.ctx()); err != nil {
		e.Errorf("Release() again = %v, want nil", err)
	}

	for _, name := range names {
		e.ended(locks.Lock(name), "all were released")
		e.release(e.acquireName(e.a, name))
	}
}

// togetherMinHold looks what is left of an attempt that did not get the last of its names.
func togetherMinHold(e *env) {
	names := e.several(2)
	one := e.acquireName(e.a, names[1])

	if _, err := e.b.TryAcquireAll(e.ctx(), names, sqllock.WithMinHold(time.Hour)); !errors.Is(err, sqllock.ErrNotAcquired) {
		e.Fatalf("TryAcquireAll() beside a holder of %q = %v, want ErrNotAcquired", names[1], err)
	}

	lock, err := e.a.TryAcquire(e.ctx(), names[0])
	if err != nil {
		e.Fatalf("TryAcquire(%q) after that = %v, want the lock%s", names[0], err, e.holder(names[0]))
	}

	e.release(lock)
	e.release(one)
}

// group are requests for several names, from one who has not been in line.
func (e *env) group(names []string) []strategies.Request {
	requests := make([]strategies.Request, len(names))

	for i, name := range names {
		requests[i] = e.newcomer()
		requests[i].Name = name
	}

	return requests
}

func (e *env) tryGroup(requests []strategies.Request) ([]strategies.Grant, error) {
	grouper, _ := e.Strategy.(strategies.Grouper)

	return grouper.TryAcquireGroup(e.ctx(), requests)
}

func (e *env) tokensOf(grants []strategies.Grant) []int64 {
	tokens := make([]int64, len(grants))
	for i, g := range grants {
		tokens[i] = g.Token()
	}

	return tokens
}

// What is granted together is granted once, however often the same owners ask; and if one name is held, no other is
// touched.
func togetherStatement(e *env) {
	names := e.several(4)
	requests := e.group(names)

	grants, err := e.tryGroup(requests)
	if err != nil || len(grants) != len(names) {
		e.Fatalf("TryAcquireGroup() of new names = %v, %v, want a grant for each", grants, err)
	}

	again, err := e.tryGroup(requests)
	if err != nil || !slices.Equal(e.tokensOf(again), e.tokensOf(grants)) {
		e.Fatalf("TryAcquireGroup() of the same owners = tokens %v, %v, want %v", e.tokensOf(again), err, e.tokensOf(grants))
	}

	for _, free := range []int{0, 3} {
		e.releaseGrant(grants[free])
	}

	before := e.statuses(names)

	if _, err := e.tryGroup(e.group(names)); !errors.Is(err, sqllock.ErrNotAcquired) {
		e.Errorf("TryAcquireGroup() beside two holders = %v, want a *HeldError", err)
	}

	if after := e.statuses(names); !slices.Equal(after, before) {
		e.Errorf("a TryAcquireGroup() that was refused changed the owners and tokens %v to %v", before, after)
	}

	for _, held := range []int{1, 2} {
		e.releaseGrant(grants[held])
	}

	e.groupInLine(names)
}

// statuses are the owners and tokens of names.
func (e *env) statuses(names []string) []string {
	all := make([]string, len(names))

	for i, name := range names {
		status, _, err := e.Strategy.Status(e.ctx(), name)
		if err != nil {
			e.Fatalf("Status(%q) = %v", name, err)
		}

		all[i] = fmt.Sprint(status.Token, status.Owner)
	}

	return all
}

// groupInLine fails unless others who wait for one of the names come first, until it is said that they do not.
func (e *env) groupInLine(names []string) {
	e.Helper()

	if queuesOnly(e) != "" {
		return
	}

	waiter := e.someone()
	waiter.Name = names[2]
	e.enqueue(waiter, lease)

	requests := e.group(names)
	_, err := e.tryGroup(requests)

	held := new(strategies.HeldError)
	if !errors.As(err, &held) || held.Name != names[2] || held.Line == 0 {
		e.Errorf("TryAcquireGroup() while another waits for %q = %v, want a HeldError of that with Line", names[2], err)
	}

	requests[2].First = true

	grants, err := e.tryGroup(requests)
	if err != nil {
		e.Fatalf("TryAcquireGroup() of who is the first = %v, want the grants", err)
	}

	for _, grant := range grants {
		e.releaseGrant(grant)
	}

	e.leave(waiter)
}

// A transaction guards one of the names, released since: none of them is granted, and nobody waits for the
// transaction.
func togetherLocked(e *env) {
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

	before := e.statuses(names)

	e.within(e.harness.TryWithin, "TryAcquireGroup() beside a guard", func() {
		if _, err := e.tryGroup(e.group(names)); err == nil {
			e.Errorf("TryAcquireGroup() beside a guard = nil, want an error")
		}
	})

	if after := e.statuses(names); !slices.Equal(after, before) {
		e.Errorf("a TryAcquireGroup() beside a guard changed the owners and tokens %v to %v", before, after)
	}

	e.commit(tx)

	if oneWriter(e) != "" {
		e.release(lock)
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names))
}

func togetherLost(e *env) {
	names := e.several(3)
	locks := e.acquireSeveral(e.a, names)

	if err := e.b.ForceRelease(e.ctx(), names[1], "the reason"); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	e.lost("Check() of one that was taken away", locks.Lock(names[1]).Check(e.ctx()), sqllock.ReasonForced, sqllock.ReasonSessionGone)
	e.poll("the loss of one is that of all", func() error {
		if locks.Context().Err() == nil {
			return errors.New("the context goes on")
		}

		return nil
	})

	for _, name := range names {
		e.lost(fmt.Sprintf("Err() of %q", name), locks.Lock(name).Err(), sqllock.ReasonForced, sqllock.ReasonSessionGone, sqllock.ReasonTogether)
	}

	e.lost("Err() of all", locks.Err(), sqllock.ReasonForced, sqllock.ReasonSessionGone, sqllock.ReasonTogether)
	e.lost("Cause()", context.Cause(locks.Context()), sqllock.ReasonForced, sqllock.ReasonSessionGone, sqllock.ReasonTogether)

	if err := locks.Release(e.ctx()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Release() of locks that were lost = %v, want ErrLost", err)
	}

	e.releaseSeveral(e.acquireSeveral(e.b, names))
}

func togetherGuarded(e *env) {
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
		e.grow("a release in a transaction", locks.Lock(name).Token(), next.Lock(name).Token())
		e.alive(next.Lock(name))
	}

	// One of them has had a later holder: the guard of all says so.
	old := e.begin("")
	if err := locks.Guard(e.ctx(), old.Tx); err == nil {
		e.Errorf("Guard() of locks that were released = nil, want an error")
	}

	e.rollback(old)
	e.releaseSeveral(next)
}

// While one name is held, the others can be had.
func togetherWaits(e *env) {
	names := e.several(2)
	one := e.acquireName(e.a, names[1])
	all := e.waitingForSeveral(e.b, names)

	e.elapse(100 * time.Millisecond)

	e.poll("nobody holds a name while another one is waited for", func() error {
		status, err := e.a.Inspect(e.ctx(), names[0])
		if err == nil && status.Held() {
			err = fmt.Errorf("Inspect(%q) = %+v, want that nobody holds it", names[0], status)
		}

		if err != nil && groupersOnly(e) == "" {
			e.Error(err) // not even for a moment
		}

		return err
	})

	select {
	case <-all:
		e.Fatal("AcquireAll() has ended while one of the names is held")
	default:
	}

	e.release(one)

	e.releaseSeveral(e.getSeveral(all))
}

// Whoever comes later for one of the names waits behind it, also if that one is free.
func togetherInLine(e *env) {
	names := e.several(3)
	one := e.acquireName(e.a, names[2])
	all := e.waitingForSeveral(e.b, names)
	e.allWait(names)

	e.elapse(100 * time.Millisecond) // until the names say so, too

	later := e.locker(e.Strategy)
	e.refusedKept(later, names[0])

	behind := make(chan *sqllock.Lock, 1)
	ctx := e.ctx()

	go func() {
		lock, err := later.Acquire(ctx, names[0])
		if err != nil {
			e.Errorf("Acquire(%q) = %v, want the lock", names[0], err)
		}

		behind <- lock
	}()

	e.elapse(100 * time.Millisecond)
	e.release(one)

	select {
	case lock := <-behind:
		e.Errorf("Acquire(%q) = token %d before those who came first", names[0], lock.Token())
		e.release(lock)
		<-all
	case locks := <-all:
		if locks == nil {
			e.FailNow()
		}

		e.releaseSeveral(locks)
		e.release(<-behind)
	}

	e.nobodyWaits("after all had it")
}

// refusedKept fails unless a name that is free is kept for those in line.
func (e *env) refusedKept(l *sqllock.Locker, name string) {
	e.Helper()

	lock, err := l.TryAcquire(e.ctx(), name)
	if !errors.Is(err, sqllock.ErrNotAcquired) {
		e.Fatalf("TryAcquire(%q) while others are in line = %v, %v, want ErrNotAcquired", name, lock, err)
	}
}

func togetherInAnyOrder(e *env) {
	names := e.several(2)

	var group sync.WaitGroup

	for i, locker := range []*sqllock.Locker{e.a, e.b, e.locker(e.Strategy), e.locker(e.Other)} {
		mine := slices.Clone(names)
		if i%2 == 0 {
			slices.Reverse(mine)
		}

		group.Go(func() {
			for range 5 {
				locks, err := locker.AcquireAll(e.ctx(), mine)
				if err != nil {
					e.Errorf("AcquireAll(%q) = %v, want the locks", mine, err)

					return
				}

				e.releaseSeveral(locks)
			}
		})
	}

	group.Wait()
}

// Of two names one is held. Who waits for both is first in the line of the other, and does not keep it from the
// holder, nor from others of its process who are before it there.
func togetherPassed(e *env) {
	names := e.several(2)

	for _, what := range []string{"the holder", "the holder behind another one of its process"} {
		outer := e.acquireName(e.a, names[1])
		all := e.waitingForSeveral(e.b, names)
		e.allWait(names)

		var before <-chan *sqllock.Lock

		if what != "the holder" {
			before = e.waiting(e.a)
			e.elapse(50 * time.Millisecond)
		}

		nested := e.nested(e.a, outer, names[0])

		if before != nil {
			e.release(e.get(before))
		}

		if err := <-nested; err != nil {
			e.Errorf("Acquire() of %s, which wants what others wait for = %v, want the lock", what, err)
		}

		e.release(outer)

		e.releaseSeveral(e.getSeveral(all))
	}
}

// Somebody else waits behind who waits for both names, and before the holder of one of them.
func togetherPassedOver(e *env) {
	names := e.several(2)
	outer := e.acquireName(e.a, names[1])
	all := e.waitingForSeveral(e.b, names)
	e.allWait(names)

	e.elapse(100 * time.Millisecond) // until the names say so, too

	behind := e.waiting(e.locker(e.Other))
	e.waiters("another one waits behind", 3)

	if err := <-e.nested(e.a, outer, names[0]); err != nil {
		e.Errorf("Acquire() of the holder, behind one who is behind who waits for it = %v, want the lock", err)
	}

	e.release(outer)

	e.releaseSeveral(e.getSeveral(all))
	e.release(e.get(behind))
}

// That somebody waits is written in the row of each name, and may stay there when nobody does any more. It is looked for
// all of them at once.
func togetherWaitedFor(e *env) {
	names := e.several(20)
	e.releaseSeveral(e.acquireSeveral(e.a, names))

	for _, name := range names {
		waiter := e.someone()
		waiter.Name = name
		e.enqueue(waiter, lease)

		if err := e.queuer(e.Strategy).Leave(e.ctx(), waiter.Process, []string{waiter.ID}); err != nil {
			e.Fatalf("Leave() = %v, want nil", err)
		}
	}

	before := e.script.Count(e.op("acquire-group"))

	locks, err := e.a.TryAcquireAll(e.ctx(), names)
	if err != nil {
		e.Fatalf("TryAcquireAll() of names that nobody waits for any more = %v, want the locks", err)
	}

	if attempts := e.script.Count(e.op("acquire-group")) - before; attempts > 2 {
		e.Errorf("TryAcquireAll() took %d attempts, want two at most", attempts)
	}

	e.releaseSeveral(locks)
}

func togetherLeaves(e *env) {
	names := e.several(3)
	one := e.acquireName(e.a, names[1])

	_, err := e.b.AcquireAll(e.ctx(), names, sqllock.WithMaxWait(time.Second))

	held := new(sqllock.HeldError)
	if !errors.As(err, &held) || held.Name != names[1] || held.Token != one.Token() {
		e.Errorf("AcquireAll() with a limit = %v, want a *HeldError of %q", err, names[1])
	}

	e.nobodyWaits("after the limit")

	ctx, cancel := context.WithCancel(e.ctx())
	ended := make(chan error, 1)

	go func() {
		_, err := e.b.AcquireAll(ctx, names)
		ended <- err
	}()

	e.elapse(50 * time.Millisecond)
	cancel()

	if err := <-ended; !errors.Is(err, context.Canceled) {
		e.Errorf("AcquireAll() that was cancelled = %v, want Canceled", err)
	}

	e.nobodyWaits("after a wait was cancelled")

	for _, name := range []string{names[0], names[2]} {
		e.release(e.acquireName(e.a, name))
	}

	e.release(one)
}

// Nothing that was granted by a statement whose answer was lost is left, wherever that is; and who enters the lines by one
// whose answer was lost gets on.
func togetherUnanswered(e *env) {
	names := e.several(3)

	operation := "acquire-group"
	if groupersOnly(e) != "" {
		operation = "acquire"
	}

	for _, when := range []When{Before, After} {
		e.script.Fail(e.op(operation), 1, when, nil)

		locks := e.acquireSeveral(e.a, names)
		for _, name := range names {
			e.alive(locks.Lock(name))
		}

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
func togetherTwice(e *env) {
	names := e.several(3)
	one := e.acquireName(e.a, names[1])

	e.script.Twice("*")

	all := e.waitingForSeveral(e.b, names)
	e.elapse(200 * time.Millisecond)
	e.release(one)

	locks := e.getSeveral(all)

	for _, name := range names {
		e.alive(locks.Lock(name))
		e.refusedName(e.a, name)
	}

	e.releaseSeveral(locks)
	e.script.Reset()
	e.releaseSeveral(e.acquireSeveral(e.a, names))
}

// Each of several lockers takes some of the names, in random order, and alone has them.
func togetherHammer(e *env) {
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

				locks, err := lockers[worker%len(lockers)].AcquireAll(e.ctx(), mine)
				if err != nil {
					e.Errorf("AcquireAll(%q) = %v, want the locks", mine, err)

					return
				}

				mu.Lock()

				for _, name := range locks.Names() {
					if holds[name]++; holds[name] > 1 {
						e.Errorf("%q has two holders", name)
					}

					if token := locks.Lock(name).Token(); token <= tokens[name] {
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

func togetherMany(e *env) {
	n := sqllock.MaxNames
	if oneWriter(e) != "" || e.features.Unbatched {
		n /= 5 // SQLite in Go takes 30 times as long under the race detector; TiDB is asked for each of them
	}

	names := e.several(n)
	locks := e.acquireSeveral(e.a, names)

	if n := len(locks.Names()); n != len(names) {
		e.Errorf("AcquireAll() of %d names = %d locks", len(names), n)
	}

	e.refusedName(e.b, names[len(names)-1])
	e.releaseSeveral(locks)
	e.releaseSeveral(e.acquireSeveral(e.b, names[:3]))
}
