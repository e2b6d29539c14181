package dsn

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// Database is an open one.
type Database struct {
	// Target is what was opened.
	Target Target
	// Locks is the database as strategies see it.
	Locks databases.DB
	// SQL is the same database for goose.
	SQL *sql.DB
	// Driver is what the URL says to the driver: *mysql.Config, with the
	// password, or pgx.QueryExecMode, or nil.
	Driver any

	close func() error
}

// Open opens a database. Nothing is sent to a server yet: whether it is there
// shows at the first statement. An SQLite file that does not exist is made if
// create says so, and is an error otherwise, except for the embedded one.
func (t Target) Open(ctx context.Context, create bool) (*Database, error) {
	switch t.Dialect {
	case databases.Postgres:
		return openPostgres(ctx, t)
	case databases.MySQL, databases.TiDB:
		return openMySQL(t)
	case databases.SQLite:
		return openSQLite(ctx, t, create)
	default:
		return nil, fmt.Errorf("no database is named: %s", Forms)
	}
}

// OpenToLook opens a database to look at it and not to use it. No SQLite file is
// made, nor brought into another journal mode. PostgreSQL gets no statements
// under names, which a proxy that pools transactions need not pass.
func (t Target) OpenToLook(ctx context.Context) (*Database, error) {
	t.looking = true

	return t.Open(ctx, false)
}

// queryer is a *sql.DB or one connection of it.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Each calls read for every row of a query.
func Each(ctx context.Context, db queryer, read func(*sql.Rows) error, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()

	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}

	return rows.Err()
}

// closeTime bounds Close.
const closeTime = 2 * time.Second

// Close closes all connections. It does not wait for ever for those that are
// in use, as pgx's pool does: a server that does not answer must not keep the
// command from ending.
func (d *Database) Close() error {
	closed := make(chan error, 1)

	go func() { closed <- d.close() }()

	select {
	case err := <-closed:
		return err
	case <-time.After(closeTime):
		return nil
	}
}
