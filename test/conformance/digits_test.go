package conformance_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/databases"
)

// digits looks at the statements of MySQL, and fails the test for one which takes text
// without UNHEX, or anything else with it.
func digits(t *testing.T) func(databases.Statement, databases.Values) {
	t.Helper()

	return func(stmt databases.Statement, v databases.Values) {
		parts := strings.Split(stmt.SQL, "?")

		for i, arg := range stmt.Args {
			_, text := v[arg].(string)
			if text != strings.HasSuffix(parts[i], "UNHEX(") {
				t.Errorf("statement %s binds %q, a %T, after %q", stmt.Name, arg, v[arg], parts[i][max(0, len(parts[i])-20):])
			}
		}
	}
}
