// Nightly runs a job once in the cluster: start it on every machine at about
// the same time, and one of them does the work.
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	go run ./examples/nightly
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	err := run(ctx, os.Getenv("DATABASE_URL"))

	switch {
	case err == nil:
	case errors.Is(err, sqllock.ErrNotAcquired):
		// Another machine has the job. That is no failure.
		fmt.Println("nothing to do:", err)
	case errors.Is(err, sqllock.ErrNoSchema):
		fmt.Fprintln(os.Stderr, "the database has no tables of sqllock; run: sqllock migrate up")
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()

	locker, err := sqllock.New(cas.New(postgres.New(pool)), sqllock.WithLabel("nightly example"))
	if err != nil {
		return err
	}

	// Not ctx, which may have ended: what is still held is to be released.
	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }()

	// The clocks of machines differ, and the job is short: without WithMinHold
	// one that starts a little later would find the lock free again.
	return locker.TryDo(ctx, "nightly", job, sqllock.WithMinHold(10*time.Second))
}

// job gets a context that ends when the lock is lost. Hand it to whatever the
// job calls.
func job(ctx context.Context, lock *sqllock.Lock) error {
	fmt.Printf("the job runs, token %d\n", lock.Token())

	select {
	case <-time.After(2 * time.Second): // The work.
		fmt.Println("the job is done")

		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
