package conformance_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/internal/overload"
)

// plant lets another role make operators and functions in the schema of sqllock's
// tables, as it may do by default up to PostgreSQL 14. Each raises an error, so
// that in all databases of the suite a statement fails that calls one.
//
// The names are those in the source: a new statement's are among them.
func plant(t *testing.T, db *sql.DB, role string) {
	t.Helper()

	names, err := overload.Read(postgresSources(t)...)
	if err != nil {
		t.Fatal(err)
	}

	if err := names.Plant(t.Context(), db, role); err != nil {
		t.Fatal(err)
	}
}

// postgresSources are the files with SQL for PostgreSQL.
func postgresSources(t *testing.T) (files []string) {
	t.Helper()

	for _, pattern := range []string{
		"strategies/*/*.go", "strategies/internal/*/*.go", "databases/postgres/*.go", "migrations/postgres/*.sql",
	} {
		found, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}

		files = append(files, found...)
	}

	return files
}

// parameter is a placeholder, with the brackets of an array's type.
var parameter = regexp.MustCompile(`\$\d+(::[a-z_.]+\[\])?`)

// resolved checks what the server finds for the statements that were sent, also
// where it did not come to calling it: each becomes the body of a function, of
// which the server notes what it depends on. It does so for the view, for
// constraints and for defaults.
func resolved(t *testing.T, config *pgx.ConnConfig, role string, seen *sync.Map) {
	t.Helper()

	db := stdPool(t, config)
	n := 0

	seen.Range(func(statement, name any) bool {
		// These name no function or operator, and stand in no function.
		if text := fmt.Sprint(statement); strings.HasPrefix(text, "BEGIN") || strings.HasPrefix(text, "SET LOCAL") || text == "ROLLBACK" {
			return true
		}

		n++
		// A literal without a type is resolved as a parameter without one is.
		body := parameter.ReplaceAllStringFunc(fmt.Sprint(statement), func(s string) string {
			if _, array, ok := strings.Cut(s, "::"); ok {
				return "'{}'::" + array
			}

			return "'1'"
		})
		exec(t, db, fmt.Sprintf(`CREATE FUNCTION "%s %d"() RETURNS void LANGUAGE sql BEGIN ATOMIC %s; END`, name, n, body))

		return true
	})

	rows, err := db.QueryContext(context.WithoutCancel(t.Context()), `
SELECT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid), pg_catalog.pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
  FROM pg_catalog.pg_depend d
 WHERE (d.refclassid = 'pg_proc'::regclass::oid AND d.refobjid IN (SELECT oid FROM pg_catalog.pg_proc WHERE proowner = $1::regrole::oid)
        OR d.refclassid = 'pg_operator'::regclass::oid
           AND d.refobjid IN (SELECT oid FROM pg_catalog.pg_operator WHERE oprowner = $1::regrole::oid))
   AND d.classid <> 'pg_operator'::regclass::oid`, role)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = rows.Close() }()

	for rows.Next() {
		var what, stranger string
		if err := rows.Scan(&what, &stranger); err != nil {
			t.Fatal(err)
		}

		t.Errorf("%s uses a stranger's %s", what, stranger)
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
