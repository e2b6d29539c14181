package migrations_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/migrations"
)

// TestOneNumbering: a version means the same on every database.
func TestOneNumbering(t *testing.T) {
	t.Parallel()

	var first []string

	for _, dialect := range []string{"postgres", "mysql", "tidb", "sqlite"} {
		files, err := migrations.For(dialect)
		if err != nil {
			t.Fatalf("For(%q) = %v", dialect, err)
		}

		names, err := fs.Glob(files, "*.sql")
		if err != nil {
			t.Fatal(err)
		}

		if len(names) == 0 {
			t.Errorf("For(%q) has no files", dialect)
		}

		if first == nil {
			first = names
		}

		if !slices.Equal(names, first) {
			t.Errorf("For(%q) has %v, want %v as the others", dialect, names, first)
		}

		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}

			wanted := []string{"-- +goose Up", "-- +goose Down"}
			if wait := map[string]string{"postgres": "lock_timeout", "mysql": "lock_wait_timeout", "tidb": "lock_wait_timeout"}[dialect]; name != names[0] {
				wanted = append(wanted, wait) // it gives up soon if a transaction is in its way
			}

			for _, want := range wanted {
				if !strings.Contains(string(text), want) {
					t.Errorf("%s/%s has no %q", dialect, name, want)
				}
			}

			// Another tool may split the text at each semicolon.
			for line := range strings.Lines(string(text)) {
				if _, comment, _ := strings.Cut(line, "--"); strings.Contains(comment, ";") {
					t.Errorf("%s/%s has a semicolon in a comment: %s", dialect, name, line)
				}
			}
		}
	}
}

func TestForUnknownDialect(t *testing.T) {
	t.Parallel()

	if _, err := migrations.For("oracle"); err == nil || !strings.Contains(err.Error(), "postgres, mysql") {
		t.Errorf("For(oracle) = %v, want an error that lists the dialects", err)
	}
}
