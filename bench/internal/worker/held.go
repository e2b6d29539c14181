package worker

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// held acquires many locks and keeps them. After it is ready, it counts what
// is sent in one renewal interval.
func (s *session) held(ctx context.Context) (Result, error) {
	names := make([]string, s.job.Locks)
	for i := range names {
		names[i] = fmt.Sprintf("%s/%d", s.job.Name, i)
	}

	// The connections are there before memory is looked at.
	if err := s.warm(ctx); err != nil {
		return Result{}, err
	}

	before := heap()

	few, err := s.few(ctx)
	if err != nil {
		return Result{}, err
	}

	faults := make([]error, s.job.Goroutines)

	var group sync.WaitGroup

	for slot := range s.job.Goroutines {
		group.Go(func() {
			for i := slot; i < len(names); i += s.job.Goroutines {
				if _, err := s.locker.Acquire(ctx, slot, names[i]); err != nil {
					faults[slot] = err

					return
				}
			}
		})
	}

	group.Wait()

	if err := first(faults); err != nil {
		return Result{}, err
	}

	if err := s.ready(); err != nil {
		return Result{}, err
	}

	statements := s.statements.Load()
	result := Result{Elapsed: s.job.Duration, FewGoroutines: few, Goroutines: goroutines(s.job.Duration)}
	result.Statements = s.counted(statements)
	result.Bytes = heap() - before
	runtime.KeepAlive(names)

	return result, nil
}

// few is how many goroutines there are when a hundred locks are held.
func (s *session) few(ctx context.Context) (int, error) {
	for i := range 100 {
		if _, err := s.locker.Acquire(ctx, 0, fmt.Sprintf("%s/few/%d", s.job.Name, i)); err != nil {
			return 0, err
		}
	}

	return goroutines(time.Second), nil
}

// goroutines is the most that there were at a time.
func goroutines(during time.Duration) int {
	most := runtime.NumGoroutine()

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	for end := time.Now().Add(during); time.Now().Before(end); <-tick.C {
		most = max(most, runtime.NumGoroutine())
	}

	return most
}

// heap is what is in use after what is not was collected. Twice, because
// sync.Pools keep what they have over one collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()

	var stats runtime.MemStats

	runtime.ReadMemStats(&stats)

	return int64(stats.HeapAlloc)
}
