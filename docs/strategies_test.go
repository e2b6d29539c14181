// Package docs keeps the pages of docs/ true to the code.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestQuotedSQL checks that every statement that docs/strategies.md quotes is in the code, word for word.
func TestQuotedSQL(t *testing.T) {
	t.Parallel()

	root := ".."
	// How the page abbreviates the clocks.
	constants := map[string]string{
		"PostgresNow": "now", "PostgresMicros": "micros", "PostgresBriefly": "briefly",
		"MySQLNow": "now", "MySQLOwners": "asked a", "SQLiteNow": "now",
		"PostgresFloor": "floor", "SQLiteFirst": "first",
		"PostgresTell": "tell", "postgresContended": "l.waiting <> 0", "channelOf": "sqllock_", "postgresLine": "pg_catalog.split_part(l.name, pg_catalog.chr(31), 1)", "allChannel": "sqllock_released",
		"postgresSlot": "slot", "postgresLimit": "limit", "strength": "FOR UPDATE",
		"TiDBNow": "now", "tidbToken": "IF(e.owner = UNHEX(?), l.token, GREATEST(l.token + ?, now))",
		"which": " FROM sqllock_leases WHERE name = UNHEX(?) AND owner = UNHEX(?)",
	}

	var statements []string

	files, err := filepath.Glob(filepath.Join(root, "strategies", "*", "sql.go"))
	if err != nil {
		t.Fatal(err)
	}

	shared, err := filepath.Glob(filepath.Join(root, "strategies", "internal", "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}

	// Those about many grants, and what each of TiDB's is sent in.
	shared = append(shared, filepath.Join(root, "strategies", "insert", "batch.go"), filepath.Join(root, "databases", "tidb", "conn.go"))

	for _, name := range append(files, shared...) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}

		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "SQL" {
					statements = append(statements, words(text(n.Value, constants)))
				}
			case *ast.CallExpr: // a part of a statement that is made of several
				for _, part := range n.Args {
					statements = append(statements, words(text(part, constants)))
				}
			case *ast.ValueSpec: // a part that several have
				for _, value := range n.Values {
					statements = append(statements, words(text(value, constants)))
				}
			}

			return true
		})
	}

	all := strings.Join(statements, "\n")

	page, err := os.ReadFile(filepath.Join(root, "docs", "strategies.md"))
	if err != nil {
		t.Fatal(err)
	}

	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for _, quote := range strings.Split(strings.TrimSpace(block[1]), "\n\n") {
			for _, part := range strings.Split(quote, "...") {
				if part = strings.Trim(words(part), " ,"); !strings.Contains(all, part) {
					t.Errorf("docs/strategies.md quotes what no file of the strategies has: %s", part)
				}
			}
		}
	}
}

func words(s string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`([(),])`).ReplaceAllString(s, " $1 ")), " ")
}

func text(e ast.Expr, constants map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		// The parser has accepted it.
		s, _ := strconv.Unquote(e.Value)

		return s
	case *ast.BinaryExpr:
		return text(e.X, constants) + text(e.Y, constants)
	case *ast.Ident:
		return constants[e.Name]
	case *ast.SelectorExpr:
		return constants[e.Sel.Name]
	case *ast.CallExpr:
		return called(e, constants)
	default:
		return ""
	}
}

// called is what a function of package strings makes of a text.
func called(call *ast.CallExpr, constants map[string]string) string {
	var args []string
	for _, arg := range call.Args {
		args = append(args, text(arg, constants))
	}

	switch function, _ := call.Fun.(*ast.SelectorExpr); {
	case function == nil:
		return ""
	case function.Sel.Name == "Replace" && len(args) == 4:
		return strings.Replace(args[0], args[1], args[2], 1)
	case function.Sel.Name == "TrimPrefix" && len(args) == 2:
		return strings.TrimPrefix(args[0], args[1])
	default:
		return ""
	}
}
