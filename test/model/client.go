package model

// step is one line of a trace.
type step struct {
	who  int8
	what string
	kind kind
}

// emit takes a state that may follow, and the promise that was broken on the way
// to it.
type emit func(step, state, string)

// runs says whether the process goes on: it neither crashed nor is paused.
func (c *client) runs() bool { return !c.crashed && !c.paused }

// left is how long the lock can be trusted by the client's clock: from before the
// statement was sent, and shorter than the lease by what the clocks may differ.
//
// Mirrors sqllock/hold.go hold.leftLocked, sqllock/options.go settings.trust.
func (p Protocol) left(s *state, i int8) int8 {
	if p.Fault == WindowUnwatched {
		return 1
	}

	return s.clients[i].handle.until - s.clock(i)
}

// trust is until when a lease is relied on that was asked for at start.
func (p Protocol) trust(s *state, i int8, c call) int8 {
	switch p.Fault {
	case TrustFromAnswer:
		return s.clock(i) + c.lease - drift
	case NoClockMargin:
		return c.start + c.lease
	default:
		return c.start + c.lease - drift
	}
}

// believes says whether a client that looks at its lock now finds that it has it.
//
// Mirrors sqllock/hold.go hold.err.
func (p Protocol) believes(s *state, i int8) bool {
	return s.clients[i].phase == held && p.left(s, i) > 0
}

// client lists what one client may do.
func (p Protocol) client(s state, i int8, emit emit) {
	c := &s.clients[i]

	// What it sent, it cannot take back: a transaction that passed the guard may
	// be committed while the client is paused, or after it crashed.
	p.transaction(s, i, emit)
	p.serve(s, i, emit)

	if c.crashed {
		return
	}

	p.stopOrGoOn(s, i, emit)

	if c.paused {
		return
	}

	p.answers(s, i, emit)

	if c.phase == held && p.left(&s, i) <= 0 {
		p.expire(s, i, emit)

		return
	}

	p.begin(s, i, emit)
}

// stopOrGoOn is what happens to processes. One that does not hold the lock may
// always be paused: it need not take its next step.
func (p Protocol) stopOrGoOn(s state, i int8, emit emit) {
	next := s
	next.clients[i].paused = !s.clients[i].paused

	if next.clients[i].paused {
		if s.clients[i].phase == held && p.Scope.Pauses {
			emit(step{i, "is paused", none}, next, "")
		}
	} else {
		emit(step{i, "goes on", none}, next, "")
	}

	if s.clients[i].phase == idle || !p.Scope.Crashes {
		return
	}

	next = s
	next.clients[i] = client{crashed: true, tx: s.clients[i].tx, checked: s.clients[i].checked}

	for _, c := range []call{s.clients[i].call, s.clients[i].renewal} {
		if c.kind != none && c.answer == pending {
			next.delay(p, c.statement)
		}
	}

	emit(step{i, "crashes", none}, next, "")
}

// expire tells the client that its window is over.
//
// Mirrors sqllock/keeper.go keeper.run.
func (p Protocol) expire(s state, i int8, emit emit) {
	s.end(p, i, lost)
	emit(step{i, "is told: lost", none}, s, "")
}

// begin is what a client that runs, and waits for no answer, may do next.
func (p Protocol) begin(s state, i int8, emit emit) {
	c := &s.clients[i]

	send := func(what string, next state, st statement) {
		st.by = i

		call := call{statement: st}
		if st.kind == acquire || st.kind == renew {
			call.start = s.clock(i)
		}

		*next.clients[i].at(what == "keeper sends") = call

		emit(step{i, what, st.kind}, next, "")
	}

	if c.phase == held && c.renewal.kind == none && p.left(&s, i) < lease-drift {
		send("keeper sends", s, statement{kind: renew, owner: c.handle.owner, lease: lease})
	}

	if c.call.kind != none {
		return
	}

	switch c.phase {
	case idle:
		if c.owners < p.Scope.Owners[i] {
			next := s
			next.clients[i].phase = wanting
			p.newOwner(&next, i)
			send("sends", next, p.request(&next, i))
		}
	case wanting:
		send("sends again", s, p.request(&s, i))
		p.giveUp(s, i, emit)
	case held:
		h := c.handle

		// Where a database recovers, one is enough: what matters is that its lease is longer than the other's.
		if p.Scope.Extends && (p.Scope.Recoveries == 0 || i == 0) {
			send("extends:", s, statement{kind: renew, owner: h.owner, lease: p.extension()})
		}

		if c.tx == 0 && p.Scope.Guards {
			send("begins a transaction:", s, statement{kind: guard, owner: h.owner, token: h.token})
		}

		// First the work is told to stop, then others may have the lock.
		next := s
		if p.Fault != ReleaseBeforeTelling {
			next.end(p, i, released)
		}

		send("sends", next, statement{kind: release, owner: h.owner})
	case lost:
		next := s
		next.delay(p, statement{kind: release, owner: c.handle.owner, by: i})
		next.leave(p, i)
		emit(step{i, "leaves to the background", release}, next, "")
	case released: // until the release is answered
	}
}

// end moves a handle to its last state. What it knew of its grant matters no more.
//
// Mirrors sqllock/hold.go hold.end.
func (s *state) end(p Protocol, i int8, last phase) {
	c := &s.clients[i]
	c.phase, c.handle, c.behind = last, handle{owner: c.handle.owner}, 0

	if p.Fault != LossTakenBack {
		s.forget(p, &c.renewal)

		if c.call.kind == renew {
			s.forget(p, &c.call)
		}
	}
}

// forget leaves a call to itself.
func (s *state) forget(p Protocol, c *call) {
	if c.kind != none && c.answer == pending {
		s.delay(p, c.statement)
	}

	*c = call{}
}

// leave makes a client that may acquire again.
func (s *state) leave(p Protocol, i int8) {
	c := &s.clients[i]
	s.forget(p, &c.renewal)
	*c = client{owners: c.owners, tx: c.tx, checked: c.checked}
}

// newOwner makes an owner for an acquisition.
//
// Mirrors sqllock/acquisition.go newOwner.
func (p Protocol) newOwner(s *state, i int8) {
	c := &s.clients[i]
	c.handle.owner = 10*i + c.owners + 1
	c.owners++
}

// request is the statement of an attempt.
func (p Protocol) request(s *state, i int8) statement {
	st := statement{kind: acquire, owner: s.clients[i].handle.owner, lease: lease}
	if p.Fault == TokenDrawnBefore {
		st.token = max(s.row.token+1, p.clockToken(s))
	}

	return st
}

// giveUp ends an acquisition. What an attempt may have left is given back.
//
// Mirrors sqllock/acquisition.go acquisition.run, sqllock/locker.go Locker.settleGrant.
func (p Protocol) giveUp(s state, i int8, emit emit) {
	c := &s.clients[i]
	if c.doubt {
		s.delay(p, statement{kind: release, owner: c.handle.owner, by: i})
	}

	s.leave(p, i)
	emit(step{i, "gives up", none}, s, "")
}

// transaction ends a transaction with a guard: its writes are committed, or it is
// rolled back, by the client or because the server saw the client gone.
//
// Mirrors sqllock/lock.go Lock.Guard.
func (p Protocol) transaction(s state, i int8, emit emit) {
	c := &s.clients[i]
	if c.tx == 0 {
		return
	}

	next := s
	next.clients[i].tx, next.clients[i].checked = 0, false

	if c.checked {
		broken := ""
		if c.tx != s.granted {
			broken = NoStaleCommit
		}

		emit(step{i, "commits what the guard allowed", none}, next, broken)
	}

	if c.crashed || c.call.kind != guard {
		emit(step{i, "'s transaction is rolled back", none}, next, "")
	}
}

// serve lets the statements that a client waits for run at the database.
func (p Protocol) serve(s state, i int8, emit emit) {
	for _, renewal := range []bool{false, true} {
		next := s
		c := next.clients[i].at(renewal)

		if c.kind == none || c.answer != pending {
			continue
		}

		ok, token, broken := p.run(&next, c.statement)
		c.answer = refused

		if c.kind == acquire {
			c.token = token
		}

		if ok {
			c.answer = done
		}

		p.fork(&next, &s, step{i, "'s statement runs:", c.kind}, broken, emit)
	}
}

// at is one of the two calls that a client may have under way.
func (c *client) at(renewal bool) *call {
	if renewal {
		return &c.renewal
	}

	return &c.call
}

// answers gives a client that runs the answers of its calls. An answer can be
// lost, and so can the request: the client sees the same. A statement whose
// connection broke, or whose caller did not wait any longer, can run later; where a
// database recovers it does not, because the
// connection ends with the server.
//
// Mirrors sqllock/internal/call/call.go Within.
func (p Protocol) answers(s state, i int8, emit emit) {
	for _, renewal := range []bool{false, true} {
		c := *s.clients[i].at(renewal)
		if c.kind == none {
			continue
		}

		next := s
		*next.clients[i].at(renewal) = call{}

		late := c.answer == pending && s.room(p) && c.kind != guard && p.Scope.Recoveries == 0

		if c.answer != pending {
			p.take(next, i, c, step{i, "gets the answer of", c.kind}, emit)
		}

		if !p.Scope.Losses {
			continue
		}

		c.answer = unknown
		p.take(next, i, c, step{i, "gets no answer of", c.kind}, emit)

		if late {
			next.delay(p, c.statement)
			p.take(next, i, c, step{i, "gets no answer of a late", c.kind}, emit)

			c.answer = abandoned
			p.take(next, i, c, step{i, "abandons a late", c.kind}, emit)
		}
	}
}

// take is what a client does with an answer.
func (p Protocol) take(s state, i int8, c call, why step, emit emit) {
	switch {
	case c.kind == acquire:
		p.acquired(&s, i, c)
	case c.kind == renew:
		wasLost := s.clients[i].phase == lost
		p.renewed(&s, i, c)

		if wasLost && s.clients[i].phase == held {
			emit(why, s, LossIsFinal)

			return
		}
	case c.kind == guard && c.answer == done:
		s.clients[i].checked = true
	case c.kind == guard:
		s.clients[i].tx = 0

		if c.answer == refused && s.clients[i].phase == held {
			s.end(p, i, lost)
		}
	case c.kind == release && c.answer == unknown:
		// It is repeated.
		s.clients[i].call = call{statement: c.statement, start: c.start}
	case c.kind == release:
		// An attempt without an answer may arrive only now.
		if own := &s.clients[i]; own.doubt {
			s.delay(p, statement{kind: release, owner: own.handle.owner, by: i})
		}

		s.leave(p, i)
	}

	emit(why, s, p.told(&s))
}

// acquired is the end of an attempt. After one without an answer the same owner
// asks again; after one that goes on somewhere another owner does. The doubt lasts
// until the release of what the same owner was granted.
//
// Mirrors sqllock/acquisition.go acquisition.attempt,
// sqllock/answer.go acquisition.handleError,
// sqllock/acquisition.go acquisition.granted.
func (p Protocol) acquired(s *state, i int8, c call) {
	own := &s.clients[i]
	late := s.clock(i)-c.start >= c.lease-drift

	switch {
	case c.answer == done && late && p.Fault != TrustFromAnswer, c.answer == abandoned:
		s.delay(p, statement{kind: release, owner: c.owner, by: i})
		s.leave(p, i)
	case c.answer == done:
		own.phase = held
		own.handle = handle{owner: c.owner, token: c.token, until: p.trust(s, i, c)}
	case c.answer == unknown:
		own.doubt = true
	}
}

// renewed is the end of a try to renew. Only one that the database confirmed
// moves the window, from when it was begun. What is lost stays lost.
//
// Mirrors sqllock/keeper.go keeper.renew, sqllock/keeper.go hold.renewed,
// sqllock/hold.go hold.confirm, sqllock/hold.go hold.end, sqllock/lock.go Lock.Extend.
func (p Protocol) renewed(s *state, i int8, c call) {
	own := &s.clients[i]

	switch {
	case own.phase == lost && c.answer == done && p.Fault == LossTakenBack:
		own.phase = held
	case own.phase != held:
	case p.left(s, i) <= 0 && p.Fault != LateConfirmation:
		s.end(p, i, lost)
	case c.answer == refused:
		s.end(p, i, lost)
	case c.answer == done, c.answer == unknown && p.Fault == UnknownIsRenewed:
		own.handle.until = max(own.handle.until, p.trust(s, i, c))
	}
}

// told checks what clients know: that there are not two who believe to have the
// lock, and that a holder has the token of its grant.
func (p Protocol) told(s *state) (broken string) {
	if p.believes(s, 0) && p.believes(s, 1) {
		return OneAtATime
	}

	for i := range s.clients {
		h := s.clients[i].handle
		if p.believes(s, int8(i)) && s.row.owner == h.owner && s.row.token != h.token && s.row.expires > s.now {
			return TokenKept
		}
	}

	return ""
}
