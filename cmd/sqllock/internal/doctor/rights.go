package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
)

// verbs are the rights that the library's statements need on a table, each with a
// statement that needs no other and changes nothing.
var verbs = []struct{ name, statement string }{ //nolint:gochecknoglobals // a table
	{"SELECT", "SELECT name FROM %s WHERE 1 = 0"},
	{"INSERT", "INSERT INTO %s (name) SELECT 'sqllock doctor' WHERE 1 = 0"},
	{"UPDATE", "UPDATE %s SET name = 'sqllock doctor' WHERE 1 = 0"},
	{"DELETE", "DELETE FROM %s WHERE 1 = 0"},
}

// views are what a user need only read.
var views = []string{"sqllock_holders", "sqllock_waiters"} //nolint:gochecknoglobals // a table

// rights tries what the user may do with each table.
func rights(ctx context.Context, e *exam) ([]Finding, error) {
	if hidden, err := e.hiddenSchema(ctx); err != nil || hidden != nil {
		return hidden, err
	}

	tables, err := expected(e.db.Target.Dialect)
	if err != nil {
		return nil, err
	}

	for _, view := range views {
		tables[view] = nil
	}

	missing := map[string][]string{} // by verbs
	there := false

	for table := range tables {
		lacks, err := e.lacks(ctx, table)

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
			missing[joined] = append(missing[joined], table)
		}
	}

	if !there {
		return nil, nil
	}

	if len(missing) == 0 {
		return fine("the user may do all that locks need with the tables"), nil
	}

	return e.grants(ctx, missing)
}

// lacks returns the rights that the user does not have on a table.
func (e *exam) lacks(ctx context.Context, table string) ([]string, error) {
	var lacks []string

	for _, verb := range verbs {
		if slices.Contains(views, table) && verb.name != "SELECT" {
			break
		}

		statement := fmt.Sprintf(verb.statement, table)
		if d := e.db.Target.Dialect; (d == databases.MySQL || d == databases.TiDB) && (verb.name == "UPDATE" || verb.name == "DELETE") {
			statement += " LIMIT 1" // or sql_safe_updates would refuse it
		}

		switch table { // with a column without a default, or with no name
		case "sqllock_inserts":
			statement = strings.Replace(statement, "(name) SELECT 'sqllock doctor'", "(name, owner) SELECT 'sqllock doctor', ''", 1)
		case "sqllock_floor":
			statement = strings.Replace(statement, "(name) SELECT 'sqllock doctor'", "(id, token) SELECT 1, 0", 1)
			statement = strings.NewReplacer("name", "id", "'sqllock doctor'", "1").Replace(statement)
		}

		_, err := e.conn.ExecContext(ctx, e.asked(statement), e.mode()...)

		switch {
		case e.forbidden(err):
			lacks = append(lacks, verb.name)
		case err != nil:
			return nil, err
		}
	}

	return lacks, nil
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

	tables, err := expected(databases.MySQL)
	if err != nil {
		return nil, err
	}

	findings, err := (&exam{Plan: plan, db: db, conn: conn}).grants(ctx, map[string][]string{
		"SELECT, INSERT, UPDATE, DELETE": slices.Collect(maps.Keys(tables)),
		"SELECT":                         views,
	})
	for i := range findings {
		findings[i].Check = "rights"
	}

	return findings, err
}

// errDatabaseDenied is MySQL's: "Access denied for user ... to database ...".
const errDatabaseDenied = 1044

// grantee is the user as a GRANT names him, and what precedes the tables there.
// The server quotes names; MySQL's CURRENT_USER() is user@host without quotes.
func (e *exam) grantee(ctx context.Context) (user, prefix string, err error) {
	config, ok := e.db.Driver.(*mysql.Config)
	if !ok {
		err = e.one(ctx, `SELECT pg_catalog.quote_ident(current_user::text)`, &user)

		return user, "", err
	}

	err = e.one(ctx, `SELECT CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))`, &user)

	return user, "`" + strings.ReplaceAll(config.DBName, "`", "``") + "`.", err
}

// sleepingRole is the statement that gives a MySQL user the rights of a role that he
// has and that his logins do not take; empty if there is none.
func (e *exam) sleepingRole(ctx context.Context, user string) (string, error) {
	if d := e.db.Target.Dialect; d != databases.MySQL && d != databases.TiDB {
		return "", nil
	}

	var active string
	if err := e.one(ctx, `SELECT COALESCE(CURRENT_ROLE(), 'NONE')`, &active); err != nil || active != "NONE" {
		return "", err
	}

	rows, err := e.conn.QueryContext(ctx, "SHOW GRANTS")
	if err != nil {
		return "", err
	}
	defer rows.Close()

	statement := ""

	for rows.Next() {
		var grant string
		if err := rows.Scan(&grant); err != nil {
			return "", err
		}

		role, ofRole := strings.CutPrefix(grant, "GRANT ")
		if !ofRole || strings.Contains(grant, " ON ") {
			continue
		}

		role, _, _ = strings.Cut(role, " TO ")

		// MariaDB's roles have no host.
		to := " FOR "
		if strings.Contains(role, "@") {
			to = " TO "
		}

		statement = "SET DEFAULT ROLE " + role + to + user + ";"
	}

	return statement, rows.Err()
}

// grants tells what is missing, and the statements that give it.
func (e *exam) grants(ctx context.Context, missing map[string][]string) ([]Finding, error) {
	user, prefix, err := e.grantee(ctx)
	if err != nil {
		return nil, err
	}

	role, err := e.sleepingRole(ctx, user)
	if err != nil {
		return nil, err
	}

	var said, statements []string

	for verbs, tables := range missing {
		slices.Sort(tables)
		said = append(said, verbs+" on "+strings.Join(tables, ", "))

		// MySQL takes one table at a time.
		if e.db.Target.Dialect == databases.Postgres {
			statements = append(statements, "GRANT "+verbs+" ON "+strings.Join(tables, ", ")+" TO "+user+";")

			continue
		}

		for _, table := range tables {
			statements = append(statements, "GRANT "+verbs+" ON "+prefix+table+" TO "+user+";")
		}
	}

	slices.Sort(said)
	slices.Sort(statements)

	fix := "as the tables' owner: " + strings.Join(statements, " ")
	if role != "" {
		fix += " Or, if a role that the user has gives these rights: " + role
	}

	return found(Error, "the user lacks "+strings.Join(said, "; "), "locks cannot be acquired, renewed, released or listed", fix), nil
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

	return found(Error, "the tables are in schema "+name+", which the user may not use", "they seem to be missing, and every acquisition fails",
		"as the schema's owner: GRANT USAGE ON SCHEMA "+name+" TO "+user+";"), nil
}
