package grants

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/databases"
)

// asked is what the tests of the loader have files for.
type asked struct {
	Renew databases.Statement   `sql:"grant.renew"`
	Force []databases.Statement `sql:"grant.force,grant.force-lease" insert:"grant.renew,grant.force-lease" cas:"grant.force-lease"`
	More  struct {
		Tell databases.Statement `sql:"grant.renew telling"`
	} `sql:"more"`
}

const whole = `-- let now = clock()
-- goes on
-- let later = {now} + :lease::float * interval '1 :s'

-- name: grant.renew
-- Why.
UPDATE "a:b" SET c = {later}
 WHERE name = :name AND d = :lease

-- name: grant.force
SELECT 1
-- then
DELETE FROM a WHERE name IN (:names...) AND owner = :owner

-- none: grant.force-lease, more
`

func TestLoad(t *testing.T) {
	t.Parallel()

	for mark, want := range map[string]asked{
		"$": {
			Renew: databases.Statement{
				Name: "grant.renew", Args: []string{"lease", "name"},
				SQL: "UPDATE \"a:b\" SET c = clock()\n goes on + $1::float * interval '1 :s'\n WHERE name = $2 AND d = $1",
			},
			Force: []databases.Statement{{
				Name: "grant.force", SQL: "SELECT 1", Then: &databases.Statement{
					Name: "grant.force", SQL: "DELETE FROM a WHERE name IN ($...) AND owner = $", Args: []string{"names", "owner"},
				},
			}},
		},
		"?": {
			Renew: databases.Statement{
				Name: "grant.renew", Args: []string{"lease", "name", "lease"},
				SQL: "UPDATE \"a:b\" SET c = clock()\n goes on + ?::float * interval '1 :s'\n WHERE name = ? AND d = ?",
			},
			Force: []databases.Statement{{
				Name: "grant.force", SQL: "SELECT 1", Then: &databases.Statement{
					Name: "grant.force", SQL: "DELETE FROM a WHERE name IN (?...) AND owner = ?", Args: []string{"names", "owner"},
				},
			}},
		},
	} {
		for _, strategy := range []string{"cas", "insert"} {
			if strategy == "insert" {
				want.Force = []databases.Statement{want.Renew}
			}

			got, err := load[asked](whole, mark, mark == "$", "cas", "insert")
			if err != nil || !reflect.DeepEqual(got[strategy], want) {
				t.Errorf("load() with %s for %s = %v, %v, want %v", mark, strategy, got[strategy], err, want)
			}
		}
	}
}

// TestLoadForms: forms of a statement are called alike, and may be one.
func TestLoadForms(t *testing.T) {
	t.Parallel()

	text := strings.Replace(whole, "-- name: grant.renew\n", "-- name: grant.renew\n-- name: grant.renew telling\n", 1)

	all, err := load[asked](strings.Replace(text, ", more", "", 1), "$", true, "cas")
	if got := all["cas"]; err != nil || !reflect.DeepEqual(got.Renew, got.More.Tell) || got.Renew.Name != "grant.renew" {
		t.Errorf("load() = %v, %v, want the same statement twice", got, err)
	}
}

// TestLoadRefuses: no strategy is made with a file that is not as it should be.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()

	for name, change := range map[string][2]string{
		"a section that nothing takes":         {"-- name: grant.force\n", "-- name: grant.force\n-- name: grant.forced\n"},
		"a field without a section":            {"-- name: grant.renew\n", "-- name: grant.force-lease\n"},
		"an unknown let":                       {"{later}", "{latest}"},
		"a let that is known only later":       {"clock()", "{later}"},
		"a let twice":                          {"-- let later", "-- let now"},
		"a let for nothing":                    {" = clock()", ""},
		"a let that nothing uses":              {"-- let now", "-- let more = 1\n-- let now"},
		"a section twice":                      {"-- name: grant.force\n", "-- name: grant.renew\n"},
		"a section without a statement":        {"SELECT 1\n-- then\nDELETE", "-- DELETE"},
		"a step without a statement":           {"SELECT 1\n", ""},
		"a statement without a name":           {"-- name: grant.force\n", ""},
		"a statement in two paragraphs":        {"SELECT 1\n", "SELECT 1\n\n"},
		"none of what there is":                {"-- none: ", "-- none: grant.force, "},
		"none of what nothing would take":      {"-- none: ", "-- none: grant.forced, "},
		"none of a field, and nothing said so": {"grant.force-lease, ", ""},
	} {
		text := strings.Replace(whole, change[0], change[1], 1)
		if _, err := load[asked](text, "$", true, "cas", "insert"); text == whole || err == nil {
			t.Errorf("%s: load() = nil, want an error, of %s", name, text)
		}
	}
}

// texts are all statements of a struct, with each of their steps.
func texts(of reflect.Value) (all []databases.Statement) {
	switch field := of.Interface().(type) {
	case databases.Statement:
		for step := &field; step != nil && step.SQL != ""; step = step.Then {
			all = append(all, *step)
		}
	case []databases.Statement:
		for i := range field {
			all = append(all, texts(of.Index(i))...)
		}
	default:
		for i := range of.NumField() {
			all = append(all, texts(of.Field(i))...)
		}
	}

	return all
}

// allTexts are those of all strategies.
func allTexts(dialect func(strategy string) Dialect) (all []databases.Statement) {
	for _, strategy := range []string{"cas", "insert", "forupdate", "advisory"} {
		all = append(all, texts(reflect.ValueOf(dialect(strategy).Statements))...)
	}

	return all
}

// TestDialects: each has statements, in which nothing is left to be put in.
func TestDialects(t *testing.T) {
	t.Parallel()

	left := regexp.MustCompile(`\{[\w-]+\}|[^:]:[a-z]|--|;`)
	quoted := regexp.MustCompile(`'[^']*'`)
	placeholder := regexp.MustCompile(`\$\d+|\?\d*`)

	for name, dialect := range dialects {
		all := allTexts(dialect)
		if len(all) < 240 {
			t.Errorf("%s has %d statements, want those that all have at least", name, len(all))
		}

		for _, s := range all {
			text := quoted.ReplaceAllString(s.SQL, "''")
			if part := left.FindString(text); part != "" {
				t.Errorf("%s: %s has %q in it: %s", name, s.Name, part, s.SQL)
			}

			found := placeholder.FindAllString(text, -1)
			if distinct := slices.Compact(slices.Sorted(slices.Values(found))); found != nil && distinct[0] != "?" {
				found = distinct
			}

			if len(found) != len(s.Args) {
				t.Errorf("%s: %s has placeholders %q for %q: %s", name, s.Name, found, s.Args, s.SQL)
			}
		}
	}
}

// TestPostgresLooksAtThePrimary: pgpool-II in front of a primary and standbys reads the text of a statement. One that only
// reads it may send to a standby, which is behind, unless a volatile function or a row lock stands in it (seen with 4.7.3; a
// function inside a view does not count).
func TestPostgresLooksAtThePrimary(t *testing.T) {
	t.Parallel()

	primary := []string{
		"INSERT ", "UPDATE ", "DELETE ", "FOR KEY SHARE", "FOR SHARE", "clock_timestamp()", "pg_notify", "set_config", "advisory_", "pg_terminate_backend",
		"BEGIN", "ROLLBACK", "SET ",
	}

	for _, s := range allTexts(dialects[databases.Postgres]) {
		if !slices.ContainsFunc(primary, func(part string) bool { return strings.Contains(s.SQL, part) }) {
			t.Errorf("%s can be sent to a standby: %s", s.Name, s.SQL)
		}
	}
}

// TestTiDBStatements: no statement has what TiDB does not do as MySQL does, or tells the time by a clock of one server,
// or a token that may have been computed before a conflict.
func TestTiDBStatements(t *testing.T) {
	t.Parallel()

	refused := []string{
		"UTC_TIMESTAMP", "SKIP LOCKED", "LAST_INSERT_ID", "JSON_TABLE", "TIDB_CURRENT_TSO", "LOCK IN SHARE MODE", "FOR SHARE", "KILL", "GET_LOCK",
	}

	for _, s := range allTexts(dialects[databases.TiDB]) {
		for _, part := range refused {
			if strings.Contains(s.SQL, part) {
				t.Errorf("%s has %s: %s", s.Name, part, s.SQL)
			}
		}

		// Of several, the first locks what the last changes: package databases/tidb ends where it finds nothing.
		if s.Then != nil && (!strings.HasPrefix(s.SQL, "SELECT") || !strings.Contains(s.SQL, "FOR UPDATE")) {
			t.Errorf("%s begins with a step that locks nothing: %s", s.Name, s.SQL)
		}
	}
}
