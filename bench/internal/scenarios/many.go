package scenarios

import (
	"context"
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

// goOn lets the first worker go on until it is ready again, and reads what the
// server has counted by then.
func goOn(ctx context.Context, workers []*process, who contestant) (servers.Statistics, error) {
	if err := begin(workers); err != nil {
		return servers.Statistics{}, err
	}

	if err := workers[0].ready(ctx); err != nil {
		return servers.Statistics{}, err
	}

	return who.server.Statistics(ctx)
}

// waiters is one process that waits often for what another one holds.
func waiters(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	holding := c.job(worker.Steps, who)
	holding.Lease = longLease

	holders, stop, err := c.crew(ctx, holding)
	if err != nil {
		return nil, err
	}
	defer stop()

	if err := begin(holders); err != nil {
		return nil, err
	}

	if _, err := holders[0].do(ctx, worker.Acquire); err != nil {
		return nil, err
	}

	job := holding
	job.Kind, job.Goroutines = worker.Waiters, waitingCount
	job.Duration = max(c.Duration, 4*time.Second)

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

// guard is a transaction with and without a guard.
func guard(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	found, _, err := c.runLoad(ctx, who, []worker.Job{c.job(worker.Guarded, who)})
	if err != nil {
		return nil, err
	}

	without, with := float64(found[0].Plain), float64(found[0].Guarded)

	return report.Samples{plain: {without}, guarded: {with}, guardOver: {with / without}}, nil
}
