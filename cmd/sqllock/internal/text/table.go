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
	// Holders are those of them that say who somebody is: "label (host, pid 1)". Of these
	// the label is cut, as long as there is room for the rest.
	Holders []int
}

const (
	gap       = "  "
	leastWide = 8
	// leastBeside is what other columns keep beside those of holders.
	leastBeside = 16
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
				cell = fitHolder(cell, widths[i])
			}

			cell = Fit(cell, widths[i])
			b.WriteString(cell + strings.Repeat(" ", widths[i]-Width(cell)) + gap)
		}

		lines = append(lines, strings.TrimRight(b.String(), " "))
	}

	return lines
}

// shrink takes columns off, until all fit: off labels and names if that is enough, else off
// all that may be cut.
func (t Table) shrink(widths []int, width int) {
	least, plain := make([]int, len(widths)), make([]int, len(widths))
	for i := range widths {
		least[i], plain[i] = leastBeside, leastWide
	}

	for _, i := range t.Holders {
		for _, row := range t.Rows {
			least[i] = max(least[i], Width("…"+place(row[i])))
		}
	}

	if cut := slices.Clone(widths); t.cut(cut, least, width) {
		copy(widths, cut)
	} else {
		t.cut(widths, plain, width)
	}
}

// cut takes columns off the widest that may be cut, and leaves the least of each. It says
// whether all fit then.
func (t Table) cut(widths, least []int, width int) bool {
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}

	for ; total > width; total-- {
		widest := -1

		for _, i := range t.Shrink {
			if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}

		if widest < 0 {
			return false
		}

		widths[widest]--
	}

	return true
}

// place is what stands behind the label of a holder: " (host, pid 1)"; empty if there is no label.
func place(holder string) string {
	i := strings.LastIndex(holder, " (")
	if i < 0 || !strings.HasSuffix(holder, ")") {
		return ""
	}

	return holder[i:]
}

// fitHolder cuts the label to so many columns for all, if there is room for it and the place.
func fitHolder(holder string, columns int) string {
	behind := place(holder)
	room := columns - Width(behind)

	if behind == "" || room < 1 {
		return holder
	}

	return Fit(strings.TrimSuffix(holder, behind), room) + behind
}
