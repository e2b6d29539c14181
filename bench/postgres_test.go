package bench_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
)

// openPostgres is pgx's own pool.
func openPostgres(b *testing.B, spy bool) pool {
	b.Helper()

	return pgxPool(b, postgresDatabase(b), poolSize, spy)
}

// openPostgresStd is database/sql over pgx.
func openPostgresStd(b *testing.B, spy bool) pool {
	b.Helper()

	return pgxStdPool(b, postgresDatabase(b), poolSize, spy)
}

func pgxStdPool(b *testing.B, config *pgx.ConnConfig, size int, spy bool) pool {
	b.Helper()

	own, through := spied(b, config, spy)
	db := openStd(b, own)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)

	p := stdPool(db, postgres.NewStd(db), through)
	p.another = func(b *testing.B, size int, spy bool) pool {
		b.Helper()

		return pgxStdPool(b, config, size, spy)
	}

	return p
}

func pgxPool(b *testing.B, config *pgx.ConnConfig, size int, spy bool) pool {
	b.Helper()

	own, through := spied(b, config, spy)

	c, err := pgxpool.ParseConfig("")
	if err != nil {
		b.Fatal(err)
	}

	c.ConnConfig = own
	c.MaxConns = int32(size)

	pgxs, err := pgxpool.NewWithConfig(context.WithoutCancel(b.Context()), c)
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(pgxs.Close)

	return pool{
		db:    postgres.New(pgxs),
		proxy: through,
		idle:  func() int { return int(pgxs.Stat().IdleConns()) },
		another: func(b *testing.B, size int, spy bool) pool {
			b.Helper()

			return pgxPool(b, config, size, spy)
		},
		update: func(ctx context.Context, query string, args ...any) error {
			conn, err := pgxs.Acquire(ctx)
			if err != nil {
				return err
			}

			defer conn.Release()

			_, err = conn.Exec(ctx, query, args...)

			return err
		},
		number: func(ctx context.Context, query string) (n int64, err error) {
			err = pgxs.QueryRow(ctx, query).Scan(&n)

			return n, err
		},
	}
}

// postgresDatabase makes a database and returns how to connect to it.
func postgresDatabase(b *testing.B) *pgx.ConnConfig {
	b.Helper()

	config, err := pgx.ParseConfig(dsn(b, "postgres"))
	if err != nil {
		b.Fatal(err)
	}

	name := uniqueName()
	maintenance := openStd(b, config)
	exec(b, maintenance, "CREATE DATABASE "+name)
	b.Cleanup(func() { exec(b, maintenance, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })

	config = config.Copy()
	config.Database = name
	direct := openStd(b, config)
	migrate(b, direct, databases.Postgres)
	exec(b, direct, `CREATE TABLE sqllock_bare (LIKE sqllock_locks INCLUDING ALL) WITH (fillfactor = 50)`)

	return config
}

// spied is config, through a proxy if spy is true.
func spied(b *testing.B, config *pgx.ConnConfig, spy bool) (*pgx.ConnConfig, *proxy) {
	b.Helper()

	config = config.Copy()
	if !spy {
		return config, nil
	}

	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	through := newProxy(b, network, address)
	config.Host, config.Port, config.Fallbacks = "127.0.0.1", uint16(through.port()), nil

	return config, through
}

func openStd(b *testing.B, config *pgx.ConnConfig) *sql.DB {
	b.Helper()

	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(poolSize)
	b.Cleanup(func() { _ = db.Close() })

	return db
}
