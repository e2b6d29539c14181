package servers_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/bench/torture/internal/servers"
)

// TestSQLRestart: what was committed before a server is killed is there when it is back.
func TestSQLRestart(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			ctx, server := startSQL(t, kind, false)
			execute(ctx, t, kind, server, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")

			if err := server.Kill(ctx); err != nil {
				t.Fatal(err)
			}

			if err := server.Restart(ctx); err != nil {
				t.Fatal(err)
			}

			if n := count(ctx, t, kind, server); n != 1 {
				t.Errorf("%d rows after the restart, not the one before it", n)
			}

			if err := server.FailOver(ctx); !errors.Is(err, servers.ErrNone) {
				t.Errorf("one server fails over: %v", err)
			}
		})
	}
}

// TestSQLFailOver: what is committed before Lag is there after the fail-over, and what is committed after it is not.
func TestSQLFailOver(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			ctx, server := startSQL(t, kind, true)
			execute(ctx, t, kind, server, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")

			if err := server.Lag(ctx); err != nil {
				t.Fatal(err)
			}

			execute(ctx, t, kind, server, "INSERT INTO kept VALUES (2)")

			before := server.Endpoints()

			if err := server.FailOver(ctx); err != nil {
				t.Fatal(err)
			}

			if after := server.Endpoints(); len(after) != 1 || len(before) != 1 || after[0] == before[0] {
				t.Errorf("endpoints %v before the fail-over, and %v after it", before, after)
			}

			if n := count(ctx, t, kind, server); n != 1 {
				t.Errorf("%d rows after the fail-over, not only the one from before the lag", n)
			}

			execute(ctx, t, kind, server, "INSERT INTO kept VALUES (3)")
		})
	}
}

func startSQL(t *testing.T, kind string, failOver bool) (context.Context, servers.Server) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)

	server, err := servers.Start(ctx, kind, failOver)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})

	t.Log(server.Version())

	return ctx, server
}

func openSQL(t *testing.T, kind string, server servers.Server) *sql.DB {
	t.Helper()

	name := "pgx"
	if kind == "mysql" {
		name = "mysql"

		if err := driver.SetLogger(&driver.NopLogger{}); err != nil {
			t.Fatal(err)
		}
	}

	db, err := sql.Open(name, server.DSN(0, server.Endpoints()[0]))
	if err != nil {
		t.Fatal(err)
	}

	return db
}

func execute(ctx context.Context, t *testing.T, kind string, server servers.Server, statements ...string) {
	t.Helper()

	db := openSQL(t, kind, server)
	defer db.Close()

	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func count(ctx context.Context, t *testing.T, kind string, server servers.Server) (n int) {
	t.Helper()

	db := openSQL(t, kind, server)
	defer db.Close()

	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM kept").Scan(&n); err != nil {
		t.Fatal(err)
	}

	return n
}
