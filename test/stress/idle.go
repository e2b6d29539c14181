//go:build unix

package stress

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkIdle: a name that is free is granted, if somebody in line is alive: when the lease of one who did not release it
// is over, and after the time that it may take to become free.
func (h *history) checkIdle(name string, grants []*grant, counted *tally) (found []violation) {
	var waited []span

	for _, w := range h.waits {
		if w.name == name {
			waited = append(waited, span{w.in, w.over()})
		}
	}

	for _, s := range minus(union(waited), union(append(h.taken(name, grants), h.excused(name)...))) {
		idle := time.Duration(s.to-s.from) - h.stalled(s)
		counted.Idle = max(counted.Idle, idle)

		if idle > h.Lease+h.bound() {
			found = append(found, violation{checkIdle, name, fmt.Sprintf(
				"from %d on nobody held it for %s, while others waited for it", s.from, idle.Round(time.Millisecond))})
		}
	}

	return found
}

// taken is when somebody had the name, as far as its users know.
func (h *history) taken(name string, grants []*grant) (spans []span) {
	known := make(map[int64]bool, len(grants))

	for _, g := range grants {
		known[g.token] = true

		end := g.until
		if g.released != 0 {
			end = max(g.released, g.kept)
		}

		spans = append(spans, span{g.ret, end})
	}

	// What nobody learned of is released soon, or ends by itself.
	for _, g := range h.served {
		if g.name == name && !known[g.token] {
			spans = append(spans, span{g.ret, g.ret + instant(h.Lease)})
		}
	}

	return spans
}

// excused is when nobody need have been granted the name: a fault keeps those who wait from working, or one may be
// before them who waits for another name, who has died or, without a connection to say so with, not left yet. The line forgets those after a while.
// The first in line may also be a process with two connections for many goroutines, which gets none to ask with.
func (h *history) excused(name string) (spans []span) {
	for _, d := range h.disturbances {
		if h.breaksOrder(d) {
			spans = append(spans, span{d.Start, d.End + calmAfter})
		}
	}

	for _, t := range h.together {
		if t.name == name {
			spans = append(spans, t.span)
		}
	}

	for _, d := range h.dead {
		if d.name == name {
			spans = append(spans, span{d.at, d.at + calmAfter})
		}
	}

	var before []span // who is in line before w

	for _, w := range slices.SortedFunc(slices.Values(h.waits), func(a, b *wait) int { return cmp.Compare(a.in, b.in) }) {
		if w.name != name {
			continue
		}

		gone := w.over()
		if w.left != never || w.token == 0 {
			gone = min(w.left, w.over()+calmAfter)
			spans = append(spans, span{w.over(), gone})
		}

		if slices.Contains(h.crowded, w.process) {
			spans = append(spans, minus([]span{{w.in, gone}}, union(before))...)
		} else {
			before = append(before, span{w.in, w.over()})
		}
	}

	return spans
}

// stalled is for how long of a span the machine did nothing.
func (h *history) stalled(s span) (sum time.Duration) {
	for _, stall := range h.stalls {
		sum += time.Duration(max(0, min(stall.to, s.to)-max(stall.from, s.from)))
	}

	return sum
}

// union returns spans in order that neither overlap nor touch.
func union(spans []span) (united []span) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })

	for _, s := range spans {
		if s.to < s.from {
			continue
		}

		if last := len(united) - 1; last >= 0 && s.from <= united[last].to {
			united[last].to = max(united[last].to, s.to)
		} else {
			united = append(united, s)
		}
	}

	return united
}

// minus returns what of some spans is in none of others. Both are unions.
func minus(spans, others []span) (left []span) {
	for _, s := range spans {
		for _, o := range others {
			if o.to <= s.from || o.from >= s.to {
				continue
			}

			if o.from > s.from {
				left = append(left, span{s.from, o.from})
			}

			s.from = o.to
		}

		if s.from < s.to {
			left = append(left, s)
		}
	}

	return left
}
