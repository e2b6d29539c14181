// Package demo shows one lock and several processes that want it, kills one of
// them while it holds the lock, and checks what it saw.
//
// Each worker is a process of its own and reports when it has the lock, on a
// clock that all processes of the machine share. The checks are made on those
// reports alone, not on what the database says.
package demo

import "time"

// event is a worker's report, one line of JSON.
type event struct {
	Kind  kind          `json:"kind"`
	Token int64         `json:"token,omitempty"`
	At    time.Duration `json:"at"` // of package clock
	Text  string        `json:"text,omitempty"`
}

// kind is what happened.
type kind string

const (
	acquired kind = "acquired" // At is after the lock was there
	released kind = "released" // At is before the release was begun
	lost     kind = "lost"     // At is when the worker was told
	failed   kind = "failed"   // Text says why
)

// hold is the time in which one process had the lock.
type hold struct {
	worker   int
	token    int64
	from, to time.Duration
	open     bool // to is not known
	killed   bool // to is when the process was killed
}
