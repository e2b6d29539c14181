package dsn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
)

// connectTimeout bounds how long a server may take to greet, unless the URL
// says otherwise. The drivers' own default is to wait for the kernel, which
// gives up after two minutes.
const connectTimeout = 10 * time.Second

// lookingConns are enough to compare sessions.
const lookingConns = 4

func parsePostgres(u *url.URL, text string) (Target, error) {
	t := Target{Dialect: databases.Postgres, shown: shown(u), driver: text}

	// Tell of a wrong parameter now rather than after waiting for something.
	_, err := t.postgresConfig()

	return t, err
}

func (t Target) postgresConfig() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(t.driver)
	if err != nil {
		// pgx quotes the URL, between ` and `, which may have secrets in it besides
		// the password.
		text := err.Error()

		return nil, errors.New(strings.TrimPrefix(text[strings.LastIndex(text, "`: ")+1:], ": "))
	}

	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}

	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "sqllock"
	}

	return config, nil
}

func openPostgres(ctx context.Context, t Target) (*Database, error) {
	config, err := t.postgresConfig()
	if err != nil {
		return nil, err
	}

	// What the URL says to a program.
	mode := config.ConnConfig.DefaultQueryExecMode

	// A statement under a name stays in the server session that a proxy gives to the
	// next client, which makes the name again.
	if t.looking || !strings.Contains(t.driver, "default_query_exec_mode=") {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}

	if t.looking {
		config.MaxConns = max(config.MaxConns, lookingConns)
	}

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", t, err)
	}

	std := stdlib.OpenDBFromPool(pool)

	return &Database{Target: t, Locks: postgres.New(pool), SQL: std, Driver: mode, close: func() error {
		err := std.Close()
		pool.Close()

		return err
	}}, nil
}
