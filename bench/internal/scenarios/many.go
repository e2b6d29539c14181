package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/servers"
	"github.com/sqllock/sqllock/bench/internal/worker"
)

const (
	heldLocks    = 10_000
	waitingCount = 1_000
	// longLease outlasts the waiting, so that the holder renews nothing.
	longLease = 10 * time.Minute

	renewals    = "statements/interval"
	memory      = "memory"
	goroutines  = "goroutines"
	growth      = "goroutines more than with 100 locks"
	connections = "connections"
	perSecond   = "statements/s"

	standbyCount = 200
	// standing is for how long standbys wait before anything is measured: those of this library look less often then.
	standing = 20 * time.Second

	plain     = "transaction"
	guarded   = "guarded transaction"
	guardOver = "guard"
)

// held is one process with many locks for a renewal interval.
func held(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	job := c.job(worker.Held, who)
	job.Names, job.Goroutines, job.Locks = worker.Own, 64, heldLocks
	job.Duration = lease / 3

	found, spent, err := c.runLoad(ctx, who, []worker.Job{job})
	if err != nil {
		return nil, err
	}

	sent := spent.Statements
	if found[0].Statements >= 0 {
		sent = float64(found[0].Statements)
	}

	return report.Samples{
		renewals:   {sent},
		memory:     {float64(found[0].Bytes)},
		goroutines: {float64(found[0].Goroutines)},
		growth:     {float64(found[0].Goroutines - found[0].FewGoroutines)},
	}, nil
}

// goOn lets workers go on until all are ready again, and reads what the
// server has counted by then.
func goOn(ctx context.Context, workers []*process, who contestant) (servers.Statistics, error) {
	if err := errors.Join(begin(workers), ready(ctx, workers)); err != nil {
		return servers.Statistics{}, err
	}

	return who.server.Statistics(ctx)
}

// hold has a process hold a lock, and returns the job of those who wait for it. The lock ends with the call of stop.
func (c *Conductor) hold(ctx context.Context, who contestant) (job worker.Job, stop func(), err error) {
	job = c.job(worker.Steps, who)
	job.Lease = longLease

	holders, stop, err := c.crew(ctx, job)
	if err != nil {
		return job, nil, err
	}

	if err = begin(holders); err == nil {
		_, err = holders[0].do(ctx, worker.Acquire)
	}

	if err != nil {
		stop()
	}

	job.Kind = worker.Waiters
	job.Duration = max(c.Duration, 4*time.Second)
	job.Settle = 2 * job.Duration

	return job, stop, err
}

// waiters is one process that waits often for what another one holds.
func waiters(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	job, stop, err := c.hold(ctx, who)
	if err != nil {
		return nil, err
	}
	defer stop()

	job.Goroutines = waitingCount

	workers, end, err := c.crew(ctx, job)
	if err != nil {
		return nil, err
	}
	defer end()

	without, err := who.server.Connections(ctx)
	if err != nil {
		return nil, err
	}

	// The waiting begins, and has gone on for a while when it is ready again.
	before, err := goOn(ctx, workers, who)
	if err != nil {
		return nil, err
	}

	after, err := goOn(ctx, workers, who)
	if err != nil {
		return nil, err
	}

	with, err := who.server.Connections(ctx)
	if err != nil {
		return nil, err
	}

	if err := begin(workers); err != nil {
		return nil, err
	}

	result, err := workers[0].result(ctx, patience)
	if err != nil {
		return nil, err
	}

	samples := report.Samples{goroutines: {float64(result.Goroutines)}}

	if with >= 0 {
		samples[connections] = []float64{float64(with - without)}
	}

	sent := after.Since(before).Statements
	if result.Statements >= 0 {
		sent = float64(result.Statements)
	}

	if sent >= 0 {
		samples[perSecond] = []float64{sent / result.Elapsed.Seconds()}
	}

	return samples, nil
}

// besideStandbys and standbysSend are the metrics of standbys in so many processes.
func besideStandbys(processes int) string { return fmt.Sprint("beside standbys in ", processes) }
func standbysSend(processes int) string   { return fmt.Sprint("statements/s of standbys in ", processes) }

// standbys is how often two processes hand a name to each other while others stand by for another name, of how often they
// do it alone; and what those send.
func standbys(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	handing := c.job(worker.Load, who)
	handing.Names, handing.Duration = worker.Shared, max(c.Duration, 5*time.Second)

	hand := func() (float64, error) {
		found, spent, err := c.runLoad(ctx, who, []worker.Job{handing, handing})
		if err != nil {
			return 0, err
		}

		return loadSamples(found, spent)[rate][0], nil
	}

	alone, err := hand()
	if err != nil {
		return nil, err
	}

	samples := report.Samples{rate: {alone}}

	for _, processes := range standbyProcesses {
		beside, sent, err := c.beside(ctx, who, processes, hand)
		if err != nil {
			return nil, err
		}

		samples[besideStandbys(processes)] = []float64{beside / alone}

		if sent >= 0 {
			samples[standbysSend(processes)] = []float64{sent}
		}
	}

	return samples, nil
}

// beside does what hand does beside standbys in so many processes, and returns what it does and how many statements they send in a
// second; negative if they cannot tell.
func (c *Conductor) beside(
	ctx context.Context, who contestant, processes int, hand func() (float64, error),
) (did, sent float64, err error) {
	job, stop, err := c.hold(ctx, who)
	if err != nil {
		return 0, 0, err
	}
	defer stop()

	job.Goroutines, job.Settle = standbyCount/processes, standing

	workers, end, err := c.crew(ctx, slices.Repeat([]worker.Job{job}, processes)...)
	if err != nil {
		return 0, 0, err
	}
	defer end()

	if _, err := goOn(ctx, workers, who); err != nil {
		return 0, 0, err
	}

	if err := begin(workers); err != nil {
		return 0, 0, err
	}

	if did, err = hand(); err != nil {
		return 0, 0, err
	}

	if err := errors.Join(ready(ctx, workers), begin(workers)); err != nil {
		return 0, 0, err
	}

	for _, p := range workers {
		result, err := p.result(ctx, patience)
		if err != nil {
			return 0, 0, err
		}

		if result.Statements < 0 {
			sent = -1

			continue
		}

		sent += float64(result.Statements) / result.Elapsed.Seconds()
	}

	return did, sent, nil
}

// guard is a transaction with and without a guard.
func guard(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	found, _, err := c.runLoad(ctx, who, []worker.Job{c.job(worker.Guarded, who)})
	if err != nil {
		return nil, err
	}

	without, with := float64(found[0].Plain), float64(found[0].Guarded)

	return report.Samples{plain: {without}, guarded: {with}, guardOver: {with / without}}, nil
}
