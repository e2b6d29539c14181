package servers

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/test/schema"
)

// startPostgres makes a database of the run's own.
func startPostgres(ctx context.Context) (*Server, error) {
	given, err := dsn("postgres")
	if err != nil {
		return nil, err
	}

	config, err := pgx.ParseConfig(given)
	if err != nil {
		return nil, err
	}

	admin := stdlib.OpenDB(*config)
	admin.SetMaxOpenConns(2)

	name := uniqueName()
	if err := execAll(ctx, admin, "CREATE DATABASE "+name); err != nil {
		return nil, errors.Join(err, admin.Close())
	}

	server := &Server{
		Address: contest.Address{DSN: given, Database: name},
		// Statements are what the driver counts: the server's statistics of them
		// are an extension that has to be loaded at its start, and those of
		// transactions come late.
		statistics: func(ctx context.Context) (Statistics, error) {
			found := Unknown()
			err := admin.QueryRowContext(ctx, `SELECT pg_current_wal_lsn() - '0/0'`).Scan(&found.LogBytes)

			return found, err
		},
		connections: func(ctx context.Context) (n int, err error) {
			err = admin.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = $1`, name).Scan(&n)

			return n, err
		},
		close: func(ctx context.Context) error {
			return errors.Join(execAll(ctx, admin, "DROP DATABASE "+name+" WITH (FORCE)"), admin.Close())
		},
	}

	config = config.Copy()
	config.Database = name

	own := stdlib.OpenDB(*config)
	defer own.Close()

	err = schema.Up(ctx, own, databases.Postgres)
	if err == nil {
		err = execAll(ctx, own, `CREATE TABLE sqllock_bare (LIKE sqllock_locks INCLUDING ALL) WITH (fillfactor = 50)`, floorRow)
	}

	if err == nil {
		err = own.QueryRowContext(ctx, `SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)
			|| ', synchronous_commit=' || current_setting('synchronous_commit')
			|| ', fsync=' || current_setting('fsync')`).Scan(&server.Version)
	}

	if err != nil {
		return nil, errors.Join(err, server.close(ctx))
	}

	return server, nil
}
