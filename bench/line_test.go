package bench_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// entering is how long it may take to be in line: who came later by less than that need not
// be behind.
const entering = 5 * time.Millisecond

// BenchmarkLine lets lockers, each of which is a process to the database, take turns with
// one name. late is the share of the grants of which others had waited for longer by 5 ms or more, most/fewest
// the ratio of the lockers' grants, longest/median that of the waits.
func BenchmarkLine(b *testing.B) {
	each(b, false, func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy) {
		b.Helper()

		for _, lockers := range []int{4, 8, 32} {
			for _, hold := range []time.Duration{0, 5 * time.Millisecond} {
				b.Run(fmt.Sprintf("%d/%s", lockers, hold), func(b *testing.B) { takeTurns(b, p, strategy, lockers, hold) })
			}
		}
	})
}

func takeTurns(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy, lockers int, hold time.Duration) {
	b.Helper()

	name := fmt.Sprintf("%s/%d", b.Name(), unique.Add(1))
	began := make([]time.Time, lockers) // of those who wait; zero of the others
	grants := make([]int, lockers)

	var (
		mu    sync.Mutex
		group sync.WaitGroup
		left  atomic.Int64
		waits []time.Duration
		late  int
	)

	left.Store(int64(b.N))
	b.ResetTimer()

	for i := range lockers {
		locker := newLocker(b, strategy(p.db))

		group.Go(func() {
			for left.Load() > 0 {
				at := time.Now()

				mu.Lock()
				began[i] = at
				mu.Unlock()

				lock, err := locker.Acquire(b.Context(), name)
				if err != nil {
					b.Error(err)

					return
				}

				left.Add(-1)
				mu.Lock()

				began[i] = time.Time{}
				grants[i]++

				waits = append(waits, time.Since(at))

				if slices.ContainsFunc(began, func(other time.Time) bool { return !other.IsZero() && at.Sub(other) > entering }) {
					late++
				}

				mu.Unlock()
				time.Sleep(hold) //nolint:forbidigo // it is what is measured: the lock is held so long

				if err := lock.Release(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	}

	group.Wait()
	b.StopTimer()
	slices.Sort(waits)

	b.ReportMetric(float64(len(waits))/b.Elapsed().Seconds(), "grants/s")
	b.ReportMetric(float64(late)/float64(len(waits)), "late")
	b.ReportMetric(float64(slices.Max(grants))/float64(max(1, slices.Min(grants))), "most/fewest")
	b.ReportMetric(float64(waits[len(waits)-1])/float64(waits[len(waits)/2]), "longest/median")
}
