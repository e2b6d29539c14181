package report

import (
	"fmt"
	"strings"
)

// Column is one of a scenario's table.
type Column struct {
	Title  string
	Metric string
	Format Format
	// At is the quantile that is shown; zero is the median with its quartiles.
	At float64
	// More is true if more is better.
	More bool
	// Bare leaves the quartiles out: of counts that hardly differ.
	Bare bool
	// Against is another contestant of the same server, by server: what is
	// shown is the ratio to it.
	Against map[string]string
}

// Values are what the column shows of a row, or none.
func (c Column) Values(results Results, row *Row) []float64 {
	values := row.Samples[c.Metric]
	if c.Against == nil {
		return values
	}

	other := results.Find(row.Server, c.Against[row.Server])
	if other == nil || other == row {
		return nil
	}

	return Ratios(values, other.Samples[c.Metric])
}

func (c Column) cell(results Results, row *Row) string {
	values := c.Values(results, row)

	switch {
	case len(values) == 0:
		return "–"
	case c.At != 0:
		return c.Format(Quantile(c.At, values))
	}

	s := Summarize(values)

	text := c.Format(s.Median)
	if lower, upper := c.Format(s.Lower), c.Format(s.Upper); !c.Bare && lower != upper {
		text += fmt.Sprintf(" (%s – %s)", lower, upper)
	}

	return text
}

// Table writes the rows as Markdown.
func Table(columns []Column, results Results) string {
	titles := []string{"server", "contestant"}
	for _, c := range columns {
		titles = append(titles, c.Title)
	}

	var out strings.Builder

	line(&out, titles)
	line(&out, strings.Split(strings.Repeat("---,", len(titles)-1)+"---", ","))

	for _, row := range results {
		cells := []string{row.Server, row.Name}

		if len(row.Samples) == 0 {
			cells = append(cells, "not measured: "+row.Missing)
			line(&out, append(cells, make([]string, len(columns)-1)...))

			continue
		}

		for _, c := range columns {
			cells = append(cells, c.cell(results, row))
		}

		line(&out, cells)
	}

	for _, row := range results {
		if len(row.Samples) > 0 && row.Missing != "" {
			fmt.Fprintf(&out, "\n%s on %s: not all rounds: %s\n", row.Name, row.Server, strings.ReplaceAll(row.Missing, "\n", "; "))
		}
	}

	return out.String()
}

// line writes a line of a table. Errors may have what would break it.
func line(out *strings.Builder, cells []string) {
	safe := strings.NewReplacer("|", "/", "\n", "; ")
	for _, cell := range cells {
		fmt.Fprintf(out, "| %s ", safe.Replace(cell))
	}

	out.WriteString("|\n")
}
