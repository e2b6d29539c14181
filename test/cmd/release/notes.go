package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A link to a file of the repository.
var relative = regexp.MustCompile(`\]\(([^):#][^):]*)\)`)

// notes returns what CHANGELOG.md says of the version. Without a section of its own that is what is under Unreleased, and the
// version is not dated.
func (r *release) notes() (text string, dated bool, err error) {
	changelog, err := os.ReadFile(filepath.Join(r.repo, "CHANGELOG.md"))
	if err != nil {
		return "", false, err
	}

	text, dated = section(string(changelog), r.number())
	if !dated {
		text, _ = section(string(changelog), "Unreleased")
	}

	if text == "" {
		return "", false, fmt.Errorf("CHANGELOG.md says nothing of %s", r.version)
	}

	// Where the notes are read there are no files beside them.
	return relative.ReplaceAllString(text, "](https://"+library+"/blob/"+r.version+"/$1)") + "\n", dated, nil
}

// section returns the text under the heading "## [name]".
func section(changelog, name string) (string, bool) {
	for part := range strings.SplitSeq(changelog, "\n## ") {
		if heading, text, _ := strings.Cut(part, "\n"); strings.HasPrefix(heading, "["+name+"]") {
			return strings.TrimSpace(text), true
		}
	}

	return "", false
}
