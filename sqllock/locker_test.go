package sqllock_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// plain is a strategy that can do no more than it has to.
type plain struct{ memory *sqllocktest.Memory }

type plainGrant struct{ sqllock.Grant }

func (p plain) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	grant, err := p.memory.TryAcquire(ctx, r)
	if err != nil {
		return nil, err
	}

	return plainGrant{grant}, nil
}

func (plain) Features() sqllock.Features {
	return sqllock.Features{Strategy: "plain", Database: "memory"}
}

// invalid is a strategy that was built wrong.
type invalid struct{ plain }

var errInvalid = errors.New("the pool is nil")

func (invalid) Validate() error { return errInvalid }

func TestNewRefuses(t *testing.T) {
	t.Parallel()

	memory := sqllocktest.NewMemory()

	for what, test := range map[string]struct {
		strategy sqllock.Strategy
		option   sqllock.Option
		want     error
	}{
		"no strategy":         {nil, sqllock.WithLease(lease), sqllock.ErrInvalidOption},
		"an invalid strategy": {invalid{plain{memory}}, sqllock.WithLease(lease), errInvalid},
		"a nil option":        {memory, nil, sqllock.ErrInvalidOption},
		"a lease of nothing":  {memory, sqllock.WithLease(0), sqllock.ErrInvalidOption},
		"pauses without end":  {memory, sqllock.WithPoll(time.Second, math.MaxInt64), sqllock.ErrInvalidOption},
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

		_, errHolders := locker.Holders(ctx, sqllock.Filter{})
		_, errInspect := locker.Inspect(ctx, name)
		_, errReap := locker.Reap(ctx)

		for what, err := range map[string]error{
			"Holders()": errHolders, "Inspect()": errInspect, "Reap()": errReap,
			"RunReaper()": locker.RunReaper(ctx), "ForceRelease()": locker.ForceRelease(ctx, name, "test"),
			"Guard()": lock.Guard(ctx, memory.Begin()), "ReleaseTx()": lock.ReleaseTx(ctx, memory.Begin()),
		} {
			wantIs(t, what, err, sqllock.ErrUnsupported)
		}

		if err := lock.Release(ctx); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	})
}

func TestRunReaper(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithReaper(time.Minute, time.Hour))
		ended := make(chan error, 1)

		// Whose process dies.
		if _, err := memory.Peer().TryAcquire(t.Context(), sqllock.Request{Name: name, Owner: "gone", Lease: lease}); err != nil {
			t.Fatalf("TryAcquire() = %v", err)
		}

		memory.Fail("reap", 2, sqllocktest.Before, nil) // An outage does not end it.

		go func() { ended <- locker.RunReaper(t.Context()) }()

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
