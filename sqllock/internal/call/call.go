// Package call makes calls to a database so that whoever waits for one can give it up: some drivers do not return from a connection
// that was cut off (lib/pq), or not while SQLite is busy (mattn/go-sqlite3). A [Batcher] makes several of one kind together.
package call

import (
	"context"
	"slices"
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

// Deadline makes contexts that end after a time. Those that are made within deadlineShare have one timer, and what ends
// with it, so each may end so much earlier.
type Deadline struct {
	After time.Duration

	mu   sync.Mutex
	made time.Time
	ctx  context.Context    //nolint:containedctx // of all calls that began since then
	end  context.CancelFunc // is not called: nobody knows when the last of them has
}

const deadlineShare = 50 * time.Millisecond

// Of returns a context that has the values of ctx, and not its end.
func (d *Deadline) Of(ctx context.Context) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()

	if n := time.Now(); d.ctx == nil || n.Sub(d.made) >= min(deadlineShare, d.After/2) {
		d.made = n
		d.ctx, d.end = context.WithTimeout(context.Background(), d.After) //nolint:forbidigo,gosec // it is that of many calls, and ends by itself
	}

	return &deadlineContext{d.ctx, ctx}
}

// deadlineContext is a context with the values of another one.
type deadlineContext struct {
	context.Context //nolint:containedctx // it is one

	values context.Context //nolint:containedctx // has them
}

// Value is that of the context of the standard library, which finds itself in this way and has nothing else, or that of
// the values.
func (c *deadlineContext) Value(key any) any {
	if own := c.Context.Value(key); own != nil {
		return own
	}

	return c.values.Value(key)
}

// Workers are goroutines that make calls to the database, so that whoever waits for one can give it up. One that is
// done waits a while for the next call. A new goroutine begins with a small stack and copies it several times on its
// way into a driver, which takes longer than all else that the client does for a call.
type Workers struct {
	mu     sync.Mutex
	idle   []chan job // of those that wait, the last to have begun at the end
	spare  int        // how many of them nobody has needed since the last sweep
	sweeps bool       // another one will come
	closed bool       // none waits any more
}

// job is a call to be made.
type job interface{ run() }

const (
	// restTime is how often workers are sent away that nobody has needed since the last time, and mostIdle how many
	// wait at most.
	restTime = time.Second
	mostIdle = 64
)

// run has a call made.
func (w *Workers) run(j job) {
	w.mu.Lock()
	defer w.mu.Unlock()

	last := len(w.idle) - 1
	if last < 0 {
		go w.work(j)

		return
	}

	w.idle[last] <- j // has room for one

	w.idle = w.idle[:last]
	w.spare = min(w.spare, last)
}

func (w *Workers) work(j job) {
	next := make(chan job, 1)

	for ok := true; ok; {
		j.run()

		if !w.rest(next) {
			return
		}

		j, ok = <-next
	}
}

// rest lets a worker wait for its next call, if it may.
func (w *Workers) rest(next chan job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.closed || len(w.idle) == mostIdle {
		return false
	}

	w.idle = append(w.idle, next)

	if !w.sweeps {
		w.sweeps, w.spare = true, 0
		time.AfterFunc(restTime, w.sweep)
	}

	return true
}

// sweep sends away those that were not needed.
func (w *Workers) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, next := range w.idle[:w.spare] {
		close(next)
	}

	w.idle = slices.Delete(w.idle, 0, w.spare)
	w.spare = len(w.idle)

	if w.sweeps = w.spare > 0; w.sweeps {
		time.AfterFunc(restTime, w.sweep)
	}
}

// Close sends all away that wait, and others when they are done.
func (w *Workers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, next := range w.idle {
		close(next)
	}

	w.idle, w.spare, w.closed = nil, 0, true
}
