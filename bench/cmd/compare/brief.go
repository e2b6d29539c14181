package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
)

// brief are the lines of README's table: a column of a scenario each.
var brief = []struct{ scenario, column, title string }{
	{"pair", "pair", "a pair (acquire, release) that nobody else wants"},
	{"own32", "pairs/s", "pairs/s of 32 goroutines, a name each"},
	{"hot", "hand-overs/s", "hand-overs/s of one name in one process"},
	{"handover", "p50 from the start of the release", "hand-over to another process, from the start of the release, p50"},
}

// briefColumns are those that it compares.
var briefColumns = []struct{ title, server, name string }{
	{"PostgreSQL", "postgres", contest.CAS},
	{"MySQL", "mysql", contest.CAS},
	{"MariaDB", "mariadb", contest.CAS},
	{"SQLite", "sqlite", contest.CAS},
	{"Redis", "redis", contest.RedisLock},
}

// writeBrief writes some of the document's figures into README.
func (d *document) writeBrief() error {
	if d.readme == "" {
		return nil
	}

	text, err := os.ReadFile(d.readme)
	if err != nil {
		return err
	}

	table, err := briefTable(d.text)
	if err != nil {
		return err
	}

	replaced, err := report.Replace(string(text), "performance", table)
	if err != nil {
		return err
	}

	return os.WriteFile(d.readme, []byte(replaced), 0o644)
}

func briefTable(document string) (string, error) {
	var out strings.Builder

	out.WriteString("| |")

	for _, column := range briefColumns {
		fmt.Fprintf(&out, " %s |", column.title)
	}

	out.WriteString("\n|" + strings.Repeat("---|", len(briefColumns)+1) + "\n")

	for _, line := range brief {
		section, found := report.Section(document, line.scenario)
		if !found {
			return "", fmt.Errorf("there is no section %s", line.scenario)
		}

		figures, err := report.Read(section, line.column)
		if err != nil {
			return "", err
		}

		fmt.Fprintf(&out, "| %s |", line.title)

		for _, column := range briefColumns {
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
