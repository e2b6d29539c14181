package grants

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/databases"
)

// texts are the statements of a dialect, those about readers too.
func texts(d Dialect) (all []databases.Statement) {
	for _, of := range []any{d.Statements, d.Shares} {
		fields := reflect.ValueOf(of)

		for i := range fields.NumField() {
			switch field := fields.Field(i).Interface().(type) {
			case []databases.Statement:
				all = append(all, field...)
			case databases.Statement:
				all = append(all, given(field)...)
			}
		}
	}

	return all
}

// TestTiDBStatements: no statement has what TiDB does not do as MySQL does, or tells the time by a clock of one server,
// or a token that may have been computed before a conflict.
func TestTiDBStatements(t *testing.T) {
	t.Parallel()

	refused := []string{
		"UTC_TIMESTAMP", "SKIP LOCKED", "LAST_INSERT_ID", "JSON_TABLE", "TIDB_CURRENT_TSO", "LOCK IN SHARE MODE", "FOR SHARE", "KILL", "GET_LOCK",
	}

	for _, s := range texts(TiDB) {
		for _, part := range refused {
			if strings.Contains(s.SQL, part) {
				t.Errorf("%s has %s: %s", s.Name, part, s.SQL)
			}
		}

		if got := strings.Count(s.SQL, "?"); got != len(s.Args) {
			t.Errorf("%s has %d placeholders and %d arguments", s.Name, got, len(s.Args))
		}

		// Of several, the first locks what the last changes: package databases/tidb ends where it finds nothing.
		steps := strings.Split(s.SQL, ";\n")
		for _, step := range steps[:len(steps)-1] {
			if !strings.HasPrefix(step, "SELECT") || !strings.Contains(step, "FOR UPDATE") {
				t.Errorf("%s begins with a step that locks nothing: %s", s.Name, step)
			}
		}

		if strings.Contains(steps[len(steps)-1], ";") {
			t.Errorf("%s has a semicolon that is not at the end of a line: %s", s.Name, s.SQL)
		}
	}
}

// TestTiDBLeavesMySQL: the dialect that it is derived from stays as it is.
func TestTiDBLeavesMySQL(t *testing.T) {
	t.Parallel()

	for _, s := range texts(MySQL) {
		if strings.Contains(s.SQL, TiDBNow) || strings.Contains(s.SQL, "NOWAIT") {
			t.Errorf("%s of MySQL is TiDB's: %s", s.Name, s.SQL)
		}
	}
}
