package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gonum.org/v1/gonum/stat"
)

const (
	ring       = 64      // names of a Ring
	warmUp     = 2       // pairs of each goroutine before what is measured
	mostTimes  = 1 << 20 // that are kept of a load
	shortLived = 10 * time.Second
)

// runner is what the goroutines of a load share.
type runner struct {
	*session

	until  time.Time
	inside atomic.Int64 // holders of a Shared name
	pairs  atomic.Int64

	mu      sync.Mutex
	last    time.Time // an acquisition of any goroutine
	longest time.Duration
}

// load acquires and releases for the duration.
func (s *session) load(ctx context.Context) (Result, error) {
	if err := s.warm(ctx); err != nil {
		return Result{}, fmt.Errorf("warm-up: %w", err)
	}

	if err := s.ready(); err != nil {
		return Result{}, err
	}

	began := time.Now()
	r := &runner{session: s, until: began.Add(s.job.Duration), last: began}
	statements := s.statements.Load()

	// Those that still wait at the end give up.
	waiting, cancel := context.WithDeadline(ctx, r.until)
	defer cancel()

	times := make([][]float64, s.job.Goroutines)
	faults := make([]error, s.job.Goroutines)

	var group sync.WaitGroup

	for slot := range s.job.Goroutines {
		group.Go(func() { times[slot], faults[slot] = r.repeat(ctx, waiting, slot) })
	}

	group.Wait()

	if err := first(faults); err != nil {
		return Result{}, err
	}

	result := Result{
		Pairs:       r.pairs.Load(),
		Elapsed:     s.job.Duration,
		Statements:  s.counted(statements),
		LongestWait: max(r.longest, r.until.Sub(r.last)),
	}
	result.Median, result.P99 = middle(slices.Concat(times...))

	return result, nil
}

// warm lets each goroutine use its first name: its connection, its row and
// its session are there then. On names that others want it uses one of its own,
// because some libraries wait long for each other.
func (s *session) warm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*shortLived)
	defer cancel()

	rounds := warmUp
	if s.job.Names == Ring {
		rounds = ring
	}

	one := func(slot int) error {
		for i := range rounds {
			name := s.name(slot, i)
			if s.job.Names == Shared || s.job.Names == Each {
				name = fmt.Sprintf("%s/warm/%d/%d", name, os.Getpid(), slot)
			}

			release, err := s.locker.Acquire(ctx, slot, name)
			if err != nil {
				return err
			}

			if err := release(ctx); err != nil {
				return err
			}
		}

		return nil
	}

	faults := make([]error, s.job.Goroutines)

	var group sync.WaitGroup

	for slot := range s.job.Goroutines {
		group.Go(func() { faults[slot] = one(slot) })
	}

	group.Wait()

	return first(faults)
}

func (s *session) name(slot, i int) string {
	switch s.job.Names {
	case Ring:
		return fmt.Sprintf("%s/%d/%d", s.job.Name, slot, i%ring)
	case Own, Each:
		return fmt.Sprintf("%s/%d", s.job.Name, slot)
	default:
		return s.job.Name
	}
}

// repeat acquires and releases until the time is over, and returns how long
// each pair took. Only waiting ends with the time, not what is under way.
func (r *runner) repeat(ctx, waiting context.Context, slot int) ([]float64, error) {
	var times []float64

	for i := 0; ; i++ {
		began := time.Now()
		if !began.Before(r.until) {
			return times, nil
		}

		release, err := r.locker.Acquire(waiting, slot, r.name(slot, i))

		switch {
		case err != nil && waiting.Err() != nil:
			return times, nil //nolint:nilerr // it gave up because the time is over
		case err != nil:
			return nil, err
		}

		if err := r.enter(); err != nil {
			return nil, err
		}

		r.inside.Add(-1)

		if err := release(ctx); err != nil {
			return nil, err
		}

		if ended := time.Now(); ended.Before(r.until) {
			r.pairs.Add(1)

			if len(times) < mostTimes/r.job.Goroutines {
				times = append(times, float64(ended.Sub(began)))
			}
		}
	}
}

// enter notes an acquisition. That of a contestant which does not exclude
// would be worth nothing.
func (r *runner) enter() error {
	holders := r.inside.Add(1)
	if r.job.Names != Shared {
		return nil
	}

	if holders > 1 {
		return errors.New("two goroutines held the lock at once")
	}

	now := time.Now()

	r.mu.Lock()
	defer r.mu.Unlock()

	if now.Before(r.until) {
		r.longest = max(r.longest, now.Sub(r.last))
		r.last = now
	}

	return nil
}

// first is the first of many goroutines' errors, and how many there are: a
// table has no place for all.
func first(faults []error) error {
	faults = slices.DeleteFunc(slices.Clone(faults), func(err error) bool { return err == nil })

	switch len(faults) {
	case 0:
		return nil
	case 1:
		return faults[0]
	default:
		return fmt.Errorf("%w (and %d more like it)", faults[0], len(faults)-1)
	}
}

// middle returns the median and the 99th percentile.
func middle(times []float64) (median, p99 time.Duration) {
	if len(times) == 0 {
		return 0, 0
	}

	slices.SortFunc(times, cmp.Compare)

	return time.Duration(stat.Quantile(0.5, stat.Empirical, times, nil)),
		time.Duration(stat.Quantile(0.99, stat.Empirical, times, nil))
}
