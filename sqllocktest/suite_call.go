package sqllocktest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func callCases() []testCase {
	return []testCase{
		{"reentrancy/same token, freed by the last", nil, reentrant},
		{"reentrancy/not unless asked for", nil, notReentrant},
		{"calls/bad input before any SQL", nil, badInput},
		{"calls/of nil handles", nil, nilHandles},
		{"calls/with a nil context", nil, nilContext},
		{"calls/with an ended context", nil, endedContext},
		{"close/releases all", nil, closeReleases},
		{"close/ends waits", nil, closeEndsWaits},
		{"do/runs and releases", nil, doReleases},
		{"do/releases after a panic", nil, doPanics},
		{"do/releases after Goexit", nil, doGoexit},
		{"do/tells a loss", leaseOnly, doLost},
		{"do/one attempt", nil, tryDo},
	}
}

// An ended context says nothing about the lock.
func endedContext(e *env) {
	lock := e.acquire(e.a)

	ctx, cancel := context.WithCancel(e.ctx())
	cancel()

	for range 10 {
		if err := lock.Check(ctx); errors.Is(err, sqllock.ErrLost) {
			e.Fatalf("Check() with an ended context = %v, want no loss", err)
		}

		if err := lock.Extend(ctx, lease); errors.Is(err, sqllock.ErrLost) {
			e.Fatalf("Extend() with an ended context = %v, want no loss", err)
		}
	}

	short, cancel := context.WithTimeout(e.ctx(), 50*time.Microsecond)
	defer cancel()

	if err := lock.Check(short); errors.Is(err, sqllock.ErrLost) {
		e.Fatalf("Check() whose context ends = %v, want no loss", err)
	}

	e.alive(lock)
	e.release(lock)
}

func reentrant(e *env) {
	outer := e.acquire(e.a)

	inner, err := e.a.Acquire(outer.Context(), e.name, sqllock.WithReentrant())
	if err != nil {
		e.Fatalf("Acquire(WithReentrant) under the lock = %v, want the lock", err)
	}

	if inner.Token() != outer.Token() {
		e.Errorf("Token() of the inner handle = %d, want %d", inner.Token(), outer.Token())
	}

	e.release(outer)
	e.alive(inner)
	e.refused(e.b)
	e.release(inner)
	e.release(e.acquire(e.b))
}

func notReentrant(e *env) {
	outer := e.acquire(e.a)

	e.within(e.harness.TryWithin, "Acquire() under the same lock", func() {
		if _, err := e.a.Acquire(outer.Context(), e.name); !errors.Is(err, sqllock.ErrNotAcquired) {
			e.Errorf("Acquire() under the same lock = %v, want ErrNotAcquired", err)
		}
	})

	// Under it, other names are as free as ever.
	e.release(e.acquireName(e.a, e.name+"/other"))
	e.alive(outer)
	e.release(outer)
}

func badInput(e *env) {
	for what, option := range map[string]sqllock.Option{
		"nil":                    nil,
		"WithLease(0)":           sqllock.WithLease(0),
		"WithLease(-1s)":         sqllock.WithLease(-time.Second),
		"WithLease(99ms)":        sqllock.WithLease(99 * time.Millisecond),
		"WithLease(1000 days)":   sqllock.WithLease(1000 * 24 * time.Hour),
		"WithMaxWait(-1s)":       sqllock.WithMaxWait(-time.Second),
		"WithMaxHold(-1s)":       sqllock.WithMaxHold(-time.Second),
		"WithMinHold(-1s)":       sqllock.WithMinHold(-time.Second),
		"WithLockDelay(-1s)":     sqllock.WithLockDelay(-time.Second),
		"WithLabel(too long)":    sqllock.WithLabel(strings.Repeat("x", sqllock.MaxLabelLength+1)),
		"WithLabel(NUL)":         sqllock.WithLabel("\x00"),
		"WithMetadata(too long)": sqllock.WithMetadata(map[string]string{"x": strings.Repeat("x", sqllock.MaxMetadataLength)}),
		"PollMin: 1µs":           sqllock.WithTuning(sqllock.Tuning{PollMin: time.Microsecond}),
		"PollMin: -1s":           sqllock.WithTuning(sqllock.Tuning{PollMin: -time.Second}),
		"PollMax < PollMin":      sqllock.WithTuning(sqllock.Tuning{PollMin: 2 * time.Second, PollMax: time.Second}),
		"ClockDrift: 1":          sqllock.WithTuning(sqllock.Tuning{ClockDrift: 1}),
		"ClockMargin: -1s":       sqllock.WithTuning(sqllock.Tuning{ClockMargin: -time.Second}),
		"ClockMargin: lease":     sqllock.WithTuning(sqllock.Tuning{ClockMargin: lease}),
	} {
		if _, err := e.a.Acquire(e.ctx(), e.name, option); !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("Acquire(%s) = %v, want ErrInvalidOption", what, err)
		}

		if _, err := sqllock.New(e.Strategy, option); !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("New(%s) = %v, want ErrInvalidOption", what, err)
		}
	}

	for what, option := range map[string]sqllock.LockerOption{"WithLogger": sqllock.WithLogger(nil), "WithObserver": sqllock.WithObserver(nil)} {
		if _, err := sqllock.New(e.Strategy, option); !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("New(%s(nil)) = %v, want ErrInvalidOption", what, err)
		}
	}

	if err := e.a.Do(e.ctx(), e.name, nil); !errors.Is(err, sqllock.ErrInvalidOption) {
		e.Errorf("Do(nil) = %v, want ErrInvalidOption", err)
	}

	for _, reason := range []string{"", " \n", "\x00"} {
		if err := e.a.ForceRelease(e.ctx(), sqllock.Status{Name: e.name}, reason); !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("ForceRelease(%q) = %v, want ErrInvalidOption", reason, err)
		}
	}

	if _, err := e.a.Reap(e.ctx(), time.Second); !errors.Is(err, sqllock.ErrInvalidOption) {
		e.Errorf("Reap(1s) = %v, want ErrInvalidOption", err)
	}

	for every, retention := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Second} {
		if err := e.a.RunReaper(e.ctx(), every, retention); !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("RunReaper(%s, %s) = %v, want ErrInvalidOption", every, retention, err)
		}
	}

	if e.features.MinHold {
		_, err := e.a.Acquire(e.ctx(), e.name, sqllock.WithMinHold(2*time.Hour), sqllock.WithMaxHold(time.Hour))
		if !errors.Is(err, sqllock.ErrInvalidOption) {
			e.Errorf("Acquire() with a minimum hold longer than the longest = %v, want ErrInvalidOption", err)
		}
	}

	if log := e.script.Statements(); len(log) != 0 {
		e.Errorf("statements sent for bad input: %q, want none", log)
	}
}

func nilHandles(e *env) {
	var (
		lock   *sqllock.Lock
		locker *sqllock.Locker
	)

	for what, err := range map[string]error{
		"Release()": lock.Release(e.ctx()), "Check()": lock.Check(e.ctx()), "Err()": lock.Err(),
		"Extend()": lock.Extend(e.ctx(), lease), "Guard()": lock.Guard(e.ctx(), foreignTx{}),
		"ReleaseTx()": lock.ReleaseTx(e.ctx(), foreignTx{}), "context.Cause": context.Cause(lock.Context()),
		"Mark()": lock.Mark(e.ctx(), 1), "MarkTx()": lock.MarkTx(e.ctx(), foreignTx{}, 1),
	} {
		if !errors.Is(err, sqllock.ErrNotAcquired) {
			e.Errorf("%s of a nil *Lock = %v, want ErrNotAcquired", what, err)
		}
	}

	if lock.Token() != 0 || lock.Name() != "" || lock.Remaining() != 0 || lock.Names() != nil || lock.TokenOf("") != 0 || lock.OwnerOf("") != "" {
		e.Errorf("a nil *Lock = token %d, names %q, %s left, want none of them", lock.Token(), lock.Names(), lock.Remaining())
	}

	if _, err := locker.Acquire(e.ctx(), e.name); !errors.Is(err, sqllock.ErrClosed) {
		e.Errorf("Acquire() of a nil *Locker = %v, want ErrClosed", err)
	}

	if err := locker.Close(e.ctx()); err != nil {
		e.Errorf("Close() of a nil *Locker = %v, want nil", err)
	}
}

// A nil context is told of before any statement, also of an operation that the
// strategy cannot do. Only Release does what it is there for.
func nilContext(e *env) {
	var none context.Context

	lock := e.acquire(e.a)
	before := len(e.script.Statements())
	run := func(context.Context, *sqllock.Lock) error { return nil }

	for what, call := range map[string]func() error{
		"Acquire":      func() error { _, err := e.a.Acquire(none, e.name); return err },
		"TryAcquire":   func() error { _, err := e.a.TryAcquire(none, e.name); return err },
		"Do":           func() error { return e.a.Do(none, e.name, run) },
		"TryDo":        func() error { return e.a.TryDo(none, e.name, run) },
		"Close":        func() error { return e.a.Close(none) },
		"Holders":      func() error { _, err := e.a.Holders(none, sqllock.Filter{}); return err },
		"Ready":        func() error { return e.a.Ready(none) },
		"Inspect":      func() error { _, err := e.a.Inspect(none, e.name); return err },
		"ForceRelease": func() error { return e.a.ForceRelease(none, sqllock.Status{Name: e.name}, "test") },
		"Reap":         func() error { _, err := e.a.Reap(none, time.Hour); return err },
		"RunReaper":    func() error { return e.a.RunReaper(none, time.Minute, time.Hour) },
		"Check":        func() error { return lock.Check(none) },
		"Extend":       func() error { return lock.Extend(none, lease) },
		"Guard":        func() error { return lock.Guard(none, foreignTx{}) },
		"ReleaseTx":    func() error { return lock.ReleaseTx(none, foreignTx{}) },
	} {
		if err := call(); !errors.Is(err, sqllock.ErrInvalidOption) || !strings.Contains(err.Error(), "context") {
			e.Errorf("%s() with a nil context = %v, want ErrInvalidOption that says so", what, err)
		}
	}

	if sent := e.script.Statements()[before:]; len(sent) > 0 {
		e.Errorf("statements sent with a nil context: %q, want none", sent)
	}

	e.alive(lock)

	if err := lock.Release(none); !errors.Is(err, sqllock.ErrInvalidOption) {
		e.Errorf("Release() with a nil context = %v, want ErrInvalidOption", err)
	}

	e.release(e.acquire(e.b))
}

func closeReleases(e *env) {
	l := e.locker(e.Strategy)
	first, second := e.acquire(l), e.acquireName(l, e.name+"/2")

	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close() = %v, want nil", err)
	}

	for _, lock := range []*sqllock.Lock{first, second} {
		if err := lock.Err(); !errors.Is(err, sqllock.ErrReleased) {
			e.Errorf("Err() after Close = %v, want ErrReleased", err)
		}

		e.release(lock) // Again, which does no harm.
	}

	e.release(e.acquire(e.b))
	e.release(e.acquireName(e.b, e.name+"/2"))

	for what, call := range map[string]func() error{
		"Acquire":    func() error { _, err := l.Acquire(e.ctx(), e.name); return err },
		"TryAcquire": func() error { _, err := l.TryAcquire(e.ctx(), e.name); return err },
		"Do": func() error {
			return l.Do(e.ctx(), e.name, func(context.Context, *sqllock.Lock) error { return nil })
		},
		"Inspect":      func() error { _, err := l.Inspect(e.ctx(), e.name); return err },
		"Holders":      func() error { _, err := l.Holders(e.ctx(), sqllock.Filter{}); return err },
		"ForceRelease": func() error { return l.ForceRelease(e.ctx(), sqllock.Status{Name: e.name}, "test") },
		"Reap":         func() error { _, err := l.Reap(e.ctx(), time.Hour); return err },
	} {
		if err := call(); !errors.Is(err, sqllock.ErrClosed) {
			e.Errorf("%s() after Close = %v, want ErrClosed", what, err)
		}
	}

	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("the second Close() = %v, want nil", err)
	}
}

func closeEndsWaits(e *env) {
	first := e.acquire(e.b)
	l := e.locker(e.Strategy)
	ended := make(chan error, 2)

	for range 2 { // One asks the database, the other waits for it.
		go func() {
			_, err := l.Acquire(e.ctx(), e.name)
			ended <- err
		}()
	}

	e.elapse(50 * time.Millisecond)

	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close() beside waits = %v, want nil", err)
	}

	for range 2 {
		if err := <-ended; !errors.Is(err, sqllock.ErrClosed) {
			e.Errorf("Acquire() that Close ended = %v, want ErrClosed", err)
		}
	}

	e.alive(first)
	e.release(first)
}

func doReleases(e *env) {
	own := errors.New("the function's own error")

	for _, want := range []error{nil, own} {
		err := e.a.Do(e.ctx(), e.name, func(ctx context.Context, lock *sqllock.Lock) error {
			e.alive(lock)
			e.refused(e.b)

			if err := ctx.Err(); err != nil {
				e.Errorf("ctx.Err() in Do = %v, want nil", err)
			}

			return want
		})
		if !errors.Is(err, want) || errors.Is(err, sqllock.ErrLost) {
			e.Errorf("Do() = %v, want %v", err, want)
		}

		e.release(e.acquire(e.b))
	}
}

func doPanics(e *env) {
	func() {
		defer func() {
			if got := recover(); got != "the panic" {
				e.Errorf("recover() after Do = %v, want the function's own", got)
			}
		}()

		_ = e.a.Do(e.ctx(), e.name, func(context.Context, *sqllock.Lock) error { panic("the panic") })
	}()

	e.release(e.acquire(e.b))
}

func doGoexit(e *env) {
	ended := make(chan struct{})

	go func() {
		defer close(ended)

		_ = e.a.Do(e.ctx(), e.name, func(context.Context, *sqllock.Lock) error {
			runtime.Goexit()

			return nil
		})
	}()

	<-ended
	e.release(e.acquire(e.b))
}

func doLost(e *env) {
	err := e.a.Do(e.ctx(), e.name, func(ctx context.Context, _ *sqllock.Lock) error {
		// A renewal that comes between the two, on a slow server, lets the lease run again.
		var next *sqllock.Lock
		for deadline := time.Now().Add(e.patience); next == nil && time.Now().Before(deadline); {
			e.age(20 * time.Second)

			next, _ = e.b.TryAcquire(e.ctx(), e.name)
		}

		if next == nil {
			next = e.acquire(e.b) // and fail
		}

		e.release(next)

		select {
		case <-ctx.Done():
			e.lost("context.Cause in Do", context.Cause(ctx), sqllock.ReasonTakenOver)
		case <-time.After(e.patience):
			e.Errorf("the context of Do did not end within %s of the loss", e.patience)
		}

		return nil
	}, sqllock.WithLease(6*time.Second))

	e.lost("Do() of a lock that was lost", err, sqllock.ReasonTakenOver)
}

func tryDo(e *env) {
	first := e.acquire(e.b)
	ran := false
	err := e.a.TryDo(e.ctx(), e.name, func(context.Context, *sqllock.Lock) error {
		ran = true

		return nil
	})

	if !errors.Is(err, sqllock.ErrNotAcquired) || ran {
		e.Errorf("TryDo() of a held lock = %v, ran: %t, want ErrNotAcquired and that it does not run", err, ran)
	}

	e.release(first)

	if err := e.a.TryDo(e.ctx(), e.name, func(context.Context, *sqllock.Lock) error {
		ran = true

		return nil
	}); err != nil || !ran {
		e.Errorf("TryDo() of a free lock = %v, ran: %t, want that it runs", err, ran)
	}
}
