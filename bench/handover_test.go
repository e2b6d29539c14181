package bench_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// hold is how long a lock is held that somebody waits for. A short one makes a short run.
var hold = flag.Duration("hold", 10*time.Second, "of BenchmarkHandOver: how long a lock is held before it is handed over")

const (
	// together is how many names are held at a time, and room a pool that has a
	// connection for each of them.
	together = 25
	room     = together + 7
	// leastApart and mostApart are between two releases, at random.
	leastApart = 5 * time.Millisecond
	mostApart  = 50 * time.Millisecond
)

// ways are how a locker learns of releases.
var ways = []struct {
	name    string
	options []sqllock.LockerOption
}{
	{"told", nil},
	{"polling", []sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{NoNotifications: true})}},
}

// BenchmarkHandOver is how soon a lock that was held for long is had by who waits for it, a locker
// with a pool of its own, as another process has: from the return of the release, and from
// its begin. The release may return after the waiter has the lock.
func BenchmarkHandOver(b *testing.B) {
	each(b, false, func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy) {
		b.Helper()

		for _, way := range ways {
			b.Run(way.name, func(b *testing.B) {
				h := handOver{
					holder: newLocker(b, strategy(p.another(b, room, false).db), way.options...),
					waiter: newLocker(b, strategy(p.another(b, room, false).db), way.options...),
				}

				for i := 0; b.Loop(); i++ {
					if i%together == 0 {
						h.round(b)
					}
				}

				report(b, h.fromReturn, "")
				report(b, h.fromBegin, "-from-begin")
				b.ReportMetric(0, "ns/op") // it is mostly the hold
			})
		}
	})
}

// handOver is two lockers and the times of what one handed over to the other.
type handOver struct {
	holder, waiter        *sqllock.Locker
	fromReturn, fromBegin []time.Duration
}

// round hands over as many locks as are held together, one after the other.
func (h *handOver) round(b *testing.B) {
	b.Helper()

	held, got, at := make([]*sqllock.Lock, together), make([]*sqllock.Lock, together), make([]time.Time, together)

	for i := range held {
		lock, err := h.holder.Acquire(b.Context(), fmt.Sprintf("%s/%d", b.Name(), i))
		if err != nil {
			b.Fatal(err)
		}

		held[i] = lock
	}

	var group sync.WaitGroup

	for i, lock := range held {
		group.Go(func() {
			next, err := h.waiter.Acquire(b.Context(), lock.Name())
			at[i] = time.Now()

			if err != nil {
				b.Error(err)
			}

			got[i] = next
		})
	}

	time.Sleep(*hold) //nolint:forbidigo // it is what is measured: the locks are held so long

	began, returned := make([]time.Time, together), make([]time.Time, together)

	for i, lock := range held {
		time.Sleep(leastApart + rand.N(mostApart-leastApart)) //nolint:forbidigo // so that each is alone

		began[i] = time.Now()
		err := lock.Release(b.Context())
		returned[i] = time.Now()

		if err != nil {
			b.Fatal(err)
		}
	}

	group.Wait()

	for i, lock := range got {
		if lock == nil {
			b.FailNow()
		}

		h.fromReturn = append(h.fromReturn, at[i].Sub(returned[i]))
		h.fromBegin = append(h.fromBegin, at[i].Sub(began[i]))

		if err := lock.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// report tells the median and the 99th percentile of times.
func report(b *testing.B, times []time.Duration, suffix string) {
	b.Helper()
	slices.Sort(times)

	for _, percent := range []int{50, 99} {
		at := times[(len(times)*percent+99)/100-1]
		b.ReportMetric(at.Seconds()*1000, fmt.Sprintf("p%d-ms%s", percent, suffix))
	}
}
