package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
		if missing, _, err := e.missing(ctx); err == nil && !slices.ContainsFunc(missing, func(o migrate.Object) bool { return o.Name == "sqllock_locks" }) {
			e.schema = true

			return fine("the tables are there; this user may not read their version"), nil
		}

		return nil, err
	case err != nil:
		return nil, err
	}

	pending := slices.DeleteFunc(slices.Clone(statuses), func(s migrate.Status) bool { return s.Applied })

	switch len(pending) {
	case 0:
		e.schema = true

		return fine("the migration is applied"), nil
	case len(statuses):
		return e.unnoted(ctx)
	default:
		return found(Error, "the tables are outdated: "+pending[0].Name+" is pending",
			"acquisitions of this version fail", "run: "+e.db.Target.MigrateCommand()), nil
	}
}

// unnoted is about tables of which no version is noted, if they are there.
func (e *exam) unnoted(ctx context.Context) ([]Finding, error) {
	missing, all, err := e.missing(ctx)
	if err != nil {
		return nil, err
	}

	switch len(missing) {
	case all:
		return found(Error, "sqllock's tables are missing", "every acquisition fails", e.toMake(ctx)), nil
	case 0:
		e.schema = true

		// Another tool may have made them.
		return found(Note, "the tables are there, and "+migrations.TableName+" does not say of which version",
			"nothing, if another tool keeps them", "keep applying what \"sqllock migrate print\" prints"), nil
	default:
		return found(Error, "only a part of sqllock's tables is there", "every acquisition fails",
			"run: "+e.db.Target.MigrateCommand()+"; it makes the rest of what was broken off, or says what is in its way"), nil
	}
}

// toMake says what to do where there are no tables: a set beside another one would exclude nobody of those who use that.
func (e *exam) toMake(ctx context.Context) string {
	if schemas, err := migrate.SchemasOf(ctx, e.db); err == nil && len(schemas.Others) > 0 {
		return "name the schema of the tables in the URL, for everybody: search_path=..."
	}

	return "run: " + e.db.Target.MigrateCommand()
}

// missing are those tables and views, of all, that are not there. Those that the user may not read are.
func (e *exam) missing(ctx context.Context) (missing []migrate.Object, all int, err error) {
	expected, err := migrate.Expected(e.db.Target.Dialect)
	if err != nil {
		return nil, 0, err
	}

	for _, object := range expected {
		err := object.Look(ctx, e.db, e.conn)

		switch {
		case err == nil, errors.Is(err, migrate.ErrAltered), e.forbidden(err):
		case e.db.Locks.Classify(err) == databases.NoSchema:
			missing = append(missing, object)
		default:
			return nil, 0, err
		}
	}

	return missing, len(expected), nil
}

// tables looks whether the tables and views are there, with their columns, and for what was changed about them. Whether locks
// work on them a trial tells.
func tables(ctx context.Context, e *exam) ([]Finding, error) {
	if !e.schema {
		return nil, nil
	}

	expected, err := migrate.Expected(e.db.Target.Dialect)
	if err != nil {
		return nil, err
	}

	var findings []Finding

	for _, object := range expected {
		err := object.Look(ctx, e.db, e.conn)

		switch {
		case err == nil, e.forbidden(err):
		case errors.Is(err, migrate.ErrAltered):
			findings = append(findings, found(Error, "the tables were altered: "+err.Error(), "statements about locks fail",
				"make it again as \"sqllock migrate print\" shows")...)
		case e.db.Locks.Classify(err) == databases.NoSchema && object.View && len(findings) > 0:
			// It may lack only what it reads; the migrations make the views last.
		case e.db.Locks.Classify(err) == databases.NoSchema:
			findings = append(findings, e.gone(object)...)
		default:
			return findings, err
		}
	}

	more, err := e.altered(ctx)
	findings = append(findings, more...)

	if slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Error }) {
		e.usable = false // it is clear what a trial would find
	}

	if err != nil || len(findings) > 0 {
		return findings, err
	}

	return fine("they are there, with the columns that the migrations make"), nil
}

// gone is about a table or a view that is not there.
func (e *exam) gone(object migrate.Object) []Finding {
	said, effect := "the table "+object.Name+" is missing", "statements about locks fail"
	if object.View {
		said, effect = "the view "+object.Name+" is missing", "nobody can ask in SQL who holds what or waits"
	}

	fix := "make it again as \"sqllock migrate print\" shows; \"migrate up\" has done so once, and does not again"
	if d := e.db.Target.Dialect; d == databases.MySQL || d == databases.TiDB {
		fix = "run: " + e.db.Target.MigrateCommand()
	}

	return found(Error, said, effect, fix)
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

// triggers is of all databases: only who wrote one knows what it does.
var triggers = Finding{ //nolint:gochecknoglobals // a constant
	Level: Warning, Found: "the tables have %d triggers",
	Effect: "each grant and renewal waits for them, and one that changes or suppresses a row breaks the locks", Fix: "drop them",
}

// keys is about the tables that let one process at a time have a name: a trial meets nobody at the same moment.
var keys = Finding{ //nolint:gochecknoglobals // a constant
	Level: Error, Found: "%d tables have lost their primary key (name)",
	Effect: "two can hold a lock", Fix: "make it again as \"sqllock migrate print\" shows",
}

func alterations(dialect databases.Dialect) []alteration {
	switch dialect {
	case databases.Postgres:
		return []alteration{
			{
				`SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c
 WHERE c.relname::text IN ('sqllock_locks', 'sqllock_inserts', 'sqllock_mutexes') AND c.relkind = 'r' AND pg_catalog.pg_table_is_visible(c.oid)
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indnkeyatts = 1
                      AND pg_catalog.pg_get_indexdef(i.indexrelid, 1, true) = 'name')`,
				keys,
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
				`SELECT COUNT(*) FROM information_schema.tables t
 WHERE t.table_schema = DATABASE() AND t.table_name IN ('sqllock_locks', 'sqllock_leases', 'sqllock_inserts', 'sqllock_mutexes')
   AND (SELECT COALESCE(GROUP_CONCAT(s.column_name ORDER BY s.seq_in_index), '') FROM information_schema.statistics s
         WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.index_name = 'PRIMARY') <> 'name'`,
				keys,
			},
			{
				`SELECT COUNT(*) FROM information_schema.tables
 WHERE table_schema = DATABASE() AND table_name LIKE 'sqllock%' AND table_type = 'BASE TABLE' AND engine <> 'InnoDB'`,
				Finding{Level: Error, Found: "%d tables are not of InnoDB", Effect: "there are no row locks: two can hold a lock", Fix: "ALTER TABLE ... ENGINE = InnoDB"},
			},
			{
				`SELECT COUNT(*) FROM information_schema.triggers WHERE event_object_schema = DATABASE() AND event_object_table LIKE 'sqllock%'`,
				triggers,
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
