package model

// run is a statement at the database: in one step, by the database's clock. It
// returns the answer and, if it broke a promise, which.
func (p Protocol) run(s *state, st statement) (ok bool, token int8, broken string) {
	before := s.row

	switch st.kind {
	case acquire:
		return p.acquire(s, st)
	case renew:
		ok = p.renew(s, st)
	case release:
		ok = p.release(s, st)
	case guard:
		return p.guard(s, st), 0, ""
	default:
		return false, 0, ""
	}

	if before != s.row && before.owner != st.owner {
		broken = OwnGrantOnly
	}

	return ok, 0, broken
}

// acquire grants the name if its lease expired, unless a guard pins the row. An
// owner that asks again, because an answer was lost, has its lease renewed and
// keeps its token. The token is no less than the clock, so that it grows even if
// the row was removed.
//
// Mirrors strategies/internal/grants/postgres.sql cas.acquire,
// strategies/internal/grants/acquire.go Store.Acquire,
// strategies/internal/grants/postgres.sql insert.acquire.
func (p Protocol) acquire(s *state, st statement) (ok bool, token int8, broken string) {
	r, again := s.row, s.row.owner == st.owner
	now := s.now

	if p.Fault == ExpiryByClientsClock {
		now = s.clock(st.by)
	}

	if p.Fault != GuardWithoutRowLock && s.pinned() || !p.promised(s, st) {
		return false, 0, ""
	}

	// What it has, its owner is told. But if the lease has expired, another one's may be lost that came after it.
	if p.pausing(s, st) && (!again || r.expires <= now && p.Fault != AskedAgainInPause) {
		return false, 0, ""
	}

	if !again && (r.expires > now || p.Fault == LeaseWithoutEnd && r.owner != 0) {
		return false, 0, ""
	}

	if again && p.Fault != RetryDrawsToken {
		if p.Fault != RetryLeavesLease {
			s.row.expires = max(r.expires, now+st.lease)
		}

		return true, r.token, ""
	}

	// A row that was made has the floor, see grant.ready.
	if token = max(r.token+1, s.floor+1, p.clockToken(s)); p.Fault == TokenWithoutClock {
		token = r.token + 1
	} else if p.Fault == TokenDrawnBefore {
		token = st.token
	}

	s.row = row{owner: st.owner, token: token, expires: now + st.lease}

	return true, token, p.grant(s, st, token)
}

// clockToken is what the clock says of a token. Where it matters it counts in smaller steps: a recovery takes some of a tick.
func (p Protocol) clockToken(s *state) int8 {
	if p.Scope.Recoveries == 0 {
		return s.now
	}

	return perTick*s.now + perTick/2*s.loss.recoveries
}

// grant notes a grant, and checks what is promised of it.
func (p Protocol) grant(s *state, st statement, token int8) (broken string) {
	for i := range s.clients {
		if s.clients[i].handle.owner != st.owner && p.believes(s, int8(i)) {
			return NotTold
		}
	}

	if token <= s.granted {
		return TokensGrow
	}

	s.granted = token

	return ""
}

// renew extends its owner's lease, and never shortens it. It does not ask
// whether the lease expired: as long as the row is the owner's nobody else had
// the name.
//
// Mirrors strategies/internal/grants/postgres.sql grant.renew,
// strategies/internal/grants/grant.go Grant.RenewOn.
func (p Protocol) renew(s *state, st statement) bool {
	if s.row.owner != st.owner && (p.Fault != RenewalWithoutOwner || s.row.owner == 0) || !p.promised(s, st) {
		return false
	}

	if p.pausing(s, st) && s.row.expires <= s.now && p.Fault != RenewedInPause {
		return false
	}

	if until := s.now + st.lease; until > s.row.expires || p.Fault == RenewalShortens {
		s.row.expires = until
	}

	return true
}

// release frees the name if it is its owner's. A guard does not keep it from
// that: it stops the next acquisition.
//
// Mirrors strategies/internal/grants/postgres.sql grant.release,
// strategies/internal/grants/grant.go Grant.ReleaseOn,
// strategies/internal/grants/admin.go Base.Settle.
func (p Protocol) release(s *state, st statement) bool {
	if s.row.owner != st.owner && p.Fault != ReleaseWithoutOwner {
		return false
	}

	s.row.owner, s.row.expires = 0, 0

	return true
}

// guard checks in the client's transaction that its grant is the latest, and
// pins the row until the transaction ends.
//
// Mirrors strategies/internal/grants/postgres.sql grant.guard,
// strategies/internal/grants/guard.go Grant.pin.
func (p Protocol) guard(s *state, st statement) bool {
	latest := s.row.owner == st.owner && s.row.token == st.token

	if !latest && p.Fault != GuardWithoutCheck {
		return false
	}

	s.clients[st.by].tx = st.token

	return true
}

// world lists what happens besides the clients: time, the reaper, and what is on
// its way.
func (p Protocol) world(s state, emit emit) {
	p.tick(s, emit)
	p.reap(s, emit)
	p.recovery(s, emit)

	for i, st := range s.delayed {
		if st == (statement{}) {
			continue
		}

		next := s
		next.delayed[i] = statement{}
		next.sort()
		_, _, broken := p.run(&next, st)
		p.fork(&next, &s, step{-1, "runs late", st.kind}, broken, emit)
	}
}

// tick lets a tick of the database's clock pass. Each client's clock shows one
// tick more, or none, or two: it is behind by no more than the drift at any time.
// The keeper of a client that runs ends the contexts whose time is over, before
// time goes on.
//
// Mirrors sqllock/clock.go instant.since, sqllock/keeper.go keeper.look.
func (p Protocol) tick(s state, emit emit) {
	if s.now == p.Scope.Horizon {
		return
	}

	for i := range s.clients {
		if c := &s.clients[i]; c.runs() && c.phase == held && p.left(&s, int8(i)) <= 0 {
			return
		}
	}

	for slow := range int8(1 << clients) {
		next, same := s, false
		next.now++

		next.pass(next.now)
		next.loss.kept.pass(next.now)

		for i := range next.clients {
			c := &next.clients[i]

			switch {
			case c.paused && p.Fault == MonotonicClockAlone:
				// The monotonic clock stands still while a machine sleeps.
				c.behind++
			case slow>>i&1 == 0:
			case c.behind == drift, c.phase != held && c.phase != wanting:
				same = true
			default:
				c.behind++
			}
		}

		if !same {
			emit(step{-1, "tick", none}, next, "")
		}
	}
}

// pass forgets times that are over: which they were does not matter any more.
func (d *database) pass(now int8) {
	if d.row.expires <= now {
		d.row.expires = 0
	}

	if d.server.paused <= now {
		d.server.paused = 0
	}
}

// reap ends a grant that expired, in two statements, and removes the row of an
// idle name. Both leave alone what a guard pins.
//
// Mirrors strategies/internal/grants/admin.go Base.Reap,
// strategies/internal/grants/postgres.sql grant.expired,
// strategies/internal/grants/postgres.sql grant.end,
// strategies/internal/grants/removal.go Base.ReapIdle,
// strategies/internal/grants/postgres.sql grant.ready.
func (p Protocol) reap(s state, emit emit) {
	if !p.Scope.Reaps {
		return
	}

	expired := s.row.owner != 0 && s.row.expires <= s.now

	switch {
	case s.listed:
		next := s
		next.listed = false

		if (expired || p.Fault == ReaperTrustsItsList) && !s.pinned() {
			next.row.owner, next.row.expires = 0, 0
		}

		emit(step{-1, "reaper ends what it listed", none}, next, "")
	case expired:
		next := s
		next.listed = true
		emit(step{-1, "reaper lists the name", none}, next, "")
	}

	if s.row.owner == 0 && s.row.token != 0 && s.row.expires <= s.now && !s.pinned() {
		next := s
		next.row = row{}

		if p.Fault != RemovalWithoutFloor {
			next.floor = max(s.floor, s.row.token)
		}

		emit(step{-1, "reaper removes the row", none}, next, "")
	}
}

// freed says whether the name can be had a lease after all clients have stopped. A pause ends as soon.
func (p Protocol) freed(s state) bool {
	for i := range s.clients {
		s.clients[i] = client{crashed: true} // the server rolls their transactions back
	}

	if s.server.life != s.life {
		s.note(s.now)
	}

	s.now += longer
	s.granted = 0
	ok, _, _ := p.acquire(&s, statement{kind: acquire, owner: 100, lease: lease, token: s.now})

	return ok
}
