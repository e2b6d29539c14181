package call

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// sleep waits for d or until ctx ends, and says whether it was d.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// echo is a batcher whose calls come back after a while, and what it sent.
type echo struct {
	Batcher[int, int]

	mu   sync.Mutex
	sent [][]int
}

func newEcho(t *testing.T, took time.Duration) *echo {
	t.Helper()

	e := &echo{}
	e.Workers = &Workers{}
	t.Cleanup(e.Workers.Close)
	e.Send = func(ctx context.Context, calls []int) ([]int, []error) {
		e.note(calls...)

		errs := make([]error, len(calls))

		if !sleep(ctx, took) {
			for i := range errs {
				errs[i] = ctx.Err()
			}
		}

		for i, call := range calls {
			if call < 0 && len(calls) > 1 {
				errs[i] = strategies.ErrNotBatched
			}
		}

		return calls, errs
	}

	return e
}

func (e *echo) note(calls ...int) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.sent = append(e.sent, calls)
}

// call makes calls at the same time and returns how long they took.
func (e *echo) call(t *testing.T, calls ...int) time.Duration {
	t.Helper()

	started := time.Now()

	var group sync.WaitGroup

	for _, call := range calls {
		group.Go(func() {
			got, err := e.Serve(t.Context(), call, true)
			if got != call || err != nil {
				t.Errorf("Serve(%d) = %d, %v", call, got, err)
			}
		})

		synctest.Wait()
	}

	group.Wait()

	return time.Since(started)
}

func TestBatcher(t *testing.T) {
	t.Parallel()

	const quick = patience / 2

	t.Run("alone if none is under way", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, quick)

			for i := range 3 {
				if took := e.call(t, i); took != quick {
					t.Errorf("a call on an idle batcher took %s, want %s", took, quick)
				}
			}

			if len(e.sent) != 3 {
				t.Errorf("sent %v, want each alone", e.sent)
			}
		})
	})

	t.Run("what is expected goes together", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, quick)
			ended := e.Expect(3)

			if took := e.call(t, 1, 2, 3); took != quick || len(e.sent) != 1 {
				t.Errorf("three calls that were expected took %s, want %s; sent %v", took, quick, e.sent)
			}

			e.Expect(2) // the end of the calls before is none of these

			for range 3 {
				ended()
			}

			if took := e.call(t, 4, 5); took != quick || len(e.sent) != 2 {
				t.Errorf("two calls that were expected took %s, want %s; sent %v", took, quick, e.sent)
			}
		})
	})

	t.Run("what is expected and does not come is not waited for", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, quick)
			time.AfterFunc(time.Millisecond, e.Expect(3))

			if took := e.call(t, 1, 2); took != time.Millisecond+quick || len(e.sent) != 1 {
				t.Errorf("two of three calls that were expected took %s, want %s; sent %v", took, time.Millisecond+quick, e.sent)
			}
		})
	})

	t.Run("what gathers goes together", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, quick)

			if took := e.call(t, 1, 2, 3, 4, 5); took != 2*quick {
				t.Errorf("five calls took %s, want %s", took, 2*quick)
			}

			if len(e.sent) != 2 || len(e.sent[1]) != 4 {
				t.Errorf("sent %v, want one and then four", e.sent)
			}
		})
	})

	t.Run("nobody waits for one that hangs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, time.Minute)

			if took := e.call(t, 1, 2, 3); took != time.Minute+patience {
				t.Errorf("three calls of a minute took %s, want the patience of %s more", took, patience)
			}
		})
	})

	t.Run("what the batch cannot do goes alone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, quick)
			e.call(t, 1, -2, 3)

			if len(e.sent) != 3 || len(e.sent[2]) != 1 || e.sent[2][0] != -2 {
				t.Errorf("sent %v, want -2 alone at the end", e.sent)
			}
		})
	})

	t.Run("few go alone at a time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, patience)
			calls := make([]int, 1+3*maxUnderWay)

			for i := range calls {
				calls[i] = -i
			}

			// The first by itself, the others together in vain.
			if took, want := e.call(t, calls...), 5*patience; took != want {
				t.Errorf("%d calls alone took %s, want %s: %d at a time", 3*maxUnderWay, took, want, maxUnderWay)
			}
		})
	})

	t.Run("whoever may not go alone for long goes all the same", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, 0)
			e.Send = func(ctx context.Context, calls []int) ([]int, []error) {
				errs := make([]error, len(calls))

				switch {
				case len(calls) > 1:
					errs = slices.Repeat([]error{strategies.ErrNotBatched}, len(calls))
				case calls[0] < 0:
					sleep(ctx, time.Minute) // for a row that somebody has locked
				default:
					sleep(ctx, patience)
				}

				return calls, errs
			}

			begin := func(call int) {
				go func() { _, _ = e.Serve(t.Context(), call, true) }()

				synctest.Wait()
			}

			begin(0)

			for i := range maxUnderWay {
				begin(-1 - i)
			}

			time.Sleep(2 * patience)
			begin(1)

			if took := e.call(t, 2, 3); took > hangs+3*patience {
				t.Errorf("two calls beside %d that wait for rows took %s, want %s", maxUnderWay, took, hangs)
			}
		})
	})

	t.Run("a slow database is sent no more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, 3*patience)

			for i := range 32 {
				e.call(t, i)
			}

			before := len(e.sent)

			go func() { _, _ = e.Serve(t.Context(), 1, true) }()

			synctest.Wait()

			if took := e.call(t, 2, 3); took != 6*patience || len(e.sent) != before+2 {
				t.Errorf("two calls beside one that takes as long as ever took %s and sent %v, want them to wait for it", took, e.sent[before:])
			}
		})
	})

	t.Run("no larger than a statement may be", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, quick)
			e.Size = func(call int) int { return call * (maxBytes / 4) }
			e.call(t, 1, 2, 2, 1, 9, 1)

			if got, want := fmt.Sprint(e.sent), "[[1] [2 2] [1] [9] [1]]"; got != want {
				t.Errorf("sent %s, want %s, where 4 fit in a statement", got, want)
			}
		})
	})

	t.Run("ended before it is sent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, quick)
			ctx, cancel := context.WithCancel(t.Context())

			go func() { _, _ = e.Serve(t.Context(), 1, true) }()

			synctest.Wait()

			failed := make(chan error, 1)

			go func() {
				_, err := e.Serve(ctx, 2, true)
				failed <- err
			}()

			synctest.Wait()
			cancel()

			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("Serve() whose context ended = %v, want Canceled", err)
			}

			time.Sleep(time.Second)

			if len(e.sent) != 1 {
				t.Errorf("sent %v, want that the call that was given up is not sent", e.sent)
			}
		})
	})

	t.Run("ended while its batch hangs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, time.Minute)
			e.Send = func(_ context.Context, calls []int) ([]int, []error) {
				time.Sleep(time.Minute) // as a driver that does not look at the context

				return calls, make([]error, len(calls))
			}

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()

			// The first goes alone, the others together when patience is over.
			for call := range 2 {
				go func() { _, _ = e.Serve(t.Context(), call, true) }()

				synctest.Wait()
			}

			late := make(chan int, 1)

			var abandoned AbandonedError[int]

			if _, err := e.Serve(ctx, 3, true); !errors.As(err, &abandoned) {
				t.Fatalf("Serve() whose context ended = %v, want an AbandonedError", err)
			}

			abandoned.Then(func(r int, _ error) { late <- r })

			if r := <-late; r != 3 {
				t.Errorf("the late answer is %d, want 3", r)
			}
		})
	})

	t.Run("ended when all gave up", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(t, time.Hour)
			started := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)

			defer cancel()

			var group sync.WaitGroup

			for i := range 3 {
				group.Go(func() { _, _ = e.Serve(ctx, i, true) })
				synctest.Wait()
			}

			group.Wait()
			synctest.Wait()

			if took := time.Since(started); took != time.Second || e.underWay != 0 {
				t.Errorf("after %s %d statements are under way for nobody", took, e.underWay)
			}
		})
	})
}

// After many were under way one that hangs holds up the next for as long as ever.
func TestBatcherAfterManyUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &Batcher[time.Duration, struct{}]{Workers: &Workers{}}
		t.Cleanup(l.Workers.Close)

		l.Send = func(ctx context.Context, calls []time.Duration) ([]struct{}, []error) {
			sleep(ctx, calls[0])

			return make([]struct{}, len(calls)), make([]error, len(calls))
		}

		for range maxUnderWay + 1 {
			go func() { _, _ = l.Serve(t.Context(), 5*patience, true) }()

			time.Sleep(patience + time.Millisecond)
		}

		time.Sleep(20 * patience)

		go func() { _, _ = l.Serve(t.Context(), time.Minute, true) }()

		synctest.Wait()

		started := time.Now()

		if _, err := l.Serve(t.Context(), 0, true); err != nil {
			t.Errorf("Serve() = %v, want nil", err)
		}

		if waited := time.Since(started); waited > 2*patience {
			t.Errorf("served %s after a call that hangs, want at most %s", waited, 2*patience)
		}
	})
}
