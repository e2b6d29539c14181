package report

import (
	"fmt"
	"strconv"
	"strings"
)

// units are those that a Format writes.
var units = map[string]float64{
	"": 1, "×": 1,
	"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9,
	"B": 1, "KiB": 1 << 10, "MiB": 1 << 20,
}

// Parse reads what a Format wrote, as precisely as that did.
func Parse(text string) (float64, error) {
	number := strings.TrimRight(text, "×nµmsBKiM ")

	unit, known := units[strings.TrimSpace(text[len(number):])]
	value, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)

	if err != nil || !known {
		return 0, fmt.Errorf("%q is no figure", text)
	}

	return value * unit, nil
}

// Section returns what a document has between the markers of a section.
func Section(document, section string) (string, bool) {
	_, rest, found := strings.Cut(document, fmt.Sprintf("<!-- generated: %s -->", section))
	if !found {
		return "", false
	}

	text, _, found := strings.Cut(rest, fmt.Sprintf("<!-- end of generated: %s -->", section))

	return text, found
}

// Figure is a cell of a stored table.
type Figure struct {
	Server, Name string
	Text         string // of the median
	Summary
}

// Read returns a column of the table that Table wrote into a section. What has
// no figure there is left out.
func Read(section, column string) ([]Figure, error) {
	var (
		figures []Figure
		place   = -1
	)

	for text := range strings.Lines(section) {
		cells := cells(text)

		switch {
		case len(cells) < 3 || cells[0] == "---":
		case cells[0] == "server":
			place = -1

			for i, title := range cells {
				if cells[1] == "contestant" && title == column {
					place = i
				}
			}
		case place >= 0 && place < len(cells):
			s, found, err := summary(cells[place])
			if err != nil {
				return nil, fmt.Errorf("%s on %s: %w", cells[1], cells[0], err)
			}

			if found {
				text, _, _ := strings.Cut(cells[place], " (")
				figures = append(figures, Figure{cells[0], cells[1], text, s})
			}
		}
	}

	return figures, nil
}

// summary reads a cell: the median, and in brackets the quartiles.
func summary(cell string) (s Summary, found bool, err error) {
	if cell == "" || cell == "–" || strings.HasPrefix(cell, "not measured") {
		return s, false, nil
	}

	median, quartiles, spread := strings.Cut(strings.TrimSuffix(cell, ")"), " (")

	if s.Median, err = Parse(median); err != nil || !spread {
		return Summary{s.Median, s.Median, s.Median}, true, err
	}

	lower, upper, _ := strings.Cut(quartiles, " – ")
	if s.Lower, err = Parse(lower); err != nil {
		return s, true, err
	}

	s.Upper, err = Parse(upper)

	return s, true, err
}

// cells are those of a line of a table.
func cells(line string) []string {
	line, found := strings.CutPrefix(strings.TrimSpace(line), "| ")
	if !found {
		return nil
	}

	all := strings.Split(strings.TrimSuffix(line, "|"), "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}

	return all
}
