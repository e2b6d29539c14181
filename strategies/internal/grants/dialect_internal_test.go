package grants

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// cockroach is how a dialect is derived: it has no NOTIFY, and its clock is said to be
// coarser. Nothing else of PostgreSQL's is stated again.
func cockroach() Dialect {
	return Postgres.With("cockroach", func(d *Dialect) {
		d.Resolution = time.Millisecond
		d.Telling = nil
		d.Force[0].SQL += " RETURNING name"
	})
}

// differences names the fields in which two dialects differ.
func differences(a, b any) (names []string) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)

	for i := range x.NumField() {
		field := x.Type().Field(i)
		if !field.IsExported() || field.Type.Kind() == reflect.Func {
			continue
		}

		if field.Anonymous {
			names = append(names, differences(x.Field(i).Interface(), y.Field(i).Interface())...)
		} else if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			names = append(names, field.Name)
		}
	}

	return names
}

// TestDerivedDialect: a dialect has what is stated of it, and all else of the one that
// it is derived from, which stays as it is.
func TestDerivedDialect(t *testing.T) {
	t.Parallel()

	before := Postgres.Force[0].SQL
	derived := cockroach()

	if got, want := differences(derived, Postgres), []string{"Name", "Resolution", "Force"}; !slices.Equal(got, want) {
		t.Errorf("the dialect differs in %q, want %q", got, want)
	}

	if Postgres.Force[0].SQL != before {
		t.Errorf("PostgreSQL's own statement is now %q, want %q", Postgres.Force[0].SQL, before)
	}

	if got, want := derived.IdleLimit(time.Second), "1000"; got != want {
		t.Errorf("IdleLimit(1s) = %v, want PostgreSQL's %q", got, want)
	}
}

// TestDerivedDialectOfStrategy: a strategy's tables need no entry for a derived
// dialect, and what is made of one has the dialect's own statements.
func TestDerivedDialectOfStrategy(t *testing.T) {
	t.Parallel()

	child := cockroach().With("child of cockroach", func(*Dialect) {})
	table := Table[string]{databases.Postgres: "of postgres", databases.MySQL: "of mysql"}

	if got, ok := table.For(child); !ok || got != "of postgres" {
		t.Errorf("For(%s) = %q, %t, want that of postgres", child.Name, got, ok)
	}

	table["cockroach"] = "of cockroach"

	if got, ok := table.For(child); !ok || got != "of cockroach" {
		t.Errorf("For(%s) = %q, %t, want that of cockroach", child.Name, got, ok)
	}

	if got, ok := table.For(SQLite); ok {
		t.Errorf("For(%s) = %q, want none", SQLite.Name, got)
	}

	left := Leftover{With: "WITH gone AS (...) "}
	own := Table[Own]{databases.Postgres: {Acquire: databases.Statement{Name: "own.acquire", SQL: "SELECT 1"}, Row: left}}
	p := child.plan(own, []Table[Leftover]{{databases.Postgres: left}})

	for _, statement := range []struct{ got, want string }{
		{p.Acquire.Name, "own.acquire"},
		{p.Release.SQL, left.With + cockroach().Release.SQL},
		{p.ReleaseLater.SQL, left.With + Postgres.ReleaseLater.SQL},
		{p.Force[0].SQL, left.With + cockroach().Force[0].SQL},
		{p.Renew.SQL, Postgres.Renew.SQL},
	} {
		if statement.got != statement.want {
			t.Errorf("the strategy sends %q, want %q", statement.got, statement.want)
		}
	}

	if strings.Contains(Postgres.Release.SQL+Postgres.Force[0].SQL, left.With) {
		t.Error("PostgreSQL's own statements have what is of one strategy")
	}
}

// TestStatementNames: a test tells statements apart by their names, and makes one of them
// fail.
func TestStatementNames(t *testing.T) {
	t.Parallel()

	for _, dialect := range dialects {
		seen := make(map[string]string)
		fields := reflect.ValueOf(dialect.Statements)

		for i := range fields.NumField() {
			var statements []databases.Statement

			switch field := fields.Field(i).Interface().(type) {
			case []databases.Statement:
				statements = field
			case databases.Statement:
				statements = given(field)
			}

			for _, statement := range statements {
				field := fields.Type().Field(i).Name

				if other, ok := seen[statement.Name]; ok {
					t.Errorf("%s: %s and %s are both called %q", dialect.Name, other, field, statement.Name)
				}

				seen[statement.Name] = field
			}
		}
	}
}

// TestPostgresLooksAtThePrimary: pgpool-II in front of a primary and standbys reads the text of a statement. One that only
// reads it may send to a standby, which is behind, unless a volatile function or a row lock stands in it (seen with 4.7.3; a
// function inside a view does not count).
func TestPostgresLooksAtThePrimary(t *testing.T) {
	t.Parallel()

	primary := []string{"INSERT ", "UPDATE ", "DELETE ", "FOR KEY SHARE", PostgresNow, "pg_notify"}

	for _, of := range []any{Postgres.Statements, Postgres.Shares} {
		fields := reflect.ValueOf(of)

		for i := range fields.NumField() {
			var statements []databases.Statement

			switch field := fields.Field(i).Interface().(type) {
			case []databases.Statement:
				statements = field
			case databases.Statement:
				statements = given(field)
			}

			for _, s := range statements {
				if !slices.ContainsFunc(primary, func(part string) bool { return strings.Contains(s.SQL, part) }) {
					t.Errorf("%s can be sent to a standby: %s", s.Name, s.SQL)
				}
			}
		}
	}
}
