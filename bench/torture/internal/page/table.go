package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// group is the rows of one server.
type group struct {
	server string
	rows   []Row
}

// groups are the rows by server, as they come.
func (r Record) groups() []group {
	var all []group

	for _, row := range r.Locks {
		i := slices.IndexFunc(all, func(g group) bool { return g.server == row.Server })
		if i < 0 {
			i = len(all)
			all = append(all, group{server: row.Server})
		}

		all[i].rows = append(all[i].rows, row)
	}

	return all
}

// table is the matrix of locks and faults in Markdown.
func (r Record) table() string {
	var (
		out   strings.Builder
		cells = r.merged()
		width = len(judge.Faults())
	)

	out.WriteString("||")

	for _, fault := range judge.Faults() {
		fmt.Fprintf(&out, "%s|", string(fault))
	}

	out.WriteString("\n|" + strings.Repeat("---|", width+1) + "\n")

	for _, g := range r.groups() {
		fmt.Fprintf(&out, "|*%s*|%s\n", safe(serverTitle(g.server)), strings.Repeat("|", width))

		for _, row := range g.rows {
			fmt.Fprintf(&out, "|%s|", safe(title(row)))

			for _, fault := range judge.Faults() {
				c := cells[place{row.ID(), fault}]
				fmt.Fprintf(&out, "%s|", strings.TrimSpace(mark(c.Kind)+brief(c)))
			}

			out.WriteString("\n")
		}
	}

	return out.String()
}

// title is a row's name, with what is ours in bold.
func title(row Row) string {
	if !row.Ours {
		return row.Name
	}

	return strings.TrimSpace("**sqllock** " + strings.TrimSpace(strings.TrimPrefix(row.Name, "sqllock")))
}

// safe has nothing that would break a line of a table.
func safe(text string) string {
	return strings.NewReplacer("|", "/", "\n", "; ").Replace(text)
}
