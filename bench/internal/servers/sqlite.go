package servers

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/test/schema"
)

// startSQLite makes a file in a temporary folder.
func startSQLite(ctx context.Context) (*Server, error) {
	folder, err := os.MkdirTemp("", "sqllock-bench-")
	if err != nil {
		return nil, err
	}

	server := &Server{
		Address: contest.Address{DSN: filepath.Join(folder, "locks.db")},
		close:   func(context.Context) error { return os.RemoveAll(folder) },
	}

	db, err := sql.Open("sqlite", "file:"+server.Address.DSN+"?_pragma=journal_mode(wal)")
	if err != nil {
		return nil, errors.Join(err, server.close(ctx))
	}
	defer db.Close()

	err = schema.Up(ctx, db, databases.SQLite)

	var layout string

	if err == nil {
		err = db.QueryRowContext(ctx, "SELECT sql, sqlite_version() FROM sqlite_schema WHERE name = 'sqllock_locks'").
			Scan(&layout, &server.Version)
	}

	if err == nil {
		err = execAll(ctx, db, strings.Replace(layout, "sqllock_locks", "sqllock_bare", 1), floorRow)
	}

	if err != nil {
		return nil, errors.Join(err, server.close(ctx))
	}

	server.Version = "SQLite " + server.Version + ", journal_mode=wal, synchronous=full"

	return server, nil
}
