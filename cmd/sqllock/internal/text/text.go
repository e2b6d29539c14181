// Package text fits text into the columns of a terminal.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Width is how many columns of a terminal s takes.
func Width(s string) int { return runewidth.StringWidth(s) }

// Fit cuts s to so many columns.
func Fit(s string, columns int) string { return runewidth.Truncate(s, max(columns, 1), "…") }

// FitMiddle cuts s to so many columns, and keeps its begin and its end: names
// that are much alike differ there.
func FitMiddle(s string, columns int) string {
	if Width(s) <= columns {
		return s
	}

	tail := s
	for Width(tail) > max(columns-1, 0)/2 {
		_, size := utf8.DecodeRuneInString(tail)
		tail = tail[size:]
	}

	return runewidth.Truncate(s, max(columns-1-Width(tail), 0), "") + "…" + tail
}

// Wrap breaks s at its spaces into lines of at most so many columns. A word
// that is wider has a line of its own: what is to be copied stays whole.
func Wrap(s string, columns int) []string {
	var (
		lines []string
		line  string
	)

	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case Width(line)+1+Width(word) <= columns:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}

	return append(lines, line)
}

// Duration is d in at most two units, cut and not rounded: 27s, 3m12s, 5h07m,
// 12d3h.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour

	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
}
