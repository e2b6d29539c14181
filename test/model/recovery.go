package model

// server is a row about the server, beside those of the names.
type server struct {
	life   int8 // whose row it is
	paused int8 // until when nothing is granted
	raise  int8 // what the longest lease was raised to; 0: it is that of all acquisitions
}

// longest is the longest lease that may be trusted.
func (d *database) longest() int8 { return max(lease, d.server.raise) }

// note writes whose the row is now, and how long nothing is granted.
//
// Mirrors strategies/internal/grants/postgres.sql recovery.note,
// strategies/internal/grants/recovery.go Store.noteServer.
func (d *database) note(now int8) { d.server.life, d.server.paused = d.life, now+d.longest() }

// loss is what a database may lose.
type loss struct {
	recoveries int8     // how many there were
	behind     bool     // from here on, commits may be lost
	kept       database // what a recovery goes back to, if it is behind
}

// pausing says whether the server may have lost grants that are trusted: it is not the one whose row it is, or its pause
// goes on.
//
// Mirrors strategies/internal/grants/postgres.sql recovery.state,
// strategies/internal/grants/recovery.go Store.recovering.
func (p Protocol) pausing(s *state, st statement) bool {
	now := s.now
	if p.Fault == PauseByClientsClock {
		now = s.clock(st.by)
	}

	switch {
	case p.Fault == NoPause:
		return false
	case p.Fault == PauseOnce && s.server.life > 0:
		return s.server.paused > now
	default:
		return s.server.life != s.life || s.server.paused > now
	}
}

// promised says whether a lease is no longer than what a pause waits for. It is part of the statement that grants or
// renews: whoever finds that it is longer raises that first.
//
// Mirrors strategies/internal/grants/recovery.go Store.promise.
func (p Protocol) promised(s *state, st statement) bool {
	return st.lease <= s.longest() || p.Scope.Recoveries == 0 || p.Fault == RaisedAfterGrant
}

// recovery lists what happens to a database that goes on without its last commits, and what the protocol does about it.
// It is all the same whether a standby that lags was promoted, or the server crashed and came back without the grants
// that did not wait for its disk.
func (p Protocol) recovery(s state, emit emit) {
	if p.Scope.Recoveries == 0 {
		return
	}

	p.lose(s, emit)
	p.takeNote(s, emit)
	p.raise(s, emit)
}

// fork lists what may be after a change of the database: that it is kept, and that it may be lost, with all changes that follow.
func (p Protocol) fork(s, before *state, why step, broken string, emit emit) {
	emit(why, *s, broken)

	if s.database != before.database && s.loss.recoveries < p.Scope.Recoveries && !s.loss.behind {
		next := *s
		next.loss.behind, next.loss.kept = true, before.database
		why.what += " (may be lost from here on)"
		emit(why, next, broken)
	}
}

// lose has the database go on without what may be lost.
func (p Protocol) lose(s state, emit emit) {
	if s.loss.recoveries == p.Scope.Recoveries {
		return
	}

	next := s
	next.loss.recoveries++
	next.listed = false

	if s.loss.behind {
		next.database = s.loss.kept
	}

	next.life = next.loss.recoveries
	why := step{-1, "the database goes on without it", none}

	if s.loss.behind && next.loss.recoveries < p.Scope.Recoveries {
		// Another standby may be as far behind.
		emit(why, next, "")
	}

	next.loss.behind, next.loss.kept = false, database{}
	emit(why, next, "")
}

// takeNote writes whose the row is now, and how long nothing is granted, in one statement. Whoever finds another server
// than before does so.
func (p Protocol) takeNote(s state, emit emit) {
	wanted := s.asks(func(st statement) bool { return st.kind == acquire })

	if !wanted || s.server.life == s.life || p.Fault == PauseOnce && s.server.life > 0 {
		return
	}

	next := s
	next.note(s.now)

	if p.Fault == PauseOfOneLease {
		next.server.paused = s.now + lease
	}

	p.fork(&next, &s, step{-1, "the pause begins", none}, "", emit)
}

// raise has the longest lease be longer, as somebody wants it. A raise is not lost: it waits for the disk, and for the
// standby. A lease that is longer is granted after that.
func (p Protocol) raise(s state, emit emit) {
	next := s
	next.server.raise = raised
	why := step{-1, "the longest lease is raised", none}

	switch {
	case p.Fault == LoweredEarly && s.server.raise > 0:
		next.server.raise = 0
		why.what = "the longest lease is lowered"
		emit(why, next, "")
	case p.Fault == RaisedAfterGrant:
		if s.row.expires == s.now+raised && s.server.raise == 0 {
			p.fork(&next, &s, why, "", emit)
		}
	case !s.asks(func(st statement) bool { return st.lease > s.longest() }):
	case p.Fault == RaiseMayBeLost:
		p.fork(&next, &s, why, "", emit)
	case !s.loss.behind:
		emit(why, next, "")
	}
}

// asks says whether somebody waits for a statement that has not run.
func (s *state) asks(is func(statement) bool) bool {
	for i := range s.clients {
		for _, c := range []call{s.clients[i].call, s.clients[i].renewal} {
			if c.kind != none && c.answer == pending && is(c.statement) {
				return true
			}
		}
	}

	return false
}

// extension is what Extend asks for.
func (p Protocol) extension() int8 {
	if p.Scope.Recoveries > 0 {
		return raised
	}

	return longer
}
