// Package call makes calls to a database so that whoever waits for one can give it up: some drivers do not return from a connection
// that was cut off (lib/pq), or not while SQLite is busy (mattn/go-sqlite3). A [Batcher] makes several of one kind together.
package call

import (
	"context"
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

// wait returns the answer, or an AbandonedError when none came until a moment
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
	return none, AbandonedError[T]{ctx.Err(), o}
}

// AbandonedError says that a call goes on, though its context has ended.
type AbandonedError[T any] struct {
	error

	outcome *outcome[T]
}

// Unwrap returns the end of the context.
func (e AbandonedError[T]) Unwrap() error { return e.error }

// Then has late take the answer, whenever it comes.
func (e AbandonedError[T]) Then(late func(T, error)) { e.outcome.then(late) }

// Within runs f and returns when it returns, or a moment after ctx ended, with an
// AbandonedError: some drivers do not return from a connection that was cut off
// (lib/pq), or not while SQLite is busy (mattn/go-sqlite3).
func Within[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	o := &outcome[T]{came: make(chan struct{})}

	go func() { o.put(f(ctx)) }()

	return o.wait(ctx)
}

// Limited is Within for a call that may take so long. Its answer is a value and nothing that f writes into a variable,
// because f may go on.
func Limited[T any](ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	return Within(ctx, f)
}

// Bounded is Limited for a call that only has an error.
func Bounded(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	_, err := Limited(ctx, timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })

	return err
}
