package bench_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/edited"
)

// BenchmarkRecovery is what a pair of cas takes with the condition that grants nothing after a fail-over, as a ratio to one without it.
// Both take turns.
func BenchmarkRecovery(b *testing.B) {
	for _, t := range targets {
		if t.name == "sqlite" || strings.Contains(t.name, "-") {
			continue // nothing takes the place of a SQLite file; and the driver makes no difference
		}

		b.Run(t.name, func(b *testing.B) {
			p := t.open(b, false)
			with := newLocker(b, cas.New(edited.DB(p.db, func(s databases.Statement, v databases.Values) (databases.Statement, databases.Values) {
				return s, v
			})))
			without := newLocker(b, cas.New(edited.DB(p.db, func(s databases.Statement, v databases.Values) (databases.Statement, databases.Values) {
				return unpaused(b, s), v
			})))

			pair := func(locker *sqllock.Locker) time.Duration {
				return timed(b, func() error {
					lock, err := locker.Acquire(b.Context(), b.Name())
					if err != nil {
						return err
					}

					return lock.Release(b.Context())
				})
			}

			for range warmUp {
				pair(with)
				pair(without)
			}

			var withIt, withoutIt []time.Duration

			for b.Loop() {
				for range block {
					withIt = append(withIt, pair(with))
				}

				for range block {
					withoutIt = append(withoutIt, pair(without))
				}
			}

			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(median(withIt).Microseconds()), "µs/pair")
			b.ReportMetric(float64(median(withIt))/float64(median(withoutIt)), "x-without")
		})
	}
}

// unpaused is an acquisition without the condition of recovery. Other statements stay.
func unpaused(b *testing.B, s databases.Statement) databases.Statement {
	b.Helper()

	if s.Name != "cas.acquire" {
		return s
	}

	// Always true, of the same values: PostgreSQL has to know their types.
	const row = "FROM sqllock_recovery v WHERE"

	before, after, found := strings.Cut(s.SQL, row)
	if found && strings.Contains(s.SQL, "$1") {
		s.SQL = before + "FROM (SELECT 1::bigint AS id, ''::text AS server, true AS lossless, ''::text AS run, now() AS paused_until, 0::bigint AS allowed_us) v WHERE true OR" + after

		return s
	}

	before, condition, found := strings.Cut(s.SQL, " AND (SELECT")
	condition, after, ended := strings.Cut(condition, "SKIP LOCKED */)")

	if !found || !ended || !strings.Contains(condition, row) {
		b.Fatalf("an acquisition has no condition of recovery where it is looked for: %s", s.SQL)
	}

	first, n := strings.Count(before, "?"), strings.Count(condition, "?")
	s.SQL, s.Args = before+after, slices.Delete(slices.Clone(s.Args), first, first+n)

	return s
}
