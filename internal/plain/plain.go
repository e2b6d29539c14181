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

// Line joins the lines of an error: of several, or of a driver that tells what
// each address of a server answered.
func Line(err error) string { return strings.ReplaceAll(err.Error(), "\n", ": ") }
