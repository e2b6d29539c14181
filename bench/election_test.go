package bench_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/cas"
)

const (
	// replicas want to lead. Of few, who are all told of releases, resigns leaders resign one after the other, resignEvery so often.
	replicas    = 20
	few         = 3
	resigns     = 100
	resignEvery = 100 * time.Millisecond
	// restartEvery is how often one of them is replaced in a rolling restart.
	restartEvery = time.Second
	// stood is for how long there was no change before: those who are far back in line look less often then.
	stood = 30 * time.Second
)

// BenchmarkElection is how long nobody leads of replicas, each with a pool of its own: when a leader resigns; and of 20 when the next
// in line has just died; and in a rolling restart, which replaces all of them, with what all send in that time. A replica's first statements,
// which look what tables there are, are in it.
func BenchmarkElection(b *testing.B) {
	for _, t := range targets {
		b.Run(t.name, func(b *testing.B) {
			p := t.open(b, false)

			for b.Loop() {
				f := newFleet(b, p, few)
				f.resign(b)
				f.stop(b)

				f = newFleet(b, p, replicas)
				b.ReportMetric(ms(f.dies(b)), "ms-standby-died")
				f.restart(b)
				f.stop(b)
			}

			b.ReportMetric(0, "ns/op") // it is a time that was chosen
		})
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// fleet are replicas in the order in which they were started, which is that of their line. The first one leads.
type fleet struct {
	pool pool
	name string
	all  []*replica
	led  chan led
	past int // statements of those that have ended
}

func newFleet(b *testing.B, p pool, replicas int) *fleet {
	b.Helper()

	f := &fleet{pool: p, name: fmt.Sprintf("%s/%d", b.Name(), unique.Add(1)), led: make(chan led, replicas)}

	for range replicas {
		if f.start(b); len(f.all) == 1 {
			<-f.led
		}
	}

	return f
}

type replica struct {
	db    *sqllocktest.Faulty
	stop  context.CancelFunc
	yield chan struct{} // it resigns, and campaigns again
	ended chan struct{}
}

// led says that a replica has begun to lead.
type led struct {
	who *replica
	at  time.Time
}

func (f *fleet) start(b *testing.B) {
	b.Helper()

	ctx, stop := context.WithCancel(b.Context())
	r := &replica{db: sqllocktest.NewFaulty(f.pool.another(b, 4, false).db), stop: stop, yield: make(chan struct{}), ended: make(chan struct{})}

	locker, err := sqllock.New(cas.New(r.db))
	if err != nil {
		b.Fatal(err)
	}

	leader, err := election.New(locker, f.name)
	if err != nil {
		b.Fatal(err)
	}

	go func() {
		defer close(r.ended)

		err := leader.Run(ctx, func(ctx context.Context, _ *sqllock.Lock) error {
			f.led <- led{r, time.Now()}

			select {
			case <-r.yield:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			b.Error(err)
		}

		if err := locker.Close(context.WithoutCancel(ctx)); err != nil {
			b.Error(err)
		}
	}()

	// All but the leader stand in line, in the order in which they were started.
	inLine(b, f.pool, int64(len(f.all)))

	f.all = append(f.all, r)
}

// end stops one, and returns when.
func (f *fleet) end(i int) time.Time {
	r := f.all[i]
	f.all = slices.Delete(f.all, i, i+1)
	began := time.Now()

	r.stop()
	<-r.ended

	f.past += len(r.db.Statements())

	return began
}

// next waits until the first one leads, and returns for how long nobody did.
func (f *fleet) next(b *testing.B, since time.Time) time.Duration {
	b.Helper()

	one := <-f.led
	if one.who != f.all[0] {
		b.Fatal("one leads whose turn it was not")
	}

	return one.at.Sub(since)
}

// dies has the next one of a line that stood still die, and the leader resign then.
func (f *fleet) dies(b *testing.B) time.Duration {
	b.Helper()
	time.Sleep(stood) //nolint:forbidigo // it is a time that passes

	dead := f.all[1]
	dead.db.Fail("*", 1<<30, sqllocktest.Before, sqllock.ErrUnreachable)

	f.all = slices.Delete(f.all, 1, 2)
	took := f.next(b, f.end(0))

	dead.db.Reset()
	dead.stop()
	<-dead.ended

	for len(f.all) < replicas {
		f.start(b)
	}

	return took
}

// restart replaces all, one after the other.
func (f *fleet) restart(b *testing.B) {
	b.Helper()
	time.Sleep(stood) //nolint:forbidigo // it is a time that passes

	f.past = 0
	for _, r := range f.all {
		r.db.Reset()
	}

	var without time.Duration

	began := time.Now()

	for range replicas {
		without += f.next(b, f.end(0))

		f.start(b)
		time.Sleep(restartEvery) //nolint:forbidigo // it is a time that passes
	}

	elapsed := time.Since(began)

	sent := f.past
	for _, r := range f.all {
		sent += len(r.db.Statements())
	}

	b.ReportMetric(ms(without), "ms-rolling")
	b.ReportMetric(100*float64(without)/float64(elapsed), "%-rolling")
	b.ReportMetric(float64(sent)/replicas, "stmts/restart")
}

// resign has leaders resign one after the other.
func (f *fleet) resign(b *testing.B) {
	b.Helper()

	var times []time.Duration

	for range resigns {
		was := f.all[0]
		f.all = append(f.all[1:], was)
		began := time.Now()
		was.yield <- struct{}{}

		times = append(times, f.next(b, began))

		time.Sleep(resignEvery) //nolint:forbidigo // it is a time that passes
	}

	report(b, times, "-resigned")
}

func (f *fleet) stop(b *testing.B) {
	b.Helper()

	for len(f.all) > 0 {
		f.end(len(f.all) - 1)
	}
}
