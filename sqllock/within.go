package sqllock

import (
	"context"
	"time"
)

// abandonedError says that a call goes on, though its context has ended.
type abandonedError struct{ error }

func (e abandonedError) Unwrap() error { return e.error }

// grace is what a driver gets to return after its context ended.
const grace = 50 * time.Millisecond

// answer is what a call returned.
type answer[T any] struct {
	value T
	err   error
}

// within runs f and returns when it returns, or a moment after ctx ended: some
// drivers do not return from a connection that was cut off (lib/pq), or not
// while SQLite is busy (mattn/go-sqlite3). Then the error is an abandonedError,
// and what comes too late is given to late.
func within[T any](ctx context.Context, f func(context.Context) (T, error), late func(T, error)) (T, error) {
	answers := make(chan answer[T], 1)

	go func() {
		value, err := f(ctx)
		answers <- answer[T]{value, err}
	}()

	return await(ctx, answers, late)
}

// await is the second half of within: for an answer that somebody sends.
func await[T any](ctx context.Context, answers <-chan answer[T], late func(T, error)) (T, error) {
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
	}

	timer := time.NewTimer(grace)
	defer timer.Stop()

	select {
	case a := <-answers:
		return a.value, a.err
	case <-timer.C:
	}

	go func() {
		if a := <-answers; late != nil {
			late(a.value, a.err)
		}
	}()

	var none T

	// Not its cause, which may be another lock's loss.
	return none, abandonedError{ctx.Err()}
}

// bounded is within for a call that only has an error.
func bounded(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	_, err := within(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) }, nil)

	return err
}

// endsWithin says whether ctx has a deadline that is near.
func endsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()

	return ok && time.Until(deadline) < d
}

// sleep waits for d or until ctx ends, and says whether it was d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
