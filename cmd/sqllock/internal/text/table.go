package text

import (
	"slices"
	"strings"
)

// Table is rows of cells under a header.
type Table struct {
	Header []string
	Rows   [][]string
	// Shrink are the columns that are cut, longest first, where the table is
	// wider than the terminal.
	Shrink []int
	// Holders are those of them that say who somebody is: "label (host, pid 1)". They are cut in the middle.
	Holders []int
}

const (
	gap       = "  "
	leastWide = 8
)

// Lines are the table's, at most width columns wide; zero is no limit.
func (t Table) Lines(width int) []string {
	widths := make([]int, len(t.Header))

	for _, row := range append([][]string{t.Header}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], Width(cell))
		}
	}

	if width > 0 {
		t.shrink(widths, width)
	}

	lines := make([]string, 0, len(t.Rows)+1)

	for _, row := range append([][]string{t.Header}, t.Rows...) {
		var b strings.Builder

		for i, cell := range row {
			if slices.Contains(t.Holders, i) {
				cell = FitMiddle(cell, widths[i])
			}

			cell = Fit(cell, widths[i])
			b.WriteString(cell + strings.Repeat(" ", widths[i]-Width(cell)) + gap)
		}

		lines = append(lines, strings.TrimRight(b.String(), " "))
	}

	return lines
}

// Omit leaves out a column in which all rows have the usual value.
func (t *Table) Omit(header, usual string) {
	i := slices.Index(t.Header, header)
	if slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != usual }) {
		return
	}

	t.Header = slices.Delete(t.Header, i, i+1)

	for n, row := range t.Rows {
		t.Rows[n] = slices.Delete(row, i, i+1)
	}
}

// shrink takes columns off the widest that may be cut, until all fit or none has more than the least.
func (t Table) shrink(widths []int, width int) {
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}

	for ; total > width && len(t.Shrink) > 0; total-- {
		widest := slices.MaxFunc(t.Shrink, func(a, b int) int { return widths[a] - widths[b] })
		if widths[widest] <= leastWide {
			return
		}

		widths[widest]--
	}
}
