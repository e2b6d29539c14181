// Package shared is a model of shared locks: of the row of one name, the rows of its readers, and the statements of
// readers and writers, which are those of package grants. It is searched for states in which a writer and somebody else
// both believe that they hold the name, and for others that the order of the statements has to prevent.
//
// What is left out is in package line, which has the line of those who wait, and in package model, which has clocks that
// differ.
package shared

import (
	"fmt"

	"github.com/sqllock/sqllock/test/model/internal/walk"
)

// Fault is a mistake in the protocol, for the search to find.
type Fault int

// The faults. None is the protocol of the library.
const (
	None Fault = iota
	// JoinBeforeEnter: who comes changes the name's row first, and makes its own then.
	JoinBeforeEnter
	// EndUncompared: who leaves ends the phase whether or not the number of joins is as it was.
	EndUncompared
	// EndInOneStatement: one statement looks for readers and frees the row. It sees the readers as they were when it began.
	EndInOneStatement
	// WriterLooks: such a statement is the writer's, and no phase has the row.
	WriterLooks
	// JoinsReadLate: who leaves reads the number of joins after it looked for readers.
	JoinsReadLate
	// ProlongBeforeKeep: a renewal extends the lease of the name's row first, and its own then.
	ProlongBeforeKeep
	// ProlongUncounted: a renewal does not change the number of joins.
	ProlongUncounted
	// ShortenLengthens: the lease of the name's row becomes that of the readers whom somebody saw, though it is shorter now.
	ShortenLengthens
	// PhaseOfOwner: who asks again after the phase that it began has ended begins one by the same name.
	PhaseOfOwner
	// NeverShortened: the lease of the name's row stays as it is when somebody leaves.
	NeverShortened
	// LeaveBeforePhase: who leaves deletes its row before it reads whose the name's row is.
	LeaveBeforePhase
)

// What the search can find broken.
const (
	OneWriter    = "a writer and another one both believe that they hold the name"
	TokensGrow   = "a token that is not larger than those before, or not that of the phase"
	ShortBlocked = "the name is taken for longer than any reader's lease"
	FalseLoss    = "a reader that had the name is told that it lost it"
	Stuck        = "somebody waits for ever"
)

// Scope is what is searched.
type Scope struct {
	Name   string
	Leases []int8 // of the readers, and then of the writers
	// Readers is how many of them read, and Rounds how often each acquires the name.
	Readers int
	Rounds  int8
	// Deaths is how many processes may die, and Forced whether somebody may take the name away.
	Deaths int8
	Forced bool
	// Unanswered is how many answers to acquisitions may get lost. The same owner asks again.
	Unanswered int8
	// Prompt says that no time passes between the statements of an operation. Otherwise a pause can make the lease of the
	// name's row longer than those of the readers.
	Prompt bool
}

const most = 4 // processes

// at says how far a process is.
type at int8

const (
	idle    at = iota
	joining    // it saw a phase
	begins     // it saw that the name is free
	joins      // half of that is done
	entered    // its row is there, and the phase is to begin
	looked     // a writer has looked for readers
	held
	kept    // half of a renewal is done
	leaving // a release begins, or goes on after a refusal
	phased  // the name's row was read
	left    // the reader's row is deleted
	counted // the readers' leases were read
	reread  // the number of joins was read once more
	again   // the phase could not be ended, as others came
	dead
)

var names = [...]string{
	"idle", "joining", "beginning", "half joined", "entered", "looked", "held", "half renewed", "leaving", "phase read", "left", "counted", "reread", "again", "dead",
}

// process is a reader or a writer.
type process struct {
	at           at
	round        int8
	phase, token int8 // what it was granted
	trust        int8 // how long it believes in that
	timer        int8 // what trust will be after the answer; of the dead, how long they may be in the way
	granted      bool
	// What it read: whose the name's row is, whether nobody has joined since, how long that lease runs, and
	// the longest of the readers.
	owner, rest, longest int8
	same                 bool
	had                  bool // it was a reader when it left
}

// share is the row of a reader.
type share struct{ phase, left int8 }

// state is all there is. The owner of the row is 0 if it is free.
type state struct {
	owner, token, left int8
	deaths, lost       int8
	shares             [most]share
	processes          [most]process
}

// event is a step of a process that was so far, or of none.
type event struct {
	i    int
	at   at
	what string
}

func (e event) String() string {
	if e.i < 0 {
		return e.what
	}

	return fmt.Sprintf("%d, %s%s", e.i, names[e.at], e.what)
}

// Protocol is what is searched.
type Protocol struct {
	Fault Fault
	Scope Scope
}

// Search visits all states.
func (p Protocol) Search() walk.Result {
	m := walk.Model[state, event]{
		Each:  p.each,
		Check: p.check,
		Line: func(e event, s state) string {
			return fmt.Sprintf("%-32s owner %d, token %d, left %d, shares %v", e, s.owner, s.token, s.left, s.shares[:p.Scope.Readers])
		},
	}

	return m.Search(state{})
}

func (p Protocol) reads(owner int8) bool { return owner > 0 && int(owner-1)%most < p.Scope.Readers }

// quiet says whether no process that lives is amid its statements.
func (s state) quiet() bool {
	for _, c := range s.processes {
		if c.at != idle && c.at != held && c.at != dead {
			return false
		}
	}

	return true
}

// check looks for a promise that a state breaks.
func (p Protocol) check(s state, steps int) string {
	believers, writers, waiting, longest := 0, 0, 0, int8(0)

	for i, lease := range p.Scope.Leases {
		c := s.processes[i]
		if c.at != dead && c.round < p.Scope.Rounds {
			waiting++
		}

		if c.granted && c.trust > 0 {
			believers++

			if i >= p.Scope.Readers {
				writers++
			}
		}

		if c.at == dead {
			longest = max(longest, min(c.timer, lease))
		}

		if s.shares[i].phase == s.owner {
			longest = max(longest, s.shares[i].left)
		}
	}

	switch {
	case writers > 0 && believers > 1:
		return OneWriter
	case p.Scope.Prompt && p.reads(s.owner) && s.quiet() && s.left > longest:
		return ShortBlocked
	case steps == 0 && waiting > 0:
		return Stuck
	default:
		return ""
	}
}

// each lists all steps from a state.
func (p Protocol) each(s state, emit func(e event, next state, broken string)) {
	for i := range p.Scope.Leases {
		c := s.processes[i]
		if c.at == dead {
			continue
		}

		for _, m := range []move{{s: s, i: i, p: p, renews: true}, {s: s, i: i, p: p, loses: true}, {s: s, i: i, p: p}} {
			if m.step() {
				emit(event{i: i, at: c.at}, m.s, m.broken)
			}
		}

		if c.at != idle && s.deaths < p.Scope.Deaths {
			next := s
			next.deaths++
			next.processes[i] = process{at: dead}

			if c.at != held {
				next.processes[i].timer = p.Scope.Leases[i]
			}

			emit(event{i, c.at, ": dies"}, next, "")
		}
	}

	if p.Scope.Forced && s.owner > 0 {
		next := s
		next.owner, next.left = 0, 0

		for i := range next.processes {
			next.processes[i].trust, next.processes[i].timer = 0, 0
		}

		emit(event{i: -1, what: "it is taken away"}, next, "")
	}

	if !p.Scope.Prompt || s.quiet() {
		if next := s.tick(); next != s {
			emit(event{i: -1, what: "time passes"}, next, "")
		}
	}
}

// tick lets all leases run, and all trust in them.
func (s state) tick() state {
	s.left = max(0, s.left-1)

	for i := range s.processes {
		c := &s.processes[i]
		c.trust, c.timer = max(0, c.trust-1), max(0, c.timer-1)
		s.shares[i].left = max(0, s.shares[i].left-1)
	}

	return s
}
