package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// answer is what a server said.
type answer[T any] struct {
	value T
	err   error
	came  bool // false: the call was given up, and err says so
}

var errSilent = errors.New("no answer in the time that each server has")

// round is one question to several servers, all at once.
type round[T any] struct {
	// limit is how long each has to answer. slack is how much longer the others have when what some said decides; it is
	// at least as long as those took.
	limit, slack time.Duration
	// decided says whether what they said decides; nil: they are all waited for.
	decided func(answers []answer[T]) bool
	// patient: the end of the caller's context ends nothing but waits for connections, as strategies.TryAcquire has it.
	// What was sent is answered soon, and then there is nothing in doubt.
	patient bool
	// late takes an answer that comes when the call was given up.
	late func(i int, value T, err error)

	mu      sync.Mutex
	over    bool
	answers []answer[T]
	left    int
	news    chan struct{}
}

// moment is what a call gets to return after its context ended.
const moment = 25 * time.Millisecond

// ask makes the calls for which there is a function, and returns when all have returned, or were given up: a driver may not
// return from a connection that was cut off.
func (r *round[T]) ask(ctx context.Context, calls []func(context.Context) (T, error)) []answer[T] {
	sent, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()

	r.answers, r.news = make([]answer[T], len(calls)), make(chan struct{}, 1)

	for _, call := range calls {
		if call != nil {
			r.left++ // all of them before the first can answer
		}
	}

	for i, call := range calls {
		if call != nil {
			go func() {
				value, err := call(sent)
				r.answered(i, value, err)
			}()
		}
	}

	r.wait(ctx)
	cancel()
	r.waitFor(moment)

	return r.end(calls)
}

// answered takes an answer.
func (r *round[T]) answered(i int, value T, err error) {
	r.mu.Lock()

	if r.over {
		r.mu.Unlock()

		if r.late != nil {
			r.late(i, value, err)
		}

		return
	}

	r.answers[i] = answer[T]{value: value, err: err, came: true}
	r.left--
	r.mu.Unlock()

	select {
	case r.news <- struct{}{}:
	default:
	}
}

// state says whether all have answered, and whether that decides which came.
func (r *round[T]) state() (all, decided bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.left == 0, r.decided != nil && r.decided(r.answers)
}

// wait waits until all have answered, or the time is over.
func (r *round[T]) wait(ctx context.Context) {
	began := time.Now()

	timer := time.NewTimer(r.limit)
	defer timer.Stop()

	ended := ctx.Done()
	if r.patient {
		ended = nil
	}

	for settled := false; ; {
		all, decided := r.state()
		if all {
			return
		}

		if decided && !settled {
			settled = true

			took := time.Since(began)
			timer.Reset(min(max(took, r.slack), r.limit-took))
		}

		select {
		case <-r.news:
		case <-timer.C:
			return
		case <-ended:
			return
		}
	}
}

// waitFor waits a little longer.
func (r *round[T]) waitFor(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()

	for {
		if all, _ := r.state(); all {
			return
		}

		select {
		case <-r.news:
		case <-timer.C:
			return
		}
	}
}

// end gives up the calls that have not returned.
func (r *round[T]) end(calls []func(context.Context) (T, error)) []answer[T] {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.over = true

	for i, call := range calls {
		if call != nil && !r.answers[i].came {
			r.answers[i].err = fmt.Errorf("%w: %w (%s)", strategies.ErrUnreachable, errSilent, r.limit)
		}
	}

	return r.answers
}

// none is the value of a call that only has an error.
type none struct{}

// only makes a call of a function that only has an error.
func only(f func(context.Context) error) func(context.Context) (none, error) {
	return func(ctx context.Context) (none, error) { return none{}, f(ctx) }
}
