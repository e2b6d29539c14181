package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/scenarios"
)

// docs is where the page is.
var docs = filepath.Join("..", "..", "..", "docs")

// TestPlotsShowTheFigures compares docs/performance.md with the plots beside it: the same figures are in both, and the page
// shows every plot.
func TestPlotsShowTheFigures(t *testing.T) {
	t.Parallel()

	page := read(t, filepath.Join(docs, "performance.md"))

	table, found := report.Section(page, "figures")
	if !found {
		t.Fatal("docs/performance.md has no figures")
	}

	drawn := make(map[string]string)

	for _, scenario := range scenarios.All() {
		if scenario.Plot != "" {
			drawn[scenario.Name] = read(t, filepath.Join(docs, "performance", scenario.Name+".svg"))

			if !strings.Contains(page, "](performance/"+scenario.Name+".svg)") {
				t.Errorf("docs/performance.md does not show the plot %s", scenario.Name)
			}
		}
	}

	if stored, err := filepath.Glob(filepath.Join(docs, "performance", "*.svg")); err != nil || len(stored) != len(drawn) {
		t.Errorf("%d plots are stored, %v, want %d", len(stored), err, len(drawn))
	}

	for _, row := range pageRows {
		_, cells, found := strings.Cut(table, "| "+row.title+" |")
		if !found {
			t.Errorf("docs/performance.md does not say %q: run make plots", row.title)

			continue
		}

		cells, _, _ = strings.Cut(cells, "\n")

		for figure := range strings.SplitSeq(cells, "|") {
			figure = strings.TrimSpace(figure)

			if plot, found := drawn[row.scenario]; found && figure != "" && figure != "–" && !strings.Contains(plot, ">"+figure+"</text>") {
				t.Errorf("docs/performance/%s.svg does not show %s: run make plots", row.scenario, figure)
			}
		}
	}
}

// TestDocument writes the tables of a run, and the page from them.
func TestDocument(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	s := settings{tables: filepath.Join(folder, "bench", "tables.md"), page: filepath.Join(folder, "page.md"), line: "compare"}

	if err := redraw(settings{redraw: true, tables: s.tables, page: s.page}); err == nil {
		t.Error("redraw without tables = nil, want an error")
	}

	d := &document{settings: s, revision: "1c20026"}
	if err := d.open(); err != nil {
		t.Fatal(err)
	}

	for _, scenario := range scenarios.All() {
		if err := d.add(scenario, results(scenario)); err != nil {
			t.Fatal(err)
		}
	}

	const byHand = "# By hand\n"

	if err := os.WriteFile(s.page, []byte(byHand), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := redraw(s); err == nil || !strings.Contains(err.Error(), `"run"`) {
		t.Errorf("redraw of tables of a part of a run = %v, want an error", err)
	}

	d.put("run", "The run", "- PostgreSQL 17")

	if err := d.save(); err != nil {
		t.Fatal(err)
	}

	if err := redraw(s); err != nil {
		t.Fatal(err)
	}

	tables, page := read(t, s.tables), read(t, s.page)

	for _, want := range []string{"| postgres | sqllock cas | 2.00 ms (1.00 ms – 3.00 ms) |", "| sqllock cas: pair, of its floor |"} {
		if !strings.Contains(tables, want) {
			t.Errorf("the tables do not have %q:\n%s", want, tables)
		}
	}

	for _, want := range []string{byHand, " nobody else wants | 2.00 ms | – | – | – | 2.00 ms |\n", "- PostgreSQL 17"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q:\n%s", want, page)
		}
	}

	for _, scenario := range scenarios.All() {
		if scenario.Plot != "" && !strings.Contains(read(t, filepath.Join(folder, "page", scenario.Name+".svg")), ">sqllock cas</text>") {
			t.Errorf("the plot %s does not show sqllock cas", scenario.Name)
		}
	}

	if err := redraw(s); err != nil || read(t, s.page) != page || read(t, s.tables) != tables {
		t.Errorf("redrawn again the page or the tables are others, %v", err)
	}
}

// results are those of two contestants.
func results(scenario scenarios.Scenario) report.Results {
	var rows report.Results

	for _, id := range []string{"postgres/" + contest.CAS, "redis/" + contest.RedisLock} {
		c, _ := contest.Find(id)
		row := &report.Row{Server: c.Server, Name: c.Name, Samples: report.Samples{}}

		for _, column := range scenario.Columns {
			row.Samples[column.Metric] = []float64{1e6, 2e6, 3e6}
		}

		rows = append(rows, row)
	}

	return rows
}

func read(t *testing.T, file string) string {
	t.Helper()

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}
