package bench_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// block is how many pairs run before it is the other's turn.
const block = 8

// BenchmarkPair is the time of an uncontended acquisition and release, beside
// that of the floor: two updates of one row by its primary key, each with its
// own commit, in a table of the same columns and through the same pool. Both
// take turns, so that what else the machine does strikes both; x-floor is the
// ratio of their medians.
func BenchmarkPair(b *testing.B) {
	each(b, false, func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy) {
		b.Helper()

		locker := newLocker(b, strategy(p.db))
		ctx := b.Context()
		// With -count there are several runs in one database.
		name := fmt.Sprintf("%s/%d", b.Name(), unique.Add(1))

		lock := func() error {
			lock, err := locker.Acquire(ctx, name)
			if err != nil {
				return err
			}

			return lock.Release(ctx)
		}

		statements := floors[p.db.Dialect()]
		if err := p.update(ctx, statements.make, name); err != nil {
			b.Fatal(err)
		}

		floor := func() error {
			if err := p.update(ctx, statements.take, "0123456789abcdef0123456789abcdef", name); err != nil {
				return err
			}

			return p.update(ctx, statements.give, name)
		}

		for range warmUp {
			timed(b, lock)
			timed(b, floor)
		}

		var locks, floors []time.Duration

		for b.Loop() {
			for range block {
				locks = append(locks, timed(b, lock))
			}

			for range block {
				floors = append(floors, timed(b, floor))
			}
		}

		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(median(locks).Microseconds()), "µs/pair")
		b.ReportMetric(float64(median(floors).Microseconds()), "µs/floor")
		b.ReportMetric(float64(median(locks))/float64(median(floors)), "x-floor")
	})
}

// floors are the least that a lock in a row could send: take and give are
// one update each.
var floors = map[databases.Dialect]struct{ make, take, give string }{
	databases.Postgres: {
		make: `INSERT INTO sqllock_bare (name) VALUES ($1)`,
		take: `UPDATE sqllock_bare SET token = token + 1, owner = $1 WHERE name = $2`,
		give: `UPDATE sqllock_bare SET owner = '' WHERE name = $1`,
	},
	databases.MySQL: {
		make: `INSERT INTO sqllock_bare (name) VALUES (?)`,
		take: `UPDATE sqllock_bare SET token = token + 1, owner = ? WHERE name = ?`,
		give: `UPDATE sqllock_bare SET owner = '' WHERE name = ?`,
	},
	databases.SQLite: {
		make: `INSERT INTO sqllock_bare (name) VALUES (?)`,
		take: `UPDATE sqllock_bare SET token = token + 1, owner = ? WHERE name = ?`,
		give: `UPDATE sqllock_bare SET owner = '' WHERE name = ?`,
	},
}

func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()

	started := time.Now()

	if err := f(); err != nil {
		b.Fatal(err)
	}

	return time.Since(started)
}

// median sorts.
func median(samples []time.Duration) time.Duration {
	slices.Sort(samples)

	return samples[len(samples)/2]
}
