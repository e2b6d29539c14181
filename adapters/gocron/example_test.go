package gocron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	locks "github.com/sqllock/sqllock/adapters/gocron"
	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func Example() {
	// In a program: cas.New(postgres.New(pool)).
	locker, err := sqllock.New(sqllocktest.NewMemory())
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = locker.Close(context.Background()) }()

	scheduler, err := locks.NewScheduler(locker)
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = scheduler.Shutdown() }()

	ran := make(chan struct{}, 1)

	_, err = scheduler.NewJob(
		gocron.CronJob("* * * * * *", true),
		gocron.NewTask(func(context.Context) error {
			ran <- struct{}{}

			return nil // an error: not done, and a scheduler that comes later runs it
		}),
		gocron.WithName("report"), // the name of the lock
	)
	if err != nil {
		log.Fatal(err)
	}

	scheduler.Start()

	<-ran
	fmt.Println("ran, on one of the schedulers")
	// Output: ran, on one of the schedulers
}

func ExampleElect() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// In a program: cas.New(postgres.New(pool)).
	locker, err := sqllock.New(sqllocktest.NewMemory())
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }()

	leader, err := election.New(locker, "scheduler")
	if err != nil {
		log.Fatal(err)
	}

	elector := locks.Elect(ctx, leader)

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}

	ran := make(chan struct{}, 1)

	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() {
		select {
		case ran <- struct{}{}:
		default:
		}
	}))
	if err != nil {
		log.Fatal(err)
	}

	scheduler.Start()

	<-ran
	fmt.Println("this one leads")

	// First the jobs end, and then another may lead.
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}

	cancel()
	fmt.Println("the campaign has ended:", elector.Wait())
	// Output:
	// this one leads
	// the campaign has ended: <nil>
}
