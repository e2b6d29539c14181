package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

// idlePage is how many names a locker removes at a time.
const idlePage = 2000

// BenchmarkIdle removes names that nobody uses, as fast as it can, and reports how many those are in a second.
// SQLLOCK_BENCH_IDLE says how many there are.
func BenchmarkIdle(b *testing.B) {
	rows := countOf(b, "SQLLOCK_BENCH_IDLE", 200_000)

	for _, t := range idleTargets() {
		b.Run(t.name, func(b *testing.B) {
			p := t.open(b, false)
			locks := cas.New(p.db)
			took := time.Duration(0)

			for b.Loop() {
				fill(b, p, rows)

				started := time.Now()
				removed := 0

				for more := true; more; {
					n, left, err := locks.ReapIdle(b.Context(), time.Minute, idlePage)
					if err != nil {
						b.Fatal(err)
					}

					removed, more = removed+n, left
				}

				took += time.Since(started)

				if left := rowsOf(b, p); removed != rows || left != 0 {
					b.Fatalf("removed %d of %d names, and %d are left", removed, rows, left)
				}
			}

			b.ReportMetric(float64(rows*b.N)/took.Seconds(), "rows/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkIdleBeside acquires and releases names while others are removed as a locker does it, a tenth of the time, and
// without that, in turns. It reports by how much it is slower.
func BenchmarkIdleBeside(b *testing.B) {
	const (
		turns = 4
		turn  = 3 * time.Second
	)

	rows := countOf(b, "SQLLOCK_BENCH_IDLE", 200_000) / 4

	for _, t := range idleTargets() {
		b.Run(t.name, func(b *testing.B) {
			p := t.open(b, false)
			locks := cas.New(p.db)

			var pairs [2]int64

			removed := 0

			for b.Loop() {
				for i := range 2 * turns {
					// Also where none are removed, as what is written has effects for a while.
					fill(b, p, rows-int(rowsOf(b, p))%rows)

					ctx, cancel := context.WithTimeout(b.Context(), turn)

					var beside sync.WaitGroup

					if i%2 == 1 {
						beside.Go(func() { removed += remove(ctx, b, locks) })
					}

					pairs[i%2] += pairsIn(ctx, b, locks)

					cancel()
					beside.Wait()
				}
			}

			b.ReportMetric(float64(pairs[0])/float64(pairs[1]), "times-as-slow")
			b.ReportMetric(float64(pairs[0])/float64(b.N*turns)/turn.Seconds(), "pairs/s")
			b.ReportMetric(float64(removed)/float64(b.N*turns)/turn.Seconds(), "rows-removed/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// remove removes page after page, with pauses, until ctx ends.
func remove(ctx context.Context, b *testing.B, locks *cas.Strategy) (removed int) {
	b.Helper()

	for ctx.Err() == nil {
		started := time.Now()

		n, _, err := locks.ReapIdle(context.WithoutCancel(ctx), time.Minute, idlePage)
		if err != nil {
			b.Error(err)

			break
		}

		removed += n

		select {
		case <-time.After(9 * time.Since(started)):
		case <-ctx.Done():
		}
	}

	return removed
}

// pairsIn is how often some goroutines acquire and release a name each until ctx ends.
func pairsIn(ctx context.Context, b *testing.B, locks strategies.Strategy) int64 {
	b.Helper()

	var (
		pairs atomic.Int64
		group sync.WaitGroup
	)

	for i := range 4 {
		group.Go(func() {
			r := strategies.Request{
				Name: fmt.Sprintf("%s/%d", b.Name(), i), Owner: fmt.Sprintf("%032d", i), Lease: time.Minute,
				Holder: strategies.Holder{Host: "bench", PID: os.Getpid()},
			}

			for ctx.Err() == nil {
				grant, err := single.TryAcquire(context.WithoutCancel(ctx), locks, r)
				if err == nil {
					err = grant.Release(context.WithoutCancel(ctx))
				}

				if err != nil {
					b.Error(err)

					return
				}

				pairs.Add(1)
			}
		})
	}

	group.Wait()

	return pairs.Load()
}

// BenchmarkIdleNames acquires and releases new names, once each, with a locker that has its defaults, and reports how many rows there
// are afterwards, in five minutes. SQLLOCK_BENCH_NAMES says how many names.
func BenchmarkIdleNames(b *testing.B) {
	const minutes = 5

	names := countOf(b, "SQLLOCK_BENCH_NAMES", 100_000)

	for _, t := range idleTargets() {
		b.Run(t.name, func(b *testing.B) {
			p := t.open(b, false)

			locker, err := sqllock.New(cas.New(p.db))
			if err != nil {
				b.Fatal(err)
			}

			b.Cleanup(func() { _ = locker.Close(context.WithoutCancel(b.Context())) })

			for b.Loop() {
				started := time.Now()
				useOnce(b, locker, names)
				b.ReportMetric(float64(names)/time.Since(started).Seconds(), "names/s")

				for minute := range minutes + 1 {
					if minute > 0 {
						<-time.After(time.Minute)
					}

					b.ReportMetric(float64(rowsOf(b, p)), fmt.Sprintf("rows-after-%dm", minute))
					b.Logf("after %d minutes: %d rows", minute, rowsOf(b, p))
				}
			}

			b.ReportMetric(0, "ns/op")
		})
	}
}

// useOnce acquires and releases so many names, some at a time.
func useOnce(b *testing.B, locker *sqllock.Locker, names int) {
	b.Helper()

	var (
		next  atomic.Int64
		group sync.WaitGroup
		run   = rand.Uint64()
	)

	for range 64 {
		group.Go(func() {
			for n := next.Add(1); n <= int64(names); n = next.Add(1) {
				err := locker.TryDo(b.Context(), fmt.Sprintf("order/%d/%d", run, n), func(context.Context, *sqllock.Lock) error { return nil })
				if err != nil {
					b.Error(err)

					return
				}
			}
		})
	}

	group.Wait()
}

func idleTargets() (some []target) {
	for _, t := range targets {
		switch t.name {
		case "postgres", "mysql", "mariadb", "sqlite":
			some = append(some, t)
		}
	}

	return some
}

// fill makes rows of names that were used long ago.
func fill(b *testing.B, p pool, rows int) {
	b.Helper()

	const most = 1000

	run := rand.Uint64()

	for first := 0; first < rows; first += most {
		var values, leases strings.Builder

		for i := first; i < min(rows, first+most); i++ {
			fmt.Fprintf(&values, ",('idle/%d/%d',%d)", run, i, i+1)
			fmt.Fprintf(&leases, ",('idle/%d/%d')", run, i)
		}

		queries := []string{"INSERT INTO sqllock_locks (name, token) VALUES " + values.String()[1:]}
		if p.db.Dialect() == databases.MySQL {
			queries = append(queries, "INSERT INTO sqllock_leases (name) VALUES "+leases.String()[1:])
		}

		for _, query := range queries {
			if err := p.update(b.Context(), query); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func rowsOf(b *testing.B, p pool) int64 {
	b.Helper()

	rows, err := p.number(b.Context(), "SELECT count(*) FROM sqllock_locks")
	if err != nil {
		b.Fatal(err)
	}

	return rows
}

// countOf is a number of the environment, or the one given.
func countOf(b *testing.B, variable string, count int) int {
	b.Helper()

	value := os.Getenv(variable)
	if value == "" {
		return count
	}

	count, err := strconv.Atoi(value)
	if err != nil || count < 1 {
		b.Fatalf("%s=%s is not a count", variable, value)
	}

	return count
}
