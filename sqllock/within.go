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

// within runs f and returns when it returns, or a moment after ctx ended: some
// drivers do not return from a connection that was cut off (lib/pq), or not
// while SQLite is busy (mattn/go-sqlite3). Then the error is an abandonedError,
// and what comes too late is given to late.
func within[T any](ctx context.Context, f func(context.Context) (T, error), late func(T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}

	results := make(chan result, 1)

	go func() {
		value, err := f(ctx)
		results <- result{value, err}
	}()

	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
	}

	timer := time.NewTimer(grace)
	defer timer.Stop()

	select {
	case r := <-results:
		return r.value, r.err
	case <-timer.C:
	}

	go func() {
		if r := <-results; late != nil {
			late(r.value, r.err)
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
