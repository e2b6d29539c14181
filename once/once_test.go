package once_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

const name = "report"

// bubble runs f where time passes when all goroutines wait.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// tick is a point in time that has passed when a bubble begins.
func tick() time.Time { return time.Date(1999, time.December, 31, 2, 0, 0, 0, time.UTC) }

// setup returns a locker on a new in-memory strategy.
func setup(t *testing.T, options ...sqllock.LockerOption) (*sqllocktest.Memory, *sqllock.Locker) {
	t.Helper()

	memory := sqllocktest.NewMemory()

	return memory, newLocker(t, memory, options...)
}

func newLocker(t *testing.T, s strategies.Strategy, options ...sqllock.LockerOption) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(s, options...)
	if err != nil {
		t.Fatalf("New() = %v", err)
	}

	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

	return locker
}

func wantIs(t *testing.T, what string, err error, targets ...error) {
	t.Helper()

	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s = %v, want that it matches %q", what, err, target)
		}
	}
}

// succeeds is a job that does.
func succeeds(context.Context, *sqllock.Lock) error { return nil }

// neverCalled is a job that does not run.
func neverCalled(t *testing.T) func(context.Context, *sqllock.Lock) error {
	t.Helper()

	return func(context.Context, *sqllock.Lock) error {
		t.Error("the job ran")

		return nil
	}
}

// wantRuns fails unless the job of a tick runs.
func wantRuns(t *testing.T, locker *sqllock.Locker, tick time.Time) {
	t.Helper()

	ran := false

	err := once.TryDo(t.Context(), locker, name, tick, func(context.Context, *sqllock.Lock) error {
		ran = true

		return nil
	})
	if !ran || err != nil {
		t.Errorf("TryDo() of tick %s = %v, ran: %t, want that it runs", tick, err, ran)
	}
}

// wantDone fails unless the job of a tick does not run because that of the other one was done.
func wantDone(t *testing.T, locker *sqllock.Locker, tick, done time.Time) {
	t.Helper()

	for what, call := range map[string]func() error{
		"TryDo()": func() error { return once.TryDo(t.Context(), locker, name, tick, neverCalled(t)) },
		"Do()":    func() error { return once.Do(t.Context(), locker, name, tick, neverCalled(t)) },
		"TryAcquire()": func() error {
			_, err := once.TryAcquire(t.Context(), locker, name, tick)

			return err
		},
		"Acquire()": func() error {
			_, err := once.Acquire(t.Context(), locker, name, tick)

			return err
		},
	} {
		err, refused := call(), new(once.DoneError)

		switch {
		case !errors.Is(err, once.ErrDone), errors.Is(err, sqllock.ErrNotAcquired):
			t.Errorf("%s of tick %s = %v, want ErrDone", what, tick, err)
		case !errors.As(err, &refused), *refused != once.DoneError{Name: name, Tick: tick.UTC(), Done: done.UTC()}:
			t.Errorf("%s of tick %s = %v, want a *DoneError of %s", what, tick, err, done)
		}
	}
}

func TestJobIsDoneOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		other := newLocker(t, memory.Peer())
		later := tick().Add(time.Hour)
		failed := errors.New("the job failed")

		err := once.Do(t.Context(), locker, name, tick(), func(context.Context, *sqllock.Lock) error { return failed })
		wantIs(t, "Do() of a job that fails", err, failed)

		wantRuns(t, other, tick())
		wantDone(t, locker, tick(), tick())
		wantDone(t, other, tick().Add(-time.Hour), tick())

		wantRuns(t, locker, later)
		wantDone(t, other, tick(), later)
		wantRuns(t, other, later.Add(time.Microsecond))

		status, err := locker.Inspect(t.Context(), name)
		if err != nil || status.Mark != later.UnixMicro()+1 {
			t.Errorf("Inspect().Mark = %d, %v, want %d", status.Mark, err, later.UnixMicro()+1)
		}
	})
}

// Nobody waits for the lock of a job that was done, or takes it.
func TestJobThatWasDoneTakesNoLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		wantRuns(t, locker, tick())

		lock, err := newLocker(t, memory.Peer()).Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}

		before := memory.Count("acquire")
		wantDone(t, locker, tick(), tick())

		if n := memory.Count("acquire"); n != before {
			t.Errorf("%d acquisitions of a job that was done, want none", n-before)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Who waits for the job hears that it was done.
func TestJobIsDoneMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		waiter := newLocker(t, memory.Peer())

		lock, err := once.Acquire(t.Context(), locker, name, tick())
		if err != nil {
			t.Fatal(err)
		}

		waited := make(chan error, 2)

		go func() { waited <- once.Do(t.Context(), waiter, name, tick(), neverCalled(t)) }()
		go func() {
			_, err := once.Acquire(t.Context(), waiter, name, tick())
			waited <- err
		}()

		synctest.Wait()

		if err := once.TryDo(t.Context(), waiter, name, tick(), neverCalled(t)); !errors.Is(err, sqllock.ErrNotAcquired) {
			t.Errorf("TryDo() of a job that runs = %v, want ErrNotAcquired", err)
		}

		if err := once.Complete(t.Context(), lock, tick()); err != nil {
			t.Errorf("Complete() = %v", err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}

		wantIs(t, "the first who waited", <-waited, once.ErrDone)
		wantIs(t, "the second who waited", <-waited, once.ErrDone)
		wantIs(t, "Complete() after the release", once.Complete(t.Context(), lock, tick()), sqllock.ErrReleased)
		wantRuns(t, waiter, tick().Add(time.Hour)) // they left nothing behind
	})
}

// A database that does not answer holds up who asks with a tick for little longer than who asks without.
func TestSilentDatabase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, c := range []struct {
			what    string
			longest time.Duration
			call    func(locker *sqllock.Locker) error
		}{
			{"TryAcquire()", 5 * time.Second, func(locker *sqllock.Locker) error {
				_, err := once.TryAcquire(t.Context(), locker, name, tick())

				return err
			}},
			{"TryDo()", 5 * time.Second, func(locker *sqllock.Locker) error {
				return once.TryDo(t.Context(), locker, name, tick(), neverCalled(t))
			}},
			{"Acquire() with a longest wait", 4 * time.Second, func(locker *sqllock.Locker) error {
				_, err := once.Acquire(t.Context(), locker, name, tick(), sqllock.WithMaxWait(3*time.Second))

				return err
			}},
			{"Do() that does not wait", 6 * time.Second, func(locker *sqllock.Locker) error {
				return once.Do(t.Context(), locker, name, tick(), neverCalled(t), sqllock.WithMaxWait(0))
			}},
		} {
			for _, silent := range []string{"*", "status"} {
				if silent == "status" && !strings.HasPrefix(c.what, "Try") {
					continue // it goes on asking under the lock
				}

				memory, locker := setup(t)
				_, resume := memory.Pause(silent, sqllocktest.Before)
				started := time.Now()
				err := c.call(locker)

				wantIs(t, c.what, err, sqllock.ErrUnreachable)

				if errors.Is(err, sqllock.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s = %v, want neither ErrNotAcquired nor the end of a context", c.what, err)
				}

				if took := time.Since(started); took > c.longest+100*time.Millisecond {
					t.Errorf("%s at a database that is silent to %q took %s, want %s", c.what, silent, took, c.longest)
				}

				resume()
			}
		}
	})
}

// A job outlasts a restart, before it waits for the lock and under it.
func TestJobOutlastsARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		held, err := locker.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}

		memory.Fail("status", 10, sqllocktest.Before, sqllock.ErrUnreachable)

		ran := make(chan error, 1)

		go func() { ran <- once.Do(t.Context(), locker, name, tick(), succeeds) }()

		time.Sleep(time.Minute)
		synctest.Wait()

		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		if err := <-ran; err != nil {
			t.Errorf("Do() over a restart = %v, want nil", err)
		}

		if n := memory.Count("status"); n != 11 {
			t.Errorf("the database was asked %d times, want 10 in vain and one that was not", n)
		}

		wantDone(t, locker, tick(), tick())
	})
}

// The end of a job outlasts a restart: while the lock is held nobody else can do it again.
func TestCompleteOutlastsARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		err := once.Do(t.Context(), locker, name, tick(), func(context.Context, *sqllock.Lock) error {
			memory.Fail("mark", 30, sqllocktest.Before, sqllock.ErrUnreachable)

			return nil
		})
		if err != nil {
			t.Errorf("Do() over a restart at its end = %v, want nil", err)
		}

		wantDone(t, locker, tick(), tick())
	})
}

// What is asked in vain ends with the error.
func TestTickCannotBeAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		for what, test := range map[string]struct {
			err  error
			call func() error
		}{
			"a try at a database that is away": {sqllock.ErrUnreachable, func() error {
				return once.TryDo(t.Context(), locker, name, tick(), neverCalled(t))
			}},
			"a wait for what does not pass": {sqllocktest.ErrBroken, func() error {
				return once.Do(t.Context(), locker, name, tick(), neverCalled(t))
			}},
		} {
			memory.Fail("status", 1000, sqllocktest.Before, test.err)
			wantIs(t, what, test.call(), test.err)
			memory.Reset()
		}

		memory.Fail("status", 1000, sqllocktest.Before, sqllock.ErrUnreachable)

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()

		wantIs(t, "Do() whose context ends", once.Do(ctx, locker, name, tick(), neverCalled(t)), context.DeadlineExceeded)
		memory.Reset()
		wantRuns(t, locker, tick())
	})
}

// A job does not begin under a lock that was lost while the database was asked for the tick.
func TestLockIsLostBeforeTheJob(t *testing.T) {
	t.Parallel()

	for what, begin := range map[string]func(ctx context.Context, locker *sqllock.Locker, f func(context.Context, *sqllock.Lock) error) error{
		"TryDo()": func(ctx context.Context, locker *sqllock.Locker, f func(context.Context, *sqllock.Lock) error) error {
			return once.TryDo(ctx, locker, name, tick(), f)
		},
		"Do()": func(ctx context.Context, locker *sqllock.Locker, f func(context.Context, *sqllock.Lock) error) error {
			return once.Do(ctx, locker, name, tick(), f)
		},
		"Acquire()": func(ctx context.Context, locker *sqllock.Locker, _ func(context.Context, *sqllock.Lock) error) error {
			_, err := once.Acquire(ctx, locker, name, tick())

			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t, sqllock.WithLease(2*time.Second))

				// The check before the acquisition passes, and the one under the lock has no answer until the lease is over.
				reached, passes := memory.Pause("acquire", sqllocktest.Before)

				var silent sync.WaitGroup

				silent.Go(func() {
					<-reached

					_, answers := memory.Pause("status", sqllocktest.Before)

					memory.Fail("renew", 100, sqllocktest.Before, sqllock.ErrUnreachable)
					passes()
					time.Sleep(4 * time.Second)
					answers()
				})

				started := time.Now()
				wantIs(t, what+" whose lock was lost", begin(t.Context(), locker, neverCalled(t)), sqllock.ErrLost)

				if took := time.Since(started); took > 3*time.Second {
					t.Errorf("%s whose lock was lost after 2s took %s", what, took)
				}

				silent.Wait()
				memory.Reset()
				wantRuns(t, locker, tick())
			})
		})
	}
}

// The inner Do of a reentrant lock ends before the job does, which may fail yet.
func TestInnerDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		failed := errors.New("the job failed")
		reentrant := sqllock.WithReentrant()

		err := once.TryDo(t.Context(), locker, name, tick(), func(ctx context.Context, _ *sqllock.Lock) error {
			if err := once.TryDo(ctx, locker, name, tick(), succeeds, reentrant); err != nil {
				t.Errorf("the inner TryDo() = %v, want nil", err)
			}

			if err := locker.TryDo(ctx, name, succeeds, reentrant); err != nil {
				t.Errorf("the inner TryDo() without a tick = %v, want nil", err)
			}

			err := once.TryDo(ctx, locker, name, tick().Add(time.Hour), neverCalled(t), reentrant)
			wantIs(t, "the inner TryDo() of another tick", err, sqllock.ErrInvalidOption)

			return failed
		}, reentrant)
		wantIs(t, "TryDo() of a job that failed", err, failed)
		wantRuns(t, locker, tick())

		// What only has the context of a job that is over is a job of its own.
		var over context.Context

		err = once.TryDo(t.Context(), locker, name, tick().Add(time.Hour), func(ctx context.Context, _ *sqllock.Lock) error {
			over = context.WithoutCancel(ctx) //nolint:fatcontext // it is what is tested

			return failed
		}, reentrant)
		wantIs(t, "TryDo() of a job that failed", err, failed)

		if err := once.TryDo(over, locker, name, tick().Add(time.Hour), succeeds, reentrant); err != nil {
			t.Errorf("TryDo() after another one = %v, want nil", err)
		}

		wantDone(t, locker, tick().Add(time.Hour), tick().Add(time.Hour))
	})
}

// The context of a job looks at the clocks, as that of Locker.Do does.
func TestContextOfTheJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		err := once.Do(t.Context(), locker, name, tick(), func(ctx context.Context, _ *sqllock.Lock) error {
			memory.Fail("renew", 1000, sqllocktest.Before, sqllock.ErrUnreachable)
			<-ctx.Done()
			wantIs(t, "the cause", context.Cause(ctx), sqllock.ErrLost)

			return nil
		})
		wantIs(t, "Do() whose lock was lost", err, sqllock.ErrLost)
		memory.Reset()
	})
}

func TestInvalid(t *testing.T) {
	t.Parallel()

	memory := sqllocktest.NewMemory()
	locker := newLocker(t, memory)

	for what, test := range map[string]struct {
		err  error
		want error
		says string
	}{
		"a tick that is none": {
			once.Do(t.Context(), locker, name, time.Time{}, succeeds), sqllock.ErrInvalidOption, "is not after 1970-01-01 00:00 UTC",
		},
		"a tick of 1970": {once.TryDo(t.Context(), locker, name, time.Unix(0, 0), succeeds), sqllock.ErrInvalidOption, "is not after 1970"},
		"a tick of the year after next": {
			once.TryDo(t.Context(), locker, name, time.Now().AddDate(2, 0, 0), succeeds), sqllock.ErrInvalidOption, "is more than 366 days from now",
		},
		"no function":              {once.Do(t.Context(), locker, name, tick(), nil), sqllock.ErrInvalidOption, "the function is nil"},
		"no context":               {once.Do(nil, locker, name, tick(), succeeds), sqllock.ErrInvalidOption, "context is nil"}, //nolint:staticcheck // it is what is tested
		"no locker":                {once.Do(t.Context(), nil, name, tick(), succeeds), sqllock.ErrClosed, ""},
		"no name":                  {once.Do(t.Context(), locker, "", tick(), succeeds), sqllock.ErrInvalidName, ""},
		"no lock":                  {once.Complete(t.Context(), nil, tick()), sqllock.ErrNotAcquired, ""},
		"no lock in a transaction": {once.CompleteTx(t.Context(), nil, memory.Begin(), tick()), sqllock.ErrNotAcquired, ""},
		"no tick to complete":      {once.Complete(t.Context(), nil, time.Time{}), sqllock.ErrInvalidOption, "not after 1970"},
		"no notes": {
			once.Do(t.Context(), newLocker(t, plain{memory}), name, tick(), succeeds), sqllock.ErrUnsupported,
			fmt.Sprintf("lock %q: tick: not supported by strategy memory on memory; use strategy cas", name),
		},
	} {
		wantIs(t, what, test.err, test.want)

		if !strings.Contains(test.err.Error(), test.says) {
			t.Errorf("%s = %v, want that it says %q", what, test.err, test.says)
		}
	}
}

// plain is a strategy that keeps no notes.
type plain struct{ strategies.Strategy }

// A job whose data is in the database is done exactly once.
func TestCompleteTx(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		job := func(end func(*sqllocktest.MemoryTx) error, release func(ctx context.Context, lock *sqllock.Lock, tx *sqllocktest.MemoryTx) error) error {
			return once.TryDo(t.Context(), locker, name, tick(), func(ctx context.Context, lock *sqllock.Lock) error {
				tx := memory.Begin()

				if err := release(ctx, lock, tx); err != nil {
					t.Errorf("the release in a transaction = %v", err)
				}

				return end(tx)
			})
		}

		completed := func(ctx context.Context, lock *sqllock.Lock, tx *sqllocktest.MemoryTx) error {
			return once.CompleteTx(ctx, lock, tx, tick())
		}

		failed := new(once.CompleteError)

		err := job((*sqllocktest.MemoryTx).Rollback, completed)
		if !errors.As(err, &failed) || !failed.Tick.Equal(tick()) || failed.Name != name || !strings.Contains(err.Error(), "MarkTx") {
			t.Errorf("TryDo() whose transaction was rolled back = %v, want a *CompleteError", err)
		}

		// A lock that was released without the tick has not done the job.
		err = job((*sqllocktest.MemoryTx).Commit, func(ctx context.Context, lock *sqllock.Lock, tx *sqllocktest.MemoryTx) error {
			return lock.ReleaseTx(ctx, tx)
		})
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "MarkTx") {
			t.Errorf("TryDo() that ends with ReleaseTx = %v, want a *CompleteError", err)
		}

		if err := job((*sqllocktest.MemoryTx).Commit, completed); err != nil {
			t.Errorf("TryDo() whose transaction was committed = %v, want nil", err)
		}

		wantDone(t, locker, tick(), tick())
	})
}

// Who maps the errors of an acquisition, or those of a driver, to "try again" would do the work twice.
func TestErrorAfterTheJobIsNoneOfAnAcquisition(t *testing.T) {
	t.Parallel()

	for _, cause := range []error{
		sqllock.ErrUnreachable, sqllock.ErrNotAcquired, sqllock.ErrTooManyConnections, sqllock.ErrReadOnly, sqllock.ErrNotAllowed,
		sqllock.ErrNoSchema, sqllock.ErrUnsupported, context.DeadlineExceeded, &strategies.HeldError{Name: name}, errors.New("the driver's"),
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t)

				err := once.Do(t.Context(), locker, name, tick(), func(context.Context, *sqllock.Lock) error {
					memory.Fail("mark", 1000, sqllocktest.Before, fmt.Errorf("somewhere: %w", cause))

					return nil
				})

				failed := new(once.CompleteError)
				if !errors.As(err, &failed) || !strings.Contains(failed.Err.Error(), cause.Error()) {
					t.Errorf("Do() = %v, want a *CompleteError with the cause", err)
				}

				if errors.Is(err, cause) || errors.As(err, new(*sqllock.HeldError)) || errors.As(err, new(*strategies.HeldError)) {
					t.Errorf("Do() = %v, which matches %v though the job ran", err, cause)
				}

				memory.Reset()
			})
		})
	}
}
