package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/clock"
	"github.com/sqllock/sqllock/sqllock"
)

// keepHolding is the line that tells a worker to hold on to the lock from the
// next time it has it.
const keepHolding = "hold"

// Work acquires and releases the lock again and again until in ends, and
// reports to out.
func Work(ctx context.Context, locker *sqllock.Locker, name string, lease time.Duration, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	w := worker{locker: locker, name: name, lease: lease, out: json.NewEncoder(out), held: make(chan struct{})}

	go func() {
		defer cancel()
		w.listen(in)
	}()

	for ctx.Err() == nil {
		if err := w.turn(ctx); err != nil && ctx.Err() == nil {
			w.report(event{Kind: failed, Text: err.Error()})

			return err
		}

		// Let the others have a turn.
		sleep(ctx, nil, between(lease/40, lease/10))
	}

	return nil
}

type worker struct {
	locker *sqllock.Locker
	name   string
	lease  time.Duration
	out    *json.Encoder
	held   chan struct{} // closed when told to hold on
}

func (w *worker) listen(in io.Reader) {
	for scanner := bufio.NewScanner(in); scanner.Scan(); {
		if scanner.Text() == keepHolding {
			close(w.held)
		}
	}
}

// turn is one acquisition.
func (w *worker) turn(ctx context.Context) error {
	lock, err := w.locker.Acquire(ctx, w.name)
	if err != nil {
		return err
	}

	w.report(event{Kind: acquired, Token: lock.Token(), At: clock.Now()})

	select {
	case <-w.held:
		sleep(ctx, lock.Done(), time.Hour)
	default:
		sleep(ctx, lock.Done(), between(w.lease/10, w.lease/4))
	}

	if lock.Err() != nil {
		w.report(event{Kind: lost, Token: lock.Token(), At: clock.Now(), Text: lock.Err().Error()})
		_ = lock.Release(ctx)

		return nil //nolint:nilerr // it is reported
	}

	w.report(event{Kind: released, Token: lock.Token(), At: clock.Now()})

	if err := lock.Release(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}

	return nil
}

// report writes to a pipe. If nobody reads it the demo is over anyway.
func (w *worker) report(e event) { _ = w.out.Encode(e) }

func sleep(ctx context.Context, early <-chan struct{}, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-early:
	case <-time.After(d):
	}
}

func between(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Int64N(int64(max(high-low, 1))))
}
