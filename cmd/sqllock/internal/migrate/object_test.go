package migrate_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3/database"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
)

// standby answers as one of PostgreSQL 17 was seen to.
type standby struct{ database.DBTxConn }

func (standby) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	if strings.Contains(query, "sqllock_run") {
		return nil, &pgconn.PgError{Code: "0A000", Message: "cannot access temporary or unlogged relations during recovery"}
	}

	return nil, nil
}

// TestLookOnStandby finds a table there that cannot be read.
func TestLookOnStandby(t *testing.T) {
	t.Parallel()

	target, err := dsn.Parse("postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}

	db, err := target.Open(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	if seen, err := migrate.Look(t.Context(), db, standby{}); err != nil || len(seen.Missing)+len(seen.Altered) > 0 {
		t.Errorf("Look() = %+v, %v, want that all is there", seen, err)
	}
}
