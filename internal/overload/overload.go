// Package overload makes, for tests, what another user of a PostgreSQL database
// would make to have his code run by those who use locks: operators and functions
// of the same names as those in pg_catalog, for all types that could match better.
//
// PostgreSQL looks for an operator or a function in all schemas of the search_path
// and takes the one whose argument types match best
// (https://www.postgresql.org/docs/current/typeconv.html).
package overload

import (
	"context"
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names are the operators and functions that SQL uses.
type Names struct {
	Operators []string
	Functions []string

	// Types are what they are made for, besides those of the library's values and columns.
	Types []string
}

// Read finds the names in files: in the strings of Go's, but those for other
// databases, and in the text of others. What looks like an operator or a call and
// is none does no harm.
func Read(files ...string) (Names, error) {
	var n Names

	for _, file := range files {
		if !strings.HasSuffix(file, ".go") {
			text, err := os.ReadFile(file) //nolint:gosec // a test's own sources
			if err != nil {
				return Names{}, err
			}

			n.add(string(text))

			continue
		}

		source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return Names{}, err
		}

		ast.Inspect(source, n.inspect)
	}

	n.Operators, n.Functions = sorted(n.Operators), sorted(n.Functions)

	return n, nil
}

func sorted(list []string) []string {
	slices.Sort(list)

	return slices.Compact(list)
}

// inspect adds the strings of a syntax tree.
func (n *Names) inspect(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.KeyValueExpr:
		key, ok := node.Key.(*ast.SelectorExpr)

		return !ok || key.Sel.Name != "MySQL" && key.Sel.Name != "SQLite"
	case *ast.BasicLit:
		if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
			n.add(text)
		}
	}

	return true
}

var (
	comment  = regexp.MustCompile(`--.*`)
	quoted   = regexp.MustCompile(`'[^']*'`)
	operator = regexp.MustCompile(`[-+*/<>=~!@#%^&|]+`)
	call     = regexp.MustCompile(`([a-z_][a-z0-9_]*) ?\(`)
)

func (n *Names) add(sql string) {
	sql = quoted.ReplaceAllString(comment.ReplaceAllString(sql, ""), "")

	for _, name := range operator.FindAllString(sql, -1) {
		if name != "=>" { // grammar
			n.Operators = append(n.Operators, name)
		}
	}

	for _, found := range call.FindAllStringSubmatch(sql, -1) {
		n.Functions = append(n.Functions, found[1])
	}
}

// types are those of the statements' values and columns, and what PostgreSQL would
// rather have for an untyped parameter.
func types() []string {
	return []string{
		"smallint", "integer", "bigint", "numeric", "double precision", "text", "varchar", "name", "boolean",
		"oid", "regclass", "interval", "timestamptz", "timestamp", "text[]", "bigint[]", "anyelement", "anycompatible",
	}
}

// few are those of functions with three arguments, of which there would be too many.
func few() []string {
	return []string{"integer", "bigint", "double precision", "text", "varchar", "name", "boolean", "anycompatible"}
}

// Message is what all of them raise.
const Message = "code of a stranger was called"

// Plant makes a role, lets it create objects in the schema public, as everybody
// may by default up to PostgreSQL 14, and makes those of the names as that role:
// each with as many arguments as pg_catalog's have, and each raises an error. The
// caller drops the role.
func (n Names) Plant(ctx context.Context, db *sql.DB, role string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}

	defer func() { _ = tx.Rollback() }()

	planted := strings.NewReplacer(
		"MESSAGE", Message, "TYPES", array(append(types(), n.Types...)), "FEW", array(few()),
		"OPERATORS", array(n.Operators), "FUNCTIONS", array(n.Functions),
	).Replace(plant)

	for _, query := range []string{
		"CREATE ROLE " + role, "GRANT CREATE ON SCHEMA public TO " + role, "SET LOCAL ROLE " + role, planted,
	} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("%.50s: %w", query, err)
		}
	}

	return tx.Commit()
}

// plant calls nothing by a name that it makes, once it has made it: functions
// come first, and operators last.
const plant = `DO $do$
DECLARE
    types text[] := TYPES;
    few text[] := FEW;
    a text; b text; c text; o text; f record;
    body text := $q$ RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION 'MESSAGE: %%', %L; END $f$ $q$;
BEGIN
    FOREACH a IN ARRAY types LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION public.stranger(%s)' || body, a, 'operator for ' || a);
        FOREACH b IN ARRAY types LOOP
            EXECUTE pg_catalog.format('CREATE FUNCTION public.stranger(%s, %s)' || body, a, b, 'operator for ' || a || ' and ' || b);
        END LOOP;
    END LOOP;
    FOR f IN SELECT DISTINCT proname AS name, pronargs AS args FROM pg_proc WHERE proname = ANY (FUNCTIONS) LOOP
        FOREACH a IN ARRAY types LOOP
            IF f.args = 1 THEN
                EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(%s)' || body, f.name, a, f.name || ' for ' || a);
            END IF;
            CONTINUE WHEN f.args <> 2;
            FOREACH b IN ARRAY types LOOP
                EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(%s, %s)' || body, f.name, a, b, f.name || ' for ' || a || ' and ' || b);
            END LOOP;
        END LOOP;
        FOREACH a IN ARRAY few LOOP
            CONTINUE WHEN f.args <> 3;
            FOREACH b IN ARRAY few LOOP
                FOREACH c IN ARRAY few LOOP
                    EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(%s, %s, %s)' || body, f.name, a, b, c, f.name || ' of three');
                END LOOP;
            END LOOP;
        END LOOP;
    END LOOP;
    FOR o IN SELECT DISTINCT oprname FROM pg_operator WHERE oprname = ANY (OPERATORS) AND oprkind = 'b' LOOP
        FOREACH a IN ARRAY types LOOP
            FOREACH b IN ARRAY types LOOP
                EXECUTE pg_catalog.format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.stranger)', o, a, b);
            END LOOP;
        END LOOP;
    END LOOP;
    FOR o IN SELECT DISTINCT oprname FROM pg_operator WHERE oprname = ANY (OPERATORS) AND oprkind = 'l' LOOP
        FOREACH a IN ARRAY types LOOP
            EXECUTE pg_catalog.format('CREATE OPERATOR public.%s (RIGHTARG = %s, FUNCTION = public.stranger)', o, a);
        END LOOP;
    END LOOP;
END $do$`

func array(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}

	return "ARRAY[" + strings.Join(quoted, ", ") + "]"
}
