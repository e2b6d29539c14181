package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// grace is what a driver gets to return after its context ended.
const grace = 50 * time.Millisecond

// outcome is the answer to a call that may be given up before it comes.
type outcome[T any] struct {
	came chan struct{} // closed when the answer is there

	mu    sync.Mutex
	value T // the answer, which does not change any more
	err   error
	late  func(T, error) // takes it, once the call was given up
}

// put gives the answer, once.
func (o *outcome[T]) put(value T, err error) {
	o.mu.Lock()
	o.value, o.err = value, err
	late := o.late
	close(o.came)
	o.mu.Unlock()

	if late != nil {
		late(value, err)
	}
}

// then has late take the answer to a call that was given up, whenever it comes.
func (o *outcome[T]) then(late func(T, error)) {
	o.mu.Lock()

	select {
	case <-o.came:
		o.mu.Unlock()
		late(o.value, o.err)
	default:
		o.late = late
		o.mu.Unlock()
	}
}

// wait returns the answer, or an abandonedError when none came until a moment
// after ctx ended.
func (o *outcome[T]) wait(ctx context.Context) (T, error) {
	select {
	case <-o.came:
		return o.value, o.err
	case <-ctx.Done():
	}

	timer := time.NewTimer(grace)
	defer timer.Stop()

	select {
	case <-o.came:
		return o.value, o.err
	case <-timer.C:
	}

	var none T

	// Not its cause, which may be another lock's loss.
	return none, abandonedError[T]{ctx.Err(), o}
}

// abandonedError says that a call goes on, though its context has ended.
type abandonedError[T any] struct {
	error

	outcome *outcome[T]
}

func (e abandonedError[T]) Unwrap() error { return e.error }

// within runs f and returns when it returns, or a moment after ctx ended, with an
// abandonedError: some drivers do not return from a connection that was cut off
// (lib/pq), or not while SQLite is busy (mattn/go-sqlite3).
func within[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	o := &outcome[T]{came: make(chan struct{})}

	go func() { o.put(f(ctx)) }()

	return o.wait(ctx)
}

// limited is within for a call that may take so long. Its answer is a value and nothing that f writes into a variable,
// because f may go on.
func limited[T any](ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	return within(ctx, f)
}

// bounded is limited for a call that only has an error.
func bounded(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	_, err := limited(ctx, timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })

	return err
}

// ownTime is what a caller with ctx is told of err. If ctx has not ended, the time was over that this package or a strategy
// gives a call, which must not look like the end of a context of the caller's.
func ownTime(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}

	return outOfTime(err)
}

// outOfTime is ownTime where no caller's context ends what failed.
func outOfTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ownTimeError{err}
	}

	return err
}

// ownTimeError is an error without the end of the context that is in it. It matches ErrUnreachable, unless it is an answer.
type ownTimeError struct{ err error }

func (e ownTimeError) Error() string { return e.err.Error() }

// Is reports whether err matches target.
func (e ownTimeError) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded, context.Canceled:
		return false
	case ErrUnreachable:
		return !isAnswer(e.err) || errors.Is(e.err, target)
	default:
		return errors.Is(e.err, target)
	}
}

// As finds what errors.As finds in err.
func (e ownTimeError) As(target any) bool { return errors.As(e.err, target) }

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
