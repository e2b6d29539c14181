package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	named   = regexp.MustCompile(`<a (?:id|name)="([^"]+)">`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
)

// TestLinks checks that the links of README.md, CONTRIBUTING.md and the pages here lead to files and headings that are there.
func TestLinks(t *testing.T) {
	t.Parallel()

	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}

	checked := 0

	for _, page := range append(pages, filepath.Join("..", "README.md"), filepath.Join("..", "CONTRIBUTING.md")) {
		for _, found := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
				continue
			}

			checked++

			file, anchor, anchored := strings.Cut(found[1], "#")

			target := filepath.Join(filepath.Dir(page), file)
			if file == "" {
				target = page
			}

			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, found[1], err)
			} else if anchored && !anchors(read(t, target))[anchor] {
				t.Errorf("%s links to %s, where there is no such anchor", page, found[1])
			}
		}
	}

	if checked < 100 {
		t.Errorf("%d links were checked, which cannot be all", checked)
	}
}

// read returns a page without its code.
func read(t *testing.T, page string) string {
	t.Helper()

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	return fence.ReplaceAllString(string(text), "")
}

// anchors are those of a page: GitHub gives one to each heading, and some are written.
func anchors(page string) map[string]bool {
	all := make(map[string]bool)

	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(found[1], "$1")
		text = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`).ReplaceAllString(strings.ToLower(text), "")
		all[strings.ReplaceAll(strings.TrimSpace(text), " ", "-")] = true
	}

	for _, found := range named.FindAllStringSubmatch(page, -1) {
		all[found[1]] = true
	}

	return all
}
