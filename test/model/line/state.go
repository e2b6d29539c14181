package line

import (
	"fmt"
	"strings"
)

// Times in ticks, each of which is about a second.
const (
	believed   = 3 // how long an entry counts that is not kept
	standEvery = 2 // the longest time between two looks
	lease      = 2 // how long a name is taken whose holder died
	raised     = 2 // the number changes that is older; only TwoStatements has this and the next
	forgotten  = 5 // the zero is put in place of a number that is older

	crowd = 2 // behind so many others an entry does not change the number: one less than there, of three processes
)

const processes = 3

// state is everything there is, at one moment. All of it is compared.
type state struct {
	row       row
	line      [2 * processes]entry // by ticket
	processes [processes]process
	idle      int8 // ticks that the name was free while somebody waited
	faults    int8 // how many processes have crashed or stood still
}

// row is the name's row in the database.
type row struct {
	owner int8 // a process and one; 0 if the name is free
	left  int8 // of the lease
	// number says that the column waiting is not zero, and age how old its value is.
	// The values themselves are all different; who has seen one knows whether it is current.
	number bool
	age    int8
	ended  wait // whose wait the last grant ended
}

// wait names one wait of a process: the first, the second, and so on.
type wait struct{ by, nth int8 }

// entry is a row in sqllock_queue.
type entry struct {
	wait
	life int8 // zero if it does not count any more
}

// seen is what is known of the number in the name's row.
type seen int8

const (
	unknown seen = iota // not even whose turn it is
	turn                // whose turn it is, and nothing of the number
	old                 // a number that nobody else waited under, and that has changed
	current             // a number that nobody else waited under
)

// process is one process with its acquisition, and its goroutine that keeps it in line.
type process struct {
	phase   phase
	nth     int8 // its acquisition
	crashed bool
	stopped bool // stands still, for a while

	line    seen // of the request that is to be sent; of the release that has begun
	to      wait // whom the release that has begun tells
	placed  bool // it has entered the line, in this wait
	behind  bool // its entry, which has begun, comes behind others
	certain bool // its turn will be told
	unsure  bool // it has no answer whether it is in line
	unnamed bool // its request does not say which wait it is
	told    seen // its turn, which it has not yet taken
	slow    int8 // ticks since it was its turn

	wants   bool // has to look how it stands
	renotes bool // nobody may know that it is in line
	due     int8 // ticks until it looks

	leaves leaving
	leaver wait
	passes bool // has to tell the first in line, after that
	next   wait // whom the statement that tells it saw
	number seen // and the number, for that one

	heard   seen  // a notification of its turn that is on its way
	late    bool  // one for a wait that was given up
	calls   bool  // one that says to look
	gaveUp  uint8 // which of its waits it gave up, by bits
	sleeper sleeper

	// For the promises: it is in line, as it knows, and who was when its
	// acquisition began.
	known  bool
	missed int8 // by whose attempt it found the row locked, and one, as long as that has not ended
	before uint8
}

// phase is where an acquisition is.
type phase int8

const (
	idle     phase = iota
	comes          // makes its first attempt
	checks         // was refused though the name is free
	enters         // is to enter the line
	begins         // the statement that makes its entry has begun, and seen the line
	counts         // its entry is made, the number is to be changed
	entered        // is in line, and does not have the answer
	waits          // sleeps
	asks           // makes an attempt, in its turn
	holds          // has the lock
	releases       // the release has begun, and seen the line
	tells          // the lock is released, the first in line is to be called
)

func (p phase) String() string {
	return [...]string{"idle", "comes", "checks", "enters", "begins", "counts", "entered", "waits", "asks", "holds", "releases", "tells"}[p]
}

// leaving is how far a wait is that has ended, and whose entry is still there.
type leaving int8

const (
	stays leaving = iota
	leaves
	tellsNow // the statement that tells the first in line has begun
)

// sleeper is the session of a process that sleeps until it is called.
type sleeper int8

const (
	awake  sleeper = iota // between two naps
	dozes                 // a nap has begun, and nobody has looked since
	asleep                // that was looked after
)

func (c *process) runs() bool { return !c.crashed && !c.stopped }

// waitsFor says whether a process is in this wait.
func (c *process) waitsFor(nth int8) bool { return c.nth == nth && c.stands() }

// inLine says whether a process may be told of its turn.
func (c *process) inLine() bool { return c.runs() && c.stands() }

// stands says whether its acquisition has begun to enter the line.
func (c *process) stands() bool { return c.phase >= comes && c.phase <= asks && c.placed }

// own is the wait of a process.
func (s *state) own(i int8) wait { return wait{i + 1, s.processes[i].nth} }

// enter makes an entry, the last one; one that is there is kept.
func (s *state) enter(w wait) {
	for k := range s.line {
		switch s.line[k].wait {
		case w, wait{}:
			s.line[k] = entry{w, believed}

			return
		}
	}
}

// remove removes an entry.
func (s *state) remove(w wait) {
	for k := range s.line {
		if s.line[k].wait == w {
			copy(s.line[k:], s.line[k+1:])
			s.line[len(s.line)-1] = entry{}

			return
		}
	}
}

// renumber changes the number.
func (s *state) renumber() {
	s.row.number, s.row.age = true, 0

	for i := range s.processes {
		c := &s.processes[i]

		for _, v := range []*seen{&c.line, &c.told, &c.heard, &c.number} {
			if *v == current {
				*v = old
			}
		}
	}
}

// alive says whether the entry of a wait counts.
func (s *state) alive(w wait) bool {
	for _, e := range s.line {
		if e.wait == w {
			return e.life > 0
		}
	}

	return false
}

// unlock ends an attempt that had the row of the name locked.
func (s *state) unlock(by int8) {
	for i := range s.processes {
		if s.processes[i].missed == by+1 {
			s.processes[i].missed = 0
		}
	}
}

// out notes that a process is in line no more, or was not to be seen there.
func (s *state) out(i int8) {
	s.processes[i].known = false

	for k := range s.processes {
		s.processes[k].before &^= 1 << i
	}
}

// String is the part of a line of a trace that says how it is.
func (s *state) String() string {
	var b strings.Builder

	switch {
	case s.row.owner != 0:
		fmt.Fprintf(&b, "held by %s", who(s.row.owner-1))
	default:
		b.WriteString("free")
	}

	if s.row.number {
		fmt.Fprintf(&b, ", number %ds old", s.row.age)
	}

	b.WriteString(", line:")

	for _, e := range s.line {
		if e.by != 0 {
			fmt.Fprintf(&b, " %s%d", who(e.by-1), e.nth)

			if e.life == 0 {
				b.WriteString("(dead)")
			}
		}
	}

	for i := range s.processes {
		if c := &s.processes[i]; c.phase != idle {
			fmt.Fprintf(&b, "; %s %s", who(int8(i)), c.phase)
		}
	}

	return b.String()
}

// who names a process, or the rest of the world.
func who(i int8) string {
	if i < 0 {
		return "-"
	}

	return string(rune('A' + i))
}
