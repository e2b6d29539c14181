package sqllock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// always is a strategy that grants everything.
type always struct{ nothing }

func (always) Acquire(_ context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return slices.Repeat([]strategies.Grant{{Token: 1, Last: 1, State: 1}}, len(requests)), make([]error, len(requests))
}

func (always) Settle(context.Context, strategies.Request) error { return nil }

// stopped returns a locker whose keeper has not got to look at anything yet, as in
// a process that was stopped and goes on.
func stopped(t *testing.T) *Locker {
	t.Helper()

	locker, err := New(always{}, WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}

	locker.keeper.running = true

	return locker
}

func wantExpired(t *testing.T, what string, ctx context.Context) { //nolint:revive // not the call's own context
	t.Helper()

	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("Err() of %s after its trust window = %v, want %v", what, err, context.Canceled)
	}

	var lost *LostError
	if err := context.Cause(ctx); !errors.As(err, &lost) || lost.Reason != ReasonExpired {
		t.Errorf("Cause of %s after its trust window = %v, want the loss", what, err)
	}

	select {
	case <-ctx.Done():
	default:
		t.Errorf("Done() of %s is open, though Err() said that it ended", what)
	}
}

func TestContextLooksAtTheClocksFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lock, err := stopped(t).Acquire(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}

		derived, cancel := context.WithCancel(lock.Context())
		defer cancel()

		time.Sleep(DefaultLease)
		wantExpired(t, "the lock's context", lock.Context())
		wantExpired(t, "one derived from it", derived)
	})
}

func TestContextOfDoLooksAtTheClocksFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}

		outer := context.WithValue(t.Context(), key{}, "value")

		err := stopped(t).Do(outer, "name", func(ctx context.Context, _ *Lock) error {
			if value := ctx.Value(key{}); value != "value" {
				t.Errorf("Value() in Do = %v, want that of the caller's context", value)
			}

			if err := ctx.Err(); err != nil {
				t.Errorf("Err() in Do = %v, want nil", err)
			}

			time.Sleep(DefaultLease)
			wantExpired(t, "the context of Do", ctx)

			return nil
		})
		if !errors.Is(err, ErrLost) {
			t.Errorf("Do() = %v, want ErrLost", err)
		}
	})
}

func TestContextsCompare(t *testing.T) {
	t.Parallel()

	locker, err := New(always{})
	if err != nil {
		t.Fatal(err)
	}

	err = locker.Do(t.Context(), "name", func(ctx context.Context, lock *Lock) error {
		if seen := map[context.Context]bool{ctx: true, lock.Context(): true}; len(seen) != 2 {
			t.Errorf("%d contexts, want those of the lock and of Do", len(seen))
		}

		return nil
	})
	if err != nil {
		t.Errorf("Do() = %v, want nil", err)
	}
}

// The context package starts a goroutine for each context that is derived from one
// that it does not know.
func TestDerivedContextsNeedNoGoroutine(t *testing.T) {
	t.Parallel()

	locker, err := New(always{})
	if err != nil {
		t.Fatal(err)
	}

	err = locker.Do(t.Context(), "name", func(ctx context.Context, lock *Lock) error {
		for _, parent := range []context.Context{ctx, lock.Context()} {
			_, cancel := context.WithCancel(parent)
			defer cancel()
		}

		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]

		if strings.Contains(string(stacks), "propagateCancel.func") {
			t.Errorf("a derived context has a goroutine:\n%s", stacks)
		}

		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
