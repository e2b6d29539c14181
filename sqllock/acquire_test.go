package sqllock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

func TestWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waiters = 10

		_, locker := setup(t)
		first := acquire(t, locker)
		served := make(chan int, waiters)

		var cancelled context.CancelFunc

		for i := range waiters {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			if i == 4 {
				cancelled = cancel
			}

			go func() {
				lock, err := locker.Acquire(ctx, name)
				if err != nil {
					return
				}

				served <- i

				if err := lock.Release(ctx); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}
			}()

			synctest.Wait()
		}

		cancelled()
		synctest.Wait()

		if err := first.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		time.Sleep(time.Minute)
		synctest.Wait()

		var got []int
		for range len(served) {
			got = append(got, <-served)
		}

		if want := []int{0, 1, 2, 3, 5, 6, 7, 8, 9}; !slices.Equal(got, want) {
			t.Errorf("served in the order %v, want %v", got, want)
		}
	})
}

// A waiter whose context ends in the moment its turn comes must pass it on.
func TestCancelledWaiterPassesTheTurnOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)

		for range 200 {
			first := acquire(t, locker)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{}, 2)

			for _, ctx := range []context.Context{ctx, t.Context()} {
				go func() {
					if lock, err := locker.Acquire(ctx, name); err == nil {
						_ = lock.Release(ctx)
					} else if ctx == t.Context() {
						t.Errorf("Acquire() = %v, want the lock", err)
					}

					done <- struct{}{}
				}()

				synctest.Wait()
			}

			go cancel()

			_ = first.Release(t.Context())

			<-done
			<-done
		}
	})
}

// Only one goroutine of a locker asks the database for a name.
func TestOneContender(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		memory.Fail("listen", 1, sqllocktest.Before, sqllock.ErrUnsupported)

		other := newLocker(t, memory.Peer())
		first := acquire(t, other)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)

		defer cancel()

		for range 100 {
			go func() {
				_, _ = locker.Acquire(ctx, name, sqllock.WithTuning(sqllock.Tuning{PollMin: time.Second, PollMax: time.Second}))
			}()
		}

		time.Sleep(2 * time.Minute)

		if n := memory.Count("acquire"); n > 3 {
			t.Errorf("100 waiters asked for the lock %d times in a minute, want it done by one", n)
		}

		if n := memory.Count("stand"); n < 60 || n > 122 {
			t.Errorf("100 waiters looked %d times in a minute, want once every half to whole second", n)
		}

		if err := first.Err(); err != nil {
			t.Errorf("Err() = %v, want nil", err)
		}
	})
}

func TestWaitErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		acquire(t, newLocker(t, memory.Peer()))

		own := errors.New("the caller's own cause")

		deadline, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		_, err := locker.Acquire(deadline, name)
		wantIs(t, "Acquire() after a deadline", err, sqllock.ErrNotAcquired, context.DeadlineExceeded)

		caused, cancel := context.WithTimeoutCause(t.Context(), time.Second, own)
		defer cancel()

		_, err = locker.Acquire(caused, name)
		wantIs(t, "Acquire() after a deadline with a cause", err, sqllock.ErrNotAcquired, context.DeadlineExceeded, own)

		cancelled, cancelCause := context.WithCancelCause(t.Context())
		cancelCause(own)

		_, err = locker.Acquire(cancelled, name)
		wantIs(t, "Acquire() after a cancellation", err, context.Canceled, own)
		wantNot(t, "Acquire() that did not ask", err, sqllock.ErrNotAcquired)

		started := time.Now()
		_, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(3*time.Second))
		wantIs(t, "Acquire() after WithMaxWait", err, sqllock.ErrNotAcquired)

		if got := time.Since(started); got != 3*time.Second {
			t.Errorf("Acquire(WithMaxWait(3s)) took %s", got)
		}

		if errors.Is(err, context.Canceled) {
			t.Errorf("Acquire() after WithMaxWait = %v, want that it is no cancellation", err)
		}

		var held *sqllock.HeldError
		if !errors.As(err, &held) || held.Token == 0 {
			t.Errorf("Acquire() after WithMaxWait = %v, want the holder too", err)
		}

		started = time.Now()
		_, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(0))
		wantIs(t, "Acquire(WithMaxWait(0))", err, sqllock.ErrNotAcquired)

		if got := time.Since(started); got != 0 {
			t.Errorf("Acquire(WithMaxWait(0)) took %s, want no wait", got)
		}
	})
}

// An attempt is repeated with the same owner, three times at most.
func TestDoubtfulAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		memory.Fail("acquire", 2, sqllocktest.After, nil)

		lock := acquire(t, locker)

		if n := memory.Count("acquire"); n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		memory.Reset()
		memory.Fail("acquire", 1000, sqllocktest.After, nil)

		_, err := locker.Acquire(t.Context(), name)
		wantIs(t, "Acquire() without answers", err, sqllocktest.ErrBroken)

		if n := memory.Count("acquire"); n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}

		// What they left is given back in the background.
		synctest.Wait()
		wantFree(t, memory, "after the attempts without answers")
	})
}

// However an attempt without an answer ends, nothing stays behind.
func TestInterruptedAttemptIsGivenBack(t *testing.T) {
	t.Parallel()

	for what, stop := range map[string]func(*sqllocktest.Memory) func(){
		"returns": func(m *sqllocktest.Memory) func() {
			_, resume := m.Pause("acquire", sqllocktest.After)

			return resume
		},
		"does not return": func(m *sqllocktest.Memory) func() {
			_, resume := m.Hang("acquire", sqllocktest.After)

			return resume
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t)
				resume := stop(memory)

				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()

				started := time.Now()
				_, err := locker.Acquire(ctx, name)
				wantIs(t, "Acquire()", err, sqllock.ErrUnreachable, context.DeadlineExceeded)
				wantNot(t, "Acquire()", err, sqllock.ErrNotAcquired)

				if took := time.Since(started); took > 1100*time.Millisecond {
					t.Errorf("Acquire() with a deadline of a second took %s", took)
				}

				resume()
				time.Sleep(lease / 6)
				wantFree(t, memory, "long before the lease ends")
			})
		})
	}
}

func TestReleaseIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)

		memory.Fail("release", 2, sqllocktest.Before, nil)

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() after two failures = %v, want nil", err)
		}

		wantFree(t, memory, "after Release")
	})
}

func TestReleaseGoesOnInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)
		_, resume := memory.Hang("release", sqllocktest.Before)
		started := time.Now()

		err := lock.Release(t.Context())
		if err == nil || errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Release() without an answer = %v, want an error that is no loss", err)
		}

		if took := time.Since(started); took > 6*time.Second {
			t.Errorf("Release() without an answer took %s, want some seconds", took)
		}

		wantHeld(t, memory, "while nothing is answered")
		resume()
		time.Sleep(3 * time.Second)
		wantFree(t, memory, "when the database answers again")
	})
}

func TestReentrancyCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithReentrant())
		outer := acquire(t, locker)

		var inner []*sqllock.Lock

		for range 3 {
			lock, err := locker.Acquire(outer.Context(), name)
			if err != nil || lock.Token() != outer.Token() {
				t.Fatalf("Acquire() under the lock = %v, %v, want token %d", lock.Token(), err, outer.Token())
			}

			inner = append(inner, lock)
		}

		for _, lock := range append(inner[1:], outer) {
			for range 2 { // The second time counts for nothing.
				if err := lock.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}
			}

			wantIs(t, "Err() of a released handle", lock.Err(), sqllock.ErrReleased)
		}

		if err := inner[0].Err(); err != nil {
			t.Errorf("Err() of the last handle = %v, want nil", err)
		}

		wantHeld(t, memory, "by the last handle")

		if err := inner[0].Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		wantFree(t, memory, "after the last handle")

		if n := memory.Count("acquire"); n != 1 {
			t.Errorf("%d attempts, want 1", n)
		}
	})
}

func TestCloseWaitsForTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)
		_, resume := memory.Hang("release", sqllocktest.Before)

		defer resume()

		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()

		started := time.Now()
		err := locker.Close(ctx)
		wantIs(t, "Close() while nothing is answered", err, context.DeadlineExceeded)

		if took := time.Since(started); took != 8*time.Second {
			t.Errorf("Close() took %s, want 8s", took)
		}

		wantIs(t, "Err()", lock.Err(), sqllock.ErrReleased)

		_, err = locker.Acquire(t.Context(), name)
		wantIs(t, "Acquire() after Close", err, sqllock.ErrClosed)
	})
}

func TestDoJoinsErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		own := errors.New("the function's own error")

		err := locker.Do(t.Context(), name, func(ctx context.Context, _ *sqllock.Lock) error {
			memory.Lose(name)
			<-ctx.Done()
			wantLost(t, "context.Cause", context.Cause(ctx), sqllock.ReasonTakenOver)

			return own
		})
		wantIs(t, "Do() of a lock that was lost", err, own, sqllock.ErrLost)

		ctx, cancel := context.WithCancelCause(t.Context())

		err = locker.Do(ctx, name, func(ctx context.Context, _ *sqllock.Lock) error {
			cancel(own)
			<-ctx.Done()

			return context.Cause(ctx)
		})
		wantIs(t, "Do() that the caller cancelled", err, own)
		wantFree(t, memory, "after Do")
	})
}

// A database that was away for a moment is asked again after that.
func TestUnansweredAttemptsTakeTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		memory.Fail("acquire", 2, sqllocktest.Before, nil)

		started := time.Now()
		lock := acquire(t, locker)

		if took := time.Since(started); took < 30*time.Millisecond {
			t.Errorf("three attempts, two of them without an answer, were over in %s", took)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	})
}

// unreachable is a strategy whose database is not there.
type unreachable struct{ *sqllocktest.Memory }

var errUnreachable = errors.New("dial tcp 192.0.2.1:5432: no answer")

func (unreachable) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	<-ctx.Done()

	return make([]strategies.Grant, len(requests)), slices.Repeat([]error{errors.Join(errUnreachable, ctx.Err())}, len(requests))
}

// Without it the error would read as if somebody held the lock.
func TestWaitTellsWhyNothingAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		_, err := newLocker(t, unreachable{sqllocktest.NewMemory()}).Acquire(ctx, name)
		wantIs(t, "Acquire() without a database", err, sqllock.ErrUnreachable, context.DeadlineExceeded, errUnreachable)
		wantNot(t, "Acquire() without a database", err, sqllock.ErrNotAcquired)
	})
}

// One slice of options fits each call, whether it waits or not.
func TestOptionsAboutWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		ctx := t.Context()
		options := []sqllock.LockOption{
			sqllock.WithMaxWait(time.Second), sqllock.WithTuning(sqllock.Tuning{PollMin: time.Second, PollMax: 2 * time.Second, NoNotifications: true}),
			sqllock.WithReentrant(),
		}

		lock, err := locker.TryAcquire(ctx, name, options...)
		if err != nil {
			t.Fatalf("TryAcquire() = %v, want the lock", err)
		}

		started := time.Now()

		_, err = locker.TryAcquire(ctx, name, options...)
		wantIs(t, "TryAcquire() of a lock that is held", err, sqllock.ErrNotAcquired)

		if took := time.Since(started); took > 0 {
			t.Errorf("TryAcquire(WithMaxWait) took %s, want that it does not wait", took)
		}

		for what, inner := range map[string][]sqllock.LockOption{"the same options": options, "others about waiting": {sqllock.WithReentrant()}} {
			again, err := locker.TryAcquire(lock.Context(), name, inner...)
			if err != nil {
				t.Fatalf("TryAcquire() under the lock with %s = %v, want the lock", what, err)
			}

			release(t, again)
		}

		release(t, lock)
	})
}

// A reentrant call gets the lock as it is, whatever else it asks for.
func TestOptionsOfAReentrantCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t, sqllock.WithMaxWait(time.Minute))
		lock := acquire(t, locker, sqllock.WithReentrant(), sqllock.WithLease(time.Minute))

		_, err := locker.Acquire(lock.Context(), name)
		if err == nil || !strings.HasSuffix(err.Error(), "(this context already holds it; see WithReentrant)") {
			t.Errorf("Acquire() under the lock = %v, want that it tells of WithReentrant", err)
		}

		_, err = locker.Acquire(lock.Context(), name, sqllock.WithReentrant(), sqllock.WithLease(0))
		wantIs(t, "Acquire(WithReentrant) with a lease that makes no sense", err, sqllock.ErrInvalidOption)

		for what, option := range map[string]sqllock.LockOption{
			"another lease":     sqllock.WithLease(time.Hour),
			"a longest hold":    sqllock.WithMaxHold(time.Second),
			"a limit of a wait": sqllock.WithMaxWait(time.Hour),
			"no renewal":        sqllock.WithoutRenewal(),
			"another label":     sqllock.WithLabel("another"),
		} {
			inner, err := locker.Acquire(lock.Context(), name, sqllock.WithReentrant(), option)
			if err != nil || inner.Token() != lock.Token() || inner.Context() != lock.Context() {
				t.Fatalf("Acquire(WithReentrant) with %s = %v, want the lock", what, err)
			}

			release(t, inner)
		}

		time.Sleep(2 * time.Minute)

		if err := lock.Err(); err != nil {
			t.Errorf("Err() = %v, want that the lock is renewed and has no longest hold", err)
		}

		release(t, lock)
	})
}

func TestAcquireUnderALockThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)

		memory.Lose(name)
		wantIs(t, "Check()", lock.Check(t.Context()), sqllock.ErrLost)

		for _, wanted := range []string{name, "another"} {
			_, err := locker.Acquire(lock.Context(), wanted)
			wantIs(t, "Acquire() under a lock that was lost", err, sqllock.ErrNotAcquired)
			wantIs(t, "Acquire() under a lock that was lost", err, sqllock.ErrLost)
			wantIs(t, "Acquire() under a lock that was lost", err, context.Canceled)

			if !strings.Contains(err.Error(), strconv.Quote(wanted)) {
				t.Errorf("Acquire() = %v, want that it names %q", err, wanted)
			}
		}
	})
}
