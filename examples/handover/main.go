// Handover reserves a document in one process and finishes it in another, which may run on another machine, much later. The lock is held
// all the time, under one token, though no process lives as long.
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	umask 077 # the claim is a secret
//	go run ./examples/handover reserve invoice/7 > claim
//	go run ./examples/handover finish < claim
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// reserved is how long a document stays reserved that nobody finishes.
const reserved = time.Hour

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, args []string, in io.Reader, out io.Writer) (err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()

	locker, err := sqllock.New(cas.New(postgres.New(pool)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close(ctx)) }()

	switch {
	case len(args) == 2 && args[0] == "reserve":
		return reserve(ctx, locker, args[1], out)
	case len(args) == 1 && args[0] == "finish":
		return finish(ctx, pool, locker, in, out)
	default:
		return errors.New("usage: handover reserve NAME > claim, and then: handover finish < claim")
	}
}

// reserve leaves the document to whoever has the claim. A service would keep the claim where only it can read, beside the task.
func reserve(ctx context.Context, locker *sqllock.Locker, name string, out io.Writer) error {
	lock, err := locker.TryAcquire(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release(ctx) }() // after Detach it does nothing

	claim, err := lock.Detach(ctx, reserved)
	if err != nil {
		return err
	}

	if _, err := fmt.Fprintln(out, claim.Secret()); err != nil {
		return errors.Join(err, locker.ReleaseClaim(ctx, claim)) // nobody could adopt it
	}

	return nil
}

// finish works on the document under the same lock. It is renewed meanwhile, as any other.
func finish(ctx context.Context, pool *pgxpool.Pool, locker *sqllock.Locker, in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}

	claim, err := sqllock.ParseClaim(string(text))
	if err != nil {
		return err
	}

	// A *LostError: the hour is over, or another worker has adopted it, and perhaps died. Whoever comes then acquires the name anew, and
	// looks under the new lock whether the document is finished.
	lock, err := locker.Adopt(ctx, claim)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release(ctx) }()

	tx, err := pool.Begin(lock.Context()) //nolint:contextcheck // it ends when the lock is lost
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()

	if err := lock.Guard(ctx, postgres.Tx(tx)); err != nil {
		return err
	}

	// Here it writes, as the only one.
	if err := tx.Commit(ctx); err != nil {
		return err
	}

	_, err = fmt.Fprintf(out, "finished %s with token %d\n", lock.Name(), lock.Token())

	return err
}
