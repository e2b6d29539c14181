package sinks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// writeLimit bounds a write, whatever its context allows.
const writeLimit = 10 * time.Second

// PrepareRows makes the table of all rows. Call it once for a database, before [PrepareRow].
func PrepareRows(ctx context.Context, dsn string) error {
	return execute(ctx, dsn, `CREATE TABLE IF NOT EXISTS torture_rows (
		name text, checked boolean, n bigint NOT NULL, token bigint NOT NULL, PRIMARY KEY (name, checked))`)
}

// PrepareRow makes the two rows of a trial, or sets them back to zero: the one that checks tokens, and the one that does not.
func PrepareRow(ctx context.Context, dsn, name string) error {
	return execute(ctx, dsn, `INSERT INTO torture_rows (name, checked, n, token) VALUES ($1, false, 0, 0), ($1, true, 0, 0)
		ON CONFLICT (name, checked) DO UPDATE SET n = 0, token = 0`, name)
}

func execute(ctx context.Context, dsn, statement string, arguments ...any) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}

	_, err = conn.Exec(ctx, statement, arguments...)

	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// OpenRow opens a row of PostgreSQL that [PrepareRow] made. Trials that run at a time have other names.
func OpenRow(ctx context.Context, dsn, name string, checked bool) (Sink, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}

	config.MaxConns = 2

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}

	var found bool

	err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM torture_rows WHERE name = $1 AND checked = $2)`, name, checked).Scan(&found)
	if err == nil && !found {
		err = fmt.Errorf("there is no row %q: call PrepareRow before", name)
	}

	if err != nil {
		pool.Close()

		return nil, err
	}

	return row{pool, name, checked}, nil
}

type row struct {
	pool    *pgxpool.Pool
	name    string
	checked bool
}

func (r row) Write(ctx context.Context, token int64) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()

	err = r.pool.QueryRow(ctx, `UPDATE torture_rows SET n = n + 1, token = greatest(token, $3)
		WHERE name = $1 AND checked = $2 AND (NOT checked OR token <= $3) RETURNING n`, r.name, r.checked, token).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrRefused
	}

	return n, err
}

func (r row) Close() { r.pool.Close() }
