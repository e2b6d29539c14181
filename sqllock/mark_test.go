package sqllock_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// Mark before the commit is told that the transaction has not committed, and not that the mark is not recorded, which it will be.
func TestMarkBeforeTheCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer

		memory, locker := setup(t, sqllock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		lock := acquire(t, locker)

		tx := memory.Begin()
		if err := lock.MarkTx(t.Context(), tx, 5); err != nil {
			t.Fatal(err)
		}

		if err := lock.Mark(t.Context(), 5); err == nil || !strings.Contains(err.Error(), "has not committed") {
			t.Errorf("Mark() before the commit = %v, want an error that says so", err)
		}

		if log := out.String(); strings.Contains(log, `msg="mark not recorded"`) || !strings.Contains(log, "has not committed") {
			t.Errorf("the log of Mark() before the commit says %s, want that the transaction has not committed", log)
		}

		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}

		if err := lock.Mark(t.Context(), 5); err != nil {
			t.Errorf("Mark() after the commit = %v, want nil", err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v", err)
		}
	})
}

// A scheduler drops the error, so the log has it.
func TestMarkFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer

		memory, locker := setup(t, sqllock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		lock := acquire(t, locker)

		for tries, want := range []error{nil, nil, nil, sqllock.ErrUnreachable} {
			memory.Fail("mark", tries, sqllocktest.After, sqllock.ErrUnreachable)

			if err := lock.Mark(t.Context(), int64(tries+1)); want == nil && err != nil {
				t.Errorf("Mark() after %d answers that were lost = %v, want nil", tries, err)
			} else {
				wantIs(t, "Mark()", err, want)
			}
		}

		if log := out.String(); strings.Count(log, `msg="mark not recorded"`) != 1 || !strings.Contains(log, "mark=4") {
			t.Errorf("the log says %s, want the one mark that failed", log)
		}

		// It is somebody else's.
		memory.Fail("renew", 1000, sqllocktest.Before, sqllock.ErrUnreachable)
		time.Sleep(lease + time.Second)

		next := acquire(t, newLocker(t, memory.Peer()))
		wantLost(t, "Mark() of a lock that is another's", lock.Mark(t.Context(), 9), sqllock.ReasonUnknown)

		if status, err := locker.Inspect(t.Context(), name); err != nil || status.Mark != 4 {
			t.Errorf("Inspect().Mark = %d, %v, want 4", status.Mark, err)
		}

		memory.Reset()

		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestMarkUnsupported(t *testing.T) {
	t.Parallel()

	memory := sqllocktest.NewMemory()
	locker := newLocker(t, plain{memory})
	lock := acquire(t, locker)

	if locker.Features().Marks || !newLocker(t, memory).Features().Marks {
		t.Error("Features().Marks does not say who keeps marks")
	}

	wantIs(t, "Mark()", lock.Mark(t.Context(), 1), sqllock.ErrUnsupported)
	wantIs(t, "MarkTx()", lock.MarkTx(t.Context(), memory.Begin(), 1), sqllock.ErrUnsupported)

	var none *sqllock.Lock

	wantIs(t, "Mark() of nil", none.Mark(t.Context(), 1), sqllock.ErrNotAcquired)
	wantIs(t, "MarkTx() of nil", none.MarkTx(t.Context(), memory.Begin(), 1), sqllock.ErrNotAcquired)
}
