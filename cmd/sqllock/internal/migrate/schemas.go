package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
)

// Schemas says in which schemas of a PostgreSQL database there are sqllock's tables. Where a search_path leads
// depends on who asks ("$user") and on which schemas there are. Two processes with one URL exclude each other only if it
// leads both to the same tables.
type Schemas struct {
	// current is where a table would be made.
	current string
	// fixed: the search_path names one schema, whoever asks.
	fixed bool
	// found are the tables and views that this session finds, by their schemas.
	found map[string][]string
	// Others have a set of tables that this session does not find.
	Others []string
}

// ErrNoSchema says that a PostgreSQL session can neither find nor make a table.
var ErrNoSchema = errors.New("the search_path names no schema that exists and that this user may use")

// ProofPrefix is what the names of schemas begin with that a proof makes for a while, and nobody else uses.
const ProofPrefix = "sqllock_prove_"

const locksTable = "sqllock_locks"

// SchemasOf looks for them, of tables that are not newer; no other database than PostgreSQL has any. It returns ErrNoSchema if that is so: goose looks for its table
// in the catalog, finds that of any schema, and cannot read it.
func SchemasOf(ctx context.Context, db *dsn.Database) (Schemas, error) {
	s := Schemas{found: map[string][]string{}}

	if err := newer(ctx, db); err != nil || db.Target.Dialect != databases.Postgres {
		return s, err
	}

	var (
		current sql.NullString
		path    string
	)

	err := db.SQL.QueryRowContext(ctx, "SELECT pg_catalog.current_schema()::text, pg_catalog.current_setting('search_path')").Scan(&current, &path)

	switch {
	case err != nil:
		return s, err
	case !current.Valid:
		return s, ErrNoSchema
	}

	s.current, s.fixed = current.String, fixed(path)

	expected, err := Expected(databases.Postgres)
	if err != nil {
		return s, err
	}

	names := []string{"'" + migrations.TableName + "'"}
	for _, object := range expected {
		names = append(names, "'"+object.Name+"'")
	}

	err = dsn.Each(ctx, db.SQL, func(rows *sql.Rows) error {
		var (
			schema, name string
			visible      bool
		)

		err := rows.Scan(&schema, &name, &visible)

		switch {
		case err != nil || strings.HasPrefix(schema, ProofPrefix):
		case visible:
			s.found[schema] = append(s.found[schema], name)
		case name == locksTable:
			s.Others = append(s.Others, schema)
		}

		return err
	}, `SELECT n.nspname::text, c.relname::text, pg_catalog.pg_table_is_visible(c.oid)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relname::text IN (`+strings.Join(names, ", ")+`) AND c.relkind IN ('r', 'v', 'p', 'f', 'm')
   AND (c.relpersistence <> 't' OR pg_catalog.pg_table_is_visible(c.oid))
 ORDER BY 1, 2`)

	return s, err
}

// fixed says whether a search_path names one schema that is the same for all. PostgreSQL's own has no tables of sqllock.
func fixed(path string) bool {
	var schemas []string

	for name := range strings.SplitSeq(path, ",") {
		if name = strings.TrimSpace(name); name != "" && name != "pg_catalog" {
			schemas = append(schemas, name)
		}
	}

	return len(schemas) == 1 && schemas[0] != `"$user"`
}

// Mixed is an error if the session finds some tables in one schema and some in another.
func (s Schemas) Mixed() error {
	if len(s.found) < 2 {
		return nil
	}

	var said []string

	for _, schema := range slices.Sorted(maps.Keys(s.found)) {
		said = append(said, strings.Join(s.found[schema], ", ")+" in "+schema)
	}

	// The copy is likely to be the smaller part.
	slices.SortStableFunc(said, func(a, b string) int { return strings.Count(a, ",") - strings.Count(b, ",") })

	return fmt.Errorf("sqllock's tables are in more than one schema: %s; drop the copies, and name the schema in the URL, for everybody: %s",
		strings.Join(said, "; "), inURL("NAME"))
}

// findsLocks is false also where nothing is left but the version table, which goose does not remove.
func (s Schemas) findsLocks() bool {
	return slices.Contains(slices.Concat(slices.Collect(maps.Values(s.found))...), locksTable)
}

// second is an error if a set of tables beside another one would be made, or was, and the URL does not say where. It is one, too, if the
// session finds the tables in another schema than the one where it would make them, and goose would look.
func (s Schemas) second() error {
	if err := s.Mixed(); err != nil {
		return err
	}

	for schema := range s.found {
		if schema != s.current {
			return s.another(schema)
		}
	}

	if s.fixed || len(s.Others) == 0 || s.findsLocks() {
		return nil
	}

	return s.another(s.Others[0])
}

// OnlyElsewhere is an error if this session finds no locks, and there are some in a schema that its URL does not name.
func (s Schemas) OnlyElsewhere() error {
	if s.findsLocks() {
		return nil
	}

	return s.second()
}

func (s Schemas) another(first string) error {
	return fmt.Errorf("schema %s has sqllock's tables, and this search_path leads to schema %s: locks of one set of tables do not exclude those of another; "+
		"name the schema of the tables in the URL, for everybody: %s; or, for a second set on purpose, %s", first, s.current, inURL(first), inURL(s.current))
}

// inURL is the parameter of a URL.
func inURL(schema string) string { return "search_path=" + url.QueryEscape(schema) }
