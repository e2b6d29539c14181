package model

import "fmt"

const (
	clients = 2 // processes that want the name
	lease   = 3 // ticks, of an acquisition and of a renewal
	longer  = 5 // ticks, what Extend asks for
	raised  = 4 // ticks, what Extend asks for where a database recovers
	perTick = 8 // tokens: no more are granted in a tick
	drift   = 1 // ticks that a client's clock may lose in a lease, so trust is shorter by that
	delayed = 2 // room for statements whose answer nobody waits for
)

// state is everything there is, at one moment. All of it is compared.
type state struct {
	now int8 // the database's clock
	database
	clients [clients]client
	delayed [delayed]statement // in order, so that equal sets are equal
	listed  bool               // by the reaper, as expired
	granted int8               // the largest token that was ever granted; nobody in the protocol sees it
	loss    loss
}

// database is what a server has committed.
type database struct {
	row    row
	floor  int8 // the token of the row that was removed
	life   int8 // what tells the server from those before it; 0 is the first
	server server
}

// row is the name's row in the database. It is all that the clients share.
type row struct{ owner, token, expires int8 }

// client is one process with its handle of the lock.
type client struct {
	behind  int8 // by how much its clock is behind the database's
	paused  bool
	crashed bool
	owners  int8 // how many it has made
	phase   phase
	doubt   bool // an attempt's outcome is unknown
	handle  handle
	call    call // of the caller: acquire, extend, guard, release
	renewal call // of the keeper
	tx      int8 // token under which its transaction passed the guard; 0: no transaction is open
	checked bool // the client knows that the guard passed, and may commit
}

// handle is what a process knows of its grant.
type handle struct{ owner, token, until int8 }

// phase is where a handle is in its life.
type phase int8

const (
	idle     phase = iota
	wanting        // acquiring
	held           // the context has not ended
	lost           // the context has ended with a *LostError
	released       // the context has ended with ErrReleased
)

// statement is what goes to the database.
type statement struct {
	kind                kind
	owner, token, lease int8
	by                  int8 // client
}

type kind int8

const (
	none kind = iota
	acquire
	renew
	release
	guard
)

func (k kind) String() string { return [...]string{"", "acquire", "renew", "release", "guard"}[k] }

// call is a statement that somebody waits for.
type call struct {
	statement
	start  int8 // by the client's clock, before it was sent
	answer answer
}

type answer int8

const (
	pending answer = iota // the statement did not run yet
	done
	refused
	unknown   // no answer, or an error that does not tell whether it ran
	abandoned // the client did not wait for it
)

// clock is what a client's clock shows. Clocks of different machines show
// different times; the protocol only takes differences.
func (s *state) clock(i int8) int8 { return s.now - s.clients[i].behind + 2*i }

// pinned says whether a transaction with a guard has the row locked.
func (s *state) pinned() bool { return s.clients[0].tx != 0 || s.clients[1].tx != 0 }

// delay leaves a statement on its way, without anybody who waits for it. It is
// lost if there is no room.
func (s *state) delay(p Protocol, st statement) {
	if st.kind != acquire {
		st.by = 0
	}

	if s.room(p) {
		s.delayed[delayed-1] = st
		s.sort()
	}
}

func (s *state) room(p Protocol) bool { return s.delayed[p.Scope.Delayed-1] == (statement{}) }

// sort brings the delayed statements into an order.
func (s *state) sort() {
	a, b := s.delayed[0], s.delayed[1]
	if a == (statement{}) || b != (statement{}) && b.less(a) {
		s.delayed = [delayed]statement{b, a}
	}
}

func (st statement) less(o statement) bool {
	if st.kind != o.kind {
		return st.kind < o.kind
	}

	if st.owner != o.owner {
		return st.owner < o.owner
	}

	return st.lease < o.lease
}

// String is a line of a trace: the time, the row, and who believes to hold it.
func (s *state) String() string {
	text := fmt.Sprintf("now %d, row: ", s.now)

	switch {
	case s.row.owner == 0:
		text += fmt.Sprintf("free, token %d", s.row.token)
	case s.row.expires <= s.now:
		text += fmt.Sprintf("owner %d, token %d, expired", s.row.owner, s.row.token)
	default:
		text += fmt.Sprintf("owner %d, token %d, until %d", s.row.owner, s.row.token, s.row.expires)
	}

	switch {
	case s.server.life != s.life:
		text += ", another server"
	case s.server.paused > s.now:
		text += fmt.Sprintf(", pause until %d", s.server.paused)
	}

	for i, c := range s.clients {
		if c.phase == held {
			text += fmt.Sprintf("; %s: owner %d, token %d, at %d until %d", who(int8(i)), c.handle.owner, c.handle.token,
				s.clock(int8(i)), c.handle.until)
		}
	}

	return text
}

// who names a client, or the reaper and the rest of the world.
func who(i int8) string {
	if i < 0 {
		return "-"
	}

	return string(rune('A' + i))
}
