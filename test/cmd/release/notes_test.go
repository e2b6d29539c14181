package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNotes(t *testing.T) {
	t.Parallel()

	const changelog = `# Changelog

## [Unreleased]

## [1.1.0] - 2027-01-02

### New

See [this](docs/a.md#b), [that](https://example.com/a.md) and [these](#new).

## [1.1.0-rc.1] - 2027-01-01

Older.
`

	r := release{version: "v1.1.0", repo: t.TempDir()}
	if err := os.WriteFile(filepath.Join(r.repo, "CHANGELOG.md"), []byte(changelog), 0o600); err != nil {
		t.Fatal(err)
	}

	const want = "### New\n\n" +
		"See [this](https://github.com/sqllock/sqllock/blob/v1.1.0/docs/a.md#b), [that](https://example.com/a.md) and [these](#new).\n"

	if got, dated, err := r.notes(); got != want || !dated || err != nil {
		t.Errorf("got %q, %t, %v", got, dated, err)
	}

	r.version = "v1.2.0"
	if _, _, err := r.notes(); err == nil || !strings.Contains(err.Error(), "says nothing of v1.2.0") {
		t.Errorf("nothing is under Unreleased: %v", err)
	}
}

// TestRefused has what no release is made of.
func TestRefused(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"", "1.0.0", "v1.0", "v2.0.0", "v1.0.0+a"} {
		if err := (&release{version: version}).produce(t.Context()); err == nil || !strings.Contains(err.Error(), "is not of the form") {
			t.Errorf("%q: %v", version, err)
		}
	}

	r := release{version: tried, source: t.TempDir()}
	if err := r.run(t.Context(), r.source, "git", "init", "--quiet"); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(r.source, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := r.produce(t.Context()); err == nil || !strings.Contains(err.Error(), "not committed") {
		t.Errorf("with a new file: %v", err)
	}
}
