package sqllock

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"
)

// leaving returns how long it takes so many who wait for one name to leave, one
// after the other and the last first: that is the time under the mutex, and not what
// a scheduler makes of thousands who want it at once.
func leaving(t *testing.T, waiters int) time.Duration {
	t.Helper()

	q := turns{names: make(map[string]*turn)}
	if _, taken := q.tryEnter("name"); !taken {
		t.Fatal("tryEnter() of a free name = false")
	}

	cancels := make([]context.CancelFunc, waiters)
	left := make(chan error)

	for i := range waiters {
		var ctx context.Context

		ctx, cancels[i] = context.WithCancel(t.Context())

		go func() {
			_, _, _, err := q.enter(ctx, ctx, "name", nil)
			left <- err
		}()

		// In this order.
		for waiting := 0; waiting <= i; runtime.Gosched() {
			q.mu.Lock()
			waiting = q.names["name"].waiters.Len()
			q.mu.Unlock()
		}
	}

	started := time.Now()

	for _, cancel := range slices.Backward(cancels) {
		cancel()

		if err := <-left; err == nil {
			t.Error("enter() = nil, want the end of its context")
		}
	}

	return time.Since(started)
}

// All names of a locker share the mutex under which they leave.
func TestManyLeaveTogether(t *testing.T) {
	t.Parallel()

	const few, times = 5_000, 16

	// In proportion, with room for a machine that is busy, and three measurements, of
	// which something else may disturb two; with a search for each of them it would
	// be the square each time.
	for try := range 3 {
		less, more := leaving(t, few), leaving(t, few*times)

		switch {
		case more <= 4*times*max(less, time.Millisecond):
			return
		case try == 2:
			t.Errorf("%d waiters left in %s and %d in %s, want in proportion", few, less, few*times, more)
		}
	}
}
