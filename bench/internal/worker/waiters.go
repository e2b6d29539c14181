package worker

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// waiters waits with many goroutines for one lock. It says that it is ready
// before they begin, with a connection in its pool, so that what it has more
// then are those of the waiting. What they send is counted after a while: the
// beginning is not the waiting.
func (s *session) waiters(ctx context.Context) (Result, error) {
	if err := s.connect(ctx); err != nil {
		return Result{}, err
	}

	if err := s.ready(); err != nil {
		return Result{}, err
	}

	waiting, cancel := context.WithCancel(ctx)
	defer cancel()

	var group sync.WaitGroup

	faults := make([]error, s.job.Goroutines)

	for slot := range s.job.Goroutines {
		group.Go(func() {
			release, err := s.locker.Acquire(waiting, slot, s.job.Name)

			switch {
			case err == nil:
				faults[slot] = errors.Join(errors.New("it got a lock that is held"), release(ctx))
			case waiting.Err() == nil:
				faults[slot] = err
			}
		})
	}

	<-time.After(s.job.Settle)

	// The parent asks the server now and at the end.
	statements := s.statements.Load()

	if err := s.ready(); err != nil {
		return Result{}, err
	}

	<-time.After(s.job.Duration)

	result := Result{Elapsed: s.job.Duration, Statements: s.counted(statements), Goroutines: runtime.NumGoroutine()}

	if err := s.ready(); err != nil {
		return Result{}, err
	}

	cancel()
	group.Wait()

	return result, first(faults)
}
