package contest

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
)

// openPgxPool is pgx's own pool.
func openPgxPool(ctx context.Context, c Config) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.Address.DSN)
	if err != nil {
		return nil, err
	}

	config.ConnConfig.Database = c.Address.Database
	config.ConnConfig.Tracer = tracer{c}
	config.MaxConns = int32(c.Pool)
	config.MinConns = 0

	return pgxpool.NewWithConfig(ctx, config)
}

func openPostgres(ctx context.Context, c Config) (*pool, error) {
	pgxs, err := openPgxPool(ctx, c)
	if err != nil {
		return nil, err
	}

	return &pool{
		db: postgres.New(pgxs),
		exec: func(ctx context.Context, query string, args ...any) error {
			_, err := pgxs.Exec(ctx, query, args...)

			return err
		},
		transaction: func(ctx context.Context, lock *sqllock.Lock) error {
			return pgx.BeginFunc(ctx, pgxs, func(tx pgx.Tx) error {
				if lock != nil {
					if err := lock.Guard(ctx, postgres.Tx(tx)); err != nil {
						return err
					}
				}

				_, err := tx.Exec(ctx, updateRow)

				return err
			})
		},
		close: func() error {
			pgxs.Close()

			return nil
		},
	}, nil
}

// openPostgresStd is database/sql over pgx.
func openPostgresStd(c Config) (*sql.DB, error) {
	config, err := pgx.ParseConfig(c.Address.DSN)
	if err != nil {
		return nil, err
	}

	config.Database = c.Address.Database
	config.Tracer = tracer{c}

	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(c.Pool)
	db.SetMaxIdleConns(c.Pool)

	return db, nil
}

// tracer counts statements, also those of a batch.
type tracer struct{ config Config }

func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.config.Statements.Add(1)

	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (t tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	t.config.Statements.Add(1)
}

func (tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
