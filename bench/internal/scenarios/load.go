package scenarios

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/servers"
	"github.com/sqllock/sqllock/bench/internal/worker"
	"github.com/sqllock/sqllock/sqllock"
)

// lease is the library's default; others get the same.
const lease = sqllock.DefaultLease

// A crowd, and for how long it is watched. With a thousand names two processors are too few: etcd refuses requests, and releases of
// this library end by time.
const (
	crowdProcesses = 8
	crowdNames     = 100
	crowdFor       = 10 * time.Second
)

// The metrics of a load.
const (
	pairTime   = "pair"
	pairP99    = "pair p99"
	rate       = "pairs/s"
	longest    = "longest wait"
	statements = "statements/pair"
	logBytes   = "log bytes/pair"
)

// load is a slice with a worker for each of the shapes.
func load(names worker.Names, goroutines ...int) func(context.Context, *Conductor, contestant) (report.Samples, error) {
	return func(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
		job := c.job(worker.Load, who)
		job.Names = names

		jobs := make([]worker.Job, len(goroutines))
		for i, n := range goroutines {
			jobs[i] = job
			jobs[i].Goroutines = n
		}

		found, spent, err := c.runLoad(ctx, who, jobs)
		if err != nil {
			return nil, err
		}

		return loadSamples(found, spent), nil
	}
}

// crowd is many processes that want the same names.
func crowd(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	job := c.job(worker.Load, who)
	job.Names, job.Goroutines, job.Duration = worker.Each, crowdNames, max(c.Duration, crowdFor)

	found, spent, err := c.runLoad(ctx, who, slices.Repeat([]worker.Job{job}, crowdProcesses))
	if err != nil {
		return nil, err
	}

	return loadSamples(found, spent), nil
}

func (c *Conductor) runLoad(
	ctx context.Context, who contestant, jobs []worker.Job,
) (found []worker.Result, spent servers.Statistics, err error) {
	workers, stop, err := c.crew(ctx, jobs...)
	if err != nil {
		return nil, spent, err
	}
	defer stop()

	before, err := who.server.Statistics(ctx)
	if err != nil {
		return nil, spent, err
	}

	if err := begin(workers); err != nil {
		return nil, spent, err
	}

	var faults []error

	for i, p := range workers {
		result, err := p.result(ctx, jobs[i].Duration+patience)
		found, faults = append(found, result), append(faults, err)
	}

	if err := errors.Join(faults...); err != nil {
		return nil, spent, err
	}

	after, err := who.server.Statistics(ctx)

	return found, after.Since(before), err
}

func loadSamples(found []worker.Result, spent servers.Statistics) report.Samples {
	var (
		pairs   int64
		counted int64
		wait    time.Duration
		elapsed time.Duration
	)

	for i, result := range found {
		pairs += result.Pairs
		elapsed = result.Elapsed

		if result.Statements < 0 || counted < 0 {
			counted = -1
		} else {
			counted += result.Statements
		}

		// Of those that have company the last is the one that must not starve.
		if i == len(found)-1 || len(found) > 2 {
			wait = max(wait, result.LongestWait)
		}
	}

	samples := report.Samples{
		rate:    {float64(pairs) / elapsed.Seconds()},
		longest: {float64(wait)},
	}

	if pairs == 0 {
		return samples
	}

	samples[pairTime] = []float64{float64(found[0].Median)}
	samples[pairP99] = []float64{float64(found[0].P99)}

	if counted < 0 && spent.Statements >= 0 {
		counted = int64(spent.Statements)
	}

	if counted >= 0 {
		samples[statements] = []float64{float64(counted) / float64(pairs)}
	}

	if spent.LogBytes >= 0 {
		samples[logBytes] = []float64{spent.LogBytes / float64(pairs)}
	}

	return samples
}
