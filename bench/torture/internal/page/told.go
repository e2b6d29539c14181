package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// wound is what was broken in a lock under some faults, alike under all of them.
type wound struct {
	faults []string
	// why are the texts of each frame.
	why [][]string
}

// key is the same for wounds that can be told together.
func (w wound) key() string {
	var parts []string
	for _, texts := range w.why {
		parts = append(parts, frame(texts[0]))
	}

	return strings.Join(parts, "\n")
}

// String tells of it.
func (w wound) String() string {
	var parts []string
	for _, texts := range w.why {
		parts = append(parts, fold(texts...))
	}

	return fmt.Sprintf("*%s:* %s.", strings.Join(w.faults, ", "), strings.Join(parts, "; "))
}

// told is what is to be told of a lock.
type told struct {
	row    Row
	wounds []wound
}

// key is the same for locks of which the same is to be told.
func (t told) key() string {
	parts := []string{use(t.row), t.row.Smallest}
	for _, w := range t.wounds {
		parts = append(parts, strings.Join(w.faults, ","), w.key())
	}

	return strings.Join(parts, "\n")
}

// docs is the same for locks that promise the same, and is key for those of which no promise is known.
func (t told) docs() string {
	if t.row.Promise == "" && t.row.Source == "" {
		return t.key()
	}

	return t.row.Promise + "\n" + t.row.Source
}

// tell is what is to be told of the locks.
func (g group) tell(cells map[place]judge.Cell) []told {
	var all []told

	for _, row := range g.rows {
		var wounds []wound

		for _, fault := range judge.Faults() {
			c := cells[place{row.ID(), fault}]
			if c.Kind != judge.Broken || fault == judge.Unfenced { // which is the same for all
				continue
			}

			why := c.Why
			if len(why) == 0 {
				why = []string{word(c)}
			}

			wounds = append(wounds, wound{[]string{head(fault)}, likes(why, frame)})
		}

		all = append(all, told{row, foldWounds(wounds)})
	}

	return all
}

// foldWounds tells of faults together under which the same happened.
func foldWounds(wounds []wound) []wound {
	var all []wound
	for _, like := range likes(wounds, wound.key) {
		all = append(all, together(like))
	}

	return all
}

// together makes one of wounds that have one key.
func together(wounds []wound) wound {
	one := wound{why: make([][]string, len(wounds[0].why))}

	for _, w := range wounds {
		for i, texts := range w.why {
			one.why[i] = append(one.why[i], texts...)
		}

		for _, fault := range w.faults {
			if !slices.Contains(one.faults, fault) {
				one.faults = append(one.faults, fault)
			}
		}
	}

	return one
}

// list says of each lock how it was used, what was broken, and what its documentation promises then. Locks with one promise
// stand together, and share the rest if the same is to be told of them.
func (r Record) list() string {
	var (
		out   strings.Builder
		cells = r.merged()
	)

	for i, g := range r.groups() {
		if i > 0 {
			out.WriteString("\n")
		}

		fmt.Fprintf(&out, "*%s*\n\n", serverTitle(g.server))

		for _, same := range likes(g.tell(cells), told.docs) {
			var lines []string
			for _, like := range likes(same, told.key) {
				lines = append(lines, sentence(like))
			}

			text := promise(same[0].row)

			switch broken := slices.ContainsFunc(same, func(t told) bool { return len(t.wounds) > 0 }); {
			case !broken || text == "":
			case len(lines) == 1:
				lines[0] += " " + text
			default:
				lines = append(lines, text)
			}

			fmt.Fprintf(&out, "- %s\n", strings.Join(lines, "<br>"))
		}
	}

	return out.String()
}

// sentence tells of locks that have one key.
func sentence(like []told) string {
	var names []string
	for _, t := range like {
		names = append(names, title(t.row))
	}

	text := strings.Join(names, "; ")
	if use := use(like[0].row); use != "" {
		text += " (" + use + ")"
	}

	text += "."

	for i := range like[0].wounds {
		var alike []wound
		for _, t := range like {
			alike = append(alike, t.wounds[i])
		}

		text += " " + together(alike).String()
	}

	if program := like[0].row.Smallest; program != "" && len(like[0].wounds) > 0 {
		text += fmt.Sprintf(" [Program](smallest/%s).", program)
	}

	return text
}

// use says how a lock is used, and what its token is.
func use(row Row) string {
	text := strings.TrimSuffix(row.Settings, ".")

	switch token := strings.TrimSuffix(row.Token, "."); {
	case token == "":
		return text
	case text == "":
		return "token: " + token
	default:
		return text + "; token: " + token
	}
}

// promise says what the documentation promises, with a link to where it does.
func promise(row Row) string {
	text := strings.TrimSuffix(strings.TrimSpace(row.Promise), ".")

	switch {
	case text == "" && row.Source == "":
		return ""
	case row.Source == "":
		return "Docs: " + text + "."
	case text == "":
		return fmt.Sprintf("[Docs](%s).", row.Source)
	default:
		return fmt.Sprintf("[Docs](%s): %s.", row.Source, text)
	}
}
