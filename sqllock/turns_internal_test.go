package sqllock

import (
	"context"
	"math"
	"testing"
	"time"
)

// leaving returns how long it takes at least to enter a line of so many who wait for one name, and to leave it. It is done
// on one goroutine, which gives up at once: that is the time under the mutex, and not what a scheduler makes of it.
func leaving(t *testing.T, waiters int) time.Duration {
	t.Helper()

	q := turns{names: make(map[string]*turn)}
	if _, taken := q.tryEnter("name"); !taken {
		t.Fatal("tryEnter() of a free name = false")
	}

	for range waiters {
		q.names["name"].waiters.PushBack(&waiter{turn: make(chan struct{})})
	}

	ended, end := context.WithCancel(t.Context())
	end()

	least := time.Duration(math.MaxInt64)

	for range 20 {
		started := time.Now()

		for range 100 {
			if _, err := q.enter(ended, ended, "name", nil); err == nil {
				t.Error("enter() = nil, want the end of its context")
			}
		}

		least = min(least, time.Since(started))
	}

	if left := q.names["name"].waiters.Len(); left != waiters {
		t.Errorf("%d wait after others have left, want %d", left, waiters)
	}

	return least
}

// All names of a locker share the mutex under which they leave: with a search for each of thousands who do so at once nobody
// else would get it.
func TestManyLeaveTogether(t *testing.T) {
	t.Parallel()

	const few, times = 5_000, 16

	if less, more := leaving(t, few), leaving(t, few*times); more > times/4*max(less, time.Millisecond) {
		t.Errorf("100 left a line of %d in %s, and one of %d in %s; want no difference", few, less, few*times, more)
	}
}
