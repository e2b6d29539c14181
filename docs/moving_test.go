package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// theirs is what stands before Go code of a module that this repository does not have.
const theirs = "<!-- theirs: not compiled here -->\n"

// TestMovingCode checks that the Go code of docs/moving is that of bench/moving, line for line, where it is compiled and
// run. "..." leaves lines out.
func TestMovingCode(t *testing.T) {
	t.Parallel()

	code := unindented(sources(t, filepath.Join("..", "bench", "moving")))

	pages, err := filepath.Glob(filepath.Join("moving", "*.md"))
	if err != nil || len(pages) != 6 {
		t.Fatalf("pages %q, %v; want 6", pages, err)
	}

	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}

		blocks := regexp.MustCompile("(?s)("+regexp.QuoteMeta(theirs)+")?```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(blocks) < 2 && filepath.Base(page) != "README.md" {
			t.Errorf("%s has %d pieces of Go code, want those of both", page, len(blocks))
		}

		for _, block := range blocks {
			if block[1] != "" {
				continue
			}

			for _, part := range strings.Split(unindented(block[2]), "\n...\n") {
				if !strings.Contains(code, "\n"+strings.TrimSpace(part)+"\n") {
					t.Errorf("%s quotes what bench/moving does not have:\n%s", page, part)
				}
			}
		}
	}
}

// TestMovingIndex checks that the index lists every page, and that the links between files lead somewhere.
func TestMovingIndex(t *testing.T) {
	t.Parallel()

	pages, err := filepath.Glob(filepath.Join("moving", "*.md"))
	if err != nil {
		t.Fatal(err)
	}

	index, err := os.ReadFile(filepath.Join("moving", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "| ["+name+"]("+name+") |") {
			t.Errorf("docs/moving/README.md does not list %s", name)
		}

		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}

		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("moving", filepath.FromSlash(link[1]))); err != nil {
				t.Errorf("%s has a link that leads nowhere: %v", page, err)
			}
		}
	}
}

// unindented is code without its tabs.
func unindented(code string) string { return strings.ReplaceAll(code, "\t", "") }
