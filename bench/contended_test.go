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
	contendedNames   = 200
	contendedLockers = 4
	contendedHold    = 5 * time.Millisecond
	// contendedFor is how long grants are counted, after all have begun and contendedWarm.
	contendedFor  = 10 * time.Second
	contendedWarm = 3 * time.Second
)

// BenchmarkContended is how often names are granted that lockers, each with a pool of its own, as
// processes have, want all the time.
func BenchmarkContended(b *testing.B) {
	each(b, false, func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy) {
		b.Helper()

		for _, way := range ways {
			b.Run(way.name, func(b *testing.B) {
				lockers := make([]*sqllock.Locker, contendedLockers)
				for i := range lockers {
					lockers[i] = newLocker(b, strategy(p.another(b, poolSize, false).db), way.options...)
				}

				grants, elapsed := int64(0), time.Duration(0)

				for b.Loop() {
					found, took := contend(b, lockers)
					grants, elapsed = grants+found, elapsed+took
				}

				b.ReportMetric(float64(grants)/elapsed.Seconds(), "grants/s")
				b.ReportMetric(0, "ns/op") // it is a time that was chosen
			})
		}
	})
}

// contend counts grants.
func contend(b *testing.B, lockers []*sqllock.Locker) (grants int64, elapsed time.Duration) {
	b.Helper()

	ctx, stop := context.WithCancel(b.Context())

	var (
		group sync.WaitGroup
		count atomic.Int64
	)

	for _, locker := range lockers {
		for i := range contendedNames {
			group.Go(func() { takeAndHold(ctx, b, locker, fmt.Sprintf("%s/%d", b.Name(), i), &count) })
		}
	}

	time.Sleep(contendedWarm) //nolint:forbidigo // so long all begin

	began, before := time.Now(), count.Load()

	time.Sleep(contendedFor) //nolint:forbidigo // so long it is counted

	grants, elapsed = count.Load()-before, time.Since(began)

	stop()
	group.Wait()

	return grants, elapsed
}

// takeAndHold takes a name again and again until ctx ends.
func takeAndHold(ctx context.Context, b *testing.B, locker *sqllock.Locker, name string, count *atomic.Int64) {
	b.Helper()

	for {
		lock, err := locker.Acquire(ctx, name)
		if err != nil {
			if ctx.Err() == nil {
				b.Error(err)
			}

			return
		}

		count.Add(1)
		time.Sleep(contendedHold) //nolint:forbidigo // the lock is held so long

		if err := lock.Release(context.WithoutCancel(ctx)); err != nil {
			b.Error(err)
		}
	}
}
