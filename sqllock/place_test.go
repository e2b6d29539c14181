package sqllock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// placer is a strategy with a place for nobody until places are put in.
type placer struct {
	strategies.Strategy // a Memory

	places chan struct{}
	asked  atomic.Int64
}

func (p *placer) Features() strategies.Features {
	f := p.Strategy.Features()
	f.Unbatched = true

	return f
}

func (p *placer) Place(ctx context.Context, _ []string, waits func(error)) (any, error) {
	p.asked.Add(1)

	return waitForPlace(ctx, p, p.places, waits)
}

// waitForPlace says that there is no place yet, and gives p as one when one is put in.
func waitForPlace(ctx context.Context, p any, places <-chan struct{}, waits func(error)) (any, error) {
	waits(fmt.Errorf("%w: no place yet", sqllock.ErrTooManyConnections))

	select {
	case <-places:
		return p, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no place", sqllock.ErrTooManyConnections)
	}
}

func (p *placer) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if requests[0].Place != p {
		return make([]strategies.Grant, 1), []error{fmt.Errorf("%w: no place", sqllock.ErrTooManyConnections)}
	}

	return p.Strategy.Acquire(ctx, requests)
}

func newPlacer() *placer {
	return &placer{Strategy: sqllocktest.NewMemory(), places: make(chan struct{}, 1)}
}

// The lease is that of an attempt, however long its place was waited for.
func TestLeaseBeginsWithThePlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := newPlacer()
		locker := newLocker(t, strategy)

		time.AfterFunc(10*lease, func() { strategy.places <- struct{}{} })

		lock := acquire(t, locker)
		if left := lock.Remaining(); left != window {
			t.Errorf("Remaining() = %s, want %s", left, window)
		}

		if n := strategy.asked.Load(); n != 1 {
			t.Errorf("asked for a place %d times, want once", n)
		}
	})
}

func TestWaitForAPlaceEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := newPlacer()
		locker := newLocker(t, strategy)

		_, err := locker.TryAcquire(t.Context(), name)
		wantIs(t, "TryAcquire() without a place", err, sqllock.ErrTooManyConnections)

		started := time.Now()
		_, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(time.Minute))
		wantIs(t, "Acquire() without a place", err, sqllock.ErrTooManyConnections)

		if took := time.Since(started); took != time.Minute {
			t.Errorf("Acquire() without a place took %s, want the longest wait of a minute", took)
		}

		time.AfterFunc(time.Minute, func() { _ = locker.Close(t.Context()) })

		_, err = locker.Acquire(t.Context(), name)
		wantIs(t, "Acquire() that Close ended", err, sqllock.ErrClosed)

		if n := strategy.asked.Load(); n != 2 {
			t.Errorf("asked for a place %d times, want once by each waiter", n)
		}
	})
}

// Who does not wait is not kept by one of its process that waits for a place.
func TestTryBesideOneWhoWaitsForAPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := newPlacer()
		locker := newLocker(t, strategy)
		waited := make(chan *sqllock.Lock, 1)

		go func() { waited <- acquire(t, locker) }()

		synctest.Wait()

		started := time.Now()
		_, err := locker.TryAcquire(t.Context(), name)
		wantIs(t, "TryAcquire() beside one who waits for a place", err, sqllock.ErrTooManyConnections)

		if took := time.Since(started); took > 0 {
			t.Errorf("TryAcquire() beside one who waits for a place took %s, want no time", took)
		}

		_, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(time.Second))
		wantIs(t, "Acquire() beside one who waits for a place", err, sqllock.ErrTooManyConnections)

		strategy.places <- struct{}{}

		release(t, <-waited)
	})
}

// busyPlacer is a strategy with a place when one was put in.
type busyPlacer struct {
	*sqllocktest.Memory

	places chan struct{}
}

func (p *busyPlacer) Place(ctx context.Context, _ []string, waits func(error)) (any, error) {
	select {
	case <-p.places:
		return p, nil
	default:
		return waitForPlace(ctx, p, p.places, waits)
	}
}

// Whoever has no place when it is its turn lets the others go first, and asks when it has
// one: they may have none either.
func TestAPlaceIsUsedWhoeverIsInLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		first := acquire(t, newLocker(t, memory))
		strategy := &busyPlacer{memory.Peer(), make(chan struct{}, 1)}
		strategy.places <- struct{}{}

		locks := make(chan *sqllock.Lock, 1)
		locker := newLocker(t, strategy, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))

		go func() { locks <- acquire(t, locker) }()

		time.Sleep(time.Second)

		other := strategies.Waiter{Name: name, Process: "other", ID: "1"}
		if _, err := single.Enqueue(t.Context(), memory, other, time.Hour); err != nil {
			t.Fatalf("Enqueue() = %v, want nil", err)
		}

		release(t, first)
		time.Sleep(time.Second)

		if standing, err := memory.Stand(t.Context(), other.Process, 0); err != nil || len(standing) != 1 || standing[0].Ahead != 0 {
			t.Errorf("Stand() beside one without a place = %+v, %v, want none ahead", standing, err)
		}

		strategy.places <- struct{}{}

		placed := time.Now()
		release(t, <-locks)

		if took := time.Since(placed); took > 100*time.Millisecond {
			t.Errorf("the lock was had %s after the place, want it at once", took)
		}
	})
}

// lateEntry is a strategy on which the second entry of a wait into its line takes long. The process
// is told until then that the first is gone, as when it asks just when a grant takes it out.
type lateEntry struct {
	*sqllocktest.Memory

	entries chan strategies.Waiter
}

func (s *lateEntry) Stand(ctx context.Context, process string, ttl time.Duration) ([]strategies.Standing, error) {
	if len(s.entries) == 1 {
		return nil, nil
	}

	return s.Memory.Stand(ctx, process, ttl)
}

func (s *lateEntry) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	s.entries <- all[0]

	time.Sleep(time.Millisecond)

	if len(s.entries) > 1 {
		time.Sleep(500 * time.Millisecond)
	}

	return s.Memory.Enqueue(ctx, all, ttl)
}

// Whoever says again that it is in line does not stay there when it has had its turn meanwhile: those
// behind it would wait for nobody.
func TestEntryThatComesAfterTheGrant(t *testing.T) {
	t.Parallel()

	for name, lose := range map[string]func(t *testing.T, s *lateEntry){
		"of a wait that was forgotten": func(*testing.T, *lateEntry) {},
		"of a wait that is over": func(t *testing.T, s *lateEntry) {
			t.Helper()

			if _, err := single.Enqueue(t.Context(), s.Memory, <-s.entries, time.Minute); err != nil {
				t.Errorf("Enqueue() = %v, want nil", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := sqllocktest.NewMemory()
				strategy := &lateEntry{Memory: memory.Peer(), entries: make(chan strategies.Waiter, 8)}
				first := acquire(t, newLocker(t, memory))
				locker, other := newLocker(t, strategy), newLocker(t, memory.Peer())
				waited := make(chan *sqllock.Lock, 1)

				go func() { waited <- acquire(t, locker) }()

				for len(strategy.entries) < 2 {
					time.Sleep(100 * time.Millisecond) // until it enters again
				}

				release(t, first)

				second := <-waited

				time.Sleep(time.Second) // it has arrived
				lose(t, strategy)
				time.Sleep(time.Millisecond)

				go func() { waited <- acquire(t, other) }()

				time.Sleep(time.Second)

				released := time.Now()
				release(t, second)
				release(t, <-waited)

				if took := time.Since(released); took > 100*time.Millisecond {
					t.Errorf("the next had the lock %s after the release, want it at once", took)
				}
			})
		})
	}
}

// counter is a strategy that counts its places: those given, those that came back with a request or a grant, and
// those that were used more than once.
type counter struct {
	strategies.Strategy

	out, misused atomic.Int64
}

// ticket is a place for one request.
type ticket struct{ used atomic.Bool }

func (c *counter) Place(context.Context, []string, func(error)) (any, error) {
	c.out.Add(1)

	return new(ticket), nil
}

func (c *counter) Features() strategies.Features {
	f := c.Strategy.Features()
	f.Unbatched = true

	return f
}

func (c *counter) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if place, ok := requests[0].Place.(*ticket); !ok {
		c.out.Add(1) // it takes one itself
	} else if place.used.Swap(true) {
		c.misused.Add(1)
	}

	grants, errs := c.Strategy.Acquire(ctx, requests)
	if errs[0] != nil {
		c.out.Add(-1)
	}

	return grants, errs
}

func (c *counter) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	c.out.Add(-1)

	return c.Strategy.Release(ctx, grants)
}

// A place is for one request. Who finds all permits taken, or asks for one after the other, has none that is not used,
// and none twice.
func TestPermitsUseEachPlaceOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		strategy := &counter{Strategy: memory}
		locker, other, two := newLocker(t, strategy), newLocker(t, memory.Peer()), sqllock.WithPermits(2)

		for range 20 {
			theirs := acquire(t, other, two)
			release(t, acquire(t, locker, two))
			release(t, theirs)
		}

		locks := []*sqllock.Lock{acquire(t, locker, two), acquire(t, other, two)}

		for range 5 {
			_, err := locker.Acquire(t.Context(), name, two, sqllock.WithMaxWait(time.Second))
			wantIs(t, "Acquire() of a third permit", err, sqllock.ErrNotAcquired)

			_, err = locker.TryAcquire(t.Context(), name, two)
			wantIs(t, "TryAcquire() of a third permit", err, sqllock.ErrNotAcquired)
		}

		if out, misused := strategy.out.Load(), strategy.misused.Load(); out != 1 || misused != 0 {
			t.Errorf("%d places are out and %d were used again, want one for the lock that is held, and none", out, misused)
		}

		for _, lock := range locks {
			release(t, lock)
		}
	})
}
