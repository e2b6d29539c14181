package line

// first is the first in line of those whose entries count, and whether there is no other.
//
// Mirrors strategies/internal/grants/mysql.sql queue.first.
func (p Protocol) first(s *state) (w wait, alone bool) {
	n := 0

	for _, e := range s.line {
		if !p.counts(s, e) {
			continue
		}

		if n++; n == 1 || n == 2 && p.Fault == HeadSkipped {
			w = e.wait
		}
	}

	return w, n == 1
}

// counts says whether an entry does.
func (p Protocol) counts(s *state, e entry) bool {
	over := p.Variant == TwoStatements && e.wait == s.row.ended && p.Fault != GrantedWaitCounts

	return e.by != 0 && !over && (e.life > 0 || p.Fault == DeadHeadCounts)
}

// acquire grants the name to a process if it is free, and either nobody is in line or it is the
// process' turn. It returns the promise that was broken.
//
// Mirrors strategies/internal/grants/postgres.sql grant.acquire,
// strategies/internal/grants/mysql.sql grant.acquire.
func (p Protocol) acquire(s *state, i int8) (granted bool, broken string) {
	c, r := &s.processes[i], &s.row
	isTurn := c.line >= turn
	s.unlock(i)

	switch {
	case r.owner != 0 && (!isTurn || p.Fault != TurnIsGrant):
		return false, ""
	case r.number && !isTurn && p.Fault != NewcomerOvertakes:
		return false, ""
	}

	for k := range s.processes {
		if s.processes[k].runs() && s.processes[k].phase == holds {
			broken = OneHolder
		}
	}

	if c.before != 0 && broken == "" {
		broken = FirstComeFirstServed
	}

	r.owner, r.left, s.idle = i+1, lease, 0

	if (c.line == current || c.line == old && p.Fault == ZeroWithoutCompare) && p.mayForget(r) {
		r.number, r.age = false, 0
	}

	switch {
	case c.unnamed && c.placed && p.Fault == UnnamedEnds:
	case c.unnamed && c.placed:
		// The grant does not end the wait. It is as if it was given up.
		c.leaves, c.leaver, c.passes, r.ended = leaves, s.own(i), true, wait{}
		c.gaveUp |= 1 << c.nth
	case p.Variant == TwoStatements && c.placed:
		r.ended = s.own(i)
		c.leaves, c.leaver = leaves, s.own(i)
	case p.Variant == TwoStatements:
		r.ended = wait{}
	default:
		s.remove(s.own(i))
	}

	s.over(i)
	c.phase = holds

	return true, broken
}

// mayForget says whether the zero may be put in place of the number that was seen.
func (p Protocol) mayForget(r *row) bool {
	return p.Fault != NumberForEver && (p.Variant == OneStatement || r.age > forgotten || p.Fault == ForgetsYoung)
}

// over ends the wait of a process in its memory.
//
// Mirrors sqllock/waiters.go waiters.remove.
func (s *state) over(i int8) {
	c := &s.processes[i]
	s.out(i)
	*c = process{
		nth: c.nth, leaves: c.leaves, leaver: c.leaver, passes: c.passes, next: c.next, number: c.number,
		late: c.late, calls: c.calls, gaveUp: c.gaveUp,
	}
}

// giveUp is the same, without the lock. Its turn may still come.
//
// Mirrors sqllock/waiters.go waiters.remove.
func (s *state) giveUp(i int8) {
	c := &s.processes[i]
	c.late = c.late || c.heard != unknown
	c.gaveUp |= 1 << c.nth
	s.over(i)
}

// note makes the entry of a process, in one statement with the number, or without it. Behind others the number stays. It returns
// whether the name is taken, as far as the entry tells: who comes behind others is told of its turn in any case.
//
// Mirrors strategies/internal/grants/postgres.sql queue.enqueue,
// strategies/internal/grants/mysql.sql queue.enqueue.
func (p Protocol) note(s *state, i int8, crowded bool) (taken bool) {
	s.enter(s.own(i))

	if p.Variant == TwoStatements {
		return false // the second tells
	}

	if !crowded {
		s.renumber()
	}

	return crowded || s.row.owner != 0
}

// crowded says whether so many of other processes are in line that one more need not change the number.
//
// Mirrors strategies/internal/grants/postgres.sql queue.enqueue.
func (p Protocol) crowded(s *state, i int8) bool {
	others := 0

	for _, e := range s.line {
		if e.by != i+1 && p.counts(s, e) {
			others++
		}
	}

	return s.row.number && (others >= crowd || p.Fault == CrowdOfOne && others > 0)
}

// raise is the second statement of one that enters the line. It returns whether the name is taken, as
// far as it knows.
//
// Mirrors strategies/internal/grants/mysql.sql queue.wait.
func (p Protocol) raise(s *state) (taken bool) {
	if s.row.number && s.row.age <= raised {
		return false
	}

	s.renumber()

	return s.row.owner != 0
}

// tell notifies whom a statement found first, or all if that was nobody.
//
// Mirrors strategies/internal/grants/postgres.sql grant.release,
// strategies/internal/grants/postgres.sql queue.tell.
func (s *state) tell(to wait, line seen) {
	if to == (wait{}) {
		s.tellAll()

		return
	}

	c := &s.processes[to.by-1]

	switch {
	case c.crashed:
	case c.waitsFor(to.nth):
		// Two that are on their way are one, which says what either does.
		c.heard = max(c.heard, line)
	case c.gaveUp&(1<<to.nth) != 0:
		c.late = true
	}
}

// tellAll notifies all who listen.
func (s *state) tellAll() {
	for i := range s.processes {
		if c := &s.processes[i]; c.stands() {
			c.calls = true
		}
	}
}

// call has the process look that is first in line.
//
// Mirrors strategies/internal/grants/notify.go Base.Call.
func (p Protocol) call(s *state) {
	if w, _ := p.first(s); w.by != 0 && !s.processes[w.by-1].crashed {
		s.processes[w.by-1].calls = true
	}
}

// leave removes the entry of a wait that has ended.
//
// Mirrors strategies/internal/grants/postgres.sql queue.leave,
// strategies/internal/grants/mysql.sql queue.leave.
func (s *state) leave(i int8) {
	c := &s.processes[i]
	s.remove(c.leaver)
	c.leaves, c.leaver = stays, wait{}
}

// look says to a process how it stands in line.
//
// Mirrors strategies/internal/grants/postgres.sql queue.stand,
// strategies/internal/grants/mysql.sql queue.stand, sqllock/line.go waiters.saw,
// sqllock/waiters.go waiters.poll.
func (p Protocol) look(s *state, i int8) {
	c := &s.processes[i]
	ahead, others, next, mine := 0, 0, int8(standEvery), false

	for _, e := range s.line {
		switch {
		case e.wait == s.own(i):
			mine = e.life > 0
			ahead = others
		case p.counts(s, e):
			if others++; ahead == 0 {
				next = min(next, max(e.life, 1))
			}
		}
	}

	if s.row.owner != 0 {
		next = min(next, s.row.left)
	}

	c.wants, c.due = false, next

	switch {
	case !s.row.number:
		c.renotes = true
	case mine && c.missed == 0:
		c.known = true
	}

	if ahead > 0 || s.row.owner != 0 || c.told != unknown {
		return
	}

	// Under a number that is young others may be, who have not changed it.
	young := p.Variant == TwoStatements && s.row.age <= raised && p.Fault != AloneUnderYoung

	if c.told = turn; others == 0 && s.row.number && !young {
		c.told = current
	}
}
