package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTests checks that every test, case and check that docs/guarantees.md names in a table is there.
func TestNamedTests(t *testing.T) {
	t.Parallel()

	code := sources(t, "../sqllock", "../sqllocktest", "../election", "../strategies/quorum", "../test", "../internal/outsider")

	page, err := os.ReadFile("guarantees.md")
	if err != nil {
		t.Fatal(err)
	}

	_, page2, found := strings.Cut(string(page), "## When things fail")
	if !found {
		t.Fatal("docs/guarantees.md has no section on failures any more")
	}

	names := 0

	for line := range strings.Lines(page2) {
		if !strings.HasPrefix(line, "|") {
			continue
		}

		cells := strings.Split(line, "|")
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Join(cells[len(cells)-3:], "|"), -1) {
			quoted := strings.TrimPrefix(name[1], "reaper/")
			if strings.HasPrefix(quoted, "Reason") || strings.HasPrefix(quoted, "With") {
				continue
			}

			names++

			if !strings.Contains(code, `"`+quoted+`"`) && !strings.Contains(code, "func "+quoted+"(") {
				t.Errorf("docs/guarantees.md names %q, which is no test, case or check", name[1])
			}
		}
	}

	if names < 40 {
		t.Errorf("found %d names, which cannot be all", names)
	}
}

// sources returns the Go code of the folders.
func sources(t *testing.T, folders ...string) string {
	t.Helper()

	var code strings.Builder

	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}

			text, err := os.ReadFile(path)
			code.Write(text)

			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return code.String()
}
