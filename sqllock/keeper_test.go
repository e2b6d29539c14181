package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

func TestRenewalAtAThirdOfTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var renewed []time.Time

		memory, locker := setup(t, observed(hooks{
			Renewed: func(sqllock.Event) { renewed = append(renewed, time.Now()) },
		}))

		last := time.Now()
		lock := acquire(t, locker)

		time.Sleep(10 * time.Minute)
		synctest.Wait()
		wantHeld(t, memory, "after ten minutes")

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		if len(renewed) < 60 || len(renewed) > 64 {
			t.Errorf("%d renewals in ten minutes of a lease of %s, want 60 to 64", len(renewed), lease)
		}

		for i, at := range renewed {
			if gap := at.Sub(last); gap < lease/3-lease/30 || gap > lease/3 {
				t.Errorf("renewal %d came after %s, want a little less than %s", i, gap, lease/3)
			}

			last = at
		}

		// None comes after the release.
		before := len(renewed)

		time.Sleep(time.Hour)
		synctest.Wait()

		if len(renewed) != before || memory.Count("renew") != before {
			t.Errorf("%d renewals after the release, want none", memory.Count("renew")-before)
		}
	})
}

func TestNoRenewalWithoutRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		started := time.Now()
		lock := acquire(t, locker, sqllock.WithoutRenewal())

		<-lock.Done()

		if got := time.Since(started); got != window {
			t.Errorf("the lock ended after %s, want %s", got, window)
		}

		if n := memory.Count("renew"); n != 0 {
			t.Errorf("%d renewals, want none", n)
		}

		wantLost(t, "Err()", lock.Err(), sqllock.ReasonExpired)
	})
}

// Not parallel: it counts the goroutines of the process.
func TestOneKeeperForAllLocks(t *testing.T) {
	const locks = 1000

	keepers := func() int {
		stacks := make([]byte, 1<<20)

		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "sqllock.(*keeper).run(")
	}

	synctest.Test(t, func(t *testing.T) {
		memory, locker := setup(t)

		if n := keepers(); n != 0 {
			t.Fatalf("%d keepers before the first lock, want none", n)
		}

		before := runtime.NumGoroutine()

		var all []*sqllock.Lock

		for i := range locks {
			lock, err := locker.Acquire(t.Context(), fmt.Sprint("lock ", i))
			if err != nil {
				t.Fatalf("Acquire() = %v", err)
			}

			all = append(all, lock)
		}

		time.Sleep(10 * lease)
		synctest.Wait()

		if n := keepers(); n != 1 {
			t.Errorf("%d keepers for %d locks, want 1", n, locks)
		}

		if n := runtime.NumGoroutine() - before; n != 1 {
			t.Errorf("%d goroutines more for %d locks, want 1", n, locks)
		}

		if n := held(t, memory); n != locks {
			t.Errorf("%d locks are held after ten leases, want %d", n, locks)
		}

		for _, lock := range all {
			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}
		}

		// Whatever waits for more to do goes when nothing comes.
		time.Sleep(3 * time.Second)
		synctest.Wait()

		if n := keepers(); n != 0 {
			t.Errorf("%d keepers after the last release, want none", n)
		}

		if n := runtime.NumGoroutine() - before; n != 0 {
			t.Errorf("%d goroutines more after the last release, want none", n)
		}

		// And one again for the next lock.
		lock := acquire(t, locker)

		time.Sleep(2 * lease)

		if err := lock.Err(); err != nil {
			t.Errorf("Err() of a lock after a pause of the keeper = %v, want nil", err)
		}
	})
}

// Whether renewals fail, hang until their context ends, or never return: the
// lock ends when its window does, to the moment.
func TestTrustWindowEndsOnTime(t *testing.T) {
	t.Parallel()

	for what, fault := range map[string]func(*sqllocktest.Memory) (heal func()){
		"fail": func(m *sqllocktest.Memory) func() {
			m.Fail("renew", 1000, sqllocktest.Before, nil)

			return func() {}
		},
		"take effect without an answer": func(m *sqllocktest.Memory) func() {
			m.Fail("renew", 1000, sqllocktest.After, nil)

			return func() {}
		},
		"hang until their context ends": func(m *sqllocktest.Memory) func() {
			_, resume := m.Pause("renew", sqllocktest.Before)

			return resume
		},
		"hang for ever": func(m *sqllocktest.Memory) func() {
			_, resume := m.Hang("renew", sqllocktest.Before)

			return resume
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t)
				heal := fault(memory)
				started := time.Now()
				lock := acquire(t, locker)

				<-lock.Done()

				if got := time.Since(started); got != window {
					t.Errorf("the lock ended after %s, want %s", got, window)
				}

				lost := wantLost(t, "context.Cause", context.Cause(lock.Context()), sqllock.ReasonExpired)

				if err := lock.Err(); err != error(lost) { //nolint:errorlint // the very same
					t.Errorf("Err() = %v, want %v", err, lost)
				}

				// Once lost, always lost: a renewal that is answered now comes
				// too late.
				heal()
				memory.Reset()
				time.Sleep(time.Minute)
				wantLost(t, "Err() after the database came back", lock.Err(), sqllock.ReasonExpired)
				wantLost(t, "Release()", lock.Release(t.Context()), sqllock.ReasonExpired)
			})
		})
	}
}

// One lock that hangs must not end others, nor keep their renewals waiting.
func TestHungRenewalsDelayNobodysEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const locks = 40 // more than renew at a time

		memory, locker := setup(t)
		_, resume := memory.Hang("renew", sqllocktest.Before)

		defer resume()

		var group sync.WaitGroup

		for i := range locks {
			started := time.Now()

			lock, err := locker.Acquire(t.Context(), fmt.Sprint("lock ", i))
			if err != nil {
				t.Fatalf("Acquire() = %v", err)
			}

			group.Go(func() {
				<-lock.Done()

				if got := time.Since(started); got != window {
					t.Errorf("the lock ended after %s, want %s", got, window)
				}
			})
		}

		group.Wait()
	})
}

func TestFailedRenewalsAreTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		failed := 0
		memory, locker := setup(t, observed(hooks{RenewalFailed: func(e sqllock.Event) {
			failed++

			if e.Err == nil || e.Name != name || e.Remaining <= 0 {
				t.Errorf("RenewalFailed(%+v), want an error and what is left", e)
			}
		}}))

		memory.Fail("renew", 5, sqllocktest.Before, nil)

		lock := acquire(t, locker)

		time.Sleep(2 * lease)
		synctest.Wait()

		if failed != 5 {
			t.Errorf("%d failed renewals were told, want 5", failed)
		}

		if err := lock.Err(); err != nil {
			t.Errorf("Err() after five failed renewals = %v, want nil", err)
		}
	})
}

// Two renewals may hang for as long as they are let, and a third still begins.
func TestRenewalsFitIntoTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		_, resume := memory.Pause("renew", sqllocktest.Before)

		defer resume()

		started := time.Now()
		lock := acquire(t, locker)

		<-lock.Done()

		if n := memory.Count("renew"); n < 2 {
			t.Errorf("%d renewals were begun in %s, want at least 2", n, time.Since(started))
		}
	})
}

func TestMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const most = 7 * time.Minute

		memory, locker := setup(t)
		started := time.Now()
		lock := acquire(t, locker, sqllock.WithMaxHold(most))

		<-lock.Done()

		if got := time.Since(started); got != most {
			t.Errorf("the lock ended after %s, want %s", got, most)
		}

		wantLost(t, "context.Cause", context.Cause(lock.Context()), sqllock.ReasonMaxHold)

		renewals := memory.Count("renew")

		time.Sleep(10 * lease)

		if n := memory.Count("renew"); n != renewals {
			t.Errorf("%d renewals after the lock ended, want none", n-renewals)
		}

		wantFree(t, memory, "ten leases after the lock ended")
	})
}

func TestTakenOverIsToldByTheRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		started := time.Now()
		lock := acquire(t, locker)

		memory.Lose(name)
		<-lock.Done()

		if got := time.Since(started); got > lease/3 {
			t.Errorf("the loss was told after %s, want at most %s", got, lease/3)
		}

		wantLost(t, "context.Cause", context.Cause(lock.Context()), sqllock.ReasonTakenOver)
	})
}

func TestRemaining(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		lock := acquire(t, locker, sqllock.WithoutRenewal())

		for _, passed := range []time.Duration{0, time.Second, 20 * time.Second} {
			if got, want := lock.Remaining(), window-passed; got != want {
				t.Errorf("Remaining() = %s, want %s", got, want)
			}

			time.Sleep(map[time.Duration]time.Duration{0: time.Second, time.Second: 19 * time.Second}[passed])
		}

		time.Sleep(lease)

		if got := lock.Remaining(); got != 0 {
			t.Errorf("Remaining() of a lost lock = %s, want 0", got)
		}
	})
}

// A renewal that fell due while the release was on its way into a transaction comes
// at once when that failed, not at the end of the lease.
func TestRenewalAfterAFailedReleaseTx(t *testing.T) {
	bubble(t, func(t *testing.T) {
		renewed := make(chan struct{}, 1)
		memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}), observed(hooks{Renewed: func(e sqllock.Event) {
			if e.Name != name {
				return
			}

			select {
			case renewed <- struct{}{}:
			default:
			}
		}}))

		for i := range 100 {
			if _, err := locker.Acquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatalf("Acquire() = %v, want the lock", err)
			}

			time.Sleep(100 * time.Millisecond)
		}

		lock := acquire(t, locker)

		time.Sleep(lease/3 - 2*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()

		memory.Pause("releasetx", sqllocktest.Before)

		if err := lock.ReleaseTx(ctx, memory.Begin()); err == nil {
			t.Fatal("ReleaseTx() that is stopped = nil, want an error")
		}

		time.Sleep(time.Second)

		select {
		case <-renewed:
		default:
			t.Errorf("no renewal within a second after ReleaseTx failed; %s are left", lock.Remaining())
		}

		release(t, lock)
	})
}

// The time that the keeper gave the renewal is not the caller's.
func TestLossIsNoDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lock := acquire(t, newLocker(t, hung{sqllocktest.NewMemory()}, sqllock.WithTuning(sqllock.Tuning{NoBatching: true})), sqllock.WithLease(time.Hour))

		<-lock.Done()

		if lost := wantLost(t, "Err()", lock.Err(), sqllock.ReasonExpired); lost.Err == nil || errors.Is(lost.Err, context.DeadlineExceeded) {
			t.Errorf("Err() = %v, want the renewals' end told, and that it matches no %q", lost, context.DeadlineExceeded)
		}

		time.Sleep(time.Minute) // the last try ends
	})
}

// Why no renewal was confirmed is what an operator asks first.
func TestLossTellsTheDatabasesLastError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)
		refused := errors.New("connection refused")
		memory.Fail("renew", 1000, sqllocktest.Before, refused)

		<-lock.Done()

		if lost := wantLost(t, "Err()", lock.Err(), sqllock.ReasonExpired); !errors.Is(lost.Err, refused) {
			t.Errorf("Err() = %v, want that its Err matches %q", lost, refused)
		}
	})
}

// busyPool is a strategy whose renewals wait for a connection, behind others that wait for one, too.
type busyPool struct {
	*sqllocktest.Memory

	wait time.Duration
}

func (b busyPool) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	select {
	case <-time.After(b.wait):
		return b.Memory.Renew(ctx, grants, lease)
	case <-ctx.Done():
		return slices.Repeat([]error{fmt.Errorf("%w: connect: %w", strategies.ErrNotSent, ctx.Err())}, len(grants))
	}
}

// TestRenewalsInABusyPool: a renewal that got no connection in a fifth of its lease keeps its place for longer the next time.
func TestRenewalsInABusyPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for lease, wait := range map[time.Duration]time.Duration{6 * time.Second: 2100 * time.Millisecond, 30 * time.Second: 9 * time.Second} {
			locker := newLocker(t, busyPool{sqllocktest.NewMemory(), wait}, sqllock.WithLease(lease))
			lock := acquire(t, locker)

			time.Sleep(5 * lease)

			if err := lock.Err(); err != nil {
				t.Errorf("Err() with a lease of %s = %v, want nil", lease, err)
			}

			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}

			time.Sleep(lease) // for a renewal that is under way
		}
	})
}
