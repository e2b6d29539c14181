package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/event"
)

// Process is what a process told, and what was done to it.
type Process struct {
	Events []event.Event
	Stops  []Span        // in which it was stopped
	Killed time.Duration // 0 if it was not
}

// Span is a time.
type Span struct{ From, To time.Duration }

// Bounds of what is broken or stuck.
const (
	// tolerated is how long two may have the lock, by what they look at every 10 ms, on a machine that is busy.
	tolerated = 100 * time.Millisecond
	// overtakes is by how much earlier one must have asked to be overtaken.
	overtakes = 50 * time.Millisecond
)

// stuckAfter is how long nobody has a lock that its holder cannot use until it counts as stuck.
func stuckAfter(lease time.Duration) time.Duration { return lease * 7 / 2 }

// hold is a grant: who had the lock, and for how long it took it for its own.
type hold struct {
	process, who int
	asked        time.Duration
	from, to     time.Duration
	told, open   bool   // told that it was lost; not ended when the trial did
	released     bool   // by itself, so that it lasted to the end at least
	doubts       []Span // in which it waited for the library's word
	running      []Span // in which it took the lock for its own, and could act
}

// Judge counts what the processes of a trial told, which ended then.
func Judge(cell Cell, processes []Process, end, lease time.Duration) Cell {
	holds, waiting := grants(processes, end)

	cell.Served = len(holds)
	cell.Waited = cell.Served + len(waiting)
	cell.Overtaken = overtaken(holds, waiting)

	for _, h := range holds {
		if h.told {
			cell.Lost++
		}
	}

	cell.Twice, cell.NeverTold = together(holds)
	cell.Idle = idle(holds, waiting, end)
	cell.LateWrites, cell.RefusedWrites = writes(processes, holds, end)

	return cell.Judged(lease)
}

// Bare is the cell of the same trial for those who write without token and guard.
func (c Cell) Bare(lease time.Duration) Cell {
	c.LateWrites = map[Protection]int{Plain: c.LateWrites[Plain]}
	c.RefusedWrites = nil

	return c.Judged(lease)
}

// grants are the holds in the order of their beginning, and since when those wait who were granted nothing.
func grants(processes []Process, end time.Duration) (holds []hold, waiting []time.Duration) {
	for i, p := range processes {
		asked, open := make(map[int]time.Duration), make(map[int]*hold)

		last := end
		if p.Killed > 0 {
			last = p.Killed
		}

		finish := func(h *hold, at time.Duration) {
			h.to = at
			h.running = without(Span{h.from, at}, slices.Concat(p.Stops, h.doubts))
			holds = append(holds, *h)
		}

		for _, e := range p.Events {
			if e.At > last {
				continue
			}

			switch e.Kind {
			case event.Asked:
				asked[e.Who] = e.At
			case event.Held:
				open[e.Who] = &hold{process: i, who: e.Who, asked: asked[e.Who], from: e.At}
				delete(asked, e.Who)
			case event.Doubts:
				if h := open[e.Who]; h != nil {
					h.doubts = append(h.doubts, Span{e.At, end})
				}
			case event.Sure:
				if h := open[e.Who]; h != nil && len(h.doubts) > 0 {
					h.doubts[len(h.doubts)-1].To = e.At
				}
			case event.Lost, event.Releases:
				if h := open[e.Who]; h != nil {
					h.told, h.released = e.Kind == event.Lost, e.Kind == event.Releases
					finish(h, e.At)
					delete(open, e.Who)
				}
			default:
			}
		}

		for _, h := range open {
			h.open = p.Killed == 0
			finish(h, last)
		}

		if p.Killed == 0 {
			for _, since := range asked {
				waiting = append(waiting, since)
			}
		}
	}

	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.from, b.from) })

	return holds, waiting
}

// without is what is left of a span.
func without(s Span, gone []Span) []Span {
	left := []Span{s}

	for _, g := range gone {
		var next []Span

		for _, l := range left {
			if before := (Span{l.From, min(l.To, g.From)}); before.From < before.To {
				next = append(next, before)
			}

			if after := (Span{max(l.From, g.To), l.To}); after.From < after.To {
				next = append(next, after)
			}
		}

		left = next
	}

	return left
}

// together is the longest time in which two ran and took the lock for their own, and how many of the earlier ones were never told. Who
// is told of a loss hears of it at the next look; who releases the lock had it until then.
func together(holds []hold) (longest time.Duration, neverTold int) {
	for i, a := range holds {
		overlapped := false

		for _, b := range holds[i+1:] {
			var both time.Duration

			for _, s := range a.running {
				for _, r := range b.running {
					both += max(0, min(s.To, r.To)-max(s.From, r.From))
				}
			}

			if a.released && both > 0 || both > tolerated {
				longest, overlapped = max(longest, both), true
			}
		}

		if overlapped && a.open {
			neverTold++
		}
	}

	return longest, neverTold
}

// idle is the longest time in which nobody who ran took the lock for its own, though somebody waited, after the first had it.
func idle(holds []hold, waiting []time.Duration, end time.Duration) (longest time.Duration) {
	var busy []Span
	for _, h := range holds {
		busy = append(busy, h.running...)
	}

	if len(busy) == 0 {
		return 0
	}

	slices.SortFunc(busy, func(a, b Span) int { return cmp.Compare(a.From, b.From) })

	until := busy[0].To

	for _, s := range append(busy, Span{end, end}) {
		if gap := wanted(Span{until, s.From}, holds, waiting); gap > longest {
			longest = gap
		}

		until = max(until, s.To)
	}

	return longest
}

// wanted is for how much of a span, at its end, somebody waited.
func wanted(s Span, holds []hold, waiting []time.Duration) time.Duration {
	since := s.To

	for _, h := range holds {
		if h.from >= s.To {
			since = min(since, h.asked)
		}
	}

	for _, w := range waiting {
		since = min(since, w)
	}

	return s.To - max(s.From, since)
}

// overtaken is by how many later comers one was overtaken at most.
func overtaken(holds []hold, waiting []time.Duration) (most int) {
	count := func(asked time.Duration, before []hold) {
		n := 0

		for _, other := range before {
			if other.asked > asked+overtakes {
				n++
			}
		}

		most = max(most, n)
	}

	for i, h := range holds {
		count(h.asked, holds[:i])
	}

	for _, asked := range waiting {
		count(asked, holds)
	}

	return most
}

// protections says what keeps late writers from a sink.
var protections = map[event.Sink]Protection{
	event.Row: Plain, event.File: Plain, event.CheckedRow: Token, event.CheckedFile: Token, event.GuardedRow: Guard,
}

// writes counts, for each protection that was in use, the writes of a holder that came after one of a later holder.
func writes(processes []Process, holds []hold, end time.Duration) (late, refused map[Protection]int) {
	late, refused = make(map[Protection]int), make(map[Protection]int)

	// The place of a holder in the order of the grants.
	place := make(map[[2]int]int)
	for i, h := range holds {
		place[[2]int{h.process, h.who}] = i
	}

	type write struct {
		place int
		n     int64
	}

	taken := make(map[event.Sink][]write)

	for i, p := range processes {
		for _, e := range p.Events {
			by, granted := place[[2]int{i, e.Who}]
			if !granted || e.At > end {
				continue
			}

			switch e.Kind {
			case event.Wrote:
				taken[e.Sink] = append(taken[e.Sink], write{by, e.N})
				late[protections[e.Sink]] += 0
			case event.Refused:
				late[protections[e.Sink]] += 0

				if by+1 < len(holds) && e.At > holds[by+1].from {
					refused[protections[e.Sink]]++
				}
			default:
			}
		}
	}

	for sink, all := range taken {
		slices.SortFunc(all, func(a, b write) int { return cmp.Compare(a.n, b.n) })

		last := 0

		for _, w := range all {
			if w.place < last {
				late[protections[sink]]++
			}

			last = max(last, w.place)
		}
	}

	return late, refused
}

// Judged is the cell with its kind, and what is broken, by what was counted.
func (c Cell) Judged(lease time.Duration) Cell {
	if c.Kind == None || c.Kind == Failed {
		return c
	}

	c.Kind, c.Why = Good, nil

	broken := func(format string, args ...any) {
		c.Kind = Broken
		c.Why = append(c.Why, fmt.Sprintf(format, args...))
	}

	// Who alone hears everything too late can get no lock at all.
	if c.Idle > stuckAfter(lease) && c.Fault != Slow {
		c.Kind = Stuck
		c.Why = append(c.Why, fmt.Sprintf("nobody had it for %s", seconds(c.Idle)))
	}

	switch {
	case c.NeverTold > 0:
		broken("two at once for %s, until the trial ended", seconds(c.Twice))
	case c.Twice > 0:
		broken("two at once for %s", seconds(c.Twice))
	}

	for _, p := range c.Protections() {
		if n := c.LateWrites[p]; n > 0 {
			broken("%s", lateWrites(n, p))
		}
	}

	switch {
	case c.Lost > 0 && c.Fault == FullPool:
		broken("lost")
	case c.Lost > 0 && c.Fault.forNothing():
		broken("lost though nothing was wrong")
	}

	if c.Served < c.Waited && c.Fault == Crowd {
		broken("%d of %d were never served", c.Waited-c.Served, c.Waited)
	}

	return c
}

func lateWrites(n int, p Protection) string {
	past := map[Protection]string{Plain: "", Token: " past the token", Guard: " past the guard"}[p]
	if n == 1 {
		return "a late write" + past
	}

	return fmt.Sprintf("%d late writes%s", n, past)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// forNothing says whether a lock has no reason to be lost.
func (f Fault) forNothing() bool {
	return f == Nothing || f == Clock || f == Crowd
}
