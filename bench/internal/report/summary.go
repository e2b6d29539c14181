package report

import (
	"slices"
	"strings"
)

// sums is a line of the summary: one target on all servers that have it.
type sums struct {
	figure string
	cells  map[string]string
}

// Sums makes one table of the rows of verdicts that are stored in sections,
// with a column for each server and without quartiles and reasons.
func Sums(rows string) string {
	var (
		all     []*sums
		servers = []string{"postgres", "mysql", "mariadb"}
		out     strings.Builder
	)

	for text := range strings.Lines(rows) {
		row := cells(text)
		if len(row) != 5 {
			continue
		}

		figure, server, target, measured, word := row[0], row[1], row[2], row[3], strings.Trim(row[4], "*")
		bound, against, _ := strings.Cut(target, " of ")
		against, _, _ = strings.Cut(against, " (")

		// These have another name on each server.
		switch {
		case strings.HasPrefix(against, "floor: "):
			figure += ", of its floor"
		case strings.HasSuffix(against, " by hand"):
			figure += ", of the lock by hand"
		case against != "":
			figure += ", of " + against
		}

		i := slices.IndexFunc(all, func(s *sums) bool { return s.figure == figure && s.cells[server] == "" })
		if i < 0 {
			i = len(all)
			all = append(all, &sums{figure: figure, cells: make(map[string]string)})
		}

		all[i].cells[server] = sumCell(bound, measured, word)
	}

	line(&out, []string{"figure", "PostgreSQL", "MySQL", "MariaDB"})
	line(&out, []string{"---", "---", "---", "---"})

	for _, s := range all {
		row := []string{s.figure}
		for _, server := range servers {
			row = append(row, s.cells[server])
		}

		line(&out, row)
	}

	return out.String()
}

// sumCell makes those targets stand out that are not met.
func sumCell(bound, measured, word string) string {
	if word != Met {
		word = "**" + word + "**"
	}

	measured, _, _ = strings.Cut(measured, " (") // without quartiles

	return measured + ", target " + bound + ": " + word
}
