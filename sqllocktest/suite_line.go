package sqllocktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// lineCases are about the order in which those who wait get a lock.
func lineCases() []testCase {
	return []testCase{
		{"line/in the order of arrival", queuesOnly, lineInOrder},
		{"line/nobody is granted what is kept for others", queuesOnly, lineKept},
		{"line/says how its waiters stand", queuesOnly, lineStandings},
		{"line/several enter it in one statement", queuesOnly, lineTogether},
		{"line/a release says whether others are in it", queuesOnly, lineContended},
		{"line/of those who have gone is forgotten", queuesOnly, lineForgotten},
		{"line/a try does not overtake", queuesOnly, lineTry},
		{"line/the dead are passed", queuesOnly, lineDead},
		{"line/who gives up passes the turn on", queuesOnly, lineGivenUp},
		{"line/who gives up leaves the place to the next of the process", queuesOnly, linePassed},
		{"line/without it the lock is had all the same", queuesOnly, lineBroken},
		{"line/answers about it are lost", queuesOnly, lineUnanswered},
		{"line/what is said of it is repeated", queuesOnly, lineRepeated},
	}
}

// lineContended is also about what those who wait are told of as the owner: of a reader the phase.
func lineContended(e *env) {
	modes := []strategies.Mode{strategies.Exclusive}
	if e.features.Shared {
		modes = append(modes, strategies.Shared)
	}

	for i, mode := range modes {
		e.name += fmt.Sprint("/", i)

		for _, waits := range []bool{false, true} {
			request := e.request()
			request.Mode = mode
			grant := e.grant(e.Strategy, request)

			if waits {
				waiter := e.someone()
				e.enqueue(waiter, time.Minute)

				owner := cmp.Or(grant.Phase, request.Owner)
				if all, err := e.queuer(e.Other).Waiters(e.ctx(), strategies.WaiterFilter{Name: e.name}); err != nil || len(all) != 1 || all[0].Owner != owner {
					e.Errorf("Waiters() = %+v, %v, want one who waits for the grant of %q", all, err, owner)
				}
			}

			contended, err := strategies.ReleaseOne(e.ctx(), e.Strategy, grant.Grant)
			if contended != waits || err != nil {
				e.Errorf("Release() in mode %d says that others wait: %t, %v, want %t", mode, contended, err, waits)
			}
		}
	}
}

// tries is how often the order may be another one in a row: on a machine that is so busy
// that places expire.
const tries = 3

// Each process gets the lock when all who came before it have had it.
func lineInOrder(e *env) {
	const waiters = 4

	var order []int

	for range tries {
		e.name += "/again"

		if order = e.order(waiters); slices.IsSorted(order) {
			return
		}
	}

	e.Errorf("waiters had the lock in the order %v, want the order of arrival", order)
}

// order lets so many processes begin to wait one after the other, and returns in which
// order they have the lock.
func (e *env) order(waiters int) []int {
	lock := e.acquire(e.a)
	served := make(chan int, waiters)
	done := make(chan struct{}, waiters)

	for i := range waiters {
		l := e.locker(e.Other)

		go func() {
			defer func() { done <- struct{}{} }()

			lock, err := l.Acquire(e.ctx(), e.name)
			if err != nil {
				e.Errorf("Acquire() = %v, want the lock", err)

				return
			}

			served <- i

			e.release(lock)
		}()

		e.waiters("one more waits", i+1)
	}

	e.release(lock)

	for range waiters {
		<-done
	}

	close(served)
	e.nobodyWaits("after all had it")

	var order []int
	for i := range served {
		order = append(order, i)
	}

	return order
}

// someone is a waiter of a process that does nothing but wait.
func (e *env) someone() strategies.Waiter {
	request := e.request()

	return strategies.Waiter{Name: e.name, Process: "p" + request.Owner, ID: "w" + request.Owner, Holder: request.Holder}
}

func (e *env) enqueue(w strategies.Waiter, ttl time.Duration) (taken bool) {
	e.Helper()

	taken, err := single.Enqueue(e.ctx(), e.queuer(e.Strategy), w, ttl)
	if err != nil {
		e.Fatalf("Enqueue() = %v, want nil", err)
	}

	return taken
}

func (e *env) stand(process string) []strategies.Standing {
	e.Helper()

	all, err := e.queuer(e.Other).Stand(e.ctx(), process, 0)
	if err != nil {
		e.Fatalf("Stand() = %v, want nil", err)
	}

	return all
}

// newcomer is a request of somebody who has not been in line.
func (e *env) newcomer() strategies.Request {
	r := e.request()
	r.First = false

	return r
}

// kept is the HeldError of a newcomer for whom the name is not.
func (e *env) kept(what string) *strategies.HeldError {
	e.Helper()

	held := new(strategies.HeldError)

	e.poll(what+", a newcomer is refused", func() error {
		grant, err := single.TryAcquire(e.ctx(), e.Other, e.newcomer())
		if err == nil {
			_ = grant.Release(e.ctx())

			return errors.New("it is granted")
		}

		if !errors.As(err, &held) || held.Line == 0 || held.Remaining > 0 {
			return err
		}

		return nil
	})

	return held
}

func lineKept(e *env) {
	first := e.grant(e.Strategy, e.newcomer())
	waiter := e.someone()
	e.enqueue(waiter, lease)

	e.releaseGrant(first)

	_ = e.kept("While somebody waits")

	turn := e.request()
	turn.Process, turn.Wait = waiter.Process, waiter.ID
	second := e.grant(e.Strategy, turn)
	e.grow("the wait", first.Token, second.Token)

	// It is in nobody's way any more, whether or not it is still in the line.
	other := e.someone()
	e.enqueue(other, lease)

	if s := e.stand(other.Process); len(s) != 1 || s[0].Ahead != 0 {
		e.Errorf("Stand() behind a waiter that was granted the name = %+v, want none ahead", s)
	}

	e.releaseGrant(second)
}

func lineStandings(e *env) {
	first, second := e.someone(), e.someone()
	second.Process = first.Process
	second.Name += "/2"
	third, behind := e.someone(), e.someone()
	behind.Process, behind.Behind = third.Process, true

	grant := e.grant(e.Strategy, e.newcomer())

	if !e.enqueue(first, lease) && e.Strategy.Features().LeavesLine {
		e.Error("Enqueue() for a name that is held = false, want true")
	}

	e.enqueue(second, lease)
	e.enqueue(behind, lease)
	e.enqueue(third, lease/2)

	for _, s := range e.stand(first.Process) {
		switch {
		case s.Name == first.Name && s.ID == first.ID && s.Ahead == 0 && s.Taken > 0 && !s.Alone && s.Line != 0:
		case s.Name == second.Name && s.ID == second.ID && s.Ahead == 0 && s.Taken == 0 && s.Alone:
		default:
			e.Errorf("Stand() = %+v, want the first of two, and one alone whose name is free", s)
		}
	}

	standings := e.stand(third.Process)
	if len(standings) != 1 {
		e.Fatalf("Stand() = %+v, want the one that is not behind", standings)
	}

	if s := standings[0]; s.ID != third.ID || s.Ahead != 1 || s.Life <= 0 || s.Life > lease || s.Taken <= 0 || s.Taken > lease || s.Alone || s.Line == 0 {
		e.Errorf("Stand() = %+v, want one ahead, and how long it and the holder last", s)
	}

	// One that was behind goes to the end of the line, and one that was in it keeps its place.
	behind.Behind = false
	e.enqueue(behind, lease)
	e.enqueue(first, lease)

	for _, s := range e.stand(third.Process) {
		if want := map[string]int{third.ID: 1, behind.ID: 2}[s.ID]; s.Ahead != want {
			e.Errorf("Stand() = %+v, want %d ahead", s, want)
		}
	}

	if s := e.stand(first.Process); len(s) != 2 {
		e.Errorf("Stand() = %+v, want two", s)
	}

	e.releaseGrant(grant)
}

// Several enter the lines of their names as each would alone, and nobody's row lock keeps the others
// from it.
func lineTogether(e *env) {
	together := func(waiters ...strategies.Waiter) (taken []bool, errs []error) {
		e.within(e.harness.TryWithin, "Enqueue() of several", func() { taken, errs = e.queuer(e.Strategy).Enqueue(e.ctx(), waiters, lease) })

		return taken, errs
	}

	before, held, free := e.someone(), e.someone(), e.someone()
	held.Holding = []string{before.ID, free.ID}
	free.Process, free.Name = held.Process, e.name+"/it's free: \"ü\" {\\}"

	request := e.newcomer()
	request.Name = free.Name

	e.releaseGrant(e.grant(e.Strategy, request))

	grant := e.grant(e.Strategy, e.newcomer())
	e.enqueue(before, lease)

	// The second time they are there.
	for range 2 {
		if taken, errs := together(held, free); !taken[0] || taken[1] || errs[0] != nil || errs[1] != nil {
			e.Errorf("Enqueue() for a name that is held and one that is free = %t, %v, want true and false", taken, errs)
		}

		for _, s := range e.stand(held.Process) {
			switch {
			case s.Name == held.Name && s.ID == held.ID && s.Ahead == 1 && s.Taken > 0 && !s.Alone && s.Line != 0:
			case s.Name == free.Name && s.ID == free.ID && s.Ahead == 0 && s.Taken == 0 && s.Line != 0:
			default:
				e.Errorf("Stand() = %+v, want one who has one ahead, and one whose name is free", s)
			}
		}
	}

	if all, err := e.queuer(e.Other).Waiters(e.ctx(), strategies.WaiterFilter{Name: held.Name, Holding: true}); err != nil ||
		len(all) != 1 || all[0].Holder != held.Holder || !slices.Equal(all[0].Holding, held.Holding) {
		e.Errorf("Waiters() = %+v, %v, want what Enqueue was told: %+v", all, err, held)
	}

	if e.LockRow != nil && !e.harness.GuardBlocksRenewal {
		again, other := e.someone(), e.someone()
		again.Name, other.Process = free.Name, again.Process
		unlock := e.LockRow(e.T, free.Name)

		if _, errs := together(again, other); errs[0] != nil && !errors.Is(errs[0], strategies.ErrNotBatched) {
			e.Errorf("Enqueue() beside a locked row = %v, want nil or ErrNotBatched", errs[0])
		}

		unlock()
		e.leave(again)
		e.leave(other)
	}

	for _, s := range e.leave(held, free) {
		e.Errorf("Stand() after Leave = %+v, want nobody", s)
	}

	e.releaseGrant(grant)

	e.leave(before)
}

// leave has waiters of one process leave their lines, and returns who of it is left.
func (e *env) leave(waiters ...strategies.Waiter) []strategies.Standing {
	e.Helper()

	ids := make([]string, len(waiters))
	for i, w := range waiters {
		ids[i] = w.ID
	}

	if err := e.queuer(e.Strategy).Leave(e.ctx(), waiters[0].Process, ids); err != nil {
		e.Fatalf("Leave() = %v, want nil", err)
	}

	return e.stand(waiters[0].Process)
}

// Who finds a name kept for nobody has it, and the next one pays nothing.
func lineForgotten(e *env) {
	// Where a commit is dear the line is remembered for some seconds.
	const remembered = 5500 * time.Millisecond

	waiter := e.someone()
	grant := e.grant(e.Strategy, e.newcomer())
	e.enqueue(waiter, lease)

	e.releaseGrant(grant)

	e.leave(waiter)

	held := e.kept("After the only waiter left")

	if !e.Strategy.Features().LeavesLine {
		e.elapse(remembered)
	}

	alone := e.request()
	alone.Line = held.Line

	e.releaseGrant(e.grant(e.Strategy, alone))

	e.releaseGrant(e.grant(e.Other, e.newcomer()))

	// A wait that began since is not forgotten.
	grant = e.grant(e.Strategy, e.newcomer())
	e.enqueue(waiter, lease)

	e.releaseGrant(grant)

	alone = e.request()
	alone.Line = held.Line

	e.releaseGrant(e.grant(e.Strategy, alone))

	_ = e.kept("While another waits")
}

func lineTry(e *env) {
	waiter := e.someone()
	lock := e.acquire(e.a)
	e.enqueue(waiter, lease)
	e.release(lock)

	_, err := e.b.TryAcquire(e.ctx(), e.name)
	if !errors.Is(err, sqllock.ErrNotAcquired) || errors.Is(err, sqllock.ErrUnreachable) {
		e.Errorf("TryAcquire() while another waits = %v, want ErrNotAcquired", err)
	} else if !strings.Contains(err.Error(), "not held, and goes to the first in line") {
		e.Errorf("TryAcquire() while another waits = %q, want that it says so", err)
	}

	e.leave(waiter)

	lock, err = e.b.TryAcquire(e.ctx(), e.name)
	if err != nil {
		e.Fatalf("TryAcquire() when nobody waits any more = %v, want the lock", err)
	}

	e.release(lock)
}

// Those who died are believed to wait until their time is over, all at once.
func lineDead(e *env) {
	const (
		believed = 500 * time.Millisecond
		soon     = 3 * time.Second
	)

	lock := e.acquire(e.a)

	for range 3 {
		e.enqueue(e.someone(), believed)
	}

	locks := e.waiting(e.b)
	e.waiters("one behind the dead", 1)

	released := time.Now()
	e.release(lock)
	e.release(e.get(locks))

	if took := time.Since(released); e.late(took, soon) {
		e.Errorf("the lock was had %s after its release, behind waiters that were forgotten after %s", took, believed)
	}
}

// Whether or not it was its turn: nobody waits until it is believed to be dead.
func lineGivenUp(e *env) {
	const soon = 2500 * time.Millisecond // less than for how long one who has died is believed to wait

	for _, first := range []string{"the wait ends", "the lock is released"} {
		lock := e.acquire(e.a)
		ctx, cancel := context.WithCancel(e.ctx())
		ended := make(chan *sqllock.Lock, 1)

		go func() {
			lock, _ := e.b.Acquire(ctx, e.name)
			ended <- lock
		}()

		e.waiters("the first waits", 1)

		locks := e.waiting(e.locker(e.Other))
		e.waiters("the second waits", 2)

		if first == "the wait ends" {
			cancel()
		}

		released := time.Now()
		e.release(lock)
		cancel()

		if lock := <-ended; lock != nil {
			e.release(lock)
		}

		e.release(e.get(locks))

		if took := time.Since(released); e.late(took, soon) {
			e.Errorf("first %s: the second had the lock %s after its release, want within %s", first, took, soon)
		}
	}
}

// Those of one process have one place, however many of them give up.
func linePassed(e *env) {
	lock := e.acquire(e.a)
	first := e.locker(e.Other)
	ctx, cancel := context.WithCancel(e.ctx())
	ended := make(chan error, 1)

	go func() {
		_, err := first.Acquire(ctx, e.name)
		ended <- err
	}()

	e.waiters("the first waits", 1)

	next := e.waiting(first)
	e.stillWaiting(next, "another holds it")

	later := e.waiting(e.b)
	e.waiters("one of another process waits", 2)

	cancel()

	if err := <-ended; err == nil {
		e.Error("Acquire() whose context ended = nil, want an error")
	}

	e.release(lock)

	select {
	case lock = <-next:
	case lock = <-later:
		e.Error("who came later had the lock first, when one of the process before gave up")

		later = next
	}

	if lock == nil {
		e.FailNow()
	}

	e.release(lock)
	e.release(e.get(later))
	e.nobodyWaits("after both had it")
}

func lineBroken(e *env) {
	for _, operation := range []string{"enqueue", "stand", "keep", "leave"} {
		e.script.Fail(operation, 10000, Before, nil)
	}

	lock := e.acquire(e.b)
	locks := e.waiting(e.a)
	e.stillWaiting(locks, "another holds it")
	e.release(lock)
	e.release(e.get(locks))
}

// aboutLine are the operations that have to do with the line. A name that the strategy
// does not send is nothing to it.
func (e *env) aboutLine() []string {
	operations := []string{"enqueue", "stand", "keep", "leave"}

	if e.Faulty != nil {
		operations = append(operations, "wait", "first", "call")
	}

	return operations
}

func lineUnanswered(e *env) {
	for _, operation := range append(e.aboutLine(), e.op("acquire")) {
		for _, when := range []When{Before, After} {
			e.twoInLine(fmt.Sprintf("%s failed (%d)", operation, when), func() { e.script.Fail(operation, 1, when, nil) }, operation == "keep")
		}
	}
}

func lineRepeated(e *env) {
	operations := e.aboutLine()

	// A session that gets its key in the same statement would have it twice, see batch/every statement twice.
	if acquire := e.op("acquire"); !e.features.ConnectionHeld || acquire != e.op("attempt") {
		operations = append(operations, acquire)
	}

	for _, operation := range operations {
		e.script.Twice(operation)
	}

	e.twoInLine("all was sent twice", func() {}, true)
}

// twoInLine has the one whom a fault strikes wait, and then another. They have the lock in
// this order, and nobody is left in line.
func (e *env) twoInLine(after string, fault func(), kept bool) {
	for range tries {
		e.name += "/again"
		if e.firstInLineIsFirst(after, fault, kept) {
			return
		}
	}

	e.Errorf("after %s the second had the lock before the first, %d times", after, tries)
}

func (e *env) firstInLineIsFirst(after string, fault func(), kept bool) (first bool) {
	lock := e.acquire(e.b)

	fault()

	one := e.waiting(e.a)
	e.waiters("the first waits, after "+after, 1)

	other := e.locker(e.Other)
	second := e.waiting(other)
	e.waiters("the second waits, after "+after, 2)

	if kept {
		e.elapse(1200 * time.Millisecond) // they say every second that they wait
	}

	e.release(lock)

	select {
	case lock = <-one:
		first = true
	case lock = <-second:
		second = one
	}

	if lock == nil {
		e.FailNow()
	}

	e.release(lock)
	e.release(e.get(second))
	e.nobodyWaits("after " + after)

	return first
}
