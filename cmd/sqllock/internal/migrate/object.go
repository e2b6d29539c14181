package migrate

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
)

// Object is a table or a view, as the migrations make it or as it is in a database.
type Object struct {
	Name string
	View bool
	// Columns in their order. Those of views have no more than names.
	Columns []Column
	// Keys are the primary key and the indexes, of tables.
	Keys []Key

	// statements of the migration make it.
	statements []string
}

// Column is one of a table.
type Column struct {
	Name string
	// Type as the database's catalog has it.
	Type string
	// Required: an INSERT must give it a value.
	Required bool
}

// Key is a primary key or an index.
type Key struct {
	Primary, Unique bool
	// Columns, separated by ", ".
	Columns string
}

func (k Key) String() string {
	switch {
	case k.Primary:
		return "primary key (" + k.Columns + ")"
	case k.Unique:
		return "unique index (" + k.Columns + ")"
	default:
		return "index (" + k.Columns + ")"
	}
}

// Expected are the tables and views that the migrations make, in that order.
func Expected(dialect databases.Dialect) ([]Object, error) {
	files, err := migrations.For(string(dialect))
	if err != nil {
		return nil, err
	}

	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}

	var objects []Object

	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}

		more, err := parsed(dialect, section(string(text), false))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		objects = append(objects, more...)
	}

	return objects, nil
}

// The migrations are written so that these find all there is.
var (
	comment     = regexp.MustCompile(`(?m) *--.*$`)
	createTable = regexp.MustCompile(`(?s)^CREATE TABLE (\w+) \((.*)\n\)`)
	createView  = regexp.MustCompile(`(?s)^CREATE VIEW (\w+) AS\s+SELECT (.*)`)
	createIndex = regexp.MustCompile(`^CREATE INDEX \w+ ON (\w+) \(([\w, ]+)\)`)
	columnLine  = regexp.MustCompile(`(?m)^    ([a-z_]+) +(\w+(?:\(\d+\))?)(.*)$`)
	primaryLine = regexp.MustCompile(`(?m)^    PRIMARY KEY \(([\w, ]+)\)`)
	indexLine   = regexp.MustCompile(`(?m)^    INDEX \w+ \(([\w, ]+)\)`)
)

func parsed(dialect databases.Dialect, up string) ([]Object, error) {
	var objects []Object

	for statement := range strings.SplitSeq(comment.ReplaceAllString(up, ""), ";") {
		statement = strings.TrimSpace(statement)

		if found := createTable.FindStringSubmatch(statement); found != nil {
			objects = append(objects, parsedTable(dialect, found[1], found[2], statement))
		} else if found := createView.FindStringSubmatch(statement); found != nil {
			objects = append(objects, Object{Name: found[1], View: true, Columns: selected(found[2]), statements: []string{statement}})
		} else if found := createIndex.FindStringSubmatch(statement); found != nil {
			at := slices.IndexFunc(objects, func(o Object) bool { return o.Name == found[1] })
			objects[at].Keys = append(objects[at].Keys, Key{Columns: found[2]})
			objects[at].statements = append(objects[at].statements, statement)
		} else if statement != "" {
			return nil, fmt.Errorf("not understood: %s", statement)
		}
	}

	return objects, nil
}

func parsedTable(dialect databases.Dialect, name, body, statement string) Object {
	table := Object{Name: name, statements: []string{statement}}

	for _, line := range columnLine.FindAllStringSubmatch(body, -1) {
		column := Column{
			Name: line[1], Type: catalogType(dialect, line[2]),
			Required: strings.Contains(line[3], "NOT NULL") && !strings.Contains(line[3], "DEFAULT"),
		}

		if strings.Contains(line[3], "PRIMARY KEY") {
			table.Keys = append(table.Keys, Key{Primary: true, Unique: true, Columns: column.Name})
		}

		table.Columns = append(table.Columns, column)
	}

	for _, line := range primaryLine.FindAllStringSubmatch(body, -1) {
		table.Keys = append(table.Keys, Key{Primary: true, Unique: true, Columns: line[1]})
	}

	for _, line := range indexLine.FindAllStringSubmatch(body, -1) {
		table.Keys = append(table.Keys, Key{Columns: line[1]})
	}

	return table
}

// catalogType is how the database calls a type of the migrations.
func catalogType(dialect databases.Dialect, written string) string {
	written = strings.ToLower(written)

	switch {
	case dialect == databases.Postgres && written == "timestamptz":
		return "timestamp with time zone"
	case (dialect == databases.MySQL || dialect == databases.TiDB) && written == "boolean":
		return "tinyint(1)"
	default:
		return written
	}
}

// selected are the columns of a view: what is between commas outside of parentheses, up to FROM, and is called by its
// last word.
func selected(list string) []Column {
	var columns []Column

	depth, word := 0, ""

	for _, token := range regexp.MustCompile(`\w+|[(),]`).FindAllString(list, -1) {
		switch {
		case token == "(":
			depth++
		case token == ")":
			depth--
		case depth > 0:
		case token == "," || token == "FROM":
			columns = append(columns, Column{Name: word})

			if token == "FROM" {
				return columns
			}
		default:
			word = token
		}
	}

	return columns
}

// Difference is what makes an object another than the one that the migrations make.
type Difference struct {
	// Found is what is so, Effect what comes of it, and Fix what to do about it.
	Found, Effect, Fix string
	// Slow: locks work, and become slow.
	Slow bool
}

const (
	fail        = "statements about locks fail, or do not exclude"
	noExclusion = "names that differ are taken for the same, or a name is held twice"
	refused     = "rows are refused that locks need"
	putBack     = `put it back: "sqllock migrate print" shows how it was`
)

// Differences are those between the object that the migrations make and the one of that name which is there. Columns that
// somebody added are none, if rows can do without them.
func (o Object) Differences(there Object) []Difference {
	if o.View != there.View {
		kind := map[bool]string{true: "a view", false: "a table"}

		return []Difference{{Found: o.Name + " is " + kind[there.View] + ", and not " + kind[o.View], Effect: fail, Fix: putBack}}
	}

	var differences []Difference

	differ := func(effect, fix, format string, args ...any) {
		differences = append(differences, Difference{Found: fmt.Sprintf(format, args...), Effect: effect, Fix: fix})
	}

	var lacks []string

	for _, column := range o.Columns {
		name := o.Name + "." + column.Name
		at := slices.IndexFunc(there.Columns, func(c Column) bool { return c.Name == column.Name })

		switch {
		case at < 0:
			lacks = append(lacks, column.Name)
		case there.Columns[at].Type != column.Type:
			differ(fail, putBack, "%s is %s, and not %s", name, there.Columns[at].Type, column.Type)
		case there.Columns[at].Required && !column.Required:
			differ(refused, putBack, "%s has lost its default", name)
		}
	}

	if len(lacks) > 0 {
		differ(fail, putBack, "%s has no column %s", o.Name, strings.Join(lacks, ", "))
	}

	for _, column := range there.Columns {
		if column.Required && !slices.ContainsFunc(o.Columns, func(c Column) bool { return c.Name == column.Name }) {
			differ("no row can be inserted: locks cannot be acquired", "ALTER TABLE "+o.Name+" DROP COLUMN "+column.Name+"; or give it a default",
				"%s.%s is not sqllock's, and is NOT NULL without a default", o.Name, column.Name)
		}
	}

	for _, key := range o.Keys {
		if !slices.Contains(there.Keys, key) {
			differ(noExclusion, putBack, "%s has lost its %s", o.Name, key)

			if last := &differences[len(differences)-1]; !key.Primary {
				last.Slow, last.Effect = true, "statements read more rows than they need, and get slower"
			}
		}
	}

	for _, key := range there.Keys {
		if key.Unique && !slices.Contains(o.Keys, key) {
			differ(refused, "drop it", "%s has a %s that is not sqllock's", o.Name, key)
		}
	}

	return differences
}

// Query asks a database.
type Query func(ctx context.Context, query string, args ...any) (*sql.Rows, error)

// Actual are the tables and views of a database by their names, as far as they are called like sqllock's and the user may see them.
//
// Functions have their schema and operators exact types: another would be taken from any schema of the search_path, and a superuser
// who asks would run somebody else's code.
func Actual(ctx context.Context, query Query, dialect databases.Dialect) (map[string]Object, error) {
	columns, keys := catalog(dialect)
	objects := map[string]Object{}

	err := each(ctx, query, columns, func(rows *sql.Rows) error {
		var (
			name   string
			view   bool
			column Column
		)

		err := rows.Scan(&name, &view, &column.Name, &column.Type, &column.Required)

		if view {
			column = Column{Name: column.Name}
		}

		o := objects[name]
		o.Name, o.View, o.Columns = name, view, append(o.Columns, column)
		objects[name] = o

		return err
	})
	if err != nil {
		return nil, err
	}

	type index struct {
		table, name string
		Key
	}

	var last index

	err = each(ctx, query, keys, func(rows *sql.Rows) error {
		var (
			i      index
			column string
		)

		err := rows.Scan(&i.table, &i.name, &i.Primary, &i.Unique, &column, new(int))
		o := objects[i.table]

		if i.table == last.table && i.name == last.name {
			o.Keys[len(o.Keys)-1].Columns += ", " + column
		} else {
			i.Columns = column
			o.Keys = append(o.Keys, i.Key)
		}

		objects[i.table], last = o, i

		return err
	})

	return objects, err
}

func each(ctx context.Context, query Query, text string, row func(*sql.Rows) error) error {
	rows, err := query(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()

	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}

	return rows.Err()
}

// catalog returns the statements that list columns and keys.
func catalog(dialect databases.Dialect) (columns, keys string) {
	switch dialect {
	case databases.MySQL, databases.TiDB:
		// A width, as in bigint(20), means nothing, and no longer stands there in MySQL. MariaDB says 'NULL' for none.
		return `SELECT c.table_name, t.table_type = 'VIEW', c.column_name,
       IF(c.data_type IN ('int', 'bigint'), REPLACE(c.column_type, CONCAT('(', SUBSTRING_INDEX(SUBSTRING_INDEX(c.column_type, '(', -1), ')', 1), ')'), ''), c.column_type),
       c.is_nullable = 'NO' AND c.column_default IS NULL AND c.extra NOT LIKE '%auto_increment%' AND COALESCE(c.generation_expression, '') = ''
  FROM information_schema.columns c JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
 WHERE c.table_schema = DATABASE() AND c.table_name LIKE 'sqllock%'
 ORDER BY c.table_name, c.ordinal_position`,
			`SELECT table_name, index_name, index_name = 'PRIMARY', non_unique = 0, COALESCE(column_name, '?'), seq_in_index FROM information_schema.statistics
 WHERE table_schema = DATABASE() AND table_name LIKE 'sqllock%'
 ORDER BY table_name, index_name <> 'PRIMARY', index_name, seq_in_index`
	case databases.SQLite:
		return `SELECT m.name, m.type = 'view', c.name, lower(c.type), c."notnull" AND c.dflt_value IS NULL FROM sqlite_master m JOIN pragma_table_info(m.name) c
 WHERE m.type IN ('table', 'view') AND m.name LIKE 'sqllock%' ORDER BY m.name, c.cid`,
			// The key that is a row's number has no index.
			`SELECT m.name AS "table", '' AS "index", 1, 1, c.name, 0 AS place FROM sqlite_master m JOIN pragma_table_info(m.name) c
 WHERE m.type = 'table' AND m.name LIKE 'sqllock%' AND c.pk AND NOT EXISTS (SELECT 1 FROM pragma_index_list(m.name) i WHERE i.origin = 'pk')
 UNION ALL
SELECT m.name, i.name, i.origin = 'pk', i."unique", COALESCE(c.name, '?') || CASE c.coll WHEN 'BINARY' THEN '' ELSE ' COLLATE ' || c.coll END, c.seqno
  FROM sqlite_master m JOIN pragma_index_list(m.name) i JOIN pragma_index_xinfo(i.name) c
 WHERE m.type = 'table' AND m.name LIKE 'sqllock%' AND c.key
 ORDER BY 1, 3 DESC, 2, 6`
	default:
		return `SELECT c.relname::text, c.relkind = 'v', a.attname::text,
       pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''::"char"
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
 WHERE c.relname::text LIKE 'sqllock%' AND c.relkind IN ('r', 'v', 'p', 'f', 'm') AND a.attnum > 0 AND NOT a.attisdropped AND pg_catalog.pg_table_is_visible(c.oid)
 ORDER BY c.relname, a.attnum`,
			`SELECT c.relname::text, k.relname::text, i.indisprimary AND i.indisvalid, i.indisunique,
       coalesce(pg_catalog.pg_get_indexdef(i.indexrelid, n::int, true), ''), n
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_class k ON k.oid = i.indexrelid
 CROSS JOIN pg_catalog.generate_series(1, i.indnkeyatts::int) n
 WHERE c.relname::text LIKE 'sqllock%' AND pg_catalog.pg_table_is_visible(c.oid)
 ORDER BY c.relname, NOT i.indisprimary, k.relname, n`
	}
}
