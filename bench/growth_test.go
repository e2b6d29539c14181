package bench_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
)

// BenchmarkGrowth takes and frees one name many times and reports the size
// of sqllock's tables with their indexes: rows that are updated leave dead
// versions behind on PostgreSQL, which must not pile up. SQLLOCK_BENCH_GROWTH
// says how many times.
func BenchmarkGrowth(b *testing.B) {
	times := growthTimes(b)

	for _, strategy := range kinds[:2] {
		b.Run("postgres/"+strategy.name, func(b *testing.B) {
			config := postgresDatabase(b)
			// What a commit waits for makes no difference to what it leaves behind.
			config.RuntimeParams["synchronous_commit"] = "off"
			p := pgxPool(b, config, poolSize, false)
			locks := strategy.make(p.db)
			request := strategies.Request{
				Name: b.Name(), Owner: "0123456789abcdef0123456789abcdef", Lease: time.Minute,
				Holder: strategies.Holder{Host: "bench", PID: os.Getpid()},
			}

			for b.Loop() {
				for range times {
					grant, err := single.TryAcquire(b.Context(), locks, request)
					if err != nil {
						b.Fatal(err)
					}

					if err := grant.Release(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}

			size, err := p.number(b.Context(), `SELECT sum(pg_table_size(oid) + pg_indexes_size(oid))::bigint
				FROM pg_class WHERE relkind = 'r' AND relname IN ('sqllock_locks', 'sqllock_inserts', 'sqllock_mutexes', 'sqllock_queue', 'sqllock_shares')`)
			if err != nil {
				b.Fatal(err)
			}

			b.ReportMetric(float64(size)/1024, "KiB-table+index")
			b.ReportMetric(float64(times*b.N), "acquisitions")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// growthTimes is enough to show a leak, and few enough to end soon.
func growthTimes(b *testing.B) int {
	b.Helper()

	value := os.Getenv("SQLLOCK_BENCH_GROWTH")
	if value == "" {
		return 20_000
	}

	times, err := strconv.Atoi(value)
	if err != nil || times < 1 {
		b.Fatalf("SQLLOCK_BENCH_GROWTH=%s is not a count", value)
	}

	return times
}
