package line

// emit takes a step, a state that may follow, and the promise that was broken on the way to it.
type emit func(step, state, string)

// step is one line of a trace.
type step struct {
	who  int8
	what string
}

// process lists what one process may do.
func (p Protocol) process(s state, i int8, emit emit) {
	c := &s.processes[i]
	if c.crashed {
		return
	}

	p.stopOrGoOn(s, i, emit)

	if c.stopped {
		return
	}

	p.acquisition(s, i, emit)
	p.goroutine(s, i, emit)

	if p.Variant == OneStatement {
		p.listens(s, i, emit)
	} else {
		p.sleeps(s, i, emit)
	}
}

// stopOrGoOn is what happens to processes. A holder that stands still is in the model of the
// lease.
func (p Protocol) stopOrGoOn(s state, i int8, emit emit) {
	c := &s.processes[i]

	if c.stopped {
		next := s
		next.processes[i].stopped = false
		emit(step{i, "goes on"}, next, "")

		return
	}

	if c.phase == idle || s.faults == p.Scope.Faults {
		return
	}

	next := s
	next.faults++
	next.out(i)
	next.processes[i] = process{nth: c.nth, crashed: true}
	emit(step{i, "crashes"}, next, "")

	if c.phase < holds && p.Scope.Stops {
		next := s
		next.faults++
		next.processes[i].stopped = true
		emit(step{i, "stands still"}, next, "")
	}
}

// acquisition is what the goroutine does that wants the lock.
//
// Mirrors sqllock/acquisition.go acquisition.run, sqllock/acquisition.go acquisition.retry,
// sqllock/line.go acquisition.pause, sqllock/waiters.go waiters.enter.
func (p Protocol) acquisition(s state, i int8, emit emit) {
	next := s
	c := &next.processes[i]

	switch c.phase {
	case idle:
		if c.nth == p.Scope.Acquisitions[i] {
			return
		}

		c.nth++
		c.phase, c.before = comes, 0

		for k := range s.processes {
			if s.processes[k].known {
				c.before |= 1 << k
			}
		}

		emit(step{i, "comes"}, next, "")
	case comes, asks:
		p.givesUp(s, i, emit)
		p.attempt(s, i, emit)
	case checks:
		p.check(s, i, emit)
	case enters:
		p.enters(s, i, emit)
	case begins:
		c.phase, c.certain = entered, p.note(&next, i, c.behind)
		c.behind = false
		emit(step{i, "enters the line"}, next, "")
	case counts:
		p.givesUp(s, i, emit)

		if p.Fault == EntryAfterNumber {
			next.enter(next.own(i))
		} else {
			c.certain = p.raise(&next)
		}

		c.phase = entered

		emit(step{i, "runs the second statement"}, next, "")

		if p.Fault != EntryAfterNumber {
			p.misses(s, i, emit)
		}
	case entered:
		p.givesUp(s, i, emit)

		c.phase, c.due = waits, standEvery
		c.wants = c.wants || !c.certain && p.Fault != SleepsUnseen
		c.known = c.known || p.Variant == OneStatement && next.alive(next.own(i))
		emit(step{i, "is in line"}, next, "")
	case waits:
		p.waits(s, i, emit)
	case holds, releases, tells:
		p.release(s, i, emit)
	}
}

// misses is the second statement of one that enters the line, beside an attempt that has the row of the name locked. It does
// not wait for that.
func (p Protocol) misses(s state, i int8, emit emit) {
	if !p.Scope.Locks {
		return
	}

	for k := range int8(processes) {
		if k != i && s.processes[k].attempts() {
			next := s
			c := &next.processes[i]

			c.certain, c.phase = false, entered
			if !p.Scope.Strict {
				c.missed = k + 1
			}

			emit(step{i, "finds the row locked by " + who(k)}, next, "")
		}
	}
}

// attempts says whether a process may have the row of the name locked, by its attempt.
func (c *process) attempts() bool { return c.runs() && (c.phase == asks || c.phase == comes) }

// attempt asks for the lock, once.
//
// Mirrors sqllock/acquisition.go acquisition.attempt, strategies/internal/grants/state.go State.Waits.
func (p Protocol) attempt(s state, i int8, emit emit) {
	if p.Variant == TwoStatements && s.processes[i].leaves != stays {
		return // a bound: of a process one wait leaves at a time
	}

	next := s
	c := &next.processes[i]
	isTurn := c.line >= turn

	granted, broken := p.acquire(&next, i)
	if granted {
		emit(step{i, "is granted the lock"}, next, broken)

		return
	}

	free := s.row.owner == 0
	c.line, c.slow = unknown, 0

	switch {
	case free && !isTurn:
		// It is free, and kept for those who wait.
		c.phase, c.line = checks, current
	case c.placed && c.certain:
		c.phase = waits
	default:
		c.phase = enters
	}

	emit(step{i, "is refused"}, next, "")

	if !isTurn && p.Scope.GivesUp && c.phase == enters && !c.placed {
		p.ends(next, i, "is refused, and only tried", emit)
	}
}

// check looks whether a name is kept for nobody.
//
// Mirrors sqllock/line.go acquisition.checkQueue.
func (p Protocol) check(s state, i int8, emit emit) {
	c := &s.processes[i]
	c.phase = asks

	for _, e := range s.line {
		if e.by != 0 && e.life > 0 && e.wait != s.own(i) {
			c.phase, c.line = enters, unknown

			break
		}
	}

	emit(step{i, "looks who waits"}, s, "")

	if p.Scope.GivesUp && c.phase == enters && !c.placed {
		p.ends(s, i, "looks who waits, and only tried", emit)
	}
}

// enters makes the entry. Its turn may come before the answer.
func (p Protocol) enters(s state, i int8, emit emit) {
	c := &s.processes[i]
	c.placed = true

	if p.Scope.Unanswered {
		p.unanswered(s, i, emit)
	}

	c.unsure, c.unnamed = false, false

	switch {
	case p.Variant == OneStatement && p.Scope.Entries:
		c.phase, c.behind = begins, p.crowded(&s, i)
		emit(step{i, "begins to enter the line"}, s, "")

		return
	case p.Variant == OneStatement:
		c.phase, c.certain = entered, p.note(&s, i, p.crowded(&s, i))
	case p.Fault == EntryAfterNumber:
		c.phase, c.certain = counts, p.raise(&s)
	default:
		p.note(&s, i, false)
		c.phase = counts
	}

	emit(step{i, "enters the line"}, s, "")
}

// unanswered is an entry that gets no answer, made or not. The goroutine makes it anew, and meanwhile the
// process asks as one who has just come.
//
// Mirrors sqllock/waiters.go waiters.enter, sqllock/line.go acquisition.turnIn.
func (p Protocol) unanswered(s state, i int8, emit emit) {
	c := &s.processes[i]
	c.phase, c.certain, c.unsure, c.renotes = waits, false, true, true
	emit(step{i, "cannot enter the line"}, s, "")

	p.note(&s, i, p.crowded(&s, i))
	emit(step{i, "enters the line, with no answer"}, s, "")
}

// waits is what one may do who is in line.
//
// Mirrors sqllock/line.go acquisition.awaitLine, sqllock/line.go acquisition.leaveLine.
func (p Protocol) waits(s state, i int8, emit emit) {
	if c := s.processes[i]; c.told != unknown {
		next := s
		d := &next.processes[i]
		d.phase, d.line, d.told, d.unsure = asks, c.told, unknown, false
		emit(step{i, "takes its turn"}, next, "")
	} else if c.unsure {
		next := s
		d := &next.processes[i]
		d.phase, d.unsure, d.unnamed = comes, false, true
		emit(step{i, "asks without a turn"}, next, "")
	}

	p.givesUp(s, i, emit)
}

// givesUp is the end of a wait without the lock, or of one that hands its place on to another of its
// process.
//
// Mirrors sqllock/acquisition.go acquisition.giveUp, sqllock/line.go acquisition.leaveLine.
func (p Protocol) givesUp(s state, i int8, emit emit) {
	c := &s.processes[i]
	if !p.Scope.GivesUp || !c.placed {
		return
	}

	if p.Scope.Heirs && c.certain && (c.phase == waits || c.phase == asks) {
		next := s
		next.inherit(i)
		emit(step{i, "hands its place on"}, next, "")
	}

	if c.leaves != stays {
		return // a bound: of a process one wait leaves at a time
	}

	next := s
	d := &next.processes[i]
	d.leaves, d.leaver = leaves, s.own(i)
	d.passes = p.Fault != LeavesSilently && (p.Fault != PassesOnlyKnown || c.told != unknown)
	next.idle = 0

	p.ends(next, i, "gives up", emit)
}

// inherit has another goroutine of the process stand where this one did. It gets a turn that
// this one has not taken.
//
// Mirrors sqllock/waiters.go waiters.inherit.
func (s *state) inherit(i int8) {
	c := &s.processes[i]
	c.phase, c.line, c.slow, s.idle = waits, unknown, 0, 0
}

// ends is an acquisition that ends without the lock.
func (p Protocol) ends(s state, i int8, what string, emit emit) {
	s.giveUp(i)
	emit(step{i, what}, s, "")
}

// release ends what a process holds. With OneStatement it sees the line as it was when the
// statement began, and tells of it when that ends. Otherwise a call follows.
//
// Mirrors sqllock/hold.go hold.end, strategies/internal/grants/postgres.sql grant.release,
// strategies/internal/grants/mysql.sql grant.release, sqllock/listener.go listener.call.
func (p Protocol) release(s state, i int8, emit emit) {
	c := &s.processes[i]

	switch {
	case p.Scope.Prompt && c.leaver == s.own(i):
		return
	case c.phase == holds && p.Variant == OneStatement:
		to, alone := p.first(&s)
		if c.to, c.line = to, turn; alone {
			c.line = current
		}

		c.phase = releases

		if p.Scope.Overlaps {
			emit(step{i, "begins its release"}, s, "")

			return
		}

		fallthrough
	case c.phase == releases:
		to, line := c.to, c.line
		s.row.owner, s.row.left = 0, 0

		if s.row.number {
			s.tell(to, line)
		}

		c.phase, c.to, c.line = idle, wait{}, unknown
		emit(step{i, "releases"}, s, "")
	case c.phase == holds:
		s.row.owner, s.row.left = 0, 0

		if c.phase = idle; s.row.number {
			c.phase = tells
		}

		emit(step{i, "releases"}, s, "")
	default:
		p.call(&s)
		c.phase = idle
		emit(step{i, "calls the first in line"}, s, "")
	}
}

// goroutine is what a process does in the background.
//
// Mirrors sqllock/waiters.go waiters.run, sqllock/waiters.go waiters.dequeue,
// sqllock/waiters.go waiters.dequeue, sqllock/waiters.go waiters.untold.
func (p Protocol) goroutine(s state, i int8, emit emit) {
	c := &s.processes[i]

	switch {
	case c.leaves == leaves:
		next := s
		next.leave(i)
		emit(step{i, "leaves the line"}, next, "")
	case c.leaves == stays && c.passes:
		p.passOn(s, i, emit)
	case c.leaves == tellsNow:
		next := s
		next.hasTold(i)
		emit(step{i, "tells the first in line"}, next, "")
	}

	if c.phase != waits && c.phase != asks {
		return
	}

	// Not while it asks: it may be granted the lock, which takes it out of the line.
	if c.renotes && c.phase == waits {
		next := s
		next.processes[i].renotes = false

		taken := p.note(&next, i, p.crowded(&next, i))
		if p.Variant == TwoStatements {
			taken = p.raise(&next)
		}

		next.processes[i].wants = c.wants || !taken && p.Fault != NoteUnheard

		emit(step{i, "notes anew that it waits"}, next, "")
	}

	if p.mayLook(c) {
		next := s
		p.look(&next, i)
		emit(step{i, "looks"}, next, "")
	}
}

// mayLook says whether a process looks. Without polls it does so after what had the row locked that its second
// statement did not wait for.
func (p Protocol) mayLook(c *process) bool {
	if p.Scope.Polls {
		return c.wants || c.phase == waits
	}

	return c.wants && c.missed == 0
}

// passOn tells the first in line, with a statement that sees what was done before: that it is its turn, or to
// look.
//
// Mirrors sqllock/waiters.go waiters.dequeue, strategies/internal/grants/notify.go Base.Call.
func (p Protocol) passOn(s state, i int8, emit emit) {
	c := &s.processes[i]
	c.passes = false

	switch {
	case p.Variant == TwoStatements:
		p.call(&s)
		emit(step{i, "calls the first in line"}, s, "")

		return
	case s.row.owner != 0 || !s.row.number:
		emit(step{i, "has nobody to tell"}, s, "")

		return
	}

	to, alone := p.first(&s)
	if c.leaves, c.next, c.number = tellsNow, to, turn; alone {
		c.number = current
	}

	if p.Scope.Overlaps {
		emit(step{i, "sees the first in line"}, s, "")

		return
	}

	s.hasTold(i)
	emit(step{i, "tells the first in line"}, s, "")
}

// hasTold is what the statement of passOn does when it ends. It sees the name as when it began.
//
// Mirrors strategies/internal/grants/postgres.sql queue.tell.
func (s *state) hasTold(i int8) {
	c := &s.processes[i]
	to, line := c.next, c.number
	c.leaves, c.next, c.number = stays, wait{}, unknown
	s.tell(to, line)
}

// listens hears notifications, in any order. It passes on a turn for a wait that was given up.
//
// Mirrors sqllock/listener.go listener.listen, sqllock/waiters.go waiters.turn, sqllock/listener.go listener.set.
func (p Protocol) listens(s state, i int8, emit emit) {
	c := &s.processes[i]
	deaf := p.Fault == DeafUntilAnswer && c.phase == entered

	if c.heard != unknown {
		next := s
		d := &next.processes[i]
		d.heard = unknown

		if c.stands() && c.told == unknown && !deaf {
			d.told = c.heard
		}

		emit(step{i, "hears that it is its turn"}, next, "")
	}

	if c.late {
		next := s
		d := &next.processes[i]
		d.late = false

		switch {
		case p.Fault == TurnForAnyWait && c.stands() && c.told == unknown:
			d.told = turn
		case p.Fault == TurnForAnyWait || p.Fault == LateTurnDropped:
		default:
			d.passes = true
		}

		emit(step{i, "hears of a turn it gave up"}, next, "")
	}

	if c.calls {
		next := s
		d := &next.processes[i]
		d.calls = false
		d.wants = d.wants || c.stands() && !deaf
		emit(step{i, "hears that it is to look"}, next, "")
	}
}

// sleeps is the session that is called by KILL QUERY. A call between two naps ends none, so
// that it is looked once more when a nap has begun.
//
// Mirrors databases/mysql/listen.go DB.Listen, databases/mysql/listen.go sleeper.sleep,
// databases/mysql/listen.go sleeper.woke, strategies/internal/grants/mysql.sql queue.call.
func (p Protocol) sleeps(s state, i int8, emit emit) {
	c := &s.processes[i]

	if c.calls {
		next := s
		d := &next.processes[i]
		d.calls = false
		broken := ""

		switch {
		case !c.stands():
			if p.Fault == CallsByID {
				broken = SleepersOnly
			}
		case c.sleeper != awake || !p.naps():
			d.wants, d.sleeper = true, awake
		}

		emit(step{i, "is called"}, next, broken)

		if p.Scope.Polls && c.stands() {
			next.processes[i].wants = c.wants
			emit(step{i, "does not hear a call"}, next, "")
		}
	}

	if !p.naps() || !c.stands() {
		return
	}

	next := s
	d := &next.processes[i]

	switch c.sleeper {
	case awake:
		if d.sleeper = dozes; p.Fault == NapWithoutLook {
			d.sleeper = asleep
		}

		emit(step{i, "begins a nap"}, next, "")
	case dozes:
		d.sleeper, d.wants = asleep, true
		emit(step{i, "looks what it missed"}, next, "")
	case asleep:
		d.sleeper = awake
		emit(step{i, "ends a nap"}, next, "")
	}
}
