package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTests checks that every test, case, group of cases, check and fault is there that the tables of proofs in
// docs/guarantees.md name.
func TestNamedTests(t *testing.T) {
	t.Parallel()

	code := sources(t, "../sqllock", "../sqllocktest", "../election", "../strategies/quorum", "../test", "../internal/outsider")

	page, err := os.ReadFile("guarantees.md")
	if err != nil {
		t.Fatal(err)
	}

	_, proofs, found := strings.Cut(string(page), "## How each promise is shown")
	if !found {
		t.Fatal("docs/guarantees.md has no section on proofs any more")
	}

	names := 0

	for line := range strings.Lines(proofs) {
		_, shown, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " | ") // behind the promise, which may be named after a method
		if !isRow || !strings.HasPrefix(line, "|") {
			continue
		}

		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(shown, -1) {
			names++

			if quoted := strings.TrimPrefix(name[1], "reaper/"); !strings.Contains(code, `"`+quoted+`"`) &&
				!strings.Contains(code, `"`+quoted+"/") && !strings.Contains(code, "func "+quoted+"(") {
				t.Errorf("docs/guarantees.md names %q, which is no test, case, group of cases, check or fault", name[1])
			}
		}
	}

	if names < 70 {
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
