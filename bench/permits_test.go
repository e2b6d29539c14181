package bench_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

const (
	// permitHolders use as many permits, or names.
	permitHolders = 32
	// permitTime is how long each way has its turn.
	permitTime = 500 * time.Millisecond
)

// BenchmarkPermits is how often goroutines of one process acquire and release one of as many permits
// as there are goroutines, beside names of their own. Both take turns; x-names is the ratio.
func BenchmarkPermits(b *testing.B) {
	each(b, false, func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy) {
		b.Helper()

		locker := newLocker(b, strategy(p.db))
		one := func(int) (string, []sqllock.LockOption) {
			return b.Name(), []sqllock.LockOption{sqllock.WithPermits(permitHolders)}
		}
		own := func(i int) (string, []sqllock.LockOption) { return fmt.Sprintf("%s/%d", b.Name(), i), nil }

		pairs(b, locker, permitHolders, one)
		pairs(b, locker, permitHolders, own)

		var permits, names, turns int64

		for b.Loop() {
			permits += pairs(b, locker, permitHolders, one)
			names += pairs(b, locker, permitHolders, own)
			turns++
		}

		seconds := permitTime.Seconds() * float64(turns)

		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(permits)/seconds, "permits/s")
		b.ReportMetric(float64(names)/seconds, "names/s")
		b.ReportMetric(float64(permits)/float64(names), "x-names")
	})
}

// pairs counts pairs of an acquisition and a release by so many goroutines.
func pairs(b *testing.B, locker *sqllock.Locker, goroutines int, what func(i int) (string, []sqllock.LockOption)) int64 {
	b.Helper()

	ctx, cancel := context.WithTimeout(b.Context(), permitTime)
	defer cancel()

	var (
		group sync.WaitGroup
		count atomic.Int64
	)

	for i := range goroutines {
		name, options := what(i)

		group.Go(func() {
			for ctx.Err() == nil {
				lock, err := locker.Acquire(b.Context(), name, options...)
				if err != nil {
					b.Error(err)

					return
				}

				count.Add(1)

				if err := lock.Release(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	}

	group.Wait()

	return count.Load()
}
