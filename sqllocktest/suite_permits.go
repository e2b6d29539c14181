package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func permitCases() []testCase {
	return []testCase{
		{"permits/as many as there are", slotsOnly, permitsAll},
		{"permits/the larger number bounds", slotsOnly, permitsDiffer},
		{"permits/a guard keeps one slot", both(slotsOnly, oneWriter), permitsGuarded},
		{"permits/one that expired is granted anew", both(slotsOnly, leaseOnly), permitsExpired},
		{"permits/one whose answer was lost is given back", slotsOnly, permitsUnanswered},
		{"permits/are listed and taken away", slotsOnly, permitsListed},
		{"permits/say how their waiters stand", both(slotsOnly, queuesOnly), permitsStandings},
		{"permits/nobody is granted what is kept for others", both(slotsOnly, queuesOnly), permitsKept},
		{"permits/who knows fewer does not keep others from more", both(slotsOnly, queuesOnly), permitsMore},
		{"permits/in the order of arrival", both(slotsOnly, queuesOnly), permitsInOrder},
		{"permits/several that are freed at once", slotsOnly, permitsFreed},
		{"permits/hammer", slotsOnly, permitsHammer},
	}
}

func slotsOnly(e *env) string {
	if !e.features.Slots {
		return "the strategy has no slots"
	}

	return ""
}

// permits takes as many permits, by the two lockers in turn, and returns the locks by slot.
func (e *env) permits(n int) []*sqllock.Lock {
	e.Helper()

	locks := make([]*sqllock.Lock, n)

	for i := range n {
		lock := e.acquire([]*sqllock.Locker{e.a, e.b}[i%2], sqllock.WithPermits(n))

		if slot := lock.Slot(); slot < 0 || slot >= n || locks[slot] != nil {
			e.Fatalf("Slot() of holder %d of %d = %d, want one that nobody has", i+1, n, slot)
		}

		locks[lock.Slot()] = lock
	}

	return locks
}

// noneLeft fails unless neither locker is granted one of n permits.
func (e *env) noneLeft(n int) {
	e.Helper()

	for _, l := range []*sqllock.Locker{e.a, e.b} {
		lock, err := l.TryAcquire(e.ctx(), e.name, sqllock.WithPermits(n))

		switch held := new(sqllock.HeldError); {
		case err == nil:
			e.Errorf("TryAcquire() beside %d of %d holders = slot %d, want ErrNotAcquired", n, n, lock.Slot())
			e.release(lock)
		case !errors.Is(err, sqllock.ErrNotAcquired) || errors.Is(err, sqllock.ErrUnreachable) || !errors.As(err, &held):
			e.Errorf("TryAcquire() beside %d of %d holders = %v, want a *HeldError", n, n, err)
		case held.Name != e.name || held.Holder == sqllock.Holder{}:
			e.Errorf("TryAcquire() beside %d of %d holders = %+v, want the name and one of the holders", n, n, held)
		}
	}
}

func permitsAll(e *env) {
	const n = 3

	other := e.acquireName(e.a, e.name+"0001")
	locks := e.permits(n)

	e.noneLeft(n)

	for i, lock := range locks {
		e.alive(lock)

		if lock.Name() != e.name {
			e.Errorf("Name() in slot %d = %q, want %q", i, lock.Name(), e.name)
		}
	}

	for i, lock := range locks {
		e.release(lock)

		again := e.acquire(e.b, sqllock.WithPermits(n))
		if again.Slot() != i {
			e.Errorf("Slot() after slot %d was released = %d, want the same", i, again.Slot())
		}

		e.grow(fmt.Sprintf("a release of slot %d", i), lock.Token(), again.Token())

		// A second release is nobody else's.
		if err := lock.Release(e.ctx()); err != nil {
			e.Errorf("Release() again = %v, want nil", err)
		}

		e.alive(again)
		e.noneLeft(n)

		locks[i] = again
	}

	for _, lock := range append(locks, other) {
		e.release(lock)
	}
}

// Whoever asks for fewer is granted none while more are held, and a lock without permits is the
// first of them.
func permitsDiffer(e *env) {
	locks := e.permits(2)

	e.refused(e.a)
	e.noneLeft(2)

	third := e.acquire(e.b, sqllock.WithPermits(3))
	if third.Slot() != 2 {
		e.Errorf("Slot() beside two holders of two = %d, want 2", third.Slot())
	}

	e.noneLeft(3)
	e.release(locks[0])

	plain := e.acquire(e.a)
	if plain.Slot() != 0 {
		e.Errorf("Slot() without permits = %d, want 0", plain.Slot())
	}

	e.noneLeft(3)

	for _, lock := range []*sqllock.Lock{locks[1], third, plain} {
		e.release(lock)
	}
}

// oneWriter leaves out databases where an open guard stops all others.
func oneWriter(e *env) string {
	if e.harness.GuardBlocksRenewal {
		return "the database has one writer, so that an open guard stops renewals and releases"
	}

	return ""
}

func oneGuard(e *env) string {
	if e.harness.GuardBlocksGuard {
		return "an open guard stops another of the same lock"
	}

	return ""
}

func permitsGuarded(e *env) {
	locks := e.permits(2)
	tx := e.begin("")

	if err := locks[1].Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() of slot 1 = %v, want nil", err)
	}

	// The other slot is another grant, which it does not keep from anybody.
	e.release(locks[0])

	first := e.acquire(e.b, sqllock.WithPermits(2))
	if first.Slot() != 0 {
		e.Errorf("Slot() beside a holder of slot 1 = %d, want 0", first.Slot())
	}

	if _, err := single.TryAcquire(e.ctx(), e.Strategy, e.slot(1)); !errors.Is(err, sqllock.ErrNotAcquired) {
		e.Errorf("TryAcquire() of slot 1, which is held and guarded, = %v, want ErrNotAcquired", err)
	}

	e.commit(tx)
	e.release(locks[1])
	e.release(first)
}

// slot is a request for one slot.
func (e *env) slot(slot int) strategies.Request {
	r := e.request()
	r.Name = strategies.SlotName(e.name, slot)

	return r
}

// A holder that died costs its slot until its lease ends, and what it does then is not about the next one.
func permitsExpired(e *env) {
	r := e.slot(1)
	r.Lease = time.Second
	dead := e.grant(e.Strategy, r)

	first := e.acquire(e.a, sqllock.WithPermits(2))
	if first.Slot() != 0 {
		e.Fatalf("Slot() beside a holder of slot 1 = %d, want 0", first.Slot())
	}

	second := e.acquire(e.b, sqllock.WithPermits(2)) // when the lease has ended
	e.grow("an expired lease", dead.Token, second.Token())
	e.lost("Renew() of a grant that expired", dead.Renew(e.ctx(), lease), sqllock.ReasonTakenOver)
	e.lost("Release() of a grant that expired", dead.Release(e.ctx()), sqllock.ReasonTakenOver)
	e.alive(second)
	e.noneLeft(2)
	e.release(first)
	e.release(second)
}

func permitsUnanswered(e *env) {
	e.script.Fail(e.op("acquire"), 1, After, nil)

	for _, lock := range e.permits(2) {
		e.release(lock)
	}
}

func permitsListed(e *env) {
	locks := e.permits(3)

	holders, err := e.a.Holders(e.ctx(), sqllock.Filter{Name: e.name})
	if err != nil || len(holders) != len(locks) {
		e.Fatalf("Holders() = %+v, %v, want %d", holders, err, len(locks))
	}

	for i, holder := range holders {
		if holder.Name != e.name || holder.Slot != i || holder.Token != locks[i].Token() || !holder.Held() {
			e.Errorf("Holders()[%d] = %+v, want slot %d with token %d", i, holder, i, locks[i].Token())
		}
	}

	if err := e.a.ForceRelease(e.ctx(), holders[2], "the reason"); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	e.lost("Check() of a permit that was taken away", locks[2].Check(e.ctx()), sqllock.ReasonForced, sqllock.ReasonSessionGone)

	status, err := e.b.Inspect(e.ctx(), sqllock.SlotName(e.name, 2))
	if err != nil || status.Name != e.name || status.Slot != 2 || status.Held() || status.Detail != "the reason" {
		e.Errorf("Inspect() of a permit that was taken away = %+v, %v, want the reason", status, err)
	}

	for _, lock := range locks[:2] {
		// One session may hold them all, and it has been ended.
		if e.features.ConnectionHeld {
			_ = lock.Release(e.ctx())

			continue
		}

		e.alive(lock)
		e.release(lock)
	}
}

// waitFor is a waiter for one of n permits.
func (e *env) waitFor(n int) strategies.Waiter {
	waiter := e.someone()
	waiter.Slots = n

	return waiter
}

func permitsStandings(e *env) {
	const n = 3

	locks := e.permits(n)
	first, second := e.waitFor(n), e.waitFor(n)

	stand := func(w strategies.Waiter, ahead, free int, what string) {
		e.Helper()

		if s := e.stand(w.Process); len(s) != 1 || s[0].Name != e.name || s[0].Ahead != ahead || s[0].Free != free {
			e.Errorf("Stand() %s = %+v, want %d ahead and %d free", what, s, ahead, free)
		}
	}

	for _, w := range []strategies.Waiter{first, second} {
		if e.enqueue(w, lease) {
			e.Errorf("Enqueue() for permits says that a release will be told, which may have been before")
		}
	}

	stand(first, 0, 0, "of the first while all are held")
	stand(second, 1, 0, "of the second while all are held")
	e.release(locks[2])
	stand(first, 0, 1, "of the first when one is free")
	e.release(locks[0])
	stand(second, 1, 1, "of the second when two are free")

	for _, w := range []strategies.Waiter{first, second} {
		e.leave(w)
	}

	e.release(locks[1])
}

// A slot that is free is kept for those in line, and so is each of the others.
func permitsKept(e *env) {
	const n = 3

	locks := e.permits(n)
	waiter := e.waitFor(n)
	e.enqueue(waiter, lease)

	for _, slot := range []int{1, 0, 2} {
		e.release(locks[slot])

		if lock, err := e.b.TryAcquire(e.ctx(), e.name, sqllock.WithPermits(n)); !errors.Is(err, sqllock.ErrNotAcquired) {
			e.Errorf("TryAcquire() of slot %d while another waits = %v, %v, want ErrNotAcquired", slot, lock, err)
		}
	}

	e.leave(waiter)

	for _, lock := range e.permits(n) {
		e.release(lock)
	}
}

// Whoever waits for one of two is the first in line, and does not need the fourth.
func permitsMore(e *env) {
	const few, more = 2, 4

	locks := e.permits(more)
	waiter := e.waitFor(few)
	e.enqueue(waiter, time.Minute)

	next := e.waiting(e.b, sqllock.WithPermits(more))
	e.waiters("both wait", 2)
	e.elapse(100 * time.Millisecond)
	e.release(locks[3])

	got := e.get(next)
	if got.Slot() != 3 {
		e.Errorf("Slot() of who waits for one of %d = %d, want the one that was released", more, got.Slot())
	}

	e.release(got)

	var again *sqllock.Lock

	// The one before may not have left the line yet.
	e.poll("TryAcquire() of a permit that those in line do not need", func() (err error) {
		again, err = e.a.TryAcquire(e.ctx(), e.name, sqllock.WithPermits(more))

		return err
	})

	e.release(locks[1])

	if lock, err := e.a.TryAcquire(e.ctx(), e.name, sqllock.WithPermits(more)); !errors.Is(err, sqllock.ErrNotAcquired) {
		e.Errorf("TryAcquire() of a permit that is kept for who waits = %v, %v, want ErrNotAcquired", lock, err)
	}

	e.leave(waiter)

	for _, lock := range []*sqllock.Lock{locks[0], locks[2], again} {
		e.release(lock)
	}
}

func permitsInOrder(e *env) {
	const n, waiters = 2, 4

	var order []int

	for range tries {
		e.name += "/again"
		order = nil

		held := e.permits(n)
		served := make(chan *sqllock.Lock)
		began := make(map[*sqllock.Locker]int)

		var mu sync.Mutex

		for i := range waiters {
			l := e.locker(e.Other)
			began[l] = i

			go func() {
				lock, err := l.Acquire(e.ctx(), e.name, sqllock.WithPermits(n))
				if err != nil {
					e.Errorf("Acquire() = %v, want a permit", err)
				} else {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
				}

				served <- lock
			}()

			e.waiters("one more waits", i+1)
		}

		// Each frees a slot for the next one.
		for i := range waiters {
			if i < n {
				e.release(held[i])
			}

			lock := <-served
			if lock == nil {
				e.FailNow()
			}

			e.release(lock)
		}

		e.nobodyWaits("after all had a permit")

		// Two may be granted theirs at the same time.
		if order[0] < n && order[waiters-1] >= n {
			return
		}
	}

	e.Errorf("waiters had a permit in the order %v, want the order of arrival", order)
}

// All that are free are given out, not only the first.
func permitsFreed(e *env) {
	const n = 4

	held := e.permits(n)

	waits := make([]<-chan *sqllock.Lock, n)
	for i := range waits {
		waits[i] = e.waiting(e.locker(e.Other), sqllock.WithPermits(n))
	}

	if queuesOnly(e) == "" {
		e.waiters("all wait", n)
	}

	freed := time.Now()

	for _, lock := range held {
		e.release(lock)
	}

	for _, wait := range waits {
		e.get(wait)
	}

	if took := time.Since(freed); e.late(took, 5*time.Second) {
		e.Errorf("%d permits that were freed at once were granted after %s", n, took)
	}
}

// permitsHammer is a counter for each slot, which is safe only if the slot is.
func permitsHammer(e *env) {
	const n, rounds = 3, 5

	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		inside = make(map[int]int)
		tokens = make(map[int][]int64)
	)

	ctx, cancel := context.WithTimeout(e.Context(), 4*e.patience)
	defer cancel()

	use := func(lock *sqllock.Lock, by int) {
		mu.Lock()
		defer mu.Unlock()

		slot := lock.Slot()
		inside[slot] += by

		if by > 0 {
			tokens[slot] = append(tokens[slot], lock.Token())
		}

		if inside[slot] > 1 || slot >= n {
			e.Errorf("%d holders are inside slot %d of %d", inside[slot], slot, n)
		}
	}

	for _, l := range slices.Repeat([]*sqllock.Locker{e.a, e.b}, 4) {
		group.Go(func() {
			for range rounds {
				lock, err := l.Acquire(ctx, e.name, sqllock.WithPermits(n), sqllock.WithTuning(sqllock.Tuning{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond}))
				if err != nil {
					e.Errorf("Acquire() = %v, want a permit", err)

					return
				}

				use(lock, 1)
				e.elapse(time.Millisecond)
				use(lock, -1)

				if err := lock.Release(ctx); err != nil {
					e.Errorf("Release() = %v", err)
				}
			}
		})
	}

	group.Wait()

	for slot, drawn := range tokens {
		for i := 1; i < len(drawn); i++ {
			e.grow(fmt.Sprintf("grant %d of slot %d", i, slot), drawn[i-1], drawn[i])
		}
	}
}
