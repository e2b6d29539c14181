package bench_test

import (
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
)

// warmUp is how many acquisitions come before what is measured: the name's
// row is there then, and what the drivers prepare once is prepared.
const warmUp = 20

// BenchmarkStatements counts what an uncontended acquisition, renewal and
// release send: statements as the strategy runs them, and round trips as they
// pass on the wire.
func BenchmarkStatements(b *testing.B) {
	each(b, true, func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy) {
		b.Helper()

		faulty := sqllocktest.NewFaulty(p.db)
		countAll(b, p, faulty, newLocker(b, strategy(faulty)))
	})
}

// BenchmarkStatementsSecond is the same for the second lock of a locker with
// strategy advisory, whose locks share a session that the first one sets up.
func BenchmarkStatementsSecond(b *testing.B) {
	for _, t := range targets {
		if t.name == "sqlite" {
			continue // it has no advisory locks
		}

		b.Run(t.name, func(b *testing.B) {
			p := t.open(b, true)
			faulty := sqllocktest.NewFaulty(p.db)
			locker := newLocker(b, advisory.New(faulty))

			// The locker's end releases it.
			if _, err := locker.Acquire(b.Context(), b.Name()+"/first"); err != nil {
				b.Fatal(err)
			}

			countAll(b, p, faulty, locker)
		})
	}
}

func countAll(b *testing.B, p pool, faulty *sqllocktest.Faulty, locker *sqllock.Locker) {
	b.Helper()

	acquire, renew, release := counter{}, counter{}, counter{}

	round := func() {
		var lock *sqllock.Lock

		acquire.count(b, p, faulty, func() (err error) {
			lock, err = locker.Acquire(b.Context(), b.Name())

			return err
		})
		renew.count(b, p, faulty, func() error { return lock.Extend(b.Context(), sqllock.DefaultLease) })
		release.count(b, p, faulty, func() error { return lock.Release(b.Context()) })
	}

	for range warmUp {
		round()
	}

	acquire, renew, release = counter{}, counter{}, counter{}

	for b.Loop() {
		round()
	}

	acquire.report(b, p, "acquire")
	renew.report(b, p, "renew")
	release.report(b, p, "release")
	b.ReportMetric(0, "ns/op") // through the proxy, so it says nothing
}

// counter adds up what an operation sent.
type counter struct{ runs, statements, trips int64 }

func (c *counter) count(b *testing.B, p pool, faulty *sqllocktest.Faulty, operation func() error) {
	b.Helper()
	faulty.Reset()

	before := int64(0)
	if p.proxy != nil {
		before = p.proxy.trips.Load()
	}

	if err := operation(); err != nil {
		b.Fatal(err)
	}

	if p.proxy != nil {
		c.trips += p.proxy.trips.Load() - before
	}

	c.statements += int64(len(faulty.Statements()))
	c.runs++
}

func (c *counter) report(b *testing.B, p pool, operation string) {
	b.Helper()
	b.ReportMetric(float64(c.statements)/float64(c.runs), "stmts/"+operation)

	if p.proxy != nil {
		b.ReportMetric(float64(c.trips)/float64(c.runs), "trips/"+operation)
	}
}
