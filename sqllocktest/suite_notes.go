package sqllocktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func noteCases() []testCase {
	return []testCase{
		{"tick/its job is done once", notesOnly, tickOnce},
		{"tick/a job that failed is done again", notesOnly, tickFailed},
		{"tick/a job whose process died is done again", both(notesOnly, leaseOnly), tickDied},
		{"tick/who waits for the job hears that it was done", notesOnly, tickWaited},
		{"tick/is noted by its owner only", notesOnly, tickOwner},
		{"tick/an answer that was lost", notesOnly, tickUnanswered},
		{"tick/is noted with the commit of a release", both(notesOnly, releaseTxOnly), tickReleaseTx},
		{"tick/completing does not wait for the caller's transaction", notesOnly, tickInTx},
		{"request/the holder is asked, and no successor", notesOnly, requestRelease},
		{"request/watch", notesOnly, requestWatch},
	}
}

func notesOnly(e *env) string {
	if _, ok := e.Strategy.(strategies.Noter); !ok {
		return "the strategy keeps no notes"
	}

	return ""
}

func (e *env) noter(s strategies.Strategy) strategies.Noter {
	e.Helper()

	noter, ok := s.(strategies.Noter)
	if !ok {
		e.Fatalf("%T is no strategies.Noter", s)
	}

	return noter
}

// fireTime is the time of a schedule.
func fireTime() time.Time { return time.Date(2026, 11, 23, 2, 15, 0, 0, time.UTC) }

// done runs a job of a tick, and says whether it ran.
func (e *env) done(l *sqllock.Locker, tick time.Time, result error) (ran bool, err error) {
	e.Helper()

	err = l.TryDo(e.ctx(), e.name, func(context.Context, *sqllock.Lock) error {
		ran = true

		return result
	}, sqllock.WithTick(tick))

	return ran, err
}

// doneOnce fails unless a job of a tick runs, or unless it does not because that of a tick was done.
func (e *env) doneOnce(l *sqllock.Locker, tick, done time.Time) {
	e.Helper()

	ran, err := e.done(l, tick, nil)

	refused := new(sqllock.TickError)

	switch {
	case done.IsZero():
		if !ran || err != nil {
			e.Errorf("the job of %s ran: %t, %v, want true and nil", tick, ran, err)
		}
	case ran || !errors.Is(err, sqllock.ErrTickDone) || errors.Is(err, sqllock.ErrNotAcquired):
		e.Errorf("the job of %s ran: %t, %v, want false and ErrTickDone", tick, ran, err)
	case !errors.As(err, &refused) || refused.Name != e.name || !refused.Tick.Equal(tick) || !refused.Done.Equal(done):
		e.Errorf("the error of a job that was done = %v, want a *TickError of %s and %s", err, tick, done)
	}
}

func tickOnce(e *env) {
	fire := fireTime()
	later := fire.Add(time.Hour)

	e.doneOnce(e.a, fireTime(), time.Time{})
	e.doneOnce(e.b, fireTime(), fireTime())
	e.doneOnce(e.a, fireTime(), fireTime())

	// Without a tick it is a lock as any.
	e.release(e.acquire(e.b))

	e.doneOnce(e.b, later, time.Time{})
	e.doneOnce(e.a, fireTime(), later)
	e.doneOnce(e.a, later.Add(time.Microsecond), time.Time{})

	status, err := e.b.Inspect(e.ctx(), e.name)
	if err != nil || !status.Tick.Equal(later.Add(time.Microsecond)) {
		e.Errorf("Inspect().Tick = %s, %v, want that of the last job", status.Tick, err)
	}
}

func tickFailed(e *env) {
	failure := errors.New("the job failed")

	if ran, err := e.done(e.a, fireTime(), failure); !ran || !errors.Is(err, failure) {
		e.Errorf("a job that fails ran: %t, %v, want its error", ran, err)
	}

	e.doneOnce(e.b, fireTime(), time.Time{})
	e.doneOnce(e.a, fireTime(), fireTime())
}

func tickDied(e *env) {
	request := e.request()
	_ = e.grant(e.Strategy, request)
	e.age(2 * lease)
	e.doneOnce(e.b, fireTime(), time.Time{})

	noted, err := e.noter(e.Strategy).NoteTick(e.ctx(), e.name, request.Owner, fireTime().Add(time.Hour).UnixMicro())
	if noted || err != nil {
		e.Errorf("NoteTick() of one who was followed = %t, %v, want false", noted, err)
	}

	e.doneOnce(e.a, fireTime().Add(time.Hour), time.Time{})
}

func tickWaited(e *env) {
	lock, err := e.a.Acquire(e.ctx(), e.name, sqllock.WithTick(fireTime()))
	if err != nil {
		e.Fatalf("Acquire(WithTick) = %v", err)
	}

	waited := make(chan error, 1)
	ctx := e.ctx()

	go func() {
		late, err := e.b.Acquire(ctx, e.name, sqllock.WithTick(fireTime()))
		if err == nil {
			_ = late.Release(ctx)
		}

		waited <- err
	}()

	if queuesOnly(e) == "" {
		e.inLine(e.name, 1)
	}

	if err := lock.Complete(e.ctx()); err != nil || !lock.Tick().Equal(fireTime()) {
		e.Errorf("Complete() of tick %s = %v, want nil and tick %s", lock.Tick(), err, fireTime())
	}

	e.release(lock)

	if err := <-waited; !errors.Is(err, sqllock.ErrTickDone) {
		e.Errorf("Acquire() behind the job = %v, want ErrTickDone", err)
	}

	if err := lock.Complete(e.ctx()); !errors.Is(err, sqllock.ErrReleased) {
		e.Errorf("Complete() after the release = %v, want ErrReleased", err)
	}

	e.release(e.acquire(e.b)) // it left nothing behind
}

func tickOwner(e *env) {
	noter := e.noter(e.Strategy)
	request := e.request()
	grant := e.grant(e.Strategy, request)

	note := func(owner string, tick int64, want bool) {
		e.Helper()

		if noted, err := noter.NoteTick(e.ctx(), e.name, owner, tick); noted != want || err != nil {
			e.Errorf("NoteTick(%q, %d) = %t, %v, want %t", owner, tick, noted, err, want)
		}
	}

	note("another", 3, false)
	note(request.Owner, 2, true)
	note(request.Owner, 2, true) // again, because the answer was lost
	note(request.Owner, 1, true)

	notes, err := e.noter(e.Other).Notes(e.ctx(), e.name)
	if err != nil || notes.Tick != 2 || notes.Owner != request.Owner || notes.Left <= 0 || notes.Left > lease+resolution || notes.Asked != "" {
		e.Errorf("Notes() = %+v, %v, want tick 2 and the owner", notes, err)
	}

	e.releaseGrant(grant)
	note(request.Owner, 4, false)

	notes, err = noter.Notes(e.ctx(), e.name)
	if err != nil || notes != (strategies.Notes{Tick: 2}) {
		e.Errorf("Notes() after the release = %+v, %v, want tick 2 only", notes, err)
	}

	notes, err = noter.Notes(e.ctx(), e.name+" never")
	if err != nil || notes != (strategies.Notes{}) {
		e.Errorf("Notes() of a name that never was = %+v, %v, want none", notes, err)
	}
}

// reapTick: a machine may start late by more than what idle rows are kept for.
func reapTick(e *env) {
	const retention = time.Hour

	tick := time.Now().Truncate(time.Second)

	e.doneOnce(e.a, tick, time.Time{})
	e.age(2 * retention)

	for range 2 {
		if _, err := e.Strategy.Reap(e.ctx(), retention); err != nil {
			e.Fatalf("Reap(%s) = %v, want nil", retention, err)
		}
	}

	e.doneOnce(e.b, tick, tick)
}

func tickUnanswered(e *env) {
	for i, when := range []When{Before, After} {
		tick := fireTime().Add(time.Duration(i) * time.Hour)
		e.script.Fail("tick", 1, when, nil)
		e.doneOnce(e.a, tick, time.Time{})
		e.doneOnce(e.b, tick, tick)
	}
}

// The commit of a transaction that releases the lock notes the tick, and nothing else does.
func tickReleaseTx(e *env) {
	tick := fireTime()

	for _, level := range e.levels() {
		tick = tick.Add(time.Hour)

		job := func(end func(Transaction), complete bool) (err error) {
			return e.a.TryDo(e.ctx(), e.name, func(_ context.Context, lock *sqllock.Lock) error {
				tx := e.begin(level)

				if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
					e.Fatalf("Guard() with isolation %q = %v", level, err)
				}

				if err := lock.ReleaseTx(e.ctx(), tx.Tx); err != nil {
					e.Fatalf("ReleaseTx() with isolation %q = %v", level, err)
				}

				if complete {
					e.promptly("Complete() before the commit", func() error { return lock.Complete(e.ctx()) }, "ReleaseTx")
				}

				end(tx)

				return nil
			}, sqllock.WithTick(tick))
		}

		err := job(e.rollback, false)
		if err == nil || !strings.Contains(err.Error(), "ReleaseTx") || errors.Is(err, sqllock.ErrLost) {
			e.Errorf("TryDo() whose ReleaseTx was rolled back = %v, want an error that says so", err)
		}

		for complete := range 2 {
			tick = tick.Add(time.Minute)

			if err := job(e.commit, complete == 1); err != nil {
				e.Errorf("TryDo() that ends with ReleaseTx with isolation %q = %v, want nil", level, err)
			}

			e.doneOnce(e.b, tick, tick)
		}
	}
}

// A transaction of the caller that guards the lock may have what Complete writes to locked. Where it has, the error says
// what to use.
func tickInTx(e *env) {
	lock, err := e.a.Acquire(e.ctx(), e.name, sqllock.WithTick(fireTime()))
	if err != nil {
		e.Fatalf("Acquire(WithTick) = %v", err)
	}

	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v", err)
	}

	e.promptly("Complete() beside a guard", func() error { return lock.Complete(e.ctx()) }, "ReleaseTx")
	e.commit(tx)

	if err := lock.Complete(e.ctx()); err != nil {
		e.Errorf("Complete() after the commit = %v, want nil", err)
	}

	e.release(lock)
	e.doneOnce(e.b, fireTime(), fireTime())
}

// promptly fails if a call waits for what ends after it only, or has an error that does not say what is asked for.
func (e *env) promptly(what string, call func() error, says string) {
	e.Helper()

	began := time.Now()
	err := call()

	if took := time.Since(began); took > 3*time.Second {
		e.Errorf("%s took %s", what, took)
	}

	if err != nil && !strings.Contains(err.Error(), says) {
		e.Errorf("%s = %v, want nil, or an error that names %s", what, err, says)
	}
}

func requestRelease(e *env) {
	if err := e.b.RequestRelease(e.ctx(), e.name, "a test"); !errors.Is(err, sqllock.ErrNotHeld) {
		e.Errorf("RequestRelease() of a name that nobody holds = %v, want ErrNotHeld", err)
	}

	lock := e.acquire(e.a)

	requested := func(want string) {
		e.Helper()

		status, err := e.a.Inspect(e.ctx(), e.name)
		if err != nil || status.ReleaseRequested != want {
			e.Errorf("Inspect().ReleaseRequested = %q, %v, want %q", status.ReleaseRequested, err, want)
		}
	}

	requested("")

	for range 2 {
		for _, reason := range []string{"' \"\\ 🔒 a test", "another one"} {
			if err := e.b.RequestRelease(e.ctx(), e.name, reason); err != nil {
				e.Errorf("RequestRelease() = %v, want nil", err)
			}

			requested(reason)
		}
	}

	e.alive(lock)
	e.release(lock)
	requested("")

	next := e.acquire(e.b)
	requested("")
	e.release(next)

	if err := e.b.RequestRelease(e.ctx(), e.name, " "); !errors.Is(err, sqllock.ErrInvalidOption) {
		e.Errorf("RequestRelease() without a reason = %v, want ErrInvalidOption", err)
	}
}

func requestWatch(e *env) {
	ctx, cancel := context.WithCancel(e.ctx())
	seen := make(chan sqllock.Status)
	ended := make(chan struct{})

	go func() {
		defer close(ended)

		for status, err := range e.a.Watch(ctx, e.name) {
			if err != nil {
				e.Errorf("Watch() = %v", err)
			}

			select {
			case seen <- status:
			case <-ctx.Done():
			}
		}
	}()

	see := func(what string, is func(sqllock.Status) bool) {
		e.Helper()

		timer := time.NewTimer(e.harness.Patience)
		defer timer.Stop()

		for {
			select {
			case status := <-seen:
				if is(status) {
					return
				}
			case <-timer.C:
				e.Fatalf("Watch() has not shown %s", what)
			}
		}
	}

	see("nobody", func(s sqllock.Status) bool { return !s.Held() && s.Owner == "" })

	lock := e.acquire(e.b, sqllock.WithAnnouncements())
	see("the holder", func(s sqllock.Status) bool { return s.Held() && s.Token == lock.Token() && s.ReleaseRequested == "" })

	if err := e.b.RequestRelease(e.ctx(), e.name, "a test"); err != nil {
		e.Errorf("RequestRelease() = %v, want nil", err)
	}

	see("the request", func(s sqllock.Status) bool { return s.Token == lock.Token() && s.ReleaseRequested == "a test" })
	e.release(lock)
	see("the release", func(s sqllock.Status) bool { return !s.Held() })

	cancel()
	<-ended
}
