// Package event is what the processes of a trial say: the holders and waiters tell it line by line, and the judge counts.
package event

import "time"

// Kind is what happened.
type Kind string

// The kinds.
const (
	Ready    Kind = "ready"    // the process is connected
	Asked    Kind = "asked"    // it asks for the lock, and waits
	Held     Kind = "held"     // the lock is its own, by the library's word
	Doubts   Kind = "doubts"   // it waits long for the library's word, or for a write; At is when it began to
	Sure     Kind = "sure"     // it goes on
	Lost     Kind = "lost"     // the library says that it is no more
	Releases Kind = "releases" // it gives the lock back
	Released Kind = "released" // that call returned
	Stops    Kind = "stops"    // it is about to write, and stops itself first
	Wrote    Kind = "wrote"    // a write took effect
	Refused  Kind = "refused"  // a write was refused
	Erred    Kind = "erred"    // a call returned an error, and is made again
	Filled   Kind = "filled"   // the pool is full
	Broke    Kind = "broke"    // the process cannot go on
)

// Sink is a protected thing.
type Sink string

// The protected things.
const (
	Row         Sink = "row"
	File        Sink = "file"
	CheckedRow  Sink = "checked row"
	CheckedFile Sink = "checked file"
	GuardedRow  Sink = "guarded row"
)

// Event is one line.
type Event struct {
	At   time.Duration // of the machine's monotonic clock, which is the same in all processes
	Kind Kind
	// Who is the goroutine's number in its process.
	Who   int    `json:",omitempty"`
	Token int64  `json:",omitempty"`
	Sink  Sink   `json:",omitempty"`
	N     int64  `json:",omitempty"` // the number of a write, in the order in which they took effect
	Text  string `json:",omitempty"` // of an error
}
