package bench_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

const (
	// readerProcesses read, each with as many goroutines.
	readerProcesses = 4
	readersOfEach   = 4
)

// BenchmarkReaders is how often readers acquire and release a name: 16 goroutines of one process, and those of four
// processes one name or a name for each process. All take turns; x-own is the ratio of the last two.
func BenchmarkReaders(b *testing.B) {
	each(b, false, func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy) {
		b.Helper()

		lockers := []*sqllock.Locker{newLocker(b, strategy(p.db))}
		if !lockers[0].Features().Shared {
			b.Skip("the strategy has no shared locks")
		}

		for range readerProcesses - 1 {
			lockers = append(lockers, newLocker(b, strategy(p.another(b, poolSize, false).db)))
		}

		all := func(name func(process int) string) int64 {
			counts := make([]int64, readerProcesses)

			var group sync.WaitGroup

			for i, locker := range lockers {
				group.Go(func() {
					counts[i] = pairs(b, locker, readersOfEach, func(int) (string, []sqllock.LockOption) {
						return name(i), []sqllock.LockOption{sqllock.WithShared()}
					})
				})
			}

			group.Wait()

			sum := int64(0)
			for _, count := range counts {
				sum += count
			}

			return sum
		}
		one := func() int64 { return all(func(int) string { return b.Name() }) }
		own := func() int64 { return all(func(i int) string { return fmt.Sprintf("%s/%d", b.Name(), i) }) }
		process := func() int64 {
			return pairs(b, lockers[0], readerProcesses*readersOfEach, func(int) (string, []sqllock.LockOption) {
				return b.Name(), []sqllock.LockOption{sqllock.WithShared()}
			})
		}

		var sums [3]int64

		turns := 0
		ways := []func() int64{process, one, own}

		for _, way := range ways {
			way()
		}

		for b.Loop() {
			for i, way := range ways {
				sums[i] += way()
			}

			turns++
		}

		seconds := (time.Duration(turns) * permitTime).Seconds()

		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(sums[0])/seconds, "process/s")
		b.ReportMetric(float64(sums[1])/seconds, "processes/s")
		b.ReportMetric(float64(sums[2])/seconds, "own/s")
		b.ReportMetric(float64(sums[1])/float64(sums[2]), "x-own")
	})
}
