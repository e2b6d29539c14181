package sqllocktest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func closeCases() []testCase {
	return []testCase{
		{"close/after acquisitions that were cancelled", nil, closeAfterCancel},
		{"close/beside releases", nil, closeBesideReleases},
	}
}

// A service is told to stop while it acquires. What it was about to get must not be
// there when Close has returned, nor later.
func closeAfterCancel(e *env) {
	const (
		rounds = 12
		calls  = 20
	)

	for round := range rounds {
		locker := e.locker(e.Strategy)
		ctx, cancel := context.WithCancel(e.ctx())

		var group sync.WaitGroup

		for i := range calls {
			group.Go(func() { _, _ = locker.Acquire(ctx, fmt.Sprintf("%s/%d/%d", e.name, round, i)) })
		}

		// From at once to when most of them are under way.
		time.AfterFunc(time.Duration(round)*time.Millisecond, cancel)

		<-ctx.Done()

		if err := locker.Close(e.ctx()); err != nil {
			e.Errorf("Close() = %v, want nil: the database answers", err)
		}

		e.nothingLeft("when Close has returned")
		group.Wait()
	}

	e.nothingLeft("after that")
}

// The work ends with its context, and main closes the locker and returns.
func closeBesideReleases(e *env) {
	const calls = 20

	for round := range 5 {
		locker := e.locker(e.Strategy)
		ctx, cancel := context.WithCancel(e.ctx())

		var started, ended sync.WaitGroup

		for i := range calls {
			started.Add(1)
			ended.Go(func() {
				acquired := sync.OnceFunc(started.Done)
				defer acquired()

				_ = locker.Do(ctx, fmt.Sprintf("%s/%d/%d", e.name, round, i), func(ctx context.Context, _ *sqllock.Lock) error {
					acquired()
					<-ctx.Done()

					return nil
				})
			})

			if e.features.ConnectionHeld && i == 2 {
				break // a pool has only so many connections
			}
		}

		started.Wait()
		cancel()

		if err := locker.Close(e.ctx()); err != nil {
			e.Errorf("Close() = %v, want nil: the database answers", err)
		}

		e.nothingLeft("when Close has returned")
		ended.Wait()
	}
}

// nothingLeft fails if a lock of the case is held.
func (e *env) nothingLeft(when string) {
	e.Helper()

	held, err := e.b.Holders(e.ctx(), sqllock.Filter{Prefix: e.name})
	if err != nil {
		e.Fatalf("Holders() = %v", err)
	}

	if len(held) > 0 {
		e.Errorf("%d locks are held %s, the first by %+v", len(held), when, held[0])
	}
}
