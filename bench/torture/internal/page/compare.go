package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// Difference is a cell that is of another kind in another run. A kind is "" where a run has no such cell.
type Difference struct {
	Lock  string
	Fault judge.Fault
	A, B  judge.Kind
}

// Differences are all of two runs.
type Differences []Difference

// Compare returns the cells that differ in kind, in the order of the table of a, and then of b.
func Compare(a, b Record) Differences {
	var (
		differences Differences
		ours        = a.merged()
		theirs      = b.merged()
	)

	for _, lock := range slices.Concat(ids(a), ids(b)) {
		for _, fault := range judge.Faults() {
			at := place{lock, fault}
			if d := (Difference{lock, fault, ours[at].Kind, theirs[at].Kind}); d.A != d.B && !slices.Contains(differences, d) {
				differences = append(differences, d)
			}
		}
	}

	return differences
}

// ids are those of the rows.
func ids(r Record) []string {
	var all []string
	for _, row := range r.Locks {
		all = append(all, row.ID())
	}

	return all
}

// String has a line for each.
func (d Differences) String() string {
	var out strings.Builder
	for _, one := range d {
		fmt.Fprintln(&out, one)
	}

	return out.String()
}

// String says it in a line.
func (d Difference) String() string {
	return fmt.Sprintf("%s, %s: %s, then %s", d.Lock, d.Fault, cmp.Or(d.A, "no cell"), cmp.Or(d.B, "no cell"))
}
