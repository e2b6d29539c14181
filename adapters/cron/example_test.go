package cron_test

import (
	"context"
	"fmt"
	"log"

	"github.com/robfig/cron/v3"

	locks "github.com/sqllock/sqllock/adapters/cron"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func Example() {
	ctx := context.Background()

	// In a program: cas.New(postgres.New(pool)).
	locker, err := sqllock.New(sqllocktest.NewMemory())
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = locker.Close(ctx) }()

	schedule, err := cron.ParseStandard("@every 1s")
	if err != nil {
		log.Fatal(err)
	}

	c := cron.New()
	jobs := locks.New(c, locker, cron.DefaultLogger)
	ran := make(chan struct{}, 1)

	c.Schedule(schedule, jobs.Job(ctx, "report", schedule, func(context.Context, *sqllock.Lock) error {
		select {
		case ran <- struct{}{}:
		default:
		}

		return nil // an error: not done, and a machine that comes later runs it
	}))
	c.Start()

	<-ran
	<-c.Stop().Done()
	fmt.Println("ran, on one of the machines")
	// Output: ran, on one of the machines
}

func ExampleJobs_Once() {
	ctx := context.Background()

	// In a program: cas.New(postgres.New(pool)).
	locker, err := sqllock.New(sqllocktest.NewMemory())
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = locker.Close(ctx) }()

	schedule, err := cron.ParseStandard("15 2 * * *")
	if err != nil {
		log.Fatal(err)
	}

	c := cron.New()
	jobs := locks.New(c, locker, cron.DefaultLogger)
	chain := cron.NewChain(cron.Recover(cron.DefaultLogger), jobs.Once(ctx, "report", schedule))
	job := chain.Then(cron.FuncJob(func() { fmt.Println("the report of last night") }))

	c.Schedule(schedule, job)

	job.Run() // as the cron does at a quarter past two
	job.Run() // as that of another machine does
	// Output: the report of last night
}
