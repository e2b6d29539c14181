package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/databases"
)

// verbs are the rights that the library's statements need on a table, each with a
// statement that needs no other and changes nothing: of the table, its key, a value of that, and a row.
var verbs = []struct{ name, statement string }{ //nolint:gochecknoglobals // a table
	{"SELECT", "SELECT %[2]s FROM %[1]s WHERE 1 = 0"},
	{"INSERT", "INSERT INTO %[1]s %[4]s WHERE 1 = 0"},
	{"UPDATE", "UPDATE %[1]s SET %[2]s = %[3]s WHERE 1 = 0"},
	{"DELETE", "DELETE FROM %[1]s WHERE 1 = 0"},
}

// oneRows are the tables without names, with the row that each has, which stays.
var oneRows = map[string]string{ //nolint:gochecknoglobals // a table
	"sqllock_floor": "(id, token) SELECT 1, 0", "sqllock_recovery": "(id) SELECT 1", "sqllock_run": "(id, run) SELECT 1, ''",
}

// rights tries what the user may do with each table.
func rights(ctx context.Context, e *exam) ([]Finding, error) {
	if hidden, err := e.hiddenSchema(ctx); err != nil || hidden != nil {
		return hidden, err
	}

	expected, err := migrate.Expected(e.db.Target.Dialect)
	if err != nil {
		return nil, err
	}

	missing := map[string][]string{} // by verbs
	there := false

	for _, object := range expected {
		lacks, err := e.lacks(ctx, object)

		switch {
		case e.db.Locks.Classify(err) == databases.NoSchema:
			continue // the schema check tells
		case e.db.Locks.Classify(err) == databases.ReadOnly:
			return e.takesNoWrites(), nil
		case err != nil:
			return nil, err
		}

		there = true

		if len(lacks) > 0 {
			joined := strings.Join(lacks, ", ")
			missing[joined] = append(missing[joined], object.Name)
		}
	}

	if !there {
		return nil, nil
	}

	if len(missing) == 0 {
		e.usable = true

		return fine("the user may do all that locks need with the tables"), nil
	}

	return e.grants(ctx, missing)
}

// lacks returns the rights that the user does not have on a table, or a view, which he need only read.
func (e *exam) lacks(ctx context.Context, object migrate.Object) ([]string, error) {
	var lacks []string

	key, value, row := object.Columns[0], "'sqllock doctor'", "(name) SELECT 'sqllock doctor'"
	if one := oneRows[object.Name]; one != "" {
		key, value, row = "id", "1", one
	} else if object.Name == "sqllock_inserts" { // with a column without a default
		row = "(name, owner) SELECT 'sqllock doctor', ''"
	}

	for _, verb := range verbs {
		if object.View && verb.name != "SELECT" || oneRows[object.Name] != "" && verb.name == "DELETE" {
			break
		}

		statement := fmt.Sprintf(verb.statement, object.Name, key, value, row)
		if d := e.db.Target.Dialect; (d == databases.MySQL || d == databases.TiDB) && (verb.name == "UPDATE" || verb.name == "DELETE") {
			statement += " LIMIT 1" // or sql_safe_updates would refuse it
		}

		_, err := e.conn.ExecContext(ctx, e.asked(statement), e.mode()...)

		switch {
		case e.forbidden(err):
			lacks = append(lacks, verb.name)
		case err != nil && !noDefault(err):
			return nil, err
		}
	}

	return lacks, nil
}

// noDefault says whether a row was refused for want of a column that has no default, which MariaDB also does if there is none to
// insert. The right is there then, and what such a column does to locks the trial tells.
func noDefault(err error) bool {
	refused, ok := errors.AsType[*mysql.MySQLError](err)

	return ok && refused.Number == 1364
}

func (e *exam) takesNoWrites() []Finding {
	if e.db.Target.Dialect == databases.SQLite {
		return found(Error, "the file cannot be written", "no lock can be acquired or renewed",
			"let this user write "+e.db.Target.Path+" and its folder")
	}

	return found(Error, "the server takes no writes of this session", "no lock can be acquired or renewed",
		"connect to the primary, and leave read-only transactions out of the URL and of the user's settings")
}

// shutOut tells of the rights of a user whom MySQL does not let into the database,
// because he has none there. The error is the one given, if it is another.
func shutOut(ctx context.Context, db *dsn.Database, plan Plan, refused error) ([]Finding, error) {
	var said *mysql.MySQLError

	config, ok := db.Driver.(*mysql.Config)
	if !ok || !errors.As(refused, &said) || said.Number != errDatabaseDenied {
		return nil, refused
	}

	config = config.Clone()
	config.DBName = ""

	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}

	server := sql.OpenDB(connector)
	defer server.Close()

	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()

	conn, err := server.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	expected, err := migrate.Expected(db.Target.Dialect)
	if err != nil {
		return nil, err
	}

	missing := map[string][]string{}

	for _, object := range expected {
		verbs := "SELECT, INSERT, UPDATE, DELETE"
		if object.View {
			verbs = "SELECT"
		}

		missing[verbs] = append(missing[verbs], object.Name)
	}

	findings, err := (&exam{Plan: plan, db: db, conn: conn}).grants(ctx, missing)
	for i := range findings {
		findings[i].Check = "rights"
	}

	return findings, err
}

// errDatabaseDenied is MySQL's: "Access denied for user ... to database ...".
const errDatabaseDenied = 1044

// grantee is the user as a GRANT names him, and how it names a table.
// The server quotes names; MySQL's CURRENT_USER() is user@host without quotes.
func (e *exam) grantee(ctx context.Context) (user string, qualified func(table string) string, err error) {
	if config, ok := e.db.Driver.(*mysql.Config); ok {
		err = e.one(ctx, `SELECT CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))`, &user)

		return user, func(table string) string { return "`" + strings.ReplaceAll(config.DBName, "`", "``") + "`." + table }, err
	}

	if err = e.one(ctx, `SELECT pg_catalog.quote_ident(current_user::text)`, &user); err != nil {
		return "", nil, err
	}

	schemas, err := e.pairs(ctx, `SELECT c.relname::text, pg_catalog.quote_ident(n.nspname::text)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relname::text LIKE 'sqllock%' AND pg_catalog.pg_table_is_visible(c.oid)`)

	return user, func(table string) string { return schemas[table] + "." + table }, err
}

// grants tells what is missing, and the statements that give it.
func (e *exam) grants(ctx context.Context, missing map[string][]string) ([]Finding, error) {
	user, qualified, err := e.grantee(ctx)
	if err != nil {
		return nil, err
	}

	var said, statements []string

	for verbs, tables := range missing {
		slices.Sort(tables)
		said = append(said, verbs+" on "+strings.Join(tables, ", "))

		for _, table := range tables {
			statements = append(statements, "GRANT "+verbs+" ON "+qualified(table)+" TO "+user+";")
		}
	}

	slices.Sort(said)
	slices.Sort(statements)

	findings := found(Error, "the user lacks "+strings.Join(said, "; "), "locks cannot be acquired, renewed, released or listed",
		"as the tables' owner; or SET DEFAULT ROLE, if a role of the user's has these rights:")
	findings[0].Statements = statements

	return findings, nil
}

// hiddenSchema finds tables in a schema that the user may not use, and to whom they
// seem to be missing.
func (e *exam) hiddenSchema(ctx context.Context) ([]Finding, error) {
	if e.db.Target.Dialect != databases.Postgres {
		return nil, nil
	}

	var schemas int64

	var name, user string

	err := e.one(ctx, `SELECT pg_catalog.count(*), coalesce(pg_catalog.min(pg_catalog.quote_ident(n.nspname::text)), ''), pg_catalog.quote_ident(current_user::text)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relname = 'sqllock_locks' AND pg_catalog.to_regclass('sqllock_locks') IS NULL
   AND NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE'::text)`, &schemas, &name, &user)
	if err != nil || schemas == 0 {
		return nil, err
	}

	findings := found(Error, "the tables are in schema "+name+", which the user may not use", "they seem to be missing, and every acquisition fails",
		"as the schema's owner:")
	findings[0].Statements = []string{"GRANT USAGE ON SCHEMA " + name + " TO " + user + ";"}

	return findings, nil
}
