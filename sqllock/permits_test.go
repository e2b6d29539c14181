package sqllock_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func TestPermits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, first := setup(t)
		second := newLocker(t, memory.Peer())

		var (
			locks []*sqllock.Lock
			slots []int
		)

		for _, locker := range []*sqllock.Locker{first, second, first, second} {
			lock := acquire(t, locker, sqllock.WithPermits(4))
			locks, slots = append(locks, lock), append(slots, lock.Slot())

			if lock.Name() != name {
				t.Errorf("Name() = %q, want %q", lock.Name(), name)
			}
		}

		if slices.Sort(slots); !slices.Equal(slots, []int{0, 1, 2, 3}) {
			t.Errorf("the slots of four holders are %v, want each once", slots)
		}

		for _, locker := range []*sqllock.Locker{first, second} {
			_, err := locker.TryAcquire(t.Context(), name, sqllock.WithPermits(4))
			wantIs(t, "TryAcquire() of a fifth permit", err, sqllock.ErrNotAcquired)

			held := new(sqllock.HeldError)
			if !errors.As(err, &held) || held.Name != name || held.Holder == (sqllock.Holder{}) || !strings.Contains(err.Error(), "all 4 permits are taken") {
				t.Errorf("TryAcquire() of a fifth permit = %v, want a *HeldError with a holder", err)
			}
		}

		release(t, locks[2])

		if again := acquire(t, second, sqllock.WithPermits(4)); again.Slot() != locks[2].Slot() || again.Token() <= locks[2].Token() {
			t.Errorf("after a release slot %d with token %d is granted, want slot %d and a larger token than %d",
				again.Slot(), again.Token(), locks[2].Slot(), locks[2].Token())
		}
	})
}

// The larger number bounds how many there are.
func TestPermitsOfDifferentNumber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)

		for range 3 {
			acquire(t, locker, sqllock.WithPermits(3))
		}

		for _, n := range []int{1, 2, 3} {
			_, err := locker.TryAcquire(t.Context(), name, sqllock.WithPermits(n))
			wantIs(t, "TryAcquire() with fewer permits than are held", err, sqllock.ErrNotAcquired)
		}

		if lock := acquire(t, locker, sqllock.WithPermits(4)); lock.Slot() != 3 {
			t.Errorf("Slot() of a fourth permit = %d, want 3", lock.Slot())
		}
	})
}

// Whoever waits gets a permit in the order of arrival, in whatever process, and nobody is forgotten
// when several are freed at once.
func TestPermitsInLine(t *testing.T) {
	t.Parallel()

	for what, options := range map[string][]sqllock.LockerOption{"told": nil, "polling": {sqllock.WithTuning(sqllock.Tuning{NoNotifications: true})}} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) { permitsInLine(t, options) })
		})
	}
}

func permitsInLine(t *testing.T, options []sqllock.LockerOption) {
	t.Helper()

	const n, waiters = 3, 12

	memory := sqllocktest.NewMemory()
	lockers := make([]*sqllock.Locker, 4)

	for i := range lockers {
		lockers[i] = newLocker(t, memory.Peer(), options...)
	}

	var held []*sqllock.Lock
	for range n {
		held = append(held, acquire(t, lockers[0], sqllock.WithPermits(n)))
	}

	var (
		group sync.WaitGroup
		mu    sync.Mutex
		order []int
	)

	for i := range waiters {
		locker := lockers[i%len(lockers)]

		group.Go(func() {
			lock := acquire(t, locker, sqllock.WithPermits(n))

			mu.Lock()
			order = append(order, i)
			mu.Unlock()

			time.Sleep(100 * time.Millisecond)
			release(t, lock)
		})

		time.Sleep(10 * time.Millisecond)
	}

	time.Sleep(time.Second)

	freed := time.Now()

	for _, lock := range held {
		release(t, lock)
	}

	group.Wait()

	if took := time.Since(freed); took > time.Second {
		t.Errorf("%d waiters of %d permits took %s for 100 ms each, want less than a second", waiters, n, took)
	}

	// Those of one process queue in it: its first is in line for all of them.
	for _, i := range order[:n] {
		if i >= len(lockers) {
			t.Errorf("the order of grants is %v, want the first of the processes first", order)
		}
	}
}

// A permit whose answer was lost is not used up by nobody.
func TestPermitOfALostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		memory.Fail("acquire", 1, sqllocktest.After, errors.New("connection reset"))

		for range 2 {
			acquire(t, locker, sqllock.WithPermits(2))
		}
	})
}

func TestPermitsOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)

		for _, n := range []int{-1, 0, sqllock.MaxPermits + 1} {
			_, err := locker.TryAcquire(t.Context(), name, sqllock.WithPermits(n))
			wantIs(t, "TryAcquire() with a number of permits that makes no sense", err, sqllock.ErrInvalidOption)
		}

		long := strings.Repeat("x", sqllock.MaxNameLength-4)
		_, err := locker.TryAcquire(t.Context(), long, sqllock.WithPermits(2))
		wantIs(t, "TryAcquire() of permits of a long name", err, sqllock.ErrInvalidName)

		_, err = locker.TryAcquire(t.Context(), "a\x1fb")
		wantIs(t, "TryAcquire() of a name with U+001F", err, sqllock.ErrInvalidName)

		lock := acquire(t, locker, sqllock.WithPermits(2))

		_, err = locker.TryAcquire(lock.Context(), name, sqllock.WithPermits(2))
		wantIs(t, "TryAcquire() under a permit of the same name", err, sqllock.ErrNotAcquired)
	})
}

func TestHoldersOfPermits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)

		lock, err := locker.TryAcquire(t.Context(), name+"2")
		if err != nil {
			t.Fatal(err)
		}

		defer release(t, lock)

		for range 3 {
			acquire(t, locker, sqllock.WithPermits(3))
		}

		holders, err := locker.Holders(t.Context(), sqllock.Filter{Name: name})
		if err != nil || len(holders) != 3 {
			t.Fatalf("Holders() = %v, %v, want three", holders, err)
		}

		for i, holder := range holders {
			if holder.Name != name || holder.Slot != i {
				t.Errorf("Holders()[%d] has name %q and slot %d, want %q and %d", i, holder.Name, holder.Slot, name, i)
			}
		}

		if err := locker.ForceRelease(t.Context(), holders[1], "test"); err != nil {
			t.Fatalf("ForceRelease() = %v, want nil", err)
		}

		if holders, err := locker.Holders(t.Context(), sqllock.Filter{Name: name}); err != nil || len(holders) != 2 || holders[1].Slot != 2 {
			t.Errorf("Holders() after ForceRelease() = %v, %v, want those of the slots 0 and 2", holders, err)
		}

		status, err := locker.Inspect(t.Context(), sqllock.SlotName(name, 1))
		if err != nil || status.Name != name || status.Slot != 1 || status.Held() || status.Ended != sqllock.ReasonForced {
			t.Errorf("Inspect() = %+v, %v, want that it was taken away", status, err)
		}

		for what, slotName := range map[string]string{
			"a slot that cannot be": sqllock.SlotName(name, sqllock.MaxPermits), "a negative slot": sqllock.SlotName(name, -1),
			"a slot of a slot": sqllock.SlotName(sqllock.SlotName(name, 1), 1), "no number": name + "\x1fa", "the first, named otherwise": name + "\x1f0000",
			"no name": sqllock.SlotName("", 1),
		} {
			_, err = locker.Inspect(t.Context(), slotName)
			wantIs(t, "Inspect() of "+what, err, sqllock.ErrInvalidName)
		}

		_, err = locker.TryAcquire(t.Context(), sqllock.SlotName(name, 1))
		wantIs(t, "TryAcquire() of a slot", err, sqllock.ErrInvalidName)
	})
}

func TestEventsOfPermits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var slots []int

		note := func(e sqllock.Event) { slots = append(slots, e.Slot) }
		_, locker := setup(t, observed(hooks{Acquired: note, Released: note}))

		for range 2 {
			defer release(t, acquire(t, locker, sqllock.WithPermits(2)))
		}

		if slices.Sort(slots); !slices.Equal(slots, []int{0, 1}) {
			t.Errorf("the events of two holders are about the slots %v, want 0 and 1", slots)
		}
	})
}

// A slot whose row a transaction has locked is in nobody's way.
func TestPermitsBesideARowLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		other := newLocker(t, memory.Peer())
		tx := memory.Begin()

		defer func() { _ = tx.Rollback() }()

		if err := acquire(t, locker).Guard(t.Context(), tx); err != nil {
			t.Fatalf("Guard() = %v, want nil", err)
		}

		memory.Age(name, 2*lease)

		for range 20 {
			lock, err := other.TryAcquire(t.Context(), name, sqllock.WithPermits(2))
			if err != nil || lock.Slot() != 1 {
				t.Fatalf("TryAcquire() beside a slot that is guarded = %v, want slot 1", err)
			}

			release(t, lock)
		}
	})
}

// What others of the process ask for is not taken yet: whoever tries meanwhile is told what becomes of that.
func TestTryOfAPermitThatOthersAskFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		try := func() <-chan error {
			tried := make(chan error, 1)

			go func() {
				_, err := locker.TryAcquire(t.Context(), name, sqllock.WithPermits(2))
				tried <- err
			}()

			synctest.Wait()

			return tried
		}

		_, resume := memory.Pause("acquire", sqllocktest.Before)
		first, second := try(), try()

		memory.Fail("acquire", 2, sqllocktest.Before, sqllock.ErrNotAllowed)

		third := try()

		time.Sleep(100 * time.Millisecond)
		resume()

		wantIs(t, "the first TryAcquire()", <-first, sqllock.ErrNotAllowed)
		wantIs(t, "the second TryAcquire()", <-second, sqllock.ErrNotAllowed)

		if err := <-third; err != nil {
			t.Errorf("TryAcquire() of what the others did not get = %v, want nil", err)
		}
	})
}

// One that wants the name without permits waits for the first permit, and keeps it from nobody who came before.
func TestPermitsBesideALockWithout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		peer := newLocker(t, memory.Peer())
		zero, one := acquire(t, peer, sqllock.WithPermits(2)), acquire(t, peer, sqllock.WithPermits(2))

		if zero.Slot() == 1 {
			zero, one = one, zero
		}

		wait := func(options ...sqllock.LockOption) <-chan *sqllock.Lock {
			acquired := make(chan *sqllock.Lock, 1)

			go func() {
				if lock, err := locker.Acquire(t.Context(), name, options...); err == nil {
					acquired <- lock
				}
			}()

			time.Sleep(time.Second)

			return acquired
		}

		first, second := wait(sqllock.WithPermits(2)), wait()
		started := time.Now()

		release(t, zero)
		lock := <-first

		if took := time.Since(started); lock.Slot() != 0 || took > time.Second {
			t.Errorf("slot %d was acquired after %s, want slot 0 at once", lock.Slot(), took)
		}

		release(t, lock)
		release(t, <-second)
		release(t, one)
	})
}
