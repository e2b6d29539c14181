// Package docs keeps the pages of docs/ true to the code.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestQuotedSQL checks that every statement that docs/strategies.md quotes is in the code, word for word.
func TestQuotedSQL(t *testing.T) {
	t.Parallel()

	paths, err := filepath.Glob("../strategies/internal/grants/*.sql")
	if err != nil || len(paths) < 4 {
		t.Fatalf("found files %q, %v, want one for each dialect", paths, err)
	}

	var sources []source

	// And what each statement for TiDB is sent in.
	for _, path := range append(paths, "../databases/tidb/conn.go") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		sources = append(sources, readSQL(string(text)))
	}

	page, err := os.ReadFile("strategies.md")
	if err != nil {
		t.Fatal(err)
	}

	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for _, quote := range strings.Split(strings.TrimSpace(block[1]), "\n\n") {
			for _, part := range strings.Split(quote, "...") {
				found := false
				for _, s := range sources {
					found = found || strings.Contains(s.statements, strings.Trim(s.words(part), " ,"))
				}

				if !found {
					t.Errorf("docs/strategies.md quotes what no file of the strategies has: %s", part)
				}
			}
		}
	}
}

// source is a file of statements: strategies/internal/grants/sql.go says how it is read.
type source struct {
	lets       map[string]string
	statements string
}

func readSQL(text string) source {
	s := source{lets: make(map[string]string)}

	var statements strings.Builder

	for _, paragraph := range strings.Split(text, "\n\n") {
		let := ""

		for line := range strings.Lines(paragraph) {
			comment, ok := strings.CutPrefix(line, "--")

			switch name, is, defines := strings.Cut(strings.TrimPrefix(comment, " let "), " = "); {
			case !ok:
				statements.WriteString(line)
			case defines && strings.HasPrefix(comment, " let "):
				let, s.lets[name] = name, is
			case let != "":
				s.lets[let] += comment
			default:
				statements.WriteString(" ; ")
			}
		}
	}

	s.statements = s.words(statements.String())

	return s
}

// words is a text without the spaces that do not matter, and with what its references stand for.
func (s source) words(text string) string {
	reference := regexp.MustCompile(`\{([\w-]+)\}`)

	for again := true; again; {
		again = false
		text = reference.ReplaceAllStringFunc(text, func(of string) string {
			is, ok := s.lets[strings.Trim(of, "{}")]
			if again = again || ok; !ok {
				return of
			}

			return is
		})
	}

	return strings.Join(strings.Fields(regexp.MustCompile(`([(),])`).ReplaceAllString(text, " $1 ")), " ")
}
