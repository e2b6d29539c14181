package report_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/report"
)

func TestReplace(t *testing.T) {
	t.Parallel()

	document := "# Title\n\n<!-- generated: pair -->\n\nold\n\n<!-- end of generated: pair -->\n\nBy hand.\n"

	got, err := report.Replace(document, "pair", "new\n")
	if want := strings.Replace(document, "old", "new", 1); err != nil || got != want {
		t.Errorf("Replace = %q, %v, want %q", got, err, want)
	}

	again, err := report.Replace(got, "pair", "new")
	if err != nil || again != got {
		t.Errorf("Replace with the same = %q, %v, want %q", again, err, got)
	}

	added, err := report.Replace(document, "guard", "more")
	if err != nil || !strings.HasPrefix(added, document) || !strings.Contains(added, "<!-- generated: guard -->\n\nmore\n") {
		t.Errorf("Replace of a new section = %q, %v, want it at the end", added, err)
	}

	if _, err := report.Replace("<!-- generated: pair -->\nno end", "pair", "new"); err == nil {
		t.Error("Replace of a section without an end = nil, want an error")
	}
}
