package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
)

// TestPipeline sends several statements at a time, in all query modes of pgx and through database/sql, and where it is one by one.
func TestPipeline(t *testing.T) {
	t.Parallel()

	config := postgresDatabase(t, postgresConfig(t))

	pools := map[string]databases.DB{"stdlib": postgres.NewStd(stdPool(t, config)), "lib/pq": postgres.NewStd(libpqPool(t, config))}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		pools[mode.String()] = pgxPool(t, config, mode)
	}

	for name, db := range pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			if _, ok := conn.(databases.Pipeliner); ok != (name != "lib/pq") {
				t.Fatalf("a connection is a databases.Pipeliner: %v", ok)
			}

			ended := false
			defer func() {
				if !ended {
					conn.Discard()
				}
			}()

			// Twice, as the second time pgx has prepared what it prepares.
			for range 2 {
				pipelineInOrder(t, conn)
				pipelineFails(t, db, conn)
				pipelineRefusesRow(t, conn)
			}

			pipelineContextEnds(t, db, conn)
			conn.Discard()

			ended = true
		})
	}
}

// step is a statement that binds a text, of which the session may forget all when its transaction ends.
func step(query string, bound ...string) databases.Step {
	s := databases.Step{Statement: databases.Statement{Name: "test.step", SQL: query}, Values: databases.Values{}}
	for _, value := range bound {
		s.Statement.Args = append(s.Statement.Args, "value")
		s.Values["value"] = value
	}

	return s
}

var (
	begin  = step("BEGIN ISOLATION LEVEL READ COMMITTED")
	adding = "SELECT pg_catalog.set_config('sqllock.test', pg_catalog.current_setting('sqllock.test', true) || $1::text, true)"
)

func rollBack(t *testing.T, conn databases.Conn) {
	t.Helper()

	if _, err := conn.Run(t.Context(), step("ROLLBACK").Statement, nil, nil); err != nil {
		t.Fatalf("ROLLBACK behind a pipeline = %v, want a connection that goes on", err)
	}
}

func pipelineInOrder(t *testing.T, conn databases.Conn) {
	t.Helper()

	var got []string

	steps := []databases.Step{begin, step("SELECT pg_catalog.set_config('sqllock.test', '', true)")}

	for _, letter := range []string{"a", "b", "c"} {
		s := step(adding, letter)
		s.Each = func(row databases.Row) error {
			var text string

			err := row(&text)
			got = append(got, text)

			return err
		}
		steps = append(steps, s)
	}

	if err := databases.Pipeline(t.Context(), conn, steps...); err != nil {
		t.Fatalf("Pipeline() = %v, want nil", err)
	}

	if want := []string{"a", "ab", "abc"}; !slices.Equal(got, want) {
		t.Errorf("Pipeline() returned %q, want %q", got, want)
	}

	rollBack(t, conn)
}

// pipelineFails: what is behind an error has no effect, and the transaction can be rolled back.
func pipelineFails(t *testing.T, db databases.DB, conn databases.Conn) {
	t.Helper()

	last := step("SELECT 1")
	last.Each = func(databases.Row) error {
		t.Error("Pipeline() ran a statement behind one that failed")

		return nil
	}

	err := databases.Pipeline(t.Context(), conn, begin, step("SELECT 1/pg_catalog.length($1::text)", ""), last)
	if err == nil || db.Classify(err) != databases.Refused || !strings.Contains(err.Error(), "division by zero") {
		t.Fatalf("Pipeline() with a statement that fails = %v, want its error", err)
	}

	rollBack(t, conn)
}

// pipelineRefusesRow: the caller's own error puts no connection in doubt.
func pipelineRefusesRow(t *testing.T, conn databases.Conn) {
	t.Helper()

	own := errors.New("not this row")
	refusing := step("SELECT pg_catalog.generate_series(1, 1000)")
	refusing.Each = func(databases.Row) error { return own }

	if err := databases.Pipeline(t.Context(), conn, begin, refusing, step("SELECT 1")); !errors.Is(err, own) {
		t.Fatalf("Pipeline() whose row is refused = %v, want %v", err, own)
	}

	rollBack(t, conn)
}

func pipelineContextEnds(t *testing.T, db databases.DB, conn databases.Conn) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	started := time.Now()
	err := databases.Pipeline(ctx, conn, begin, step("SELECT pg_catalog.pg_sleep(5)"), step("SELECT 1"))

	if err == nil || time.Since(started) > 3*time.Second {
		t.Fatalf("Pipeline() whose context ends = %v after %s, want an error at once", err, time.Since(started))
	}

	if class := db.Classify(err); class != databases.Unreachable && class != databases.Unknown && class != databases.Refused {
		t.Errorf("Classify(%v) = %v", err, class)
	}
}
