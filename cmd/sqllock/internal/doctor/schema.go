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
	case errors.Is(err, migrate.ErrNewer):
		return found(Error, err.Error(), "every acquisition fails", "use the version that migrated them"), nil
	case e.forbidden(err):
		// Nobody but those who migrate needs the versions.
		look, err := migrate.Look(ctx, e.db, e.conn)
		if err == nil && !slices.ContainsFunc(look.Missing, func(o migrate.Object) bool { return o.Name == "sqllock_locks" }) {
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

		return fine("the migrations are applied"), nil
	case len(statuses):
		return e.unnoted(ctx)
	default:
		return found(Error, "the tables are outdated: "+pending[0].Name+" is pending",
			"acquisitions of this version fail", "run: "+e.db.Target.MigrateCommand()), nil
	}
}

// unnoted is about tables of which no version is noted, if they are there.
func (e *exam) unnoted(ctx context.Context) ([]Finding, error) {
	look, err := migrate.Look(ctx, e.db, e.conn)

	switch {
	case err != nil:
		return nil, err
	case len(look.There) == 0:
		return found(Error, "sqllock's tables are missing", "every acquisition fails", e.toMake(ctx)), nil
	case len(look.Missing) == 0:
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

// tables looks whether the tables and views are there, with their columns, and for what was changed about them. Whether locks
// work on them a trial tells.
func tables(ctx context.Context, e *exam) ([]Finding, error) {
	if !e.schema {
		return nil, nil
	}

	look, err := migrate.Look(ctx, e.db, e.conn)
	if err != nil {
		return nil, err
	}

	var findings []Finding

	for _, altered := range look.Altered {
		findings = append(findings, found(Error, "the tables were altered: "+altered.Error(), "statements about locks fail",
			"make it again as \"sqllock migrate print\" shows")...)
	}

	for _, object := range look.Missing {
		// A view may lack only what it reads; the migrations make the views last.
		if !object.View || len(findings) == 0 {
			findings = append(findings, e.gone(object)...)
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
	if object.View && object.Name != "sqllock_protocol" {
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
	query              string
	level              Level
	found, effect, fix string
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
			findings = append(findings, found(a.level, fmt.Sprintf(a.found, count), a.effect, a.fix)...)
		}
	}

	return findings, nil
}

// triggers is of all databases: only who wrote one knows what it does.
func triggers(query string) alteration {
	return alteration{
		query: query, level: Warning, found: "the tables have %d triggers",
		effect: "each grant and renewal waits for them, and one that changes or suppresses a row breaks the locks", fix: "drop them",
	}
}

// keys is about the tables that let one process at a time have a name: a trial meets nobody at the same moment.
func keys(query string) alteration {
	return alteration{
		query: query, level: Error, found: "%d tables have lost their primary key (name)",
		effect: "two can hold a lock", fix: "make it again as \"sqllock migrate print\" shows",
	}
}

func alterations(dialect databases.Dialect) []alteration {
	switch dialect {
	case databases.Postgres:
		return []alteration{
			keys(`SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c
 WHERE c.relname::text IN ('sqllock_locks', 'sqllock_inserts', 'sqllock_mutexes') AND c.relkind = 'r' AND pg_catalog.pg_table_is_visible(c.oid)
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indnkeyatts = 1
                      AND pg_catalog.pg_get_indexdef(i.indexrelid, 1, true) = 'name')`),
			{
				query: `SELECT pg_catalog.count(*) FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
 WHERE c.relname::text LIKE 'sqllock%' AND c.relkind = 'r' AND pg_catalog.pg_table_is_visible(c.oid)`,
				level: Error, found: "the tables have %d rules", effect: "statements about locks are rewritten, or not run at all",
				fix: "DROP RULE ... ON ...",
			},
			{
				query: `SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_collation k ON k.oid = a.attcollation
 WHERE c.relname::text LIKE 'sqllock%' AND c.relkind = 'r' AND a.attname = 'name' AND pg_catalog.pg_table_is_visible(c.oid) AND k.collname <> 'C'`,
				level: Warning, found: "%d columns with names have another collation than C",
				effect: "lists are in another order, and after an upgrade of the system's collations an index may not find a name, so that it is held twice",
				fix:    `ALTER TABLE ... ALTER COLUMN name TYPE text COLLATE "C"`,
			},
			{
				query: `SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c
 WHERE c.relname::text LIKE 'sqllock%' AND c.relkind = 'r' AND pg_catalog.pg_table_is_visible(c.oid) AND pg_catalog.row_security_active(c.oid)
   AND (EXISTS (SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive)
     OR NOT EXISTS (SELECT 1 FROM pg_catalog.pg_policy p
       WHERE p.polrelid = c.oid AND p.polcmd = '*' AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = 'true'
         AND COALESCE(pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true'
         AND EXISTS (SELECT 1 FROM pg_catalog.unnest(p.polroles) role (oid) WHERE role.oid = 0 OR pg_catalog.pg_has_role(role.oid, 'USAGE'))))`,
				level: Error, found: "%d tables have row-level security that binds this user", effect: "locks are refused, or are not seen by others",
				fix: "ALTER TABLE ... DISABLE ROW LEVEL SECURITY",
			},
			{
				query: `SELECT pg_catalog.count(*) FROM pg_catalog.pg_class WHERE relname::text LIKE 'sqllock%' AND relkind = 'r' AND pg_catalog.pg_table_is_visible(oid) AND relpersistence <> 'p' AND relname <> 'sqllock_run'`,
				level: Warning, found: "%d tables are UNLOGGED", effect: "a crash of the server empties them: every lock is free, and tokens begin anew",
				fix: "ALTER TABLE ... SET LOGGED",
			},
			{
				query: `SELECT pg_catalog.count(*) FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass('sqllock_run')::pg_catalog.oid AND relpersistence = 'p'`,
				level: Warning, found: "%d table that a crash has to empty is not UNLOGGED: sqllock_run",
				effect: "asynchronous commit is refused, as no crash would show", fix: "ALTER TABLE sqllock_run SET UNLOGGED",
			},
			{
				query: `SELECT pg_catalog.count(*) FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
 WHERE c.relname = 'sqllock_locks' AND pg_catalog.pg_table_is_visible(c.oid) AND NOT i.indisprimary`,
				level: Warning, found: "sqllock_locks has %d indexes beside its primary key",
				effect: "renewals are no heap-only updates any more, and the table grows", fix: "drop them",
			},
			triggers(`SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
 WHERE c.relname::text LIKE 'sqllock%' AND pg_catalog.pg_table_is_visible(c.oid) AND NOT t.tgisinternal`),
		}
	case databases.MySQL, databases.TiDB:
		return []alteration{
			keys(`SELECT COUNT(*) FROM information_schema.tables t
 WHERE t.table_schema = DATABASE() AND t.table_name IN ('sqllock_locks', 'sqllock_leases', 'sqllock_inserts', 'sqllock_mutexes')
   AND (SELECT COALESCE(GROUP_CONCAT(s.column_name ORDER BY s.seq_in_index), '') FROM information_schema.statistics s
         WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.index_name = 'PRIMARY') <> 'name'`),
			{
				query: `SELECT COUNT(*) FROM information_schema.tables
 WHERE table_schema = DATABASE() AND table_name LIKE 'sqllock%' AND table_type = 'BASE TABLE' AND engine <> 'InnoDB'`,
				level: Error, found: "%d tables are not of InnoDB", effect: "there are no row locks: two can hold a lock",
				fix: "ALTER TABLE ... ENGINE = InnoDB",
			},
			triggers(`SELECT COUNT(*) FROM information_schema.triggers WHERE event_object_schema = DATABASE() AND event_object_table LIKE 'sqllock%'`),
		}
	case databases.SQLite:
		return []alteration{
			triggers(`SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE 'sqllock%'`),
		}
	default:
		return nil
	}
}
