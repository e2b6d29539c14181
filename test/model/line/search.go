package line

import (
	"fmt"

	"github.com/sqllock/sqllock/test/model/internal/walk"
)

// The promises that the search checks.
const (
	OneHolder            = "two processes hold the lock"
	FirstComeFirstServed = "the name was granted to one who came when another was in line, who still waits"
	NobodyIsForgotten    = "one is in line, and newcomers are not told of a line"
	WakeUp               = "the name is free, one waits for it, and nobody is going to tell it"
	FreeForLong          = "the name is free, and one who waits does not get it"
	NumberGoesBack       = "nobody waits, and acquisitions still pay for a line"
	SleepersOnly         = "a call reached somebody who is not asleep"
	NoDeadlock           = "nothing can happen any more"
)

// Result is what a search found.
type Result = walk.Result

// Search visits every state that the protocol can reach, the nearest first, until one
// breaks a promise.
func (p Protocol) Search() Result {
	return walk.Model[state, step]{
		Each:  func(s state, emit func(step, state, string)) { p.each(s, emit) },
		Check: p.promise,
		Line:  func(st step, s state) string { return fmt.Sprintf("%-2s %-32s %s", who(st.who), st.what, &s) },
	}.Search(state{})
}

// each lists all steps from a state.
func (p Protocol) each(s state, emit emit) {
	p.tick(s, emit)

	for i := range int8(processes) {
		p.process(s, i, emit)
	}
}

// urgent says whether a process that runs has something to do at once.
func (p Protocol) urgent(s *state, i int8) bool {
	c := &s.processes[i]
	if !c.runs() {
		return false
	}

	switch c.phase {
	case idle, holds:
	case asks:
		if c.slow >= p.Scope.Slow {
			return true
		}
	case waits:
		if c.told != unknown || c.unsure || p.Scope.Polls && c.due == 0 {
			return true
		}
	default:
		return true
	}

	return c.wants || c.renotes || c.leaves != stays || c.passes || c.late || c.heard != unknown || c.calls ||
		p.naps() && c.stands() && c.sleeper != asleep
}

// tick lets a second pass. A process that runs has done what was to be done at once, and says that it
// waits.
//
// Mirrors sqllock/waiters.go waiters.keep, strategies/internal/grants/postgres.sql queue.keep,
// strategies/internal/grants/mysql.sql queue.keep.
func (p Protocol) tick(s state, emit emit) {
	waiting, slow := false, false

	for i := range s.processes {
		c := &s.processes[i]

		if p.urgent(&s, int8(i)) || c.missed != 0 && s.processes[c.missed-1].attempts() || c.slow == p.Scope.Slow && (c.phase == asks || c.told == current) {
			return
		}

		waiting = waiting || c.inLine() && c.phase == waits

		if c.phase == asks || c.told != unknown {
			c.slow++
			slow = true
		}

		if c.due > 0 && c.phase == waits {
			c.due--
		}
	}

	switch {
	case s.row.owner != 0 || !waiting || slow:
		s.idle = 0
	case s.idle <= patience:
		s.idle++
	}

	s.age()
	emit(step{-1, "a second passes"}, s, "")
}

// age has everything be a tick older.
func (s *state) age() {
	if s.row.number {
		s.row.age = min(s.row.age+1, forgotten+1)
	}

	if s.row.owner != 0 && !s.processes[s.row.owner-1].runs() {
		if s.row.left--; s.row.left == 0 {
			s.row.owner = 0
		}
	}

	for k := range s.line {
		e := &s.line[k]

		switch {
		case e.by == 0:
		case s.processes[e.by-1].runs():
			e.life = believed
		case e.life > 0:
			if e.life--; e.life == 0 {
				s.out(e.by - 1)
			}
		}
	}
}

// patience is how long a name may be free while somebody waits, after one process has died or stood
// still: until its entry does not count, and that was looked.
const patience = believed + standEvery

// promise returns the promise that is broken in a state.
func (p Protocol) promise(s state, steps int) string {
	waiting, urgent, busy := false, false, false

	for i := range s.processes {
		c := &s.processes[i]
		waiting = waiting || c.inLine() && c.phase == waits
		urgent = urgent || p.urgent(&s, int8(i))
		busy = busy || c.phase != idle && c.runs()

		if c.runs() && c.known && !s.row.number {
			return NobodyIsForgotten
		}
	}

	switch {
	case waiting && s.row.owner == 0 && !urgent && !p.Scope.Polls:
		return WakeUp
	case s.idle > patience:
		return FreeForLong
	case steps == 0 && busy:
		return NoDeadlock
	case !p.settles(s):
		return NumberGoesBack
	default:
		return ""
	}
}

// settles says whether after all processes have ended, and a while, an acquisition and another are
// granted, and find no line any more.
func (p Protocol) settles(s state) bool {
	for i := range s.processes {
		s.processes[i] = process{crashed: true}
	}

	s.line = [2 * processes]entry{}
	s.row.owner, s.row.left, s.row.age = 0, 0, forgotten+1
	s.processes[0] = process{phase: comes}

	if granted, _ := p.acquire(&s, 0); granted {
		return true
	}

	s.processes[0].phase, s.processes[0].line = asks, current
	granted, _ := p.acquire(&s, 0)

	return granted && !s.row.number
}
