// Package judge counts what went wrong in a trial: two holders at once, late writes that were accepted, holders that were never
// told, locks lost for nothing and waiters that were never served.
package judge

import "time"

// Fault is what is done to a lock's holder, its network or its server.
type Fault string

// The faults, in the order of the table.
const (
	Nothing  Fault = "no fault"     // it is held for three leases while others wait, and released
	Killed   Fault = "killed"       // the holder's process gets SIGKILL
	Stopped  Fault = "stopped"      // it is stopped between its look at the lock and its write, and woken when another has written
	Unfenced Fault = "unfenced"     // the same, for writes that have neither token nor guard, only the look
	Cut      Fault = "cut"          // nothing passes between the holder and the servers, both ways
	Deaf     Fault = "deaf"         // what the servers answer the holder is lost; what it sends arrives
	Slow     Fault = "slow answers" // answers come late by more than the lease, from before it acquires
	Restart  Fault = "restart"      // the server gets SIGKILL and starts again with its data
	FailOver Fault = "fail-over"    // the primary gets SIGKILL, and a standby without the last writes takes its place
	Clock    Fault = "clock"        // the wall clock of those who wait is a minute ahead, or behind
	FullPool Fault = "full pool"    // the application has all connections of the pool for three leases
	Crowd    Fault = "crowd"        // 200 wait for it, in eight processes
)

// Faults are all, in the order of the table.
func Faults() []Fault {
	return []Fault{Nothing, Killed, Stopped, Unfenced, Cut, Deaf, Slow, Restart, FailOver, Clock, FullPool, Crowd}
}

// moments is how many more trials a fault gets that breaks some locks at some moments only: between two renewals, or in a second of
// the wall clock. One trial in five is enough to be seen in two runs.
const moments = 8

// Trials is how often a lock meets the fault at most, where it meets others so often.
func (f Fault) Trials(others int) int {
	if f == Cut || f == Deaf {
		return moments * others
	}

	return others
}

// Kind is what a cell's colour says.
type Kind string

// The kinds.
const (
	Good   Kind = "good"
	Stuck  Kind = "stuck"  // nothing was broken, but for the rest of the trial nobody got a lock whose holder could not use it
	Broken Kind = "broken" // see Cell.Why
	None   Kind = "none"   // this lock has no such thing; see Cell.Why
	Failed Kind = "failed" // the trial did not come about; see Cell.Why
)

// Protection is what keeps late writers from the protected thing.
type Protection string

// The protections, from none to the strongest.
const (
	Plain Protection = "plain" // a row and a file; only the look at the lock before each write
	Token Protection = "token" // a row and a file that refuse a token smaller than the largest they have seen
	Guard Protection = "guard" // a row of the lock's own database, in a transaction with a guard
)

// Cell is what came of one lock under one fault.
type Cell struct {
	Lock  string
	Fault Fault
	Kind  Kind
	// Why says of each thing that is broken or missing what it is.
	Why []string `json:",omitempty"`

	// Twice is the longest time in which two processes had the lock by the library's own word and neither was stopped.
	Twice time.Duration
	// LateWrites and RefusedWrites count, for each protection that the lock has, the writes that came after one of a later holder,
	// of the row and of the file.
	LateWrites, RefusedWrites map[Protection]int
	// NeverTold counts the holders that were not told, before the trial ended, that another one has the lock. Twice is how long they
	// went on.
	NeverTold int
	// Lost counts holders that were told that they had lost it.
	Lost int
	// Idle is the longest time that nobody had the lock while somebody waited and its last holder was gone or could not use it.
	Idle time.Duration
	// Waited and Served are those who asked for it and those who were granted it before the trial ended. Overtaken is by how many
	// later comers one of them was overtaken at most.
	Waited, Served, Overtaken int
}

// Protections are those that the lock has, or none at all.
func (c Cell) Protections() (all []Protection) {
	for _, p := range []Protection{Guard, Token} {
		if _, ok := c.LateWrites[p]; ok {
			all = append(all, p)
		}
	}

	if all == nil {
		return []Protection{Plain}
	}

	return all
}

// Late is how many late writes passed what was to keep them out.
func (c Cell) Late() (n int) {
	for _, p := range c.Protections() {
		n += c.LateWrites[p]
	}

	return n
}

// Fail is the cell of a trial that did not come about.
func (c Cell) Fail(err error) Cell {
	c.Kind, c.Why = Failed, []string{err.Error()}

	return c
}

// Missing is the cell of a fault that a lock does not know.
func (c Cell) Missing(err error) Cell {
	c.Kind, c.Why = None, []string{err.Error()}

	return c
}
