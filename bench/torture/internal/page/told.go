package page

import (
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// list says of each lock how it is used, and, if anything is broken, which program shows it and what its documentation says.
func (r Record) list() string {
	var (
		out   strings.Builder
		cells = r.merged()
		said  string
	)

	for _, g := range r.groups() {
		fmt.Fprintf(&out, "*%s*\n\n", serverTitle(g.server))

		for _, row := range g.rows {
			fmt.Fprintf(&out, "- %s (%s)", title(row), use(row))

			if row.broken(cells) {
				if row.Smallest != "" {
					fmt.Fprintf(&out, ", [program](smallest/%s)", row.Smallest)
				}

				if text := promise(row); text != said {
					said = text
					out.WriteString(said)
				}
			}

			out.WriteString("\n")
		}

		out.WriteString("\n")
	}

	return out.String()
}

// broken says whether a row has a red cell, but for what is the same in all.
func (row Row) broken(cells map[place]judge.Cell) bool {
	for _, fault := range judge.Faults() {
		if fault != judge.Unfenced && cells[place{row.ID(), fault}].Kind == judge.Broken {
			return true
		}
	}

	return false
}

// use says how a lock is used, and what its token is. The page says it of ours.
func use(row Row) string {
	if row.Token == "" || row.Ours {
		return row.Settings
	}

	return row.Settings + "; token: " + row.Token
}

// promise says what the documentation says, with a link to where it does.
func promise(row Row) string {
	if row.Promise == "" {
		return ""
	}

	return fmt.Sprintf(". [Docs](%s): %s.", row.Source, row.Promise)
}
