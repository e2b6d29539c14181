package mysql

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
)

func TestLimited(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
	defer cancel()

	const hint = "/*+ SET_VAR(lock_wait_timeout=6) */ "

	for sql, want := range map[string]string{
		"SELECT 1":                        "SELECT " + hint + "1",
		"DELETE q FROM a STRAIGHT_JOIN q": "DELETE " + hint + "q FROM a STRAIGHT_JOIN q",
		"/*M!110602 SET STATEMENT a=OFF FOR */ UPDATE (\n": "/*M!110602 SET STATEMENT a=OFF FOR */ UPDATE " + hint + "(\n",
		"SET SESSION a = 1": "SET SESSION a = 1",
	} {
		if got := limited(ctx, databases.Statement{SQL: sql}).SQL; got != want {
			t.Errorf("limited(%q) = %q, want %q", sql, got, want)
		}
	}

	if got := limited(t.Context(), databases.Statement{SQL: "SELECT 1"}).SQL; got != "SELECT 1" {
		t.Errorf("limited() without a deadline = %q, want the statement as it was", got)
	}
}

func TestValuesAreWritten(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("a", longest)

	for _, c := range []struct {
		sql    string
		args   []string
		values databases.Values
		want   string // empty: they are bound
	}{
		{"UNHEX(?) - ?, ?", []string{"text", "number", "truth"}, databases.Values{"text": `?';ä`, "number": int64(-7), "truth": true}, "UNHEX('3f273bc3a4') - -7, 1"},
		{"UNHEX(?), ?", []string{"text", "text"}, databases.Values{"text": ""}, "UNHEX(''), ''"},
		{"?", []string{"truth"}, databases.Values{"truth": false}, "0"},
		{"?", []string{"missing"}, databases.Values{"text": "a"}, ""},
		{"?", []string{"other"}, databases.Values{"other": 1.5}, ""},
		{"?", []string{"nothing"}, databases.Values{"nothing": nil}, ""},
		{"? ?", []string{"text"}, databases.Values{"text": "a"}, ""},
		{"'?' ?", []string{"text"}, databases.Values{"text": "a"}, ""},
		{"UNHEX(?)", []string{"text"}, databases.Values{"text": long}, ""},
	} {
		stmt := databases.Statement{Name: "test", SQL: c.sql, Args: c.args}

		got, bound := sent(stmt, c.values)
		if c.want == "" {
			if got.SQL != c.sql || len(got.Args) != len(c.args) || bound == nil {
				t.Errorf("sent(%s) = %.40q with %d values, want its own text with all", c.sql, got.SQL, len(bound))
			}

			continue
		}

		if got.SQL != c.want || got.Args != nil || bound != nil {
			t.Errorf("sent(%s) = %q with %v, want %q with none", c.sql, got.SQL, bound, c.want)
		}

		if got.Name != stmt.Name {
			t.Errorf("sent(%s) is called %q, want %q", c.sql, got.Name, stmt.Name)
		}
	}
}
