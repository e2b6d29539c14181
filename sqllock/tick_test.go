package sqllock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// tick is a point in time that has passed when a bubble begins.
func tick() sqllock.Option {
	return sqllock.WithTick(time.Date(1999, time.December, 31, 2, 0, 0, 0, time.UTC))
}

// A database that does not answer holds up who asks with a tick for no longer than who asks without.
func TestTickAtASilentDatabase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		_, resume := memory.Pause("notes", sqllocktest.Before)
		defer resume()

		for _, c := range []struct {
			what    string
			longest time.Duration
			says    string
			call    func(ctx context.Context) error
		}{
			{"TryAcquire()", 5 * time.Second, "not acquired: no answer within 5s", func(ctx context.Context) error {
				_, err := locker.TryAcquire(ctx, name, tick())

				return err
			}},
			{"Acquire() with a longest wait", 3 * time.Second, "not acquired: gave up after 3s", func(ctx context.Context) error {
				_, err := locker.Acquire(ctx, name, tick(), sqllock.WithMaxWait(3*time.Second))

				return err
			}},
			{"Do() that does not wait", 5 * time.Second, "not acquired: no answer within 5s", func(ctx context.Context) error {
				return locker.Do(ctx, name, neverCalled(t), tick(), sqllock.WithMaxWait(0))
			}},
		} {
			started := time.Now()
			err := c.call(t.Context())

			wantIs(t, c.what, err, sqllock.ErrUnreachable)
			wantNot(t, c.what, err, sqllock.ErrNotAcquired)

			if took := time.Since(started); took > c.longest+100*time.Millisecond {
				t.Errorf("%s at a silent database took %s, want %s", c.what, took, c.longest)
			}

			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s = %q, want it to say %q", c.what, err, c.says)
			}
		}
	})
}

// A wait with a tick outlasts a restart, at its first look for the tick and at the one under the lock.
func TestTickOutlastsARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		held := acquire(t, locker)

		memory.Fail("notes", 10, sqllocktest.Before, sqllock.ErrUnreachable)

		ran := make(chan error, 1)

		go func() {
			ran <- locker.Do(t.Context(), name, func(context.Context, *sqllock.Lock) error { return nil }, tick())
		}()

		time.Sleep(time.Minute)
		synctest.Wait()

		if n := memory.Count("notes"); n != 11 {
			t.Errorf("%d looks for the tick, want 10 that failed and one that did not", n)
		}

		memory.Fail("notes", 10, sqllocktest.Before, sqllock.ErrUnreachable)

		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		if err := <-ran; err != nil {
			t.Errorf("Do() over a restart = %v, want nil", err)
		}

		wantIs(t, "TryAcquire() of a tick that was done", locker.TryDo(t.Context(), name, neverCalled(t), tick()), sqllock.ErrTickDone)
	})
}

// A job does not begin under a lock that was lost while the database was asked for the tick.
func TestTickUnderALostLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithLease(2*time.Second))

		// The look before the acquisition passes, and the one under the lock has no answer until the lease is over.
		reached, passes := memory.Pause("acquire", sqllocktest.Before)

		var silent sync.WaitGroup

		silent.Go(func() {
			<-reached

			_, answers := memory.Pause("notes", sqllocktest.Before)

			memory.Fail("renew", 100, sqllocktest.Before, sqllock.ErrUnreachable)
			passes()
			time.Sleep(4 * time.Second)
			answers()
		})

		err := locker.TryDo(t.Context(), name, neverCalled(t), tick())
		wantIs(t, "TryDo() whose lock was lost", err, sqllock.ErrLost)

		silent.Wait()
		memory.Reset()

		if err := locker.TryDo(t.Context(), name, func(context.Context, *sqllock.Lock) error { return nil }, tick()); err != nil {
			t.Errorf("TryDo() afterwards = %v, want nil: the job has not run", err)
		}
	})
}

// The inner Do of a reentrant lock ends before the job does, which may fail yet.
func TestTickOfAnInnerDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		failed := errors.New("the job failed")

		err := locker.TryDo(t.Context(), name, func(ctx context.Context, _ *sqllock.Lock) error {
			inner := func(context.Context, *sqllock.Lock) error { return nil }
			if err := locker.TryDo(ctx, name, inner, tick(), sqllock.WithReentrant()); err != nil {
				t.Errorf("the inner TryDo() = %v, want nil", err)
			}

			return failed
		}, tick(), sqllock.WithReentrant())
		wantIs(t, "TryDo() of a job that failed", err, failed)

		ran := false

		err = locker.TryDo(t.Context(), name, func(context.Context, *sqllock.Lock) error {
			ran = true

			return nil
		}, tick(), sqllock.WithReentrant())
		if err != nil || !ran {
			t.Errorf("TryDo() afterwards = %v, ran: %v, want the job to run", err, ran)
		}
	})
}

// neverCalled is a job that does not run.
func neverCalled(t *testing.T) func(context.Context, *sqllock.Lock) error {
	t.Helper()

	return func(context.Context, *sqllock.Lock) error {
		t.Error("the job ran")

		return nil
	}
}

// A strategy that keeps no notes refuses a tick, as it does other options that it cannot honour.
// TestTickBeforeTheCommit is told that its transaction has not committed, and not that the tick is not noted, which it will be.
func TestTickBeforeTheCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer

		memory, locker := setup(t, sqllock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))

		lock, err := locker.Acquire(t.Context(), name, tick())
		if err != nil {
			t.Fatal(err)
		}

		tx := memory.Begin()
		if err := lock.ReleaseTx(t.Context(), tx); err != nil {
			t.Fatal(err)
		}

		if err := lock.Complete(t.Context()); !errors.As(err, new(*sqllock.CompleteError)) {
			t.Errorf("Complete() before the commit = %v, want a *CompleteError", err)
		}

		if log := out.String(); strings.Contains(log, `msg="tick not noted"`) || !strings.Contains(log, "has not committed") {
			t.Errorf("the log of Complete() before the commit says %s, want that the transaction has not committed", log)
		}

		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}

		if err := lock.Complete(t.Context()); err != nil {
			t.Errorf("Complete() after the commit = %v, want nil", err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v", err)
		}
	})
}

func TestTickUnsupported(t *testing.T) {
	t.Parallel()

	_, err := newLocker(t, plain{sqllocktest.NewMemory()}).TryAcquire(t.Context(), name, tick())

	wantIs(t, "TryAcquire() with a tick", err, sqllock.ErrUnsupported)
	wantOption(t, "TryAcquire() with a tick", err, fmt.Sprintf(
		"lock %q: WithTick: not supported by strategy plain on memory; use strategy cas", name))
}
