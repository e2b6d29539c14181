// Package docs keeps the pages of docs/ true to the code.
package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestNamedSections checks that every section of the files of SQL is there that docs/strategies.md names, as in
// [`grant.renew`][pg]: a reference that the page says at its end which file it is.
func TestNamedSections(t *testing.T) {
	t.Parallel()

	page := read(t, "strategies.md")
	files := make(map[string]string)
	named := make(map[string]int)

	for _, found := range regexp.MustCompile(`(?m)^\[(\w+)\]: (\S+\.sql)$`).FindAllStringSubmatch(page, -1) {
		files[found[1]] = found[2]
	}

	sections := make(map[string][]string)

	for key, file := range files {
		for _, found := range regexp.MustCompile(`(?m)^-- name: (.+)$`).FindAllStringSubmatch(read(t, file), -1) {
			sections[key] = append(sections[key], found[1])
		}
	}

	for _, found := range regexp.MustCompile("\\[`([^`]+)`\\]\\[(\\w+)\\]").FindAllStringSubmatch(page, -1) {
		named[found[2]]++

		if !slices.Contains(sections[found[2]], found[1]) {
			t.Errorf("docs/strategies.md names section %q of %q, where there is none", found[1], files[found[2]])
		}
	}

	all, err := filepath.Glob("../strategies/internal/grants/*.sql")
	if err != nil || len(all) != len(files) {
		t.Errorf("docs/strategies.md names %d files of %q, %v", len(files), all, err)
	}

	for key, file := range files {
		if named[key] < 3 {
			t.Errorf("docs/strategies.md names %d sections of %s, which cannot be all", named[key], file)
		}
	}
}
