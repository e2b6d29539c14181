package call

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// jobFunc is a job for tests.
type jobFunc func()

func (f jobFunc) run() { f() }

// ready is how many workers wait.
func (w *Workers) ready() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return len(w.idle)
}

func TestWorkersAreUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &Workers{}

		var done sync.WaitGroup

		together := func(jobs int) {
			for range jobs {
				done.Add(1)
				h.run(jobFunc(func() {
					defer done.Done()

					time.Sleep(time.Millisecond)
				}))
			}

			done.Wait()
			synctest.Wait()
		}

		for _, jobs := range []int{1, 1, 5, 3} {
			together(jobs)
		}

		if n := h.ready(); n != 5 {
			t.Errorf("%d workers wait after five jobs at a time, want 5", n)
		}

		together(2 * mostIdle)

		if n := h.ready(); n != mostIdle {
			t.Errorf("%d workers wait after more jobs, want %d", n, mostIdle)
		}

		// Those that are needed stay, and the others go.
		for range 30 {
			together(2)
			time.Sleep(restTime / 10)
		}

		if n := h.ready(); n != 2 {
			t.Errorf("%d workers wait of which two are needed, want 2", n)
		}

		time.Sleep(2*restTime + time.Millisecond)
		synctest.Wait()

		if n := h.ready(); n != 0 {
			t.Errorf("%d workers wait when none was needed for two rests, want none", n)
		}
	})
}

// The bubble fails if a goroutine is left.
func TestWorkersGoWhenClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &Workers{}

		h.run(jobFunc(func() {}))
		synctest.Wait()

		at := make(chan struct{})

		h.run(jobFunc(func() { <-at }))
		h.run(jobFunc(func() {}))
		synctest.Wait()
		h.Close()
		close(at)

		ran := false

		h.run(jobFunc(func() { ran = true }))
		synctest.Wait()

		if !ran {
			t.Error("a call after the end was not made")
		}

		if n := h.ready(); n != 0 {
			t.Errorf("%d workers wait after the end, want none", n)
		}
	})
}

func TestDeadlineIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}

		const after = time.Second

		d := &Deadline{After: after}

		outer, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		first := d.Of(outer)

		cancel()

		if value := first.Value(key{}); value != "value" || first.Err() != nil {
			t.Errorf("Value() = %v and Err() = %v, want the value of the context that it was made of, and not its end", value, first.Err())
		}

		derived, cancel := context.WithCancel(first)
		defer cancel()

		time.Sleep(deadlineShare - time.Nanosecond)

		if second := d.Of(t.Context()); second.Done() != first.Done() {
			t.Error("the second context has a timer of its own, want that of the first")
		}

		time.Sleep(time.Nanosecond)

		third := d.Of(t.Context())
		if end, _ := third.Deadline(); time.Until(end) != after {
			t.Errorf("the third context ends after %s, want %s", time.Until(end), after)
		}

		time.Sleep(after - deadlineShare)
		synctest.Wait()

		for what, ctx := range map[string]context.Context{"the first context": first, "one derived from it": derived} {
			if err := ctx.Err(); err != context.DeadlineExceeded {
				t.Errorf("Err() of %s = %v, want %v", what, err, context.DeadlineExceeded)
			}
		}

		if err := third.Err(); err != nil {
			t.Errorf("Err() of the third context = %v, want nil", err)
		}
	})
}
