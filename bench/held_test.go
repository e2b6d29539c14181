package bench_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

// BenchmarkHeld is what locks take up in memory while they are held and kept
// renewed: bytes for each, and the most goroutines there were at a time over
// those of before. "core" is a strategy that keeps nothing, so what is left is
// the locker's own.
func BenchmarkHeld(b *testing.B) {
	for _, locks := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("core/%d", locks), func(b *testing.B) { held(b, nothing{}, locks, 3*time.Second) })
		b.Run(fmt.Sprintf("postgres/cas/%d", locks), func(b *testing.B) {
			held(b, cas.New(openPostgres(b, false).db), locks, sqllock.DefaultLease)
		})
	}
}

func held(b *testing.B, strategy strategies.Strategy, locks int, lease time.Duration) {
	b.Helper()

	for b.Loop() {
		w := &watch{want: int64(locks), done: make(chan struct{})}
		locker := newLocker(b, strategy, sqllock.WithLease(lease), sqllock.WithObserver(func(_ context.Context, e sqllock.Event) {
			if e.Kind == sqllock.Renewed {
				w.renewed(e)
			}

			if e.Kind == sqllock.Lost {
				b.Error(e.Err)
			}
		}))

		// What the caller has anyway, and what the pool keeps once it has
		// been used, is there before.
		names, handles := make([]string, locks), make([]*sqllock.Lock, locks)
		for i := range names {
			names[i] = fmt.Sprintf("%s/%d", b.Name(), i)
		}

		use(b, locker)

		before := heap()
		w.goroutines.Store(0)
		w.base = int64(runtime.NumGoroutine())

		for i, name := range names {
			lock, err := locker.Acquire(b.Context(), name)
			if err != nil {
				b.Fatal(err)
			}

			handles[i] = lock
		}

		// As many renewals as there are locks, now that all are held.
		w.all.Store(true)
		<-w.done

		after := heap()

		if err := locker.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Fatal(err)
		}

		runtime.KeepAlive(names)
		runtime.KeepAlive(handles)

		b.ReportMetric(float64(int64(after)-int64(before))/float64(locks), "B/lock")
		b.ReportMetric(float64(w.goroutines.Load()), "goroutines")
	}

	b.ReportMetric(0, "ns/op") // it is the lease that it waits for
}

// use takes as many locks at a time as the pool has connections.
func use(b *testing.B, locker *sqllock.Locker) {
	b.Helper()

	var group sync.WaitGroup

	for i := range poolSize {
		group.Go(func() {
			for range warmUp {
				err := locker.Do(b.Context(), fmt.Sprintf("%s/use/%d", b.Name(), i), work)
				if err != nil {
					b.Error(err)
				}
			}
		})
	}

	group.Wait()
}

func work(context.Context, *sqllock.Lock) error { return nil }

// heap is what is in use after what is not was collected. Twice, because
// sync.Pools keep what they have over one collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()

	var stats runtime.MemStats

	runtime.ReadMemStats(&stats)

	return stats.HeapAlloc
}

// watch counts renewals and closes done after as many as are wanted.
type watch struct {
	all               atomic.Bool // from here on it counts
	count, goroutines atomic.Int64
	want, base        int64
	done              chan struct{}
}

func (w *watch) renewed(sqllock.Event) {
	now := int64(runtime.NumGoroutine()) - w.base

	for most := w.goroutines.Load(); now > most && !w.goroutines.CompareAndSwap(most, now); {
		most = w.goroutines.Load()
	}

	if w.all.Load() && w.count.Add(1) == w.want {
		close(w.done)
	}
}

// nothing is a strategy that grants everything and keeps nothing.
type nothing struct{}

func (nothing) Close(context.Context)                            {}
func (nothing) Validate() error                                  { return nil }
func (nothing) Settle(context.Context, strategies.Request) error { return nil }

func (nothing) List(context.Context, strategies.Filter) ([]strategies.Status, error) { return nil, nil }

func (nothing) Status(context.Context, string) (strategies.Status, bool, error) {
	return strategies.Status{}, false, nil
}

func (nothing) ForceRelease(context.Context, strategies.Status, string) (bool, error) {
	return false, nil
}

func (nothing) Reap(context.Context, time.Duration) (strategies.Reaped, error) {
	return strategies.Reaped{}, nil
}

func (nothing) ReapIdle(context.Context, time.Duration, int) (int, bool, error) {
	return 0, false, nil
}

func (nothing) Features() strategies.Features {
	return strategies.Features{Strategy: "nothing", Database: "none", Unbatched: true}
}

func (s nothing) Acquire(_ context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return slices.Repeat([]strategies.Grant{{Token: 1, Last: 1, State: s}}, len(requests)), make([]error, len(requests))
}

func (nothing) Renew(_ context.Context, grants []strategies.Grant, _ time.Duration) []error {
	return make([]error, len(grants))
}

func (nothing) Release(_ context.Context, grants []strategies.Grant) ([]bool, []error) {
	return make([]bool, len(grants)), make([]error, len(grants))
}
