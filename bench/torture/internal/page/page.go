package page

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// The files of the page.
const (
	readme  = "README.md"
	picture = "table.svg"
)

// ErrNoMarkers reports that the page has no place for a generated part.
var ErrNoMarkers = errors.New("the page lacks the markers of a generated part")

// Update draws the picture in the folder, and writes the generated parts of the page there. What people wrote around them stays.
func Update(folder string, r Record) error {
	file := filepath.Join(folder, readme)

	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}

	page := string(text)

	for _, part := range []struct{ name, text string }{
		{"table", r.table()},
		{"locks", r.list()},
		{"run", r.run()},
	} {
		if _, found := report.Section(page, part.name); !found {
			return fmt.Errorf("%s: %w: %q", file, ErrNoMarkers, part.name)
		}

		if page, err = report.Replace(page, part.name, part.text); err != nil {
			return err
		}
	}

	drawing, err := r.picture()
	if err != nil {
		return err
	}

	if err := os.WriteFile(filepath.Join(folder, picture), drawing, 0o644); err != nil {
		return err
	}

	return os.WriteFile(file, []byte(page), 0o644)
}

// run says what was run, and on what.
func (r Record) run() string {
	var (
		out     strings.Builder
		modules []string
	)

	fmt.Fprintf(&out, "%s, %s; a lease of %g s, each cell the worst of %s (*cut* and *deaf*: up to %d).\n\n- machine: %s\n",
		r.Began.Format(time.DateOnly), r.Took.Round(time.Second), r.Lease.Seconds(), trials(r.Repeats), judge.Cut.Trials(r.Repeats), r.Machine)

	for _, v := range r.Versions {
		fmt.Fprintf(&out, "- %s\n", v.Version)
	}

	for _, row := range r.Locks {
		if row.Module == "" || row.Ours { // which is of this page's revision
			continue
		}

		if module := strings.TrimPrefix(row.Module, "github.com/") + " " + row.Version; !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}

	if len(modules) > 0 {
		fmt.Fprintf(&out, "- modules: %s\n", strings.Join(modules, ", "))
	}

	return out.String()
}

func trials(n int) string {
	if n == 1 {
		return "1 trial"
	}

	return fmt.Sprintf("%d trials", n)
}
