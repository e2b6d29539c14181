package bench_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/cas"
)

const (
	// waited is how many names are waited for, and watched for how long it is counted what that sends.
	waited     = 1000
	watchedFor = 20 * time.Second
	// fewAtATime begin to wait, and when they are in line the next: the pool always has connections to spare.
	fewAtATime = 4
	// entered is how long it may take until all stand in line.
	entered = time.Minute
)

// BenchmarkWaiters is what a process sends that waits for many names, each of which another process holds,
// and how many connections it uses. Few begin to wait at a time, or all. trips are what passes on the wire,
// also on the connection that listens. Before, one more name was handed over: a process may learn from that
// how it is told. A look may follow sooner on another the shorter the waits are, so the second half of the time
// is also told by itself.
func BenchmarkWaiters(b *testing.B) { eachWay(b, []int{fewAtATime, waited + 1}, waitForMany) }

// eachWay runs a benchmark of a time that was chosen for every target, with each number, and for each way to learn of releases.
func eachWay(b *testing.B, numbers []int, f func(b *testing.B, p pool, number int, options []sqllock.LockerOption)) {
	b.Helper()

	for _, t := range targets {
		b.Run(t.name, func(b *testing.B) {
			p := t.open(b, false)

			for _, way := range ways {
				for _, number := range numbers {
					b.Run(fmt.Sprintf("%s/%d", way.name, number), func(b *testing.B) {
						for b.Loop() {
							f(b, p, number, way.options)
						}

						b.ReportMetric(0, "ns/op")
					})
				}
			}
		})
	}
}

func waitForMany(b *testing.B, p pool, atATime int, options []sqllock.LockerOption) {
	b.Helper()

	// The locker is closed before the pools are.
	holder := newLocker(b, cas.New(p.another(b, poolSize, false).db), options...)
	process := p.another(b, poolSize, true)
	counted := sqllocktest.NewFaulty(process.db)
	waiter := newLocker(b, cas.New(counted), options...)

	prefix := fmt.Sprintf("%s/%d/", b.Name(), unique.Add(1))
	first := acquireMany(b, holder, prefix)

	ctx, stop := context.WithCancel(b.Context())

	var group sync.WaitGroup

	defer group.Wait()
	defer stop()

	turn := make(chan struct{})

	for i := range waited + 1 {
		if i%atATime == 0 {
			inLine(b, p, int64(i))
		}

		group.Go(func() {
			lock, err := waiter.Acquire(ctx, fmt.Sprint(prefix, i))

			switch {
			case i == 0 && err == nil:
				err = lock.Release(ctx)

				close(turn)
			case err == nil:
				err = errors.New("it was held by another one")
			case ctx.Err() != nil:
				err = nil
			}

			if err != nil {
				b.Errorf("name %d: %v", i, err)
			}
		})
	}

	inLine(b, p, waited+1)

	if err := first.Release(b.Context()); err != nil {
		b.Fatal(err)
	}

	select {
	case <-turn:
	case <-time.After(entered):
		b.Fatalf("the first name was not handed over within %s", entered)
	}

	watchMany(b, process, counted)
}

// acquireMany holds the names and returns the first. The locker's end releases the others.
func acquireMany(b *testing.B, holder *sqllock.Locker, prefix string) (first *sqllock.Lock) {
	b.Helper()

	var group sync.WaitGroup

	for i := range waited + 1 {
		group.Go(func() {
			lock, err := holder.Acquire(b.Context(), fmt.Sprint(prefix, i))
			if err != nil {
				b.Error(err)
			}

			if i == 0 {
				first = lock
			}
		})
	}

	group.Wait()

	if b.Failed() {
		b.FailNow()
	}

	return first
}

// inLine waits until so many stand in line.
func inLine(b *testing.B, p pool, want int64) {
	b.Helper()

	deadline := time.Now().Add(entered)

	for {
		found, err := p.number(b.Context(), "SELECT count(*) FROM sqllock_queue")
		if err != nil {
			b.Fatal(err)
		}

		if found == want {
			return
		}

		if time.Now().After(deadline) {
			b.Fatalf("%d are in line after %s, want %d", found, entered, want)
		}

		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // between two looks
	}
}

// watchMany counts for a while what a process sends, and the connections that it uses.
func watchMany(b *testing.B, process pool, counted *sqllocktest.Faulty) {
	b.Helper()

	trips := int64(0)
	if process.proxy != nil {
		trips = process.proxy.trips.Load()
	}

	counted.Reset()

	began, used, samples, most, half := time.Now(), int64(0), int64(0), int64(0), 0

	for time.Since(began) < watchedFor {
		if process.proxy != nil {
			now := process.proxy.open.Load() - int64(process.idle())
			used, samples, most = used+now, samples+1, max(most, now)
		}

		if half == 0 && time.Since(began) >= watchedFor/2 {
			half = len(counted.Statements())
		}

		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // between two samples
	}

	elapsed := time.Since(began).Seconds()
	sent := len(counted.Statements())
	b.ReportMetric(float64(sent)/elapsed, "stmts/s")
	b.ReportMetric(float64(sent-half)/(elapsed-(watchedFor/2).Seconds()), "stmts/s-2nd-half")

	if process.proxy != nil {
		b.ReportMetric(float64(process.proxy.trips.Load()-trips)/elapsed, "trips/s")
		b.ReportMetric(float64(used)/float64(samples), "conns")
		b.ReportMetric(float64(most), "most-conns")
	}
}
