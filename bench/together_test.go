package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// togetherNames are acquired at once.
const togetherNames = 3

// BenchmarkTogether is how long it takes to acquire and release three names at once, beside one. Both take turns;
// x-pair is the ratio.
func BenchmarkTogether(b *testing.B) {
	each(b, false, func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy) {
		b.Helper()

		locker := newLocker(b, strategy(p.db))

		names := make([]string, togetherNames)
		for i := range names {
			names[i] = fmt.Sprintf("%s/%d", b.Name(), i)
		}

		one := func() (released func() error) {
			lock, err := locker.Acquire(b.Context(), b.Name(), sqllock.WithTuning(sqllock.Tuning{NoHandOff: true}))
			if err != nil {
				b.Fatal(err)
			}

			return func() error { return lock.Release(b.Context()) }
		}
		all := func() (released func() error) {
			locks, err := locker.Acquire(b.Context(), names[0], sqllock.WithNames(names...))
			if err != nil {
				b.Fatal(err)
			}

			return func() error { return locks.Release(b.Context()) }
		}
		took := func(acquire func() func() error) time.Duration {
			began := time.Now()

			if err := acquire()(); err != nil {
				b.Fatal(err)
			}

			return time.Since(began)
		}

		took(one)
		took(all)

		var pair, several time.Duration

		for b.Loop() {
			pair += took(one)
			several += took(all)
		}

		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(pair.Microseconds())/float64(b.N), "µs/pair")
		b.ReportMetric(float64(several.Microseconds())/float64(b.N), "µs/three")
		b.ReportMetric(float64(several)/float64(pair), "x-pair")
	})
}
