package bench_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

const (
	// committers commit at a time, each as many transactions in a block, and there are so many blocks of each kind.
	committers   = 32
	transactions = 40
	blocks       = 12
)

// BenchmarkReleaseTx is what a release in a transaction costs others: 32 clients of PostgreSQL commit an update of a row of their own
// each, in blocks that take turns: alone; with another update of a table like that of the locks, by hand; and with the release of a
// lock that nobody waits for. A transaction that notified would hold a lock of the whole server until its commit is on disk.
func BenchmarkReleaseTx(b *testing.B) {
	ctx := b.Context()

	config, err := pgxpool.ParseConfig("")
	if err != nil {
		b.Fatal(err)
	}

	config.ConnConfig = postgresDatabase(b)
	config.MaxConns = 2 * committers

	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(pool.Close)

	for _, statement := range []string{
		"CREATE TABLE bills (id bigint PRIMARY KEY, paid bigint NOT NULL DEFAULT 0)",
		"CREATE TABLE others (LIKE bills INCLUDING ALL)",
		fmt.Sprintf("INSERT INTO bills SELECT n FROM generate_series(0, %d) n", committers-1),
		fmt.Sprintf("INSERT INTO others SELECT n FROM generate_series(0, %d) n", committers*transactions-1),
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			b.Fatal(err)
		}
	}

	locker := newLocker(b, cas.New(postgres.New(pool)))

	alone := func(context.Context, pgx.Tx, int) error { return nil }
	byHand := func(ctx context.Context, tx pgx.Tx, i int) error {
		_, err := tx.Exec(ctx, "UPDATE others SET paid = paid + 1 WHERE id = $1 AND paid >= 0", i)

		return err
	}

	var took [3]time.Duration

	for b.Loop() {
		for range blocks {
			locks := make([]*sqllock.Lock, committers*transactions)

			var group sync.WaitGroup

			for i := range locks {
				group.Go(func() {
					if locks[i], err = locker.Acquire(ctx, fmt.Sprint(b.Name(), i)); err != nil {
						b.Error(err)
					}
				})
			}

			group.Wait()

			release := func(ctx context.Context, tx pgx.Tx, i int) error { return locks[i].ReleaseTx(ctx, postgres.Tx(tx)) }

			for i, also := range []func(context.Context, pgx.Tx, int) error{alone, byHand, release} {
				took[i] += commit(b, pool, also)
			}

			for _, lock := range locks {
				if err := lock.Release(ctx); err != nil {
					b.Error(err)
				}
			}
		}
	}

	rate := func(d time.Duration) float64 { return float64(b.N*blocks*committers*transactions) / d.Seconds() }

	b.ReportMetric(0, "ns/op") // a number of transactions that was chosen
	b.ReportMetric(rate(took[0]), "alone/s")
	b.ReportMetric(rate(took[1]), "by-hand/s")
	b.ReportMetric(rate(took[2]), "released/s")
	b.ReportMetric(float64(took[1])/float64(took[2]), "x-by-hand")
	b.ReportMetric(float64(took[0])/float64(took[2]), "x-alone")
}

// commit is how long it takes until all have committed a block of transactions, each with something else in it.
func commit(b *testing.B, pool *pgxpool.Pool, also func(ctx context.Context, tx pgx.Tx, i int) error) time.Duration {
	b.Helper()

	began := time.Now()

	var group sync.WaitGroup

	for client := range committers {
		group.Go(func() {
			for i := range transactions {
				err := pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(b.Context(), "UPDATE bills SET paid = paid + 1 WHERE id = $1", client); err != nil {
						return err
					}

					return also(b.Context(), tx, client*transactions+i)
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}

	group.Wait()

	return time.Since(began)
}
