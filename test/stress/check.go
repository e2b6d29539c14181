//go:build unix

package stress

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// violation is a promise that was broken.
type violation struct {
	// Check is the name of the check that found it.
	Check string `json:"check"`
	Name  string `json:"name,omitempty"` // of the lock
	Text  string `json:"text"`
}

func (v violation) String() string {
	if v.Name == "" {
		return fmt.Sprintf("%s: %s", v.Check, v.Text)
	}

	return fmt.Sprintf("%s: lock %q: %s", v.Check, v.Name, v.Text)
}

// tally counts what was checked.
type tally struct {
	Operations map[operation]int
	Grants     int
	Other      int // of the grants, to workers of the other version
	Faults     map[Fault]int
	Unknown    int // operations whose caller did not learn the outcome
	Takeovers  int // grants after one that was not released
	// Worst is the longest time from the death of a holder, or from when its successor asked, if that was later,
	// to the successor's grant, of Deaths that were measured: those in which nothing else was out of order.
	Worst  time.Duration
	Deaths int
	// Free is the longest time from the end of the last worker until every name had been free.
	Free time.Duration
	// Contested are the grants in calm phases for which another process waited, Disordered those of them that were
	// out of order, and Overtaken the most of these in one wait.
	Contested  int
	Disordered int
	Overtaken  int
	// Idle is the longest time for which a name was free while somebody waited for it.
	Idle time.Duration
}

func (t *tally) add(other tally) {
	if t.Operations == nil {
		t.Operations, t.Faults = map[operation]int{}, map[Fault]int{}
	}

	for op, n := range other.Operations {
		t.Operations[op] += n
	}

	for f, n := range other.Faults {
		t.Faults[f] += n
	}

	t.Grants += other.Grants
	t.Other += other.Other
	t.Unknown += other.Unknown
	t.Takeovers += other.Takeovers
	t.Worst = max(t.Worst, other.Worst)
	t.Deaths += other.Deaths
	t.Free = max(t.Free, other.Free)
	t.Contested += other.Contested
	t.Disordered += other.Disordered
	t.Overtaken = max(t.Overtaken, other.Overtaken)
	t.Idle = max(t.Idle, other.Idle)
}

// checked is the number of operations of all kinds.
func (t *tally) checked() (sum int) {
	for _, n := range t.Operations {
		sum += n
	}

	return sum
}

// struck is the number of faults of all kinds.
func (t *tally) struck() (sum int) {
	for _, n := range t.Faults {
		sum += n
	}

	return sum
}

// names of the checks, as tables show them.
const (
	checkLinear  = "linearizable"
	checkWindows = "trust windows"
	checkTokens  = "token order"
	checkGuard   = "guard"
	checkSum     = "sum of transfers"
	checkOutside = "fenced register"
	checkTold    = "loss told"
	checkFree    = "free in time"
	checkLeft    = "left behind"
	checkClosed  = "left after Close"
	checkOrder   = "order"
	checkIdle    = "waited in vain"
)

// check judges a history. Pictures of names that are not linearizable go into the folder.
func check(h *history, folder string) ([]violation, tally) {
	violations := slices.Clone(h.notes)
	counted := tally{Operations: h.counts, Grants: len(h.grants), Faults: map[Fault]int{}, Unknown: h.unknown, Free: h.free}

	for _, g := range h.grants {
		if h.other(g.process) {
			counted.Other++
		}
	}

	for _, d := range h.disturbances {
		counted.Faults[d.Fault]++
	}

	violations = append(violations, h.checkClosed()...)
	violations = append(violations, h.checkSum()...)
	violations = append(violations, h.checkOrder(&counted)...)

	for _, name := range h.Names {
		grants := h.grantsOf(name)

		violations = append(violations, h.checkTokens(name, grants)...)
		violations = append(violations, h.checkWindows(name, grants)...)
		violations = append(violations, h.checkTold(name, grants)...)
		violations = append(violations, h.checkGuard(name, grants)...)
		violations = append(violations, h.checkOutside(name, grants)...)
		violations = append(violations, h.checkLinear(name, grants, folder)...)
		violations = append(violations, h.checkIdle(name, grants, &counted)...)

		h.measure(&counted, grants)
	}

	return violations, counted
}

// grantsOf returns the grants of a name by token.
func (h *history) grantsOf(name string) []*grant {
	var grants []*grant

	for _, g := range h.grants {
		if g.name == name {
			grants = append(grants, g)
		}
	}

	slices.SortFunc(grants, func(a, b *grant) int { return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.ret, b.ret)) })

	return grants
}

// key tells the holders of one grant apart, that was handed on.
func (g *grant) key() string { return fmt.Sprintf("%s/%d", g.owner, g.token) }

func (g *grant) String() string {
	return fmt.Sprintf("token %d (worker %d.%d, granted between %d and %d)", g.token, g.process, g.life, g.call, g.ret)
}

// beside says whether two grants are of readers who may have the name at the same time.
func (g *grant) beside(other *grant) bool { return g.shared && other.shared && g.token == other.token }

// checkTokens: no two grants but those of readers, and those that were adopted, have one token, and one that was asked for after another was there has a larger
// one.
func (h *history) checkTokens(name string, grants []*grant) (found []violation) {
	for i, g := range grants {
		if i == 0 {
			continue
		}

		if before := grants[i-1]; before.token == g.token && !g.beside(before) && !g.adopted {
			found = append(found, violation{checkTokens, name, fmt.Sprintf("two grants with one token: %s and %s", before, g)})
		}
	}

	byCall := slices.SortedFunc(slices.Values(grants), func(a, b *grant) int { return cmp.Compare(a.call, b.call) })
	byReturn := slices.SortedFunc(slices.Values(grants), func(a, b *grant) int { return cmp.Compare(a.ret, b.ret) })

	var largest *grant // of those that were there when g was asked for

	for _, g := range byCall {
		for len(byReturn) > 0 && byReturn[0].ret < g.call {
			if largest == nil || byReturn[0].token > largest.token {
				largest = byReturn[0]
			}

			byReturn = byReturn[1:]
		}

		if largest != nil && largest.token > g.token {
			found = append(found, violation{checkTokens, name, fmt.Sprintf("%s was asked for when %s was there", g, largest)})
		}
	}

	return found
}

// checkWindows: nobody is granted a name while another was told that it has it.
func (h *history) checkWindows(name string, grants []*grant) (found []violation) {
	for i, g := range grants {
		end := h.end(g)

		for _, next := range grants[i+1:] {
			if next.ret < end && !next.beside(g) {
				found = append(found, violation{checkWindows, name, fmt.Sprintf(
					"%s was granted %s before the trust window of %s ended", next, time.Duration(end-next.ret), g)})

				break
			}
		}
	}

	return found
}

// checkTold: from the grant of its successor on, a lock does not say that it is held.
func (h *history) checkTold(name string, grants []*grant) (found []violation) {
	for i, g := range grants {
		for _, next := range grants[i+1:] {
			if next.beside(g) {
				continue
			}

			known := max(next.ret, h.mustKnow(g, next.ret))

			at := slices.IndexFunc(g.told, func(t instant) bool { return t > known && (g.freeing == 0 || t < g.freeing) })
			if at >= 0 {
				found = append(found, violation{checkTold, name, fmt.Sprintf(
					"%s said that it is held %s after %s was granted", g, time.Duration(g.told[at]-next.ret), next)})

				break
			}
		}
	}

	return found
}

// checkGuard: no write was lost, none is missing that was acknowledged, and none of an earlier holder was
// committed after a later one had the name.
func (h *history) checkGuard(name string, grants []*grant) (found []violation) {
	var last write

	for i, w := range h.writes[name] {
		if w.value != int64(i)+1 {
			found = append(found, violation{checkGuard, name, fmt.Sprintf(
				"a write was lost: number %d is %d, of writer %s with token %d", i+1, w.value, w.writer, w.token)})

			break
		}

		if w.token < last.token {
			found = append(found, violation{checkGuard, name, fmt.Sprintf(
				"a stale write was committed: value %d has token %d, the one before it %d", w.value, w.token, last.token)})
		}

		last = w
	}

	found = append(found, h.checkReadings(name)...)

	for _, w := range h.guards {
		if w.name != name {
			continue
		}

		if w.acknowledged && !w.committed {
			found = append(found, violation{checkGuard, name, fmt.Sprintf("write %s was acknowledged, and is not there", w.writer)})
		}

		var own *grant

		if i := slices.IndexFunc(grants, func(g *grant) bool { return g.owner == w.owner && g.token == w.token }); i >= 0 {
			own = grants[i]
		}

		for _, g := range grants {
			later := g.token > w.token || g.adopted && own != nil && g.token == w.token && g.ret > own.ret
			if w.committed && later && g.ret < w.commit {
				found = append(found, violation{checkGuard, name, fmt.Sprintf(
					"write %s with token %d was committed %s after %s was there", w.writer, w.token, time.Duration(w.commit-g.ret), g)})

				break
			}
		}
	}

	return found
}

// checkReadings: under its guard a reader saw what all writers before it had written, and nothing else.
func (h *history) checkReadings(name string) (found []violation) {
	for _, r := range h.readings {
		if r.name != name {
			continue
		}

		before := 0

		for _, w := range h.writes[name] {
			if w.token < r.token {
				before++
			}
		}

		if r.value != int64(before) {
			found = append(found, violation{checkGuard, name, fmt.Sprintf(
				"worker %d.%d read %d with token %d, and %d writes have smaller tokens", r.process, r.life, r.value, r.token, before)})
		}
	}

	return found
}

// checkOutside: the register lost no write, and refused nobody who held the lock.
func (h *history) checkOutside(name string, grants []*grant) (found []violation) {
	for i, w := range h.outside[name] {
		if w.value != int64(i)+1 {
			found = append(found, violation{checkOutside, name, fmt.Sprintf(
				"a write was lost: number %d is %d, with token %d", i+1, w.value, w.token)})

			break
		}
	}

	for _, refused := range h.refusals {
		if refused.name != name {
			continue
		}

		for _, g := range grants {
			if g.token != refused.token || g.process != refused.process || g.life != refused.life {
				continue
			}

			if refused.held > h.mustKnow(g, refused.held) {
				found = append(found, violation{checkOutside, name, fmt.Sprintf("%s was refused, and held", g)})
			}
		}
	}

	return found
}

// checkSum: what was taken from one account is on another.
func (h *history) checkSum() []violation {
	if h.sum == 0 {
		return nil
	}

	return []violation{{Check: checkSum, Text: fmt.Sprintf("the accounts have %d in all, and should have nothing: some transfer was not guarded", h.sum)}}
}

// checkClosed: after Close returned nil the database has nothing of that locker.
func (h *history) checkClosed() (found []violation) {
	for _, left := range h.leftovers {
		found = append(found, violation{checkClosed, left.name, fmt.Sprintf(
			"worker %d.%d holds it, whose locker was closed without an error", left.process, left.life)})
	}

	return found
}

// measure counts take-overs and the time from the death of a holder to the next grant.
func (h *history) measure(counted *tally, grants []*grant) {
	for i, g := range grants[:max(0, len(grants)-1)] {
		next := grants[i+1]

		if g.beside(next) {
			continue
		}

		if g.released == 0 {
			counted.Takeovers++
		}

		for _, d := range h.disturbances {
			died := d.Fault == FaultKill && d.Process == g.process && d.Life == g.life && g.ret < d.Start &&
				g.freeing == 0 && g.until > d.Start
			if !died || next.process == -1 || h.disturbed(next.process, d.Start, next.ret) {
				continue
			}

			counted.Deaths++
			counted.Worst = max(counted.Worst, time.Duration(next.ret-max(d.Start, next.call)))
		}
	}
}

// disturbed says whether anything but a kill kept a process from working.
func (h *history) disturbed(process int, from, to instant) bool {
	return slices.ContainsFunc(h.disturbances, func(d disturbance) bool {
		return d.Fault != FaultKill && (d.Process == -1 || d.Process == process) && d.Start < to && d.End+h.settling() > from
	})
}
