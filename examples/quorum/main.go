// Quorum keeps a lock on a majority of three servers, of which one is down. It needs no server; with
// DATABASE_URLS, three postgres URLs with blanks between them, it uses those instead, and you may stop one:
//
//	go run ./examples/quorum
//
//	export DATABASE_URLS="postgres://app:secret@a/app postgres://app:secret@b/app postgres://app:secret@c/app"
//	for url in $DATABASE_URLS; do sqllock migrate up --dsn "$url"; done
//	go run ./examples/quorum
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/quorum"
)

var errDown = fmt.Errorf("the server is down: %w", strategies.ErrNotSent)

func main() {
	if err := run(context.Background(), strings.Fields(os.Getenv("DATABASE_URLS"))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, urls []string) error {
	servers, end, err := open(ctx, urls)
	if err != nil {
		return err
	}
	defer end()

	locker, err := sqllock.New(quorum.New(servers...))
	if err != nil {
		return err
	}

	defer func() { _ = locker.Close(ctx) }()

	return locker.Do(ctx, "switch", func(_ context.Context, lock *sqllock.Lock) error {
		// There is no guard: what is switched has to refuse a token smaller than the largest that it has seen.
		fmt.Println("switched, with a token:", lock.Token() > 0)

		return nil
	})
}

// open returns a strategy for each server: of each URL, or three in memory, of which the last is down.
func open(ctx context.Context, urls []string) (servers []strategies.Strategy, end func(), err error) {
	if len(urls) == 0 {
		down := sqllocktest.NewMemory()
		down.Fail("acquire", 1000, sqllocktest.Before, errDown)

		return []strategies.Strategy{sqllocktest.NewMemory(), sqllocktest.NewMemory(), down}, func() {}, nil
	}

	var pools []*pgxpool.Pool

	end = func() {
		for _, pool := range pools {
			pool.Close()
		}
	}

	for _, url := range urls {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			end()

			return nil, nil, err
		}

		pools = append(pools, pool)
		servers = append(servers, cas.New(postgres.New(pool)))
	}

	return servers, end, nil
}
