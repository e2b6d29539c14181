package sqllocktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func noteCases() []testCase {
	return []testCase{
		{"tick/its job is done once", notesOnly, tickOnce},
		{"tick/a job that failed is done again", notesOnly, tickFailed},
		{"tick/a job whose process died is done again", both(notesOnly, leaseOnly), tickDied},
		{"tick/who waits for the job hears that it was done", notesOnly, tickWaited},
		{"tick/an answer that was lost", notesOnly, tickUnanswered},
		{"tick/is recorded with the commit of a release", both(notesOnly, releaseTxOnly), tickReleaseTx},
		{"mark/only grows", notesOnly, markGrows},
		{"mark/is recorded by its owner only", notesOnly, markOwner},
		{"mark/of a slot", both(notesOnly, slotsOnly), markSlots},
		{"mark/not of readers", both(notesOnly, sharedOnly), markShared},
		{"mark/is recorded with the commit of a release", both(notesOnly, releaseTxOnly), markTx},
		{"mark/does not wait for the caller's transaction", notesOnly, markInTx},
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

	err = once.TryDo(e.ctx(), l, e.name, tick, func(context.Context, *sqllock.Lock) error {
		ran = true

		return result
	})

	return ran, err
}

// doneOnce fails unless a job of a tick runs, or unless it does not because that of a tick was done.
func (e *env) doneOnce(l *sqllock.Locker, tick, done time.Time) {
	e.Helper()

	ran, err := e.done(l, tick, nil)

	refused := new(once.DoneError)

	switch {
	case done.IsZero():
		if !ran || err != nil {
			e.Errorf("the job of %s ran: %t, %v, want true and nil", tick, ran, err)
		}
	case ran || !errors.Is(err, once.ErrDone) || errors.Is(err, sqllock.ErrNotAcquired):
		e.Errorf("the job of %s ran: %t, %v, want false and ErrDone", tick, ran, err)
	case !errors.As(err, &refused) || refused.Name != e.name || !refused.Tick.Equal(tick) || !refused.Done.Equal(done):
		e.Errorf("the error of a job that was done = %v, want a *DoneError of %s and %s", err, tick, done)
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
	if err != nil || status.Mark != later.UnixMicro()+1 {
		e.Errorf("Inspect().Mark = %d, %v, want %d, that of the last job", status.Mark, err, later.UnixMicro()+1)
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

	noted, err := e.noter(e.Strategy).Mark(e.ctx(), e.name, request.Owner, fireTime().Add(time.Hour).UnixMicro())
	if noted || err != nil {
		e.Errorf("Mark() of one who was followed = %t, %v, want false", noted, err)
	}

	e.doneOnce(e.a, fireTime().Add(time.Hour), time.Time{})
}

func tickWaited(e *env) {
	lock, err := once.Acquire(e.ctx(), e.a, e.name, fireTime())
	if err != nil {
		e.Fatalf("once.Acquire() = %v", err)
	}

	waited := make(chan error, 1)
	ctx := e.ctx()

	go func() {
		late, err := once.Acquire(ctx, e.b, e.name, fireTime())
		if err == nil {
			_ = late.Release(ctx)
		}

		waited <- err
	}()

	if queuesOnly(e) == "" {
		e.inLine(e.name, 1)
	}

	if err := once.Complete(e.ctx(), lock, fireTime()); err != nil {
		e.Errorf("Complete() = %v, want nil", err)
	}

	e.release(lock)

	if err := <-waited; !errors.Is(err, once.ErrDone) {
		e.Errorf("Acquire() behind the job = %v, want ErrDone", err)
	}

	if err := once.Complete(e.ctx(), lock, fireTime()); !errors.Is(err, sqllock.ErrReleased) {
		e.Errorf("Complete() after the release = %v, want ErrReleased", err)
	}

	e.release(e.acquire(e.b)) // it left nothing behind
}

// markGrows: a smaller mark changes nothing, and the mark outlives the lock.
func markGrows(e *env) {
	e.mark(e.a, "", 0)

	for _, m := range []struct{ mark, want int64 }{{5, 5}, {5, 5}, {3, 5}, {7, 7}} {
		lock := e.acquire(e.a)

		if err := lock.Mark(e.ctx(), m.mark); err != nil {
			e.Errorf("Mark(%d) = %v, want nil", m.mark, err)
		}

		e.mark(e.b, "of a lock that is held", m.want)
		e.release(lock)
		e.mark(e.b, "after the release", m.want)

		if err := lock.Mark(e.ctx(), 9); !errors.Is(err, sqllock.ErrReleased) {
			e.Errorf("Mark() after the release = %v, want ErrReleased", err)
		}
	}

	lock := e.acquire(e.b)
	e.mark(e.a, "of the next lock", 7)

	for _, mark := range []int64{0, -1} {
		if err := lock.Mark(e.ctx(), mark); !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("Mark(%d) = %v, want ErrInvalidOption", mark, err)
		}

		if err := lock.MarkTx(e.ctx(), nil, mark); !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("MarkTx(%d) = %v, want ErrInvalidOption", mark, err)
		}
	}

	e.release(lock)
	e.mark(e.a, "in the end", 7)
}

// mark fails unless the name has the mark.
func (e *env) mark(l *sqllock.Locker, when string, want int64) {
	e.Helper()

	if status, err := l.Inspect(e.ctx(), e.name); err != nil || status.Mark != want {
		e.Errorf("Inspect().Mark %s = %d, %v, want %d", when, status.Mark, err, want)
	}
}

// markSlots: each slot has a mark of its own.
func markSlots(e *env) {
	for range 2 {
		lock := e.acquire(e.a, sqllock.WithPermits(2))
		defer e.release(lock)

		if err := lock.Mark(e.ctx(), int64(lock.Slot()+5)); err != nil {
			e.Errorf("Mark() of slot %d = %v, want nil", lock.Slot(), err)
		}
	}

	for slot := range 2 {
		if status, err := e.b.Inspect(e.ctx(), sqllock.SlotName(e.name, slot)); err != nil || status.Mark != int64(slot+5) {
			e.Errorf("Inspect() of slot %d: .Mark = %d, %v, want %d", slot, status.Mark, err, slot+5)
		}
	}
}

func markShared(e *env) {
	lock := e.acquire(e.a, sqllock.WithShared())

	if err := lock.Mark(e.ctx(), 5); !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("Mark() of a shared lock = %v, want ErrUnsupported", err)
	}

	tx := e.begin("")
	if err := lock.MarkTx(e.ctx(), tx.Tx, 5); !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("MarkTx() of a shared lock = %v, want ErrUnsupported", err)
	}

	e.rollback(tx)
	e.release(lock)
	e.mark(e.a, "of a name that was shared", 0)
}

// The commit of the transaction records the mark, and nothing before it does.
func markTx(e *env) {
	mark := int64(0)

	for _, level := range e.levels() {
		lock := e.acquire(e.a)
		before := mark
		mark++

		for _, commits := range []bool{false, true} {
			tx := e.begin(level)

			if err := lock.MarkTx(e.ctx(), tx.Tx, mark); err != nil {
				e.Fatalf("MarkTx() with isolation %q = %v", level, err)
			}

			if !commits {
				e.rollback(tx)
				e.mark(e.b, "after a rollback", before)

				if err := lock.Mark(e.ctx(), mark); err == nil || errors.Is(err, sqllock.ErrLost) {
					e.Errorf("Mark() after a rollback = %v, want an error that says so", err)
				}

				continue
			}

			e.commit(tx)
			e.mark(e.b, "after the commit", mark)

			if err := lock.Mark(e.ctx(), mark); err != nil {
				e.Errorf("Mark() after the commit = %v, want nil", err)
			}
		}

		e.release(lock)
	}
}

func markOwner(e *env) {
	noter := e.noter(e.Strategy)
	request := e.request()
	grant := e.grant(e.Strategy, request)

	note := func(owner string, tick int64, want bool) {
		e.Helper()

		if noted, err := noter.Mark(e.ctx(), e.name, owner, tick); noted != want || err != nil {
			e.Errorf("Mark(%q, %d) = %t, %v, want %t", owner, tick, noted, err, want)
		}
	}

	note("another", 3, false)
	note(request.Owner, 2, true)
	note(request.Owner, 2, true) // again, because the answer was lost
	note(request.Owner, 1, true)

	notes, err := e.noter(e.Other).Notes(e.ctx(), e.name)
	if err != nil || notes.Mark != 2 || notes.Owner != request.Owner || notes.Left <= 0 || notes.Left > lease+resolution || notes.Asked != "" {
		e.Errorf("Notes() = %+v, %v, want tick 2 and the owner", notes, err)
	}

	e.releaseGrant(grant)
	note(request.Owner, 4, false)

	notes, err = noter.Notes(e.ctx(), e.name)
	if err != nil || notes != (strategies.Notes{Mark: 2}) {
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
		e.script.Fail("mark", 1, when, nil)
		e.doneOnce(e.a, tick, time.Time{})
		e.doneOnce(e.b, tick, tick)
	}
}

// The commit of a transaction that releases the lock records the tick, and nothing else does.
func tickReleaseTx(e *env) {
	tick := fireTime()

	for _, level := range e.levels() {
		tick = tick.Add(time.Hour)

		job := func(end func(Transaction), complete bool) (err error) {
			return once.TryDo(e.ctx(), e.a, e.name, tick, func(_ context.Context, lock *sqllock.Lock) error {
				tx := e.begin(level)

				if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
					e.Fatalf("Guard() with isolation %q = %v", level, err)
				}

				if err := once.CompleteTx(e.ctx(), lock, tx.Tx, tick); err != nil {
					e.Fatalf("CompleteTx() with isolation %q = %v", level, err)
				}

				if complete {
					e.promptly("Complete() before the commit", func() error { return once.Complete(e.ctx(), lock, tick) }, "MarkTx")
				}

				end(tx)

				return nil
			})
		}

		err := job(e.rollback, false)
		if err == nil || !strings.Contains(err.Error(), "MarkTx") || errors.Is(err, sqllock.ErrLost) {
			e.Errorf("TryDo() whose CompleteTx was rolled back = %v, want an error that says so", err)
		}

		for complete := range 2 {
			tick = tick.Add(time.Minute)

			if err := job(e.commit, complete == 1); err != nil {
				e.Errorf("TryDo() that ends with CompleteTx with isolation %q = %v, want nil", level, err)
			}

			e.doneOnce(e.b, tick, tick)
		}
	}
}

// A transaction of the caller that guards the lock may have what Mark writes to locked. Where it has, the error says
// what to use.
func markInTx(e *env) {
	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v", err)
	}

	e.promptly("Mark() beside a guard", func() error { return lock.Mark(e.ctx(), 5) }, "MarkTx")
	e.commit(tx)

	if err := lock.Mark(e.ctx(), 5); err != nil {
		e.Errorf("Mark() after the commit = %v, want nil", err)
	}

	e.release(lock)
	e.mark(e.b, "after the release", 5)
}

// promptly fails if a call waits for what ends after it only, or has an error that does not say what is asked for.
func (e *env) promptly(what string, call func() error, says string) {
	e.Helper()

	began := time.Now()
	err := call()

	if took := time.Since(began); e.late(took, 3*time.Second) {
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

	lock := e.acquire(e.b, sqllock.WithTuning(sqllock.Tuning{Announce: true}))
	see("the holder", func(s sqllock.Status) bool { return s.Held() && s.Token == lock.Token() && s.ReleaseRequested == "" })

	if err := e.b.RequestRelease(e.ctx(), e.name, "a test"); err != nil {
		e.Errorf("RequestRelease() = %v, want nil", err)
	}

	see("the request", func(s sqllock.Status) bool { return s.Token == lock.Token() && s.ReleaseRequested == "a test" })
	e.release(lock)
	see("the release", func(s sqllock.Status) bool { return !s.Held() })

	taken := e.acquire(e.b, sqllock.WithTuning(sqllock.Tuning{Announce: true}))
	see("the next holder", func(s sqllock.Status) bool { return s.Held() && s.Token == taken.Token() })

	began := time.Now()

	if err := ForceRelease(e.ctx(), e.a, e.name, "a test"); err != nil {
		e.Errorf("ForceRelease() = %v, want nil", err)
	}

	see("that it was taken away", func(s sqllock.Status) bool { return !s.Held() })

	// Though nobody waits. Where nothing is heard it looks every second.
	if took := time.Since(began); e.late(took, 3*time.Second) {
		e.Errorf("Watch() has shown after %s that the lock was taken away", took)
	}

	if err := taken.Release(e.ctx()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Release() = %v, want ErrLost", err)
	}

	cancel()
	<-ended
}
