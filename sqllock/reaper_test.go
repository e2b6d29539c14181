package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// looks is how often the locker looked for idle names, after so long.
func looks(memory *sqllocktest.Memory, after time.Duration) int {
	time.Sleep(after)
	synctest.Wait()

	return memory.Count("idle")
}

func use(t *testing.T, locker *sqllock.Locker, name string, options ...sqllock.LockOption) {
	t.Helper()

	if err := locker.TryDo(t.Context(), name, func(context.Context, *sqllock.Lock) error { return nil }, options...); err != nil {
		t.Errorf("TryDo(%q) = %v, want nil", name, err)
	}
}

// known says whether the strategy has something about a name.
func known(t *testing.T, memory *sqllocktest.Memory, name string) bool {
	t.Helper()

	_, found, err := memory.Status(t.Context(), name)
	if err != nil {
		t.Errorf("Status(%q) = %v, want nil", name, err)
	}

	return found
}

// TestIdleNamesGo: a while after its last release a locker has removed all names, and then it asks no more.
func TestIdleNamesGo(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		locker := newLocker(t, memory)

		if n := looks(memory, time.Hour); n != 0 {
			t.Errorf("a locker that has done nothing looked %d times, want 0", n)
		}

		use(t, locker, "first")

		if n := looks(memory, 50*time.Second); n != 0 || !known(t, memory, "first") {
			t.Errorf("looked %d times within a minute, want 0", n)
		}

		time.Sleep(40 * time.Second)
		use(t, locker, "second")

		n := looks(memory, 5*time.Minute)
		if known(t, memory, "first") || known(t, memory, "second") {
			t.Error("the names are known five minutes after their release")
		}

		if n < 1 || n > 4 {
			t.Errorf("looked %d times, want a few", n)
		}

		if later := looks(memory, time.Hour); later != n {
			t.Errorf("looked %d times in an hour in which nothing was released, want 0", later-n)
		}

		use(t, locker, "third")
		looks(memory, 5*time.Minute)

		if known(t, memory, "third") {
			t.Error("a name that was used an hour later is known five minutes after that")
		}
	})
}

// TestIdleNamesGoPageByPage: as many as there are go, also if one look does not remove all.
func TestIdleNamesGoPageByPage(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		other := newLocker(t, memory.Peer(), sqllock.WithTuning(sqllock.Tuning{NoReaping: true}))

		for i := range 5000 {
			use(t, other, string(rune('a'+i%26))+time.Duration(i).String())
		}

		use(t, newLocker(t, memory), "name")
		looks(memory, 5*time.Minute)

		if removed, _, err := memory.ReapIdle(t.Context(), 0, 1); removed != 0 || err != nil {
			t.Errorf("ReapIdle() afterwards = %d, %v, want that nothing is left", removed, err)
		}
	})
}

// TestNoReaping: a locker with it does not look, and a lock cannot have it.
func TestNoReaping(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		use(t, newLocker(t, memory, sqllock.WithTuning(sqllock.Tuning{NoReaping: true})), "name")

		_, err := newLocker(t, memory).Acquire(t.Context(), "name", sqllock.WithTuning(sqllock.Tuning{NoReaping: true}))
		wantIs(t, "Acquire(NoReaping)", err, sqllock.ErrInvalidOption)

		if n := looks(memory, time.Hour); n != 0 {
			t.Errorf("looked %d times, want 0", n)
		}
	})
}

// TestReapingEndsWithClose: also one that is under way, and later there is none.
func TestReapingEndsWithClose(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		locker := newLocker(t, memory)
		reached, resume := memory.Pause("idle", sqllocktest.Before)

		defer resume()
		use(t, locker, "name")
		<-reached

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		n := memory.Count("idle")
		if later := looks(memory, time.Hour); later != n {
			t.Errorf("looked %d times after Close, want 0", later-n)
		}
	})
}

// TestReapingThatFails is tried again as often as others look, and never if it cannot succeed.
func TestReapingThatFails(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		err  error
		most int
	}{{errors.New("no luck"), 4}, {sqllock.ErrNotAllowed, 1}} {
		synctest.Test(t, func(t *testing.T) {
			memory := sqllocktest.NewMemory()
			memory.Fail("idle", 1000, sqllocktest.Before, c.err)
			use(t, newLocker(t, memory), "name")

			if n := looks(memory, time.Hour); n < 1 || n > c.most {
				t.Errorf("looked %d times in an hour where that is %v, want 1 to %d", n, c.err, c.most)
			}
		})
	}
}
