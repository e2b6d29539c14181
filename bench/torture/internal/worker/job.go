// Package worker is a process of a trial: one that wants the lock, and writes while it has it. It gets a job as a line of JSON,
// then commands, a line each, and tells what happens as lines of JSON.
package worker

import (
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/locks"
)

// Job is what a worker is told first.
type Job struct {
	Lock   string // its ID
	Config locks.Config
	Name   string // of the lock
	// Clock is by how much the wall clock of this process is to be ahead; the conductor has set it so.
	Clock time.Duration
	// Rows is where the protected rows are, and Files the folder of the protected files. Without them nothing is written.
	Rows, Files string
}

// The commands.
const (
	// Acquire has one more goroutine wait for the lock and hold it until it is told to release it.
	Acquire = "acquire"
	// Pass has one more goroutine wait for the lock, hold it for a moment and release it.
	Pass = "pass"
	// Release has the holder give it back.
	Release = "release"
	// Stop has the process stop itself (SIGSTOP) before its next write, after it has looked at its lock.
	Stop = "stop"
	// Fill takes all connections of the pool that the lock shares, and Free gives them back.
	Fill = "fill"
	Free = "free"
)

// The paces.
const (
	// look is how often a holder looks at its lock, and write how often it writes.
	look  = 10 * time.Millisecond
	write = 50 * time.Millisecond
	// doubtful is how long a look or a write may take until the holder is in doubt.
	doubtful = 50 * time.Millisecond
	// pass is how long a goroutine of the crowd keeps the lock.
	pass = 20 * time.Millisecond
	// again is how long a goroutine waits before it asks once more after an error.
	again = 200 * time.Millisecond
	// patience bounds a release and a guarded write.
	patience = 5 * time.Second
)
