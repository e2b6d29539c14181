package sqllocktest

import (
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

// waiterCases are about who waits, as the database knows it.
func waiterCases() []testCase {
	return []testCase{
		{"waiters/in the order of arrival", queuesOnly, waitersInOrder},
		{"waiters/say each its own", queuesOnly, waitersSay},
		{"waiters/of a process are kept and forgotten together", queuesOnly, waitersKept},
		{"waiters/are listed while they wait", queuesOnly, waitersListed},
		{"waiters/leave however the wait ends", queuesOnly, waitersLeave},
		{"waiters/that the database forgot come back", queuesOnly, waitersForgotten},
		{"waiters/a list that cannot be written is left alone", queuesOnly, waitersRefused},
		{"waiters/a deadlock ends the youngest wait", queuesOnly, waitersDeadlock},
		{"waiters/a wait that will end is no deadlock", queuesOnly, waitersNoDeadlock},
	}
}

func queuesOnly(e *env) string {
	if _, ok := e.Strategy.(strategies.Queuer); !ok {
		return "the strategy has no Queuer"
	}

	return ""
}

func (e *env) queuer(s strategies.Strategy) strategies.Queuer {
	q, ok := s.(strategies.Queuer)
	if !ok {
		e.Fatal("the strategy has no Queuer")
	}

	return q
}

func waitersInOrder(e *env) {
	first, second := e.queuer(e.Strategy), e.queuer(e.Other)
	request := e.request()
	lock := e.acquire(e.a)

	a := strategies.Waiter{Name: e.name, Process: "a" + request.Owner, ID: "z", Holder: request.Holder, Holding: []string{"one", "two"}}
	b := strategies.Waiter{Name: e.name, Process: "b" + request.Owner, ID: "y", Holder: strategies.Holder{Host: "é", PID: 7, Label: "你'\"", Metadata: `{"a":1}`}}
	c := strategies.Waiter{Name: e.name + "/other", Process: a.Process, ID: "x"}

	for i, w := range []strategies.Waiter{a, b, c, a} { // a again: it keeps its place
		if _, err := single.Enqueue(e.ctx(), []strategies.Queuer{first, second, first, second}[i], w, lease); err != nil {
			e.Fatalf("Enqueue(%q) = %v", w.ID, err)
		}

		e.elapse(2 * time.Millisecond) // SQLite's clock has milliseconds
	}

	for _, test := range []struct {
		filter strategies.WaiterFilter
		want   string
	}{
		{strategies.WaiterFilter{Name: e.name}, "z y"},
		{strategies.WaiterFilter{Prefix: e.name}, "z y x"},
		{strategies.WaiterFilter{Prefix: e.name, Limit: 1}, "z"},
		{strategies.WaiterFilter{Prefix: e.name + "/"}, "x"},
		{strategies.WaiterFilter{Prefix: e.name, Holding: true}, "z"},
		{strategies.WaiterFilter{Name: e.name + "/"}, ""},
	} {
		got, err := second.Waiters(e.ctx(), test.filter)
		if err != nil {
			e.Fatalf("Waiters(%+v) = %v", test.filter, err)
		}

		if ids := ids(got); ids != test.want {
			e.Errorf("Waiters(%+v) = %q, want %q", test.filter, ids, test.want)
		}
	}

	got, err := second.Waiters(e.ctx(), strategies.WaiterFilter{Name: e.name})
	if err != nil || len(got) != 2 {
		e.Fatalf("Waiters() = %+v, %v, want two", got, err)
	}

	owner := e.status().Owner

	for i, w := range []strategies.Waiter{a, b} {
		g := got[i]
		if g.Name != w.Name || g.Process != w.Process || g.Holder != w.Holder || !slices.Equal(g.Holding, w.Holding) {
			e.Errorf("Waiters()[%d] = %+v, want what Enqueue was given: %+v", i, g, w)
		}

		if g.Owner == "" || g.Owner != owner {
			e.Errorf("Waiters()[%d].Owner = %q, want the holder's: %q", i, g.Owner, owner)
		}

		if g.Waited < 0 || g.Waited > e.patience {
			e.Errorf("Waiters()[%d].Waited = %s, want a moment", i, g.Waited)
		}
	}

	if got[0].Ticket >= got[1].Ticket {
		e.Errorf("tickets %d and %d do not grow", got[0].Ticket, got[1].Ticket)
	}

	e.release(lock)

	for _, w := range []strategies.Waiter{b, a, c, a} { // a again: nothing is left
		if err := first.Leave(e.ctx(), w.Process, []string{w.ID}); err != nil {
			e.Errorf("Leave(%q) = %v", w.ID, err)
		}
	}

	e.nobodyWaits("after Leave")
}

func ids(waiters []strategies.Waiter) string {
	var ids []string
	for _, w := range waiters {
		ids = append(ids, w.ID)
	}

	return strings.Join(ids, " ")
}

// nobodyWaits fails unless soon nobody waits for the names of the case.
func (e *env) nobodyWaits(when string) {
	e.Helper()
	e.waiters(when, 0)
}

// waiters waits until so many wait for the names of the case, and returns them.
func (e *env) waiters(when string, n int) (waiters []sqllock.Waiter) {
	e.Helper()

	e.poll(when, func() (err error) {
		waiters, err = e.b.Waiters(e.ctx(), sqllock.WaiterFilter{Prefix: e.name})
		if err == nil && len(waiters) != n {
			err = errors.New("the waiters are not as many as expected")
		}

		return err
	})

	return waiters
}

// Several enter their lines at a time, who say different things of themselves or all the same. Some of it has a meaning where values
// are written next to each other.
func waitersSay(e *env) {
	sayings := []string{"", "NULL", "{}", `""`, `a,"b"\`, "ü'", "null", `\N`}
	queuer, process := e.queuer(e.Strategy), "p"+e.request().Owner

	for _, differ := range []bool{true, false} {
		all := make([]strategies.Waiter, len(sayings))

		for i := range all {
			w := strategies.Waiter{
				Name: fmt.Sprintf("%s/%d", e.name, i), Process: process, ID: fmt.Sprint("w", i, differ), Slots: 1,
				Holder: strategies.Holder{Host: "host", PID: 1, Label: sayings[4], Metadata: sayings[5]}, Waited: time.Minute, Shared: true,
			}

			if differ {
				w.Holder = strategies.Holder{Host: fmt.Sprint("host ", i), PID: i, Label: sayings[i], Metadata: sayings[len(sayings)-1-i]}
				w.Waited, w.Shared = time.Duration(i)*time.Minute, i%2 == 0
			}

			all[i] = w
		}

		_, errs := queuer.Enqueue(e.ctx(), all, lease)
		for i, err := range errs {
			if errors.Is(err, strategies.ErrNotBatched) {
				_, err = single.Enqueue(e.ctx(), queuer, all[i], lease)
			}

			if err != nil {
				e.Fatalf("Enqueue(%q) = %v", all[i].ID, err)
			}
		}

		for _, w := range all {
			got, err := e.queuer(e.Other).Waiters(e.ctx(), strategies.WaiterFilter{Name: w.Name})
			if err != nil || len(got) != 1 {
				e.Fatalf("Waiters(%q) = %+v, %v, want one", w.Name, got, err)
			}

			if g := got[0]; g.ID != w.ID || g.Holder != w.Holder || g.Shared != w.Shared || g.Waited < w.Waited || g.Waited > w.Waited+e.patience {
				e.Errorf("Waiters() = %+v, want what Enqueue was given: %+v", g, w)
			}
		}

		for _, s := range e.leave(all...) {
			e.Errorf("Stand() after Leave = %+v, want nobody", s)
		}
	}
}

// A process says in one statement that all of its waiters are there. Those of one that
// says so no more are forgotten, and removed by the next who looks after the tables.
func waitersKept(e *env) {
	const moment = 300 * time.Millisecond

	q, owner := e.queuer(e.Strategy), e.request().Owner
	living, standing, dead := "living"+owner, "standing"+owner, "dead"+owner

	for _, w := range []strategies.Waiter{
		{Name: e.name, Process: standing, ID: "1"},
		{Name: e.name, Process: living, ID: "1"},
		{Name: e.name + "/other", Process: living, ID: "2"},
		{Name: e.name, Process: dead, ID: "1"},
	} {
		if _, err := single.Enqueue(e.ctx(), q, w, moment); err != nil {
			e.Fatalf("Enqueue() = %v", err)
		}
	}

	if kept, err := q.Keep(e.ctx(), living, lease); kept != 2 || err != nil {
		e.Errorf("Keep() = %d, %v, want 2", kept, err)
	}

	if kept, err := q.Keep(e.ctx(), "nobody"+owner, lease); kept != 0 || err != nil {
		e.Errorf("Keep() of nobody = %d, %v, want 0", kept, err)
	}

	// Who looks how it stands can say so in the same call.
	if all, err := q.Stand(e.ctx(), standing, lease); len(all) != 1 || err != nil {
		e.Errorf("Stand() = %+v, %v, want one", all, err)
	}

	left := e.waiters("the dead are forgotten", 3)
	if slices.ContainsFunc(left, func(w strategies.Waiter) bool { return w.Process == dead }) {
		e.Errorf("Waiters() = %+v, want those who were kept", left)
	}

	if err := q.Leave(e.ctx(), standing, []string{"1"}); err != nil {
		e.Errorf("Leave() = %v, want nil", err)
	}

	if err := q.Leave(e.ctx(), living, []string{"1", "2"}); err != nil {
		e.Errorf("Leave() = %v, want nil", err)
	}

	e.nobodyWaits("after a process has left")
}

func waitersListed(e *env) {
	lock := e.acquire(e.a)
	first := e.waiting(e.b, sqllock.WithLabel("first"))
	e.waiters("the first waits", 1)

	third := e.locker(e.Other)
	second := e.waiting(third, sqllock.WithLabel("second"))

	waiters := e.waiters("both wait", 2)
	if len(waiters) == 2 && (waiters[0].Holder.Label != "first" || waiters[1].Holder.Label != "second" || waiters[0].Name != e.name) {
		e.Errorf("Waiters() = %+v, want the first and the second", waiters)
	}

	for _, w := range waiters {
		if w.HoldsOthers() || w.Waited < 0 || w.Holder.PID == 0 {
			e.Errorf("Waiters() has %+v, want who it is and how long, and no other locks", w)
		}
	}

	e.release(lock)

	select {
	case lock := <-first:
		e.release(lock)
		e.release(e.get(second))
	case lock := <-second:
		e.release(lock)
		e.release(e.get(first))
	}

	e.nobodyWaits("after all had it")
}

func waitersLeave(e *env) {
	lock := e.acquire(e.a)

	for what, end := range map[string]func(cancel context.CancelFunc, l *sqllock.Locker){
		"cancelled": func(cancel context.CancelFunc, _ *sqllock.Locker) { cancel() },
		"closed": func(_ context.CancelFunc, l *sqllock.Locker) {
			if err := l.Close(e.ctx()); err != nil {
				e.Errorf("Close() = %v", err)
			}
		},
	} {
		ctx, cancel := context.WithCancel(e.ctx())
		locker := e.locker(e.Other)
		ended := make(chan error, 1)

		go func() {
			_, err := locker.Acquire(ctx, e.name)
			ended <- err
		}()

		e.waiters("one waits, to be "+what, 1)
		end(cancel, locker)

		if err := <-ended; err == nil {
			e.Errorf("Acquire() that was %s = nil, want an error", what)
		}

		e.nobodyWaits("after the wait was " + what)
		cancel()
	}

	_, err := e.b.Acquire(e.ctx(), e.name, sqllock.WithMaxWait(3*time.Second))
	if !errors.Is(err, sqllock.ErrNotAcquired) {
		e.Errorf("Acquire() with a limit = %v, want ErrNotAcquired", err)
	}

	e.nobodyWaits("after the limit")
	e.release(lock)
}

func waitersForgotten(e *env) {
	lock := e.acquire(e.a)
	next := e.waiting(e.b)
	e.waiters("one waits", 1)

	listed, err := e.queuer(e.Strategy).Waiters(e.ctx(), strategies.WaiterFilter{Name: e.name})
	if err != nil || len(listed) != 1 {
		e.Fatalf("Waiters() = %+v, %v, want one", listed, err)
	}

	if err := e.queuer(e.Strategy).Leave(e.ctx(), listed[0].Process, []string{listed[0].ID}); err != nil {
		e.Fatalf("Leave() = %v", err)
	}

	e.waiters("it is there again", 1)
	e.release(lock)
	e.release(e.get(next))
	e.nobodyWaits("after it had the lock")
}

// Whatever keeps the list from being written must not use up the pool's connections. The
// wait goes on without it.
func waitersRefused(e *env) {
	const (
		long = 4 * time.Second
		most = 11 // of at least 16 that are as far apart as the first two; it begins anew when a connection to listen on was had
	)

	lock := e.acquire(e.b)
	e.script.Fail("enqueue", 100, Before, nil)

	next := e.waiting(e.a)
	e.elapse(long)

	if n := e.script.Count("enqueue"); n < 1 || n > most {
		e.Errorf("it was tried %d times in %s to note a wait, want it more and more rarely", n, long)
	}

	e.script.Reset()
	e.release(lock)
	e.release(e.get(next))
}

// nested acquires a second name under the context of a lock, and gives what came of it.
func (e *env) nested(l *sqllock.Locker, outer *sqllock.Lock, name string) <-chan error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(outer.Context(), e.patience)

	go func() {
		defer cancel()

		lock, err := l.Acquire(ctx, name)
		if err == nil {
			err = lock.Release(ctx)
		}

		ended <- err
	}()

	return ended
}

// Each of three holds what the one before waits for. The locks of connection-held
// strategies are held by connections, so that few suffice.
func waitersDeadlock(e *env) {
	names := []string{e.name, e.name + "/2", e.name + "/3"}
	lockers := []*sqllock.Locker{e.a, e.b, e.locker(e.Other)}
	locks := make([]*sqllock.Lock, len(names))
	ends := make([]<-chan error, len(names))

	for i, name := range names {
		locks[i] = e.acquireName(lockers[i], name, sqllock.WithLabel("holder of "+name))
	}

	for i := range names {
		ends[i] = e.nested(lockers[i], locks[i], names[(i+1)%len(names)])
		e.waiters("the next waits", i+1)

		// Whose first attempt takes long is told of before it is in line, and younger when it is.
		e.poll("the next is in line", func() error {
			all, err := e.queuer(e.Other).Waiters(e.ctx(), strategies.WaiterFilter{Prefix: e.name})
			if slices.ContainsFunc(all, func(w strategies.Waiter) bool { return w.Behind }) {
				return errors.New("one is not in line yet")
			}

			return err
		})
	}

	var deadlock *sqllock.DeadlockError

	err := <-ends[2]

	switch {
	case !errors.Is(err, sqllock.ErrDeadlock), !errors.Is(err, sqllock.ErrNotAcquired), !errors.As(err, &deadlock):
		e.Errorf("Acquire() in a deadlock = %v, want a *DeadlockError", err)
	case len(deadlock.Cycle) != len(names) || deadlock.Name != names[0] || deadlock.Cycle[0].Name != names[0] || deadlock.Cycle[1].Name != names[1]:
		e.Errorf("DeadlockError = %+v, want the three names, its own first", deadlock)
	}

	for _, name := range names {
		if err != nil && !strings.Contains(err.Error(), strings.TrimPrefix(name, e.name)) {
			e.Errorf("the error does not tell of %q: %v", name, err)
		}
	}

	// The others go on when the youngest gives way.
	e.release(locks[2])

	if err := <-ends[1]; err != nil {
		e.Errorf("Acquire() of the second = %v, want the lock", err)
	}

	e.release(locks[1])

	if err := <-ends[0]; err != nil {
		e.Errorf("Acquire() of the first = %v, want the lock", err)
	}

	e.release(locks[0])
	e.nobodyWaits("after the deadlock")
}

// A chain is no cycle, and neither is a lock that ends with its lease.
func waitersNoDeadlock(e *env) {
	const wait = 4 * time.Second

	other := e.name + "/other"
	first := e.acquire(e.a)
	second := e.acquireName(e.b, other, sqllock.WithoutRenewal(), sqllock.WithLease(wait))

	chain := e.nested(e.a, first, other)
	back := e.nested(e.b, second, e.name)

	// The second lock ends with its lease, and its wait with it.
	if err := <-back; errors.Is(err, sqllock.ErrDeadlock) || err == nil {
		e.Errorf("Acquire() under a lock that ended = %v, want an error that is no ErrDeadlock", err)
	}

	if err := <-chain; err != nil {
		e.Errorf("Acquire() of a lock whose holder lets go = %v, want the lock", err)
	}

	e.release(first)
	e.nobodyWaits("at the end")
}
