package sqllock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

func TestReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		if err := locker.Ready(t.Context()); err != nil {
			t.Errorf("Ready() = %v, want nil", err)
		}

		for _, want := range []error{sqllock.ErrNoSchema, sqllock.ErrUnreachable, sqllock.ErrNotAllowed, errors.New("the driver's")} {
			for _, operation := range []string{"status", "list"} {
				memory.Fail(operation, 2, sqllocktest.Before, want)
				wantIs(t, "Ready()", locker.Ready(t.Context()), want)
				memory.Reset()
			}
		}

		// A connection of the pool that was ended says nothing of the next one.
		memory.Fail("status", 1, sqllocktest.Before, sqllock.ErrUnreachable)

		if err := locker.Ready(t.Context()); err != nil {
			t.Errorf("Ready() after a connection that was ended = %v, want nil", err)
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		wantIs(t, "Ready() of a closed locker", locker.Ready(t.Context()), sqllock.ErrClosed)
		wantIs(t, "Ready() of a nil locker", (*sqllock.Locker)(nil).Ready(t.Context()), sqllock.ErrClosed)
	})
}

// hangs is a strategy whose database does not answer, and whose driver does not listen to the end of a context.
type hangs struct{ *sqllocktest.Memory }

func (hangs) Status(context.Context, string) (strategies.Status, bool, error) {
	<-time.After(time.Hour)

	return strategies.Status{}, false, nil
}

// A database that does not answer is unreachable, and the context is blamed only if it was that which ended.
func TestReadyInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		locker := newLocker(t, hangs{sqllocktest.NewMemory()})
		began := time.Now()

		err := locker.Ready(t.Context())
		wantIs(t, "Ready()", err, sqllock.ErrUnreachable)

		if took := time.Since(began); took > 6*time.Second || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ready() = %v after %s, want about 5s, and no context.DeadlineExceeded", err, took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		for _, want := range []error{sqllock.ErrUnreachable, context.DeadlineExceeded} {
			wantIs(t, "Ready() with a timeout", locker.Ready(ctx), want)
		}

		<-time.After(2 * time.Hour) // the driver returns
	})
}

// A probe reads, and finds nothing of what is there.
func TestReadyOnlyReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)

		before := len(memory.Statements())

		if err := locker.Ready(t.Context()); err != nil {
			t.Errorf("Ready() = %v, want nil", err)
		}

		if sent := memory.Statements()[before:]; !slices.Equal(sent, []string{"status", "list"}) {
			t.Errorf("Ready() sends %q, want one status and one list", sent)
		}

		release(t, lock)
	})
}
