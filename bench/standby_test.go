package bench_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/cas"
)

// standbys are how many processes wait for one name while two others hand another one to each other for handedFor. Before, they have
// waited for SQLLOCK_BENCH_SETTLED seconds.
const (
	standbys  = 200
	settled   = 90
	handedFor = 20 * time.Second
)

// BenchmarkStandbys is how often two processes hand a name to each other while others wait for another name, which is held all the
// time, and what those send. The others are a locker each, and share a pool; on PostgreSQL each listens on a connection of its own.
func BenchmarkStandbys(b *testing.B) { eachWay(b, []int{0, standbys}, besideStandbys) }

func besideStandbys(b *testing.B, p pool, others int, options []sqllock.LockerOption) {
	b.Helper()

	ctx, stop := context.WithCancel(b.Context())

	var group sync.WaitGroup

	defer group.Wait()
	defer stop()

	prefix := fmt.Sprintf("%s/%d/", b.Name(), unique.Add(1))

	// Held until its locker is closed.
	if _, err := newLocker(b, cas.New(p.another(b, poolSize, false).db)).Acquire(ctx, prefix+"led"); err != nil {
		b.Fatal(err)
	}

	counted := sqllocktest.NewFaulty(p.another(b, poolSize, false).db)

	for range others {
		standby := newLocker(b, cas.New(counted), options...)

		group.Go(func() {
			if _, err := standby.Acquire(ctx, prefix+"led"); ctx.Err() == nil {
				b.Errorf("a standby: %v, want that it waits", err)
			}
		})
	}

	inLine(b, p, int64(others))

	if others > 0 {
		seconds := countOf(b, "SQLLOCK_BENCH_SETTLED", settled)
		time.Sleep(time.Duration(seconds) * time.Second) //nolint:forbidigo // it is a time that passes
	}

	var grants atomic.Int64

	handing, end := context.WithTimeout(ctx, handedFor)
	defer end()

	counted.Reset()

	var two sync.WaitGroup

	for range 2 {
		locker := newLocker(b, cas.New(p.another(b, poolSize, false).db), options...)

		two.Go(func() {
			for handing.Err() == nil {
				lock, err := locker.Acquire(handing, prefix+"handed")
				if err != nil {
					continue
				}

				grants.Add(1)

				if err := lock.Release(ctx); err != nil {
					b.Error(err)
				}
			}
		})
	}

	two.Wait()
	b.ReportMetric(float64(grants.Load())/handedFor.Seconds(), "grants/s")
	b.ReportMetric(float64(len(counted.Statements()))/handedFor.Seconds(), "standbys-stmts/s")
}
