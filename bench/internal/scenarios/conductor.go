// Package scenarios is what is measured: each scenario lets contestants do the
// same in worker processes, one contestant after the other, round by round.
package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/servers"
	"github.com/sqllock/sqllock/bench/internal/worker"
)

// Scenario is one thing that is measured.
type Scenario struct {
	Name    string
	Title   string
	Columns []report.Column
	// Plot is the title of the column that is drawn; empty for none.
	Plot    string
	Targets []report.Target
	// Takes says who takes part.
	Takes func(contest.Contestant) bool
	// Once is for what takes long and hardly differs.
	Once bool
	// Together is for what mostly waits: servers do not wait for each other,
	// and with AtOnce nor do contestants.
	Together, AtOnce bool

	slice func(ctx context.Context, c *Conductor, who contestant) (report.Samples, error)
}

// Conductor lets scenarios run.
type Conductor struct {
	Program  string // this one, for workers
	Servers  *servers.Set
	Duration time.Duration // of each contestant in each round
	Rounds   int
	Pool     int
	Log      io.Writer

	names atomic.Int64
}

// contestant is one with its server.
type contestant struct {
	contest.Contestant

	server *servers.Server
}

// Run measures the contestants in a scenario.
func (c *Conductor) Run(ctx context.Context, s Scenario, contestants []contest.Contestant) (report.Results, error) {
	var (
		results report.Results
		who     []contestant
	)

	for _, one := range contestants {
		if !s.Takes(one) {
			continue
		}

		row := &report.Row{Server: one.Server, Name: one.Name, Samples: make(report.Samples)}

		server, ok := c.Servers.Get(one.Server)
		if !ok {
			continue // left out by who runs it
		}

		row.Missing = server.Missing
		results = append(results, row)
		who = append(who, contestant{one, server})
	}

	rounds := c.Rounds
	if s.Once {
		rounds = 1
	}

	for round := range rounds {
		began := time.Now()

		switch {
		case s.AtOnce:
			c.atOnce(ctx, s, who, results)
		case s.Together:
			c.together(ctx, s, who, results)
		default:
			for i := range who {
				c.one(ctx, s, who[i], results[i])
			}
		}

		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}

		fmt.Fprintf(c.Log, "%s: round %d of %d took %s\n", s.Name, round+1, rounds, time.Since(began).Round(time.Millisecond))
	}

	return results, nil
}

// together lets those of one server go one after the other, and the servers
// side by side.
func (c *Conductor) together(ctx context.Context, s Scenario, who []contestant, results report.Results) {
	var group sync.WaitGroup

	for _, server := range c.Servers.All() {
		group.Go(func() {
			for i := range who {
				if who[i].server == server {
					c.one(ctx, s, who[i], results[i])
				}
			}
		})
	}

	group.Wait()
}

// atOnce lets all go side by side.
func (c *Conductor) atOnce(ctx context.Context, s Scenario, who []contestant, results report.Results) {
	var group sync.WaitGroup

	for i := range who {
		group.Go(func() { c.one(ctx, s, who[i], results[i]) })
	}

	group.Wait()
}

// one adds a round of a contestant to its row. One that failed twice is left
// alone: it may take a minute each time.
func (c *Conductor) one(ctx context.Context, s Scenario, who contestant, row *report.Row) {
	if who.server.Missing != "" || row.Failures == 2 || ctx.Err() != nil {
		return
	}

	found, err := s.slice(ctx, c, who)
	if err != nil {
		row.Missing = err.Error()
		row.Failures++

		fmt.Fprintf(c.Log, "%s: %s: %v\n", s.Name, who.ID(), err)

		return
	}

	for metric, values := range found {
		row.Samples[metric] = append(row.Samples[metric], values...)
	}
}

// job is what all jobs of a contestant share. Every one has a name of its own.
func (c *Conductor) job(kind worker.Kind, who contestant) worker.Job {
	return worker.Job{
		Kind: kind, Contestant: who.ID(), Address: who.server.Address, Pool: c.Pool, Lease: lease,
		Name: fmt.Sprintf("bench/%d", c.names.Add(1)), Goroutines: 1, Duration: c.Duration,
	}
}

// crew starts a worker for each job and waits until all are ready. They end
// with the call of stop.
func (c *Conductor) crew(ctx context.Context, jobs ...worker.Job) (workers []*process, stop func(), err error) {
	stop = func() {
		for _, p := range workers {
			p.stop()
		}
	}

	for _, job := range jobs {
		p, err := spawn(c.Program, job)
		if err != nil {
			stop()

			return nil, nil, err
		}

		workers = append(workers, p)
	}

	if err := ready(ctx, workers); err != nil {
		stop()

		return nil, nil, err
	}

	return workers, stop, nil
}

func begin(workers []*process) error {
	var faults []error
	for _, p := range workers {
		faults = append(faults, p.Say(worker.Go))
	}

	return errors.Join(faults...)
}

func ready(ctx context.Context, workers []*process) error {
	var faults []error
	for _, p := range workers {
		faults = append(faults, p.ready(ctx))
	}

	return errors.Join(faults...)
}
