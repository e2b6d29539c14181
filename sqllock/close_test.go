package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

func TestCloseIsBoundedByItsContext(t *testing.T) {
	for _, held := range []int{1, 400} {
		t.Run(strconv.Itoa(held), func(t *testing.T) { closeBounded(t, held) })
	}
}

func closeBounded(t *testing.T, held int) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		var locks []*sqllock.Lock

		for i := range held {
			lock, err := locker.Acquire(t.Context(), strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}

			locks = append(locks, lock)
		}

		_, resume := memory.Hang("release", sqllocktest.Before)
		defer resume()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		started := time.Now()
		wantIs(t, "Close()", locker.Close(ctx), context.DeadlineExceeded)

		if took := time.Since(started); took > 2*time.Second {
			t.Errorf("Close() with a second took %s", took)
		}

		for _, lock := range locks {
			wantIs(t, "Err() after Close", lock.Err(), sqllock.ErrClosed)
		}
	})
}

// What an acquisition leaves that Close interrupts is gone when Close returns.
func TestCloseWaitsForAcquisitions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		reached, resume := memory.Pause("acquire", sqllocktest.After)
		defer resume()

		acquired := make(chan error, 1)

		go func() {
			_, err := locker.Acquire(t.Context(), name)
			acquired <- err
		}()

		<-reached

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if n := held(t, memory); n != 0 {
			t.Errorf("%d locks are held after Close, want none", n)
		}

		wantIs(t, "Acquire() during Close", <-acquired, sqllock.ErrClosed)
	})
}

// So is what an attempt leaves that its caller has given up and that the driver goes on with.
func TestCloseWaitsForAbandonedAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := &late{Memory: sqllocktest.NewMemory(), delay: 3 * time.Second}
		locker := newLocker(t, strategy)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if _, err := locker.TryAcquire(ctx, name); err == nil {
			t.Fatal("TryAcquire() = a lock after its deadline")
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if strategy.returned.Load() == 0 {
			t.Error("Close() returned while an attempt was under way")
		}

		if n := held(t, strategy.Memory); n != 0 {
			t.Errorf("%d locks are held after Close, want none", n)
		}
	})
}

// Its lease does not run before it has arrived, however long nothing can be asked.
func TestCloseWaitsForAbandonedAttemptsBeyondTheirLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := &late{Memory: sqllocktest.NewMemory(), delay: 5 * time.Second}
		locker := newLocker(t, strategy, sqllock.WithLease(time.Second))
		strategy.Fail("settle", 10, sqllocktest.Before, nil)

		if _, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(100*time.Millisecond)); err == nil {
			t.Fatal("Acquire() = a lock after its limit")
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if strategy.returned.Load() == 0 {
			t.Error("Close() returned while an attempt was under way")
		}

		wantFree(t, strategy.Memory, "after Close")
	})
}

// A release is under way that somebody else called.
func TestCloseWaitsForReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)

		reached, resume := memory.Pause("release", sqllocktest.Before)

		go release(t, lock)

		<-reached
		time.AfterFunc(500*time.Millisecond, resume)

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		wantFree(t, memory, "when Close has returned")
	})
}

// Close ends though its context does not, and says what may be left.
func TestCloseAtASilentDatabase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithLease(time.Hour))
		acquire(t, locker)

		_, resume := memory.Hang("*", sqllocktest.Before)
		defer resume()

		started := time.Now()
		err := locker.Close(t.Context())

		if err == nil || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("Close() at a silent database = %v, want an error that names the lock", err)
		}

		if took := time.Since(started); took > 20*time.Second {
			t.Errorf("Close() took %s, want 15s and a moment", took)
		}
	})
}

// An attempt whose connection broke may still arrive when Close has ended all it
// can see.
func TestCloseWaitsForWhatMayArrive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		overtaken := &overtaken{Memory: memory}
		locker := newLocker(t, overtaken, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}), sqllock.WithLease(time.Hour))
		release(t, acquire(t, locker))
		time.AfterFunc(3*time.Second, func() { overtaken.arrive(t) })

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		wantFree(t, memory, "when Close has returned")
		time.Sleep(time.Minute)
		wantFree(t, memory, "later")
	})
}

func TestCloseUnderDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)

		err := locker.Do(t.Context(), name, func(ctx context.Context, _ *sqllock.Lock) error {
			if err := locker.Close(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}

			return nil
		})
		wantIs(t, "Do() whose lock Close released", err, sqllock.ErrClosed)
	})
}

func TestErrAfterReleaseOfALostLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)
		memory.Lose(name)

		wantIs(t, "Check()", lock.Check(t.Context()), sqllock.ErrLost)
		wantIs(t, "Release()", lock.Release(t.Context()), sqllock.ErrLost)
		wantIs(t, "Err() after Release", lock.Err(), sqllock.ErrLost)
	})
}

// The context of another locker's lock ends by that locker's Close.
func TestCloseOfAnotherLocker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		acquire(t, newLocker(t, memory.Peer()))

		_, other := setup(t)
		outer := acquire(t, other)

		time.AfterFunc(time.Second, func() { _ = other.Close(context.WithoutCancel(t.Context())) })

		_, err := locker.Acquire(outer.Context(), name)
		wantIs(t, "Acquire() under a lock of a locker that was closed", err, sqllock.ErrNotAcquired, context.Canceled)
	})
}

func TestFeaturesOfNil(t *testing.T) {
	t.Parallel()

	var locker *sqllock.Locker

	if got := locker.Features(); got != (strategies.Features{}) {
		t.Errorf("Features() of nil = %v, want none", got)
	}
}

// A lock can end before the acquisition that got it has returned.
func TestEndBesideAnAcquisition(t *testing.T) {
	t.Parallel()

	t.Run("by Close", func(t *testing.T) {
		t.Parallel()

		for range 300 {
			locker := newLocker(t, sqllocktest.NewMemory(), sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))

			var group sync.WaitGroup

			for i := range 20 {
				group.Go(func() {
					if _, err := locker.Acquire(t.Context(), fmt.Sprint(i)); err != nil && !errors.Is(err, sqllock.ErrClosed) {
						t.Errorf("Acquire() beside Close() = %v, want the lock or ErrClosed", err)
					}
				})
			}

			runtime.Gosched()

			if err := locker.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}

			group.Wait()
		}
	})

	t.Run("by its longest hold", func(t *testing.T) {
		t.Parallel()

		locker := newLocker(t, sqllocktest.NewMemory(), sqllock.WithTuning(sqllock.Tuning{NoBatching: true}), sqllock.WithMaxHold(time.Nanosecond))

		for range 5000 {
			lock := acquire(t, locker)

			if err := lock.Release(t.Context()); err != nil && !errors.Is(err, sqllock.ErrLost) {
				t.Fatalf("Release() at the longest hold = %v, want nil or ErrLost", err)
			}
		}
	})
}

// Work that hangs has its lease's time to stop, but not when the process ends.
func TestCloseAfterMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithMaxHold(time.Second))
		lock := acquire(t, locker)

		<-lock.Done()

		if n := held(t, memory); n != 1 {
			t.Errorf("%d locks are held when the longest hold is over, want one until its lease ends", n)
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		wantFree(t, memory, "after Close")
	})
}

// Release frees a lock whose longest hold is over at once.
func TestReleaseAfterMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithMaxHold(time.Second))
		lock := acquire(t, locker)

		<-lock.Done()

		wantIs(t, "Release()", lock.Release(t.Context()), sqllock.ErrLost)
		time.Sleep(100 * time.Millisecond)
		wantFree(t, memory, "after Release")

		started := time.Now()

		if err := locker.Close(t.Context()); err != nil || time.Since(started) > time.Second {
			t.Errorf("Close() after %s = %v, want nil at once", time.Since(started), err)
		}
	})
}

// A service whose signal context has ended closes with it.
func TestCloseWithAnEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 50 {
			memory, locker := setup(t)

			for i := range 20 {
				if _, err := locker.Acquire(t.Context(), strconv.Itoa(i)); err != nil {
					t.Fatal(err)
				}
			}

			ctx, cancel := context.WithCancel(t.Context())
			cancel()

			err := locker.Close(ctx)
			if n := held(t, memory); err == nil && n > 0 {
				t.Fatalf("Close() = nil, and %d locks are held", n)
			}

			synctest.Wait()
			time.Sleep(time.Second)
			wantFree(t, memory, "a second after Close")
		}
	})
}

// What a hook does is no business of Close's.
func TestCloseBesideAHookThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		blocked := make(chan struct{})
		entered := make(chan struct{})
		memory, locker := setup(t, observed(hooks{Acquired: func(sqllock.Event) {
			close(entered)
			<-blocked
		}}))

		go func() { _, _ = locker.Acquire(t.Context(), name) }()

		<-entered

		started := time.Now()

		if err := locker.Close(t.Context()); err != nil || time.Since(started) > time.Second {
			t.Errorf("Close() after %s = %v, want nil at once", time.Since(started), err)
		}

		wantFree(t, memory, "after Close")
		close(blocked)
		synctest.Wait()
	})
}

// At the end of the trust window the keeper finds the loss while Close looks for what
// is held: what the keeper leaves to the background is not done yet.
func TestCloseAtTheMomentOfALoss(t *testing.T) {
	t.Parallel()

	for range 3000 {
		synctest.Test(t, func(t *testing.T) {
			memory, locker := setup(t, sqllock.WithoutRenewal())
			acquire(t, locker)
			time.Sleep(window)

			if err := locker.Close(t.Context()); err != nil {
				t.Fatalf("Close() = %v, want nil", err)
			}

			wantFree(t, memory, "after Close")
		})

		if t.Failed() {
			return
		}
	}
}

func TestCloseBesideClose(t *testing.T) {
	t.Parallel()

	for range 3000 {
		var (
			memory, locker = setup(t)
			closing        sync.WaitGroup
			begin          = make(chan struct{})
		)

		acquire(t, locker)

		for range 2 {
			closing.Go(func() {
				<-begin

				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("Close() = %v, want nil", err)
				}

				wantFree(t, memory, "after either Close")
			})
		}

		close(begin)
		closing.Wait()

		if t.Failed() {
			return
		}
	}
}

// The database still has the name taken then.
func TestReleaseErrorTellsWhenTheNameIsFree(t *testing.T) {
	for _, option := range []sqllock.LockOption{
		sqllock.WithLockDelay(time.Hour), sqllock.WithMinHold(2 * time.Hour), sqllock.WithLease(time.Minute),
	} {
		synctest.Test(t, func(t *testing.T) {
			memory, locker := setup(t)
			lock := acquire(t, locker, option)

			// Every second release is done, and all answers are lost.
			memory.Fail("release", 3, sqllocktest.Before, nil)
			memory.Fail("release", 1000, sqllocktest.After, nil)

			failed := new(sqllock.ReleaseError)
			if err := lock.Release(t.Context()); !errors.As(err, &failed) {
				t.Fatalf("Release() = %v, want a *ReleaseError", err)
			}

			time.Sleep(failed.FreeAfter + time.Second)

			if _, err := newLocker(t, memory.Peer()).TryAcquire(t.Context(), name); err != nil {
				t.Errorf("TryAcquire() after the %s of the error = %v, want the lock", failed.FreeAfter, err)
			}
		})
	}
}

// lateRenewal is a strategy whose renewals get no answer, and are executed after delay: on
// MySQL they wait for the row of the name, also when their connections are closed.
type lateRenewal struct {
	*sqllocktest.Memory
	delay time.Duration
}

func (l lateRenewal) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	time.AfterFunc(l.delay, func() { _ = l.Memory.Renew(context.WithoutCancel(ctx), grants, lease) })
	<-ctx.Done()

	return slices.Repeat([]error{ctx.Err()}, len(grants))
}

// The lease has not ended a lock if a renewal that got no answer comes after it. A release
// that is confirmed has.
func TestCloseWaitsForRenewalsThatMayArrive(t *testing.T) {
	t.Parallel()

	const lease = time.Second

	for what, end := range map[string]func(t *testing.T, locker *sqllock.Locker){
		"overdue": func(t *testing.T, locker *sqllock.Locker) {
			t.Helper()
			acquire(t, locker)
			time.Sleep(lease)
		},
		"overdue, with an Extend under way": func(t *testing.T, locker *sqllock.Locker) {
			t.Helper()

			lock, ctx := acquire(t, locker, sqllock.WithoutRenewal()), context.WithoutCancel(t.Context())

			time.Sleep(lease * 9 / 10)

			go func() { _ = lock.Extend(ctx, lease) }()

			time.Sleep(lease / 10)
		},
		"released when it was overdue": func(t *testing.T, locker *sqllock.Locker) {
			t.Helper()

			lock := acquire(t, locker)

			time.Sleep(lease)
			wantLost(t, "Release()", lock.Release(t.Context()), sqllock.ReasonExpired)
		},
		"released": func(t *testing.T, locker *sqllock.Locker) {
			t.Helper()

			lock := acquire(t, locker)

			time.Sleep(lease / 2)

			failed := new(sqllock.ReleaseError)
			if err := lock.Release(t.Context()); !errors.As(err, &failed) || failed.FreeAfter < lease*3/2 {
				t.Errorf("Release() = %v, want that it tells of the lease of a renewal that may arrive", err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := sqllocktest.NewMemory()
				locker := newLocker(t, lateRenewal{memory, 5900 * time.Millisecond}, sqllock.WithLease(lease))

				_, resume := memory.Pause("release", sqllocktest.Before)
				time.AfterFunc(12*time.Second, resume)

				end(t, locker)

				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("Close() = %v, want nil", err)
				}

				for range 200 {
					wantFree(t, memory, "after Close")
					time.Sleep(lease / 10)
				}
			})
		})
	}
}

// Nobody waits for renewals once a release is confirmed: they find that the lock is not theirs.
func TestCloseDoesNotWaitForRenewalsAfterARelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		locker := newLocker(t, lateRenewal{memory, 4 * time.Second}, sqllock.WithLease(time.Second))
		acquire(t, locker)
		time.Sleep(2 * time.Second)

		begun := time.Now()
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if took := time.Since(begun); took > time.Second {
			t.Errorf("Close() took %s, want no more than the release", took)
		}

		time.Sleep(5 * time.Second)
		wantFree(t, memory, "when the renewals have come")
	})
}

// A wait that begins when the locker is closed leaves the line, too: those behind it would wait for
// nobody.
func TestCloseBesideAnEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		lock := acquire(t, newLocker(t, memory.Peer()))
		strategy := memory.Peer()
		locker := newLocker(t, strategy)
		reached, resume := strategy.Pause("enqueue", sqllocktest.After)
		ended := make(chan error, 1)

		go func() {
			_, err := locker.Acquire(t.Context(), name)
			ended <- err
		}()

		<-reached
		time.AfterFunc(10*time.Millisecond, resume)

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		wantIs(t, "Acquire() of a closed locker", <-ended, sqllock.ErrClosed)

		if left, err := memory.Waiters(t.Context(), strategies.WaiterFilter{}); err != nil || len(left) > 0 {
			t.Errorf("after Close() there are waits %v, %v, want none", left, err)
		}

		release(t, lock)
	})
}

// What others would take for a wait is removed when the database can be reached again, or has been forgotten.
func TestCloseLeavesTheLine(t *testing.T) {
	t.Parallel()

	for what, failures := range map[string]int{"a moment": 2, "for long": 1000} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t)
				other := newLocker(t, memory.Peer())
				lock := acquire(t, other)
				ended := make(chan error, 1)

				go func() {
					_, err := locker.Acquire(t.Context(), name)
					ended <- err
				}()

				time.Sleep(time.Second)

				memory.Fail("leave", failures, sqllocktest.Before, nil)

				began := time.Now()

				wantIs(t, "Close()", locker.Close(t.Context()), nil)
				wantIs(t, "Acquire() when the locker is closed", <-ended, sqllock.ErrClosed)

				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("Close() took %s, longer than anybody believes in the wait", took)
				}

				if left, err := other.Waiters(t.Context(), sqllock.WaiterFilter{}); err != nil || len(left) > 0 {
					t.Errorf("Waiters() after Close = %v, %v, want none", left, err)
				}

				memory.Reset()
				release(t, lock)
			})
		})
	}
}
