package sqllocktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// lineCases are about the order in which those who wait get a lock.
func lineCases() []testCase {
	return []testCase{
		{"line/in the order of arrival", queuesOnly, lineInOrder},
		{"line/nobody is granted what is kept for others", queuesOnly, lineKept},
		{"line/says how its waiters stand", queuesOnly, lineStandings},
		{"line/of those who have gone is forgotten", queuesOnly, lineForgotten},
		{"line/a try does not overtake", queuesOnly, lineTry},
		{"line/the dead are passed", queuesOnly, lineDead},
		{"line/who gives up passes the turn on", queuesOnly, lineGivenUp},
		{"line/without it the lock is had all the same", queuesOnly, lineBroken},
	}
}

// Each process gets the lock when all who came before it have had it.
func lineInOrder(e *env) {
	const waiters = 4

	lock := e.acquire(e.a)
	order := make(chan int, waiters)
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

			order <- i

			if err := lock.Release(e.ctx()); err != nil {
				e.Errorf("Release() = %v, want nil", err)
			}
		}()

		e.waiters("one more waits", i+1)
	}

	e.release(lock)

	for range waiters {
		<-done
	}

	close(order)

	want := 0

	for got := range order {
		if got != want {
			e.Errorf("waiter %d has the lock when it is the turn of %d", got, want)
		}

		want++
	}

	e.nobodyWaits("after all had it")
}

// someone is a waiter of a process that does nothing but wait.
func (e *env) someone() strategies.Waiter {
	request := e.request()

	return strategies.Waiter{Name: e.name, Process: "p" + request.Owner, ID: "w" + request.Owner, Holder: request.Holder}
}

func (e *env) enqueue(w strategies.Waiter, ttl time.Duration) (taken bool) {
	e.Helper()

	taken, err := e.queuer(e.Strategy).Enqueue(e.ctx(), w, ttl)
	if err != nil {
		e.Fatalf("Enqueue() = %v, want nil", err)
	}

	return taken
}

func (e *env) stand(process string) []strategies.Standing {
	e.Helper()

	all, err := e.queuer(e.Other).Stand(e.ctx(), process)
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
		grant, err := e.Other.TryAcquire(e.ctx(), e.newcomer())
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

	if err := first.Release(e.ctx()); err != nil {
		e.Fatalf("Release() = %v, want nil", err)
	}

	_ = e.kept("While somebody waits")

	turn := e.request()
	turn.Process, turn.Wait = waiter.Process, waiter.ID
	second := e.grant(e.Strategy, turn)
	e.grow("the wait", first.Token(), second.Token())

	// It is in nobody's way any more, whether or not it is still in the line.
	other := e.someone()
	e.enqueue(other, lease)

	if s := e.stand(other.Process); len(s) != 1 || s[0].Ahead != 0 {
		e.Errorf("Stand() behind a waiter that was granted the name = %+v, want none ahead", s)
	}

	if err := second.Release(e.ctx()); err != nil {
		e.Errorf("Release() = %v, want nil", err)
	}
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

	if err := grant.Release(e.ctx()); err != nil {
		e.Errorf("Release() = %v, want nil", err)
	}
}

// Who finds a name kept for nobody has it, and the next one pays nothing.
func lineForgotten(e *env) {
	// Where a commit is dear the line is remembered for some seconds.
	const remembered = 5500 * time.Millisecond

	waiter := e.someone()
	grant := e.grant(e.Strategy, e.newcomer())
	e.enqueue(waiter, lease)

	if err := grant.Release(e.ctx()); err != nil {
		e.Fatalf("Release() = %v, want nil", err)
	}

	if err := e.queuer(e.Strategy).Leave(e.ctx(), waiter); err != nil {
		e.Fatalf("Leave() = %v, want nil", err)
	}

	held := e.kept("After the only waiter left")

	if !e.Strategy.Features().LeavesLine {
		e.elapse(remembered)
	}

	alone := e.request()
	alone.Line = held.Line

	if err := e.grant(e.Strategy, alone).Release(e.ctx()); err != nil {
		e.Fatalf("Release() = %v, want nil", err)
	}

	if err := e.grant(e.Other, e.newcomer()).Release(e.ctx()); err != nil {
		e.Fatalf("Release() = %v, want nil", err)
	}

	// A wait that began since is not forgotten.
	grant = e.grant(e.Strategy, e.newcomer())
	e.enqueue(waiter, lease)

	if err := grant.Release(e.ctx()); err != nil {
		e.Fatalf("Release() = %v, want nil", err)
	}

	alone = e.request()
	alone.Line = held.Line

	if err := e.grant(e.Strategy, alone).Release(e.ctx()); err != nil {
		e.Fatalf("Release() = %v, want nil", err)
	}

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
	} else if !strings.Contains(err.Error(), "kept for those who wait") {
		e.Errorf("TryAcquire() while another waits = %q, want that it says so", err)
	}

	if err := e.queuer(e.Strategy).Leave(e.ctx(), waiter); err != nil {
		e.Fatalf("Leave() = %v, want nil", err)
	}

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

	if took := time.Since(released); took > soon {
		e.Errorf("the lock was had %s after its release, behind waiters that were forgotten after %s", took, believed)
	}
}

// Whether or not it was its turn: nobody waits until it is believed to be dead.
func lineGivenUp(e *env) {
	const soon = 1500 * time.Millisecond

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

		if took := time.Since(released); took > soon {
			e.Errorf("first %s: the second had the lock %s after its release, want within %s", first, took, soon)
		}
	}
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
