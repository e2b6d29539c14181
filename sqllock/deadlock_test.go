package sqllock_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/sqllock"
)

// A deadlock about one name is told in words that are true of a shared lock and of any other.
func TestDeadlockOverOneName(t *testing.T) {
	t.Parallel()

	for what, options := range map[string][]sqllock.LockOption{"a lock": nil, "a shared lock": {sqllock.WithShared()}} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t)
				lock := acquire(t, locker, options...)

				_, err := newLocker(t, memory.Peer()).Acquire(lock.Context(), name)
				wantIs(t, "Acquire() with another locker under "+what, err, sqllock.ErrDeadlock, sqllock.ErrNotAcquired)

				const want = `waits for "the lock", which it holds itself; release the lock before you ask for the same name again`
				if err == nil || !strings.HasSuffix(err.Error(), want) {
					t.Errorf("Acquire() with another locker under %s = %v, want that it ends with %q", what, err, want)
				}

				release(t, lock)
			})
		})
	}
}
