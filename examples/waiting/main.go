// Waiting waits for a lock for a limited time and shows who has it. It needs
// no server; with DATABASE_URL, a postgres URL, it uses that instead:
//
//	go run ./examples/waiting
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	go run ./examples/waiting
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

func main() {
	err := run(context.Background(), os.Getenv("DATABASE_URL"))

	switch {
	case err == nil:
	case errors.Is(err, sqllock.ErrNoSchema):
		fmt.Fprintln(os.Stderr, "the database has no tables of sqllock; run: sqllock migrate up")
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	here, elsewhere, err := lockers(ctx, url)
	if err != nil {
		return err
	}

	defer func() {
		_ = here.Close(ctx)
		_ = elsewhere.Close(ctx)
	}()

	theirs, err := elsewhere.Acquire(ctx, "deploy", sqllock.WithMaxWait(5*time.Second))
	if err != nil {
		return err
	}

	// A deadline of the context or WithMaxWait: both end the wait, and neither
	// has to do with how long the lock may be held.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()

	_, err = here.Acquire(short, "deploy")

	var held *sqllock.HeldError
	if !errors.As(err, &held) {
		return fmt.Errorf("got %w, want a HeldError", err)
	}

	fmt.Println("held by:", held.Holder.Label)
	fmt.Println("not acquired:", errors.Is(err, sqllock.ErrNotAcquired))
	fmt.Println("because the deadline passed:", errors.Is(err, context.DeadlineExceeded))

	// Now with time enough: the holder releases meanwhile.
	time.AfterFunc(200*time.Millisecond, func() { _ = theirs.Release(ctx) })

	ours, err := here.Acquire(ctx, "deploy", sqllock.WithMaxWait(10*time.Second))
	if err != nil {
		return err
	}

	fmt.Println("acquired, with a larger token:", ours.Token() > theirs.Token())

	return ours.Release(ctx)
}

// lockers returns two, as two processes have them.
func lockers(ctx context.Context, url string) (here, elsewhere *sqllock.Locker, err error) {
	var first, second strategies.Strategy

	if url == "" {
		memory := sqllocktest.NewMemory()
		first, second = memory, memory.Peer()
	} else {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, nil, err
		}

		first, second = cas.New(postgres.New(pool)), cas.New(postgres.New(pool))
	}

	if here, err = sqllock.New(first, sqllock.WithLabel("here")); err != nil {
		return nil, nil, err
	}

	elsewhere, err = sqllock.New(second, sqllock.WithLabel("elsewhere"))

	return here, elsewhere, err
}
