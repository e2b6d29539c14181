package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// plain is a strategy that can do no more than it has to.
type plain struct{ strategies.Strategy }

func (plain) Features() strategies.Features {
	return strategies.Features{Strategy: "plain", Database: "memory", Unbatched: true}
}

// invalid is a strategy that was built wrong.
type invalid struct{ plain }

var errInvalid = errors.New("the pool is nil")

func (invalid) Validate() error { return errInvalid }

func TestNewRefuses(t *testing.T) {
	t.Parallel()

	memory := sqllocktest.NewMemory()

	for what, test := range map[string]struct {
		strategy strategies.Strategy
		option   sqllock.LockerOption
		want     error
	}{
		"no strategy":         {nil, sqllock.WithLease(lease), sqllock.ErrInvalidOption},
		"an invalid strategy": {invalid{plain{memory}}, sqllock.WithLease(lease), errInvalid},
		"a nil option":        {memory, nil, sqllock.ErrInvalidOption},
		"a lease of nothing":  {memory, sqllock.WithLease(0), sqllock.ErrInvalidOption},
		"pauses without end":  {memory, sqllock.WithTuning(sqllock.Tuning{PollMin: time.Second, PollMax: math.MaxInt64}), sqllock.ErrInvalidOption},
		"WithMinHold":         {plain{memory}, sqllock.WithMinHold(time.Second), sqllock.ErrUnsupported},
		"WithLockDelay":       {plain{memory}, sqllock.WithLockDelay(time.Second), sqllock.ErrUnsupported},
	} {
		if _, err := sqllock.New(test.strategy, test.option); !errors.Is(err, test.want) {
			t.Errorf("New() with %s = %v, want %q", what, err, test.want)
		}
	}

	if log := memory.Statements(); len(log) != 0 {
		t.Errorf("New() asked the database: %q", log)
	}
}

func TestUnsupported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		locker := newLocker(t, plain{memory})
		lock := acquire(t, locker)
		ctx := t.Context()

		wantIs(t, "Guard()", lock.Guard(ctx, memory.Begin()), sqllock.ErrUnsupported)
		wantIs(t, "ReleaseTx()", lock.ReleaseTx(ctx, memory.Begin()), sqllock.ErrUnsupported)

		if err := lock.Release(ctx); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	})
}

func TestRunReaper(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		ended := make(chan error, 1)

		// Whose process dies.
		if _, err := single.TryAcquire(t.Context(), memory.Peer(), strategies.Request{Name: name, Owner: "gone", Lease: lease}); err != nil {
			t.Fatalf("TryAcquire() = %v", err)
		}

		memory.Fail("reap", 2, sqllocktest.Before, nil) // An outage does not end it.

		go func() { ended <- locker.RunReaper(t.Context(), time.Minute, time.Hour) }()

		time.Sleep(10 * time.Minute)

		if n := memory.Count("reap"); n < 5 || n > 10 {
			t.Errorf("reaped %d times in ten minutes, want once a minute", n)
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		synctest.Wait()

		if err := <-ended; err != nil {
			t.Errorf("RunReaper() that Close ended = %v, want nil", err)
		}
	})
}

// A lock outlives the context that it was acquired with, and keeps its values.
func TestLockOutlivesItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}

		_, locker := setup(t)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))

		lock, err := locker.Acquire(ctx, name)
		if err != nil {
			t.Fatalf("Acquire() = %v", err)
		}

		cancel()
		time.Sleep(10 * lease)

		if err := lock.Context().Err(); err != nil {
			t.Errorf("Context().Err() after the end of Acquire's context = %v, want nil", err)
		}

		if got := lock.Context().Value(key{}); got != "value" {
			t.Errorf("Context().Value() = %v, want that of Acquire's context", got)
		}

		if err := lock.Release(ctx); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		wantIs(t, "context.Cause", context.Cause(lock.Context()), sqllock.ErrReleased)
	})
}

// The function returns the loss that the release returns, as it was told or in an
// error of its own.
func TestDoTellsALossOnce(t *testing.T) {
	t.Parallel()

	own := errors.New("the function's own error")

	for what, returned := range map[string]func(ctx context.Context, lock *sqllock.Lock) error{
		"the cause":      func(ctx context.Context, _ *sqllock.Lock) error { return context.Cause(ctx) },
		"Err()":          func(_ context.Context, lock *sqllock.Lock) error { return errors.Join(own, lock.Err()) },
		"wrapped":        func(ctx context.Context, _ *sqllock.Lock) error { return fmt.Errorf("work: %w", context.Cause(ctx)) },
		"something else": func(context.Context, *sqllock.Lock) error { return own },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t)

				var want error

				err := locker.Do(t.Context(), name, func(ctx context.Context, lock *sqllock.Lock) error {
					memory.Lose(name)
					<-ctx.Done()

					want = returned(ctx, lock)

					return want
				})

				wantLost(t, "Do()", err, sqllock.ReasonTakenOver)
				wantIs(t, "Do()", err, want)

				if n := strings.Count(err.Error(), "lost: taken over"); n != 1 {
					t.Errorf("Do() tells of the loss %d times, want once:\n%v", n, err)
				}
			})
		})
	}
}

// nilTx is a transaction that there is none of.
type nilTx struct{ database string }

func (tx *nilTx) Database() string { return tx.database }

func TestNilTransaction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		lock := acquire(t, locker)

		for _, tx := range []strategies.Tx{nil, (*nilTx)(nil), (*sqllocktest.MemoryTx)(nil)} {
			wantIs(t, "Guard() of a nil transaction", lock.Guard(t.Context(), tx), sqllock.ErrInvalidOption)
			wantIs(t, "ReleaseTx() of a nil transaction", lock.ReleaseTx(t.Context(), tx), sqllock.ErrInvalidOption)
		}

		release(t, lock)
	})
}

// A waiter for a lock of its own process never asked the database, and is told who
// has it all the same.
func TestWaitWithinTheProcessTellsTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		lock := acquire(t, locker, sqllock.WithLabel("the holder"))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		for what, wait := range map[string]func() error{
			"WithMaxWait": func() error {
				_, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(time.Second))
				return err
			},
			"a deadline": func() error { _, err := locker.Acquire(ctx, name); return err },
		} {
			var held *sqllock.HeldError

			err := wait()
			wantIs(t, "Acquire() with "+what, err, sqllock.ErrNotAcquired)

			if !errors.As(err, &held) || held.Holder.Label != "the holder" || held.Token != lock.Token() {
				t.Errorf("Acquire() with %s = %v, want a *HeldError of the holder", what, err)
			}
		}
	})
}

// A server goes on after the panic of a request. Nobody has the handle of its lock.
func TestLockIsReleasedWhenAHookPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, observed(hooks{Acquired: func(sqllock.Event) { panic("of a hook") }}))

		func() {
			defer func() {
				if said := recover(); said != "of a hook" {
					t.Errorf("recover() = %v, want the hook's", said)
				}
			}()

			_, _ = locker.Acquire(t.Context(), name)
		}()

		wantFree(t, memory, "after the panic")
	})
}

// What is detached from a lock that has ended asks as anybody does.
func TestAcquireDetachedFromALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		lock := acquire(t, locker)
		detached := context.WithoutCancel(lock.Context())

		_, err := locker.TryAcquire(detached, name)
		wantIs(t, "TryAcquire() detached from the lock that is held", err, sqllock.ErrNotAcquired)

		release(t, lock)

		again, err := locker.TryAcquire(detached, name)
		if err != nil {
			t.Fatalf("TryAcquire() detached from a lock that has ended = %v, want the lock", err)
		}

		release(t, again)

		_, err = locker.TryAcquire(lock.Context(), name)
		wantIs(t, "TryAcquire() under a lock that has ended", err, sqllock.ErrNotAcquired, sqllock.ErrReleased)
	})
}

// What is set for one lock adds to what the locker has, which stays.
func TestTuningAddsUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const margin = 3 * time.Second

		_, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{ClockMargin: margin}), sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))

		for what, c := range map[string]struct {
			tuning sqllock.Tuning
			want   time.Duration
		}{
			"nothing":     {sqllock.Tuning{}, sqllock.DefaultLease*99/100 - margin},
			"the drift":   {sqllock.Tuning{ClockDrift: 0.1}, sqllock.DefaultLease*9/10 - margin},
			"both":        {sqllock.Tuning{ClockDrift: 0.1, ClockMargin: time.Second}, sqllock.DefaultLease*9/10 - time.Second},
			"another one": {sqllock.Tuning{PollMin: time.Second}, sqllock.DefaultLease*99/100 - margin},
		} {
			lock := acquire(t, locker, sqllock.WithLease(sqllock.DefaultLease), sqllock.WithTuning(c.tuning))

			if left := lock.Remaining(); left != c.want {
				t.Errorf("Remaining() with %s set for the lock = %s, want %s", what, left, c.want)
			}

			release(t, lock)
		}
	})
}
