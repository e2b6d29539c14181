package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/scenarios"
)

// pageRows are the rows of the page's table: one column of one scenario each.
var pageRows = []struct{ scenario, column, title string }{
	{"pair", "pair", "acquire and release a name that nobody else wants"},
	{"own32", "pairs/s", "32 goroutines, a name each: pairs/s"},
	{"own256", "pairs/s", "256 goroutines, a name each: pairs/s"},
	{"hot", "hand-overs/s", "16 goroutines of one process, one name: hand-overs/s, in memory but for Redis"},
	{"beside", "longest wait of the other process", "the same beside a second process: its longest wait"},
	{"handover", "p50 from the start of the release", "hand-over to another process, from the start of the release, p50"},
	{"takeover", "taken over after", "take-over after SIGKILL, lease 3 s"},
	{"held", "statements in a renewal interval (10 s)", "10,000 locks: statements in 10 s to renew them"},
	{"waiters", "statements/s", "1,000 waiters of one process: statements/s"},
	{"guard", "ratio", "a transaction with Guard, of the same one without"},
}

// pageColumns are the contestants that the page's table compares.
var pageColumns = []struct{ title, server, name string }{
	{"PostgreSQL", "postgres", contest.CAS},
	{"MySQL", "mysql", contest.CAS},
	{"MariaDB", "mariadb", contest.CAS},
	{"SQLite", "sqlite", contest.CAS},
	{"Redis", "redis", contest.RedisLock},
}

// redraw writes the page again, from the tables of an earlier run.
func redraw(s settings) error {
	d := &document{settings: s}
	if err := d.open(); err != nil {
		return err
	}

	d.summarize()

	return errors.Join(d.save(), d.writePage())
}

// writePage draws the plots beside the page, and puts the page's table and what was run into it.
func (d *document) writePage() error {
	if d.page == "" {
		return nil
	}

	text, err := os.ReadFile(d.page)
	if err != nil {
		return err
	}

	for _, scenario := range scenarios.All() {
		if scenario.Plot == "" {
			continue
		}

		section, found := report.Section(d.text, scenario.Name)
		if !found {
			return missing(scenario.Name)
		}

		if err := draw(folder(d.page), scenario, section); err != nil {
			return err
		}
	}

	table, err := pageTable(d.text)
	if err != nil {
		return err
	}

	run, found := report.Section(d.text, "run")
	if !found {
		return missing("run")
	}

	page, err := report.Replace(string(text), "figures", table)
	if err != nil {
		return err
	}

	page, err = report.Replace(page, "run", run)
	if err != nil {
		return err
	}

	return os.WriteFile(d.page, []byte(page), 0o644)
}

func missing(section string) error {
	return fmt.Errorf("the tables have no section %q, which a whole run of make bench writes", section)
}

func pageTable(tables string) (string, error) {
	var out strings.Builder

	out.WriteString("| |")

	for _, column := range pageColumns {
		fmt.Fprintf(&out, " %s |", column.title)
	}

	out.WriteString("\n|" + strings.Repeat("---|", len(pageColumns)+1) + "\n")

	for _, row := range pageRows {
		section, found := report.Section(tables, row.scenario)
		if !found {
			return "", missing(row.scenario)
		}

		figures, err := report.Read(section, row.column)
		if err != nil {
			return "", err
		}

		fmt.Fprintf(&out, "| %s |", row.title)

		for _, column := range pageColumns {
			i := slices.IndexFunc(figures, func(f report.Figure) bool { return f.Server == column.server && f.Name == column.name })
			if i < 0 {
				out.WriteString(" – |")
			} else {
				fmt.Fprintf(&out, " %s |", figures[i].Text)
			}
		}

		out.WriteString("\n")
	}

	return out.String(), nil
}
