// Package plain makes what others wrote, as names and labels of locks, fit for one
// line of a terminal.
package plain

import (
	"strconv"
	"strings"
	"unicode"
)

// Text shows control characters and their like as escapes: a lock's name must
// not move the cursor.
func Text(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}

	var b strings.Builder

	for _, r := range s {
		if unprintable(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}

	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Line is an error in one line: see [Joined].
func Line(err error) string { return Joined(err.Error()) }

// Joined joins the lines of what an error says, each of them once: it may be several errors, and a driver lists what
// each address of a server answered, and each way to connect.
func Joined(said string) string {
	var b strings.Builder

	seen := map[string]bool{}

	for _, line := range strings.FieldsFunc(said, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(line)

		switch {
		case line == "" || seen[line]:
			continue
		case strings.HasSuffix(b.String(), ":") || strings.HasSuffix(b.String(), "?"):
			b.WriteString(" ")
		case b.Len() > 0:
			b.WriteString("; ")
		}

		seen[line] = true

		b.WriteString(line)
	}

	return b.String()
}
