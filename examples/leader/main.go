// Leader lets three candidates campaign in one process, each with a locker of its own, as if they were three
// processes, and another watches who leads. The first leader ends, the second is asked to resign, and the third ends. It needs no
// server; with DATABASE_URL, a postgres URL, it uses that instead, and several processes take part in one election:
//
//	go run ./examples/leader
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	go run ./examples/leader & go run ./examples/leader
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

func main() {
	// When the process is told to end, its leader resigns, and the next leads at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("DATABASE_URL"))

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// served is how long a leader leads.
const served = 500 * time.Millisecond

func run(ctx context.Context, url string) error {
	memory := sqllocktest.NewMemory()
	open := func() strategies.Strategy { return memory.Peer() }

	if url != "" {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		defer pool.Close()

		open = func() strategies.Strategy { return cas.New(postgres.New(pool)) }
	}

	watching, stop := context.WithCancel(ctx)
	defer stop()

	watched := make(chan error, 1)

	observer, end, err := join(ctx, open(), "observer")
	if err != nil {
		return err
	}
	defer end()

	go func() { watched <- watch(watching, observer) }()

	var (
		group sync.WaitGroup
		errs  [3]error
	)

	for i := range errs {
		candidate, end, err := join(ctx, open(), fmt.Sprintf("candidate %d", i+1))
		if err != nil {
			return err
		}
		defer end()

		group.Go(func() { errs[i] = serve(ctx, candidate, i == 1) })

		<-time.After(served / 10)
	}

	group.Wait()
	stop()

	return errors.Join(append(errs[:], <-watched)...)
}

// join makes a candidate, or one who only watches.
func join(ctx context.Context, strategy strategies.Strategy, label string) (e *election.Election, end func(), err error) {
	locker, err := sqllock.New(strategy, sqllock.WithLabel(label))
	if err != nil {
		return nil, nil, err
	}

	e, err = election.New(locker, "scheduler")

	return e, func() { _ = locker.Close(context.WithoutCancel(ctx)) }, err
}

// serve campaigns for one term. Its leader stops by itself, or is asked to.
func serve(ctx context.Context, candidate *election.Election, asked bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	return candidate.Run(ctx, func(ctx context.Context, _ *sqllock.Lock) error {
		defer stop() // one term is enough

		select {
		case <-ctx.Done(): // lost, or the process ends
			return nil
		case <-time.After(served):
		}

		if asked {
			if err := candidate.RequestResign(ctx, "the machine is going down"); err != nil {
				return err
			}

			<-ctx.Done() // lost, or asked to resign
			fmt.Println("the leader stops:", context.Cause(ctx))
		}

		return nil
	})
}

// watch prints who leads. Now and then that is nobody, for a moment that may be too short to be seen.
func watch(ctx context.Context, observer *election.Election) error {
	for leader, err := range observer.Observe(ctx) {
		if err != nil {
			return err
		}

		if !leader.Nobody() {
			fmt.Println(leader.Label, "leads")
		}
	}

	return nil
}
