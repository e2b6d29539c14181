// Package worker is the other processes of a comparison. A worker gets a job
// as a line of JSON, opens its contestant, says that it is ready, begins when
// it is told to, and answers with a line of JSON.
package worker

import (
	"time"

	"github.com/sqllock/sqllock/bench/internal/contest"
)

// Kind is what a worker does.
type Kind string

// The kinds.
const (
	Load    Kind = "load"    // acquire and release as fast as it goes
	Steps   Kind = "steps"   // acquire and release when told
	Held    Kind = "held"    // hold many locks
	Waiters Kind = "waiters" // wait for a lock that another process holds
	Guarded Kind = "guarded" // transactions, with and without a guard
)

// Names says which names the goroutines of a load use.
type Names string

// The ways to choose names.
const (
	Ring   Names = "ring"   // each goroutine walks through some of its own
	Own    Names = "own"    // one for each goroutine
	Each   Names = "each"   // one for each goroutine, which those of other processes want, too
	Shared Names = "shared" // one for all
)

// Job is what a worker is told.
type Job struct {
	Kind       Kind
	Contestant string
	Address    contest.Address
	Pool       int
	Lease      time.Duration

	Name       string
	Names      Names
	Goroutines int
	Duration   time.Duration
	Settle     time.Duration // before what is measured
	Locks      int
}

// Result is what a worker answers.
type Result struct {
	Error string `json:",omitempty"`

	Pairs   int64
	Elapsed time.Duration
	// Quantiles of the time of a pair, of up to a million of them.
	Median, P99 time.Duration
	// LongestWait is the longest time in which this process did not get the
	// lock though it wanted it.
	LongestWait time.Duration
	// Statements is what the driver says, -1 if it cannot tell.
	Statements int64

	Bytes      int64
	Goroutines int
	// FewGoroutines are those while only a hundred locks were held.
	FewGoroutines int

	// Plain and Guarded are medians of a transaction.
	Plain, Guarded time.Duration
}

// Answer is what a worker of kind Steps says after each step: when the call
// began and when it returned, on the clock of the machine.
type Answer struct {
	Error       string `json:",omitempty"`
	Began, Done time.Duration
}

// What a worker says and is told, beside JSON.
const (
	Ready   = "ready"
	Go      = "go"
	Acquire = "acquire"
	Free    = "release"
)
