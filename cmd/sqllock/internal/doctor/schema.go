package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
)

// schema looks which migrations were applied.
func schema(ctx context.Context, e *exam) ([]Finding, error) {
	statuses, err := migrate.Statuses(ctx, e.db)

	switch {
	case e.forbidden(err):
		// Nobody but those who migrate needs the versions.
		if actual, err := e.columns(ctx); err == nil && len(actual["sqllock_locks"]) > 0 {
			e.schema = true

			return fine("the tables are there; this user may not read their version"), nil
		}

		return nil, err
	case err != nil:
		return nil, err
	}

	var pending []string

	for _, s := range statuses {
		if !s.Applied {
			pending = append(pending, s.Name)
		}
	}

	switch {
	case len(pending) == 0:
		e.schema = true

		if len(statuses) == 1 {
			return fine("the migration is applied"), nil
		}

		return fine("all %d migrations are applied", len(statuses)), nil
	case len(pending) == len(statuses):
		// Another tool may have made the tables.
		if actual, err := e.columns(ctx); err == nil && len(actual["sqllock_locks"]) > 0 {
			e.schema = true

			return found(Note, "the tables are there, and "+migrations.TableName+" does not say of which version",
				"nothing, if another tool keeps them", "keep applying what \"sqllock migrate print\" prints"), nil
		}

		return found(Error, "sqllock's tables are missing", "every acquisition fails", "run: "+e.db.Target.MigrateCommand()), nil
	default:
		return found(Error, "the tables are outdated: "+strings.Join(pending, ", ")+" is pending",
			"acquisitions of this version fail", "run: "+e.db.Target.MigrateCommand()), nil
	}
}

// tables compares the tables with what the migrations make.
func tables(ctx context.Context, e *exam) ([]Finding, error) {
	if !e.schema {
		return nil, nil
	}

	want, err := expected(e.db.Target.Dialect)
	if err != nil {
		return nil, err
	}

	actual, err := e.columns(ctx)
	if err != nil {
		return nil, err
	}

	var findings []Finding

	gone, err := e.gone(ctx, slices.Sorted(maps.Keys(want)))
	if err != nil {
		return nil, err
	}

	for _, table := range gone {
		findings = append(findings, missing(table)...)
		delete(want, table)
	}

	for _, table := range slices.Sorted(maps.Keys(want)) {
		for _, column := range want[table] {
			if _, there := actual[table][column]; !there {
				findings = append(findings, found(Error, "the tables were altered: "+table+"."+column+" is missing",
					"statements about locks fail", "put it back: \"sqllock migrate print\" shows how it was")...)
			}
		}

		for _, column := range slices.Sorted(maps.Keys(actual[table])) {
			if required := actual[table][column]; required && !slices.Contains(want[table], column) {
				findings = append(findings, found(Error, "the tables were altered: "+table+"."+column+" is not sqllock's, and is NOT NULL without a default",
					"no row can be inserted: locks cannot be acquired",
					"ALTER TABLE "+table+" DROP COLUMN "+column+"; or give it a default")...)
			}
		}
	}

	more, err := e.altered(ctx)
	findings = append(findings, more...)

	if err != nil || len(findings) > 0 {
		return findings, err
	}

	return fine("as the migrations make them"), nil
}

// missing is about a table or a view that is not there.
func missing(table string) []Finding {
	said, effect := "the table "+table+" is missing", "statements about locks fail"
	if slices.Contains(views, table) {
		said, effect = "the view "+table+" is missing", "nobody can ask in SQL who holds what or waits, and \"sqllock migrate down\" fails"
	}

	return found(Error, said, effect, "make it again as \"sqllock migrate print\" shows; \"migrate up\" has done so once, and does not again")
}

// gone are those of the tables that are not there; else the views that are not. Of
// those that the user may not read nothing is known here.
func (e *exam) gone(ctx context.Context, tables []string) (gone []string, err error) {
	for _, table := range append(tables, views...) {
		if table == views[0] && len(gone) > 0 {
			break // they may lack only what they read
		}

		_, err := e.conn.ExecContext(ctx, e.asked("SELECT 1 FROM "+table+" WHERE 1 = 0"), e.mode()...)

		switch {
		case err == nil, e.forbidden(err):
		case e.db.Locks.Classify(err) == databases.NoSchema:
			gone = append(gone, table)
		default:
			return gone, err
		}
	}

	return gone, nil
}

var (
	createTable = regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((.*?)\n\)`)
	columnLine  = regexp.MustCompile(`(?m)^    ([a-z_]+) +[A-Za-z]`)
)

// expected are the columns of each table, as the migrations make them.
func expected(dialect databases.Dialect) (map[string][]string, error) {
	files, err := migrations.For(string(dialect))
	if err != nil {
		return nil, err
	}

	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}

	want := map[string][]string{}

	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}

		up, _, _ := strings.Cut(string(text), "-- +goose Down")

		for _, table := range createTable.FindAllStringSubmatch(up, -1) {
			for _, column := range columnLine.FindAllStringSubmatch(table[2], -1) {
				want[table[1]] = append(want[table[1]], column[1])
			}
		}
	}

	return want, nil
}

// columns are those of the tables that there are, and whether an INSERT must give
// them a value.
//
// Here and in all that the doctor asks of PostgreSQL, functions have their schema
// and operators exact types: another would be taken from any schema of the
// search_path, and a superuser who asks the doctor would run somebody else's code.
func (e *exam) columns(ctx context.Context) (map[string]map[string]bool, error) {
	query := `SELECT c.relname, a.attname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''::"char"
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
 WHERE c.relname::text LIKE 'sqllock%' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND pg_catalog.pg_table_is_visible(c.oid)`

	switch e.db.Target.Dialect {
	case databases.MySQL, databases.TiDB:
		query = `SELECT table_name, column_name,
       is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%auto_increment%' AND COALESCE(generation_expression, '') = ''
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name LIKE 'sqllock%'`
	case databases.SQLite:
		query = `SELECT m.name, c.name, c."notnull" AND c.dflt_value IS NULL FROM sqlite_master m JOIN pragma_table_info(m.name) c
 WHERE m.type = 'table' AND m.name LIKE 'sqllock%'`
	case databases.Postgres:
	}

	rows, err := e.conn.QueryContext(ctx, e.asked(query), e.mode()...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	actual := map[string]map[string]bool{}

	for rows.Next() {
		var (
			table, column string
			required      bool
		)

		if err := rows.Scan(&table, &column, &required); err != nil {
			return nil, err
		}

		if actual[table] == nil {
			actual[table] = map[string]bool{}
		}

		actual[table][column] = required
	}

	return actual, rows.Err()
}

// alteration is a question whose answer is a number that should be zero.
type alteration struct {
	query string
	Finding
}

// altered looks for what was changed about tables whose columns are right.
func (e *exam) altered(ctx context.Context) ([]Finding, error) {
	var findings []Finding

	for _, a := range alterations(e.db.Target.Dialect) {
		var count int
		if err := e.one(ctx, a.query, &count); err != nil {
			return findings, err
		}

		if count > 0 {
			a.Found = fmt.Sprintf(a.Found, count)
			findings = append(findings, a.Finding)
		}
	}

	return findings, nil
}

const (
	noExclusion = "names that differ are taken for the same, or a name is held twice"
	primaryKey  = "make name the primary key again, as \"sqllock migrate print\" shows"
)

// triggers is of all databases: only who wrote one knows what it does.
var triggers = Finding{ //nolint:gochecknoglobals // a constant
	Level: Warning, Found: "the tables have %d triggers",
	Effect: "each grant and renewal waits for them, and one that changes or suppresses a row breaks the locks", Fix: "drop them",
}

func alterations(dialect databases.Dialect) []alteration {
	switch dialect {
	case databases.Postgres:
		return []alteration{
			{
				`SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c
 WHERE c.relname IN ('sqllock_locks', 'sqllock_inserts', 'sqllock_mutexes', 'sqllock_shares', 'sqllock_queue', 'sqllock_floor') AND c.relkind = 'r' AND pg_catalog.pg_table_is_visible(c.oid)
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid)`,
				Finding{Level: Error, Found: "the tables were altered: %d primary keys are missing", Effect: noExclusion, Fix: primaryKey},
			},
			{
				`SELECT pg_catalog.count(*) FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
 WHERE c.relname::text LIKE 'sqllock%' AND c.relkind = 'r' AND pg_catalog.pg_table_is_visible(c.oid)`,
				Finding{
					Level: Error, Found: "the tables have %d rules", Effect: "statements about locks are rewritten, or not run at all",
					Fix: "DROP RULE ... ON ...",
				},
			},
			{
				`SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_collation k ON k.oid = a.attcollation
 WHERE c.relname::text LIKE 'sqllock%' AND c.relkind = 'r' AND a.attname = 'name' AND pg_catalog.pg_table_is_visible(c.oid) AND k.collname <> 'C'`,
				Finding{
					Level: Warning, Found: "%d columns with names have another collation than C",
					Effect: "lists are in another order, and after an upgrade of the system's collations an index may not find a name, so that it is held twice",
					Fix:    `ALTER TABLE ... ALTER COLUMN name TYPE text COLLATE "C"`,
				},
			},
			{
				`SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c
 WHERE c.relname::text LIKE 'sqllock%' AND c.relkind = 'r' AND pg_catalog.pg_table_is_visible(c.oid) AND pg_catalog.row_security_active(c.oid)
   AND (EXISTS (SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive)
     OR NOT EXISTS (SELECT 1 FROM pg_catalog.pg_policy p
       WHERE p.polrelid = c.oid AND p.polcmd = '*' AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = 'true'
         AND COALESCE(pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true'
         AND EXISTS (SELECT 1 FROM pg_catalog.unnest(p.polroles) role (oid) WHERE role.oid = 0 OR pg_catalog.pg_has_role(role.oid, 'USAGE'))))`,
				Finding{
					Level: Error, Found: "%d tables have row-level security that binds this user", Effect: "locks are refused, or are not seen by others",
					Fix: "ALTER TABLE ... DISABLE ROW LEVEL SECURITY",
				},
			},
			{
				`SELECT pg_catalog.count(*) FROM pg_catalog.pg_class WHERE relname::text LIKE 'sqllock%' AND relkind = 'r' AND pg_catalog.pg_table_is_visible(oid) AND relpersistence <> 'p'`,
				Finding{
					Level: Warning, Found: "%d tables are UNLOGGED", Effect: "a crash of the server empties them: every lock is free, and tokens begin anew",
					Fix: "ALTER TABLE ... SET LOGGED",
				},
			},
			{
				`SELECT pg_catalog.count(*) FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
 WHERE c.relname = 'sqllock_locks' AND pg_catalog.pg_table_is_visible(c.oid) AND NOT i.indisprimary`,
				Finding{
					Level: Warning, Found: "sqllock_locks has %d indexes beside its primary key",
					Effect: "renewals are no heap-only updates any more, and the table grows", Fix: "drop them",
				},
			},
			{
				`SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
 WHERE c.relname::text LIKE 'sqllock%' AND pg_catalog.pg_table_is_visible(c.oid) AND NOT t.tgisinternal`,
				triggers,
			},
		}
	case databases.MySQL, databases.TiDB:
		return []alteration{
			{
				`SELECT COUNT(*) FROM information_schema.tables
 WHERE table_schema = DATABASE() AND table_name LIKE 'sqllock%' AND table_type = 'BASE TABLE' AND engine <> 'InnoDB'`,
				Finding{Level: Error, Found: "%d tables are not of InnoDB", Effect: "there are no row locks: two can hold a lock", Fix: "ALTER TABLE ... ENGINE = InnoDB"},
			},
			{
				`SELECT COUNT(*) FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name IN ('sqllock_locks', 'sqllock_leases', 'sqllock_inserts', 'sqllock_mutexes', 'sqllock_shares')
   AND column_name = 'name' AND (data_type <> 'varbinary' OR column_key <> 'PRI')`,
				Finding{
					Level: Error, Found: "the tables were altered: %d columns with names are not VARBINARY, or not the primary key",
					Effect: noExclusion, Fix: "ALTER TABLE ... MODIFY name VARBINARY(255) NOT NULL; " + primaryKey,
				},
			},
			{
				`SELECT COUNT(*) FROM information_schema.triggers WHERE event_object_schema = DATABASE() AND event_object_table LIKE 'sqllock%'`,
				triggers,
			},
			{
				`SELECT COUNT(*) FROM information_schema.tables
 WHERE table_schema = DATABASE() AND table_name IN ('sqllock_locks', 'sqllock_leases')
   AND data_length + data_free > 16777216 AND data_length / GREATEST(table_rows, 1) > 20480`,
				Finding{Level: Warning, Found: "%d lock tables are bloated", Effect: "statements about locks get slower", Fix: "OPTIMIZE TABLE ..., at a quiet moment"},
			},
		}
	case databases.SQLite:
		return []alteration{
			{
				`SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE 'sqllock%'`,
				triggers,
			},
		}
	default:
		return nil
	}
}
