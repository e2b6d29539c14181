package page

import (
	"slices"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// worst are the kinds, the worst first. A trial that did not come about is worse than one in which nothing went wrong: a good
// cell says that of all trials.
var worst = []judge.Kind{judge.Broken, judge.Stuck, judge.Failed, judge.Good, judge.None}

// Merge makes one cell of those of one lock and one fault: the worst kind, and the largest of each figure. Served is that of the
// trial in which the most were not.
func Merge(cells ...judge.Cell) judge.Cell {
	if len(cells) == 0 {
		return judge.Cell{Kind: judge.Failed}
	}

	all := cells[0]
	all.Why = nil
	all.LateWrites, all.RefusedWrites = nil, nil

	for _, c := range cells {
		if slices.Index(worst, c.Kind) < slices.Index(worst, all.Kind) {
			all.Kind = c.Kind
		}

		for _, why := range c.Why {
			if !slices.Contains(all.Why, why) {
				all.Why = append(all.Why, why)
			}
		}

		all.LateWrites = largest(all.LateWrites, c.LateWrites)
		all.RefusedWrites = largest(all.RefusedWrites, c.RefusedWrites)
		all.Twice = max(all.Twice, c.Twice)
		all.NeverTold = max(all.NeverTold, c.NeverTold)
		all.Lost = max(all.Lost, c.Lost)
		all.Idle = max(all.Idle, c.Idle)
		all.Overtaken = max(all.Overtaken, c.Overtaken)

		if left, most := c.Waited-c.Served, all.Waited-all.Served; left > most || left == most && c.Waited > all.Waited {
			all.Waited, all.Served = c.Waited, c.Served
		}
	}

	return all
}

// largest has the larger count of each protection, in a map of its own.
func largest(a, b map[judge.Protection]int) map[judge.Protection]int {
	if len(b) == 0 {
		return a
	}

	if a == nil {
		a = make(map[judge.Protection]int, len(b))
	}

	for p, n := range b {
		a[p] = max(a[p], n)
	}

	return a
}

// place is where a cell stands in the table.
type place struct {
	lock  string
	fault judge.Fault
}

// merged are the cells of the record, each place once.
func (r Record) merged() map[place]judge.Cell {
	all := make(map[place][]judge.Cell)

	for _, c := range r.Cells {
		at := place{c.Lock, c.Fault}
		all[at] = append(all[at], c)
	}

	cells := make(map[place]judge.Cell, len(all))
	for at, some := range all {
		cells[at] = Merge(some...)
	}

	return cells
}
