//go:build unix

package stress

import (
	"fmt"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// The line of a name promises an order between processes, and not a strict one: whoever strikes a process or the
// server strikes its place in line, too. So the order is checked where nothing strikes, with which each round
// begins, and between processes that nothing struck. What was asked and answered says who was there first:
//
//	in line        from when the entry was there, until the grant or until the wait was over
//	out of order   a grant to one who entered, or without a wait asked for the first time, after another was in
//	               line for sure, and who is granted the name only later, or waits on
//
// There is no tolerance in that: two who came at the same time are in order either way, and so are two that one
// process hands a lock on to. What the order is not promised to survive, and the checks do not see, is allowed
// for by the number.

// A round fails if more of its grants are out of order than a share and a few, or if one waits while so many are
// granted the name who came later. Measured were 0 to 4 % on a machine with far too much to do (MySQL does not tell
// newcomers of one who came into line while the row of the name was locked, until that looks how it stands), and nearly
// half where the line is broken.
const (
	mayDisorder   = 0.1
	mayDisorderBy = 5
	mayOvertake   = 10
)

// calmAfter is how long after a fault the order is promised again: those who have not been heard of for so long are not
// in line any more.
const calmAfter = instant(3 * time.Second)

// mayStall is how long the machine may stand still beside that. Those in line say every second that they are there.
const mayStall = time.Second

// checkOrder: between processes, first come, first served.
func (h *history) checkOrder(counted *tally) (found []violation) {
	overtaken := map[*wait]int{}
	waits := map[string][]*wait{}

	for _, w := range h.waits {
		waits[w.name] = append(waits[w.name], w)
	}

	for _, g := range h.served {
		// Several of those who wait for a permit may have their turn at a time, and so may readers.
		if asked, _ := strategies.SplitSlot(g.name); asked == pool || asked == book {
			continue
		}

		behind, before := h.others(g, waits[g.name])

		if len(behind)+len(before) > 0 {
			counted.Contested++
		}

		if len(before) > 0 {
			counted.Disordered++
		}

		for _, w := range before {
			overtaken[w]++
		}
	}

	if counted.Disordered > mayDisorderBy+int(mayDisorder*float64(counted.Contested)) {
		found = append(found, violation{Check: checkOrder, Text: fmt.Sprintf(
			"%d of %d grants are out of order: others had come first and waited", counted.Disordered, counted.Contested)})
	}

	for w, n := range overtaken {
		counted.Overtaken = max(counted.Overtaken, n)

		if n > mayOvertake {
			found = append(found, violation{checkOrder, w.name, fmt.Sprintf(
				"%s, in line from %d to %d, had to let %d go first who came later", w, w.in, w.until, n)})
		}
	}

	return found
}

// others returns who waited in calm when g was granted, of other processes or lockers: those that it was to be
// granted before, and those that had come before it.
func (h *history) others(g served, waits []*wait) (behind, before []*wait) {
	for _, w := range waits {
		switch {
		case w.stander == g.stander || w.in >= g.ret || !w.waited(g) || !h.calm(w.from, g.ret, w.process, g.process):
		case w.in < g.came:
			before = append(before, w)
		default:
			behind = append(behind, w)
		}
	}

	return behind, before
}

// waited says whether it was still in line when another was granted the name. The tokens say which of two grants
// was the first.
func (w *wait) waited(g served) bool {
	if w.token != 0 {
		return g.token < w.token
	}

	return g.ret < w.until
}

// calm says whether nothing from one time to another gave two processes a reason to break the order.
func (h *history) calm(from, to instant, one, other int) bool {
	for _, d := range h.disturbances {
		whom := d.Process == -1 || d.Process == one || d.Process == other

		if whom && h.breaksOrder(d) && d.Start <= to && d.End+calmAfter >= from {
			return false
		}
	}

	return h.stalled(span{from, to}) < mayStall
}

// breaksOrder says whether a fault is a reason to break the order. A death is none for the living, nor is a wall
// clock.
func (h *history) breaksOrder(d disturbance) bool {
	switch d.Fault {
	case FaultKill, FaultClock:
		return false
	case FaultForce:
		// It may end a session, with which others wait.
		return h.Pair.connectionHeld()
	default:
		return true
	}
}
