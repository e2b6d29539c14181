// Package wallclock is the wall clock as the locks read it, so that a fault
// test can step it in one process as an administrator or NTP does on a machine.
package wallclock

import (
	"sync/atomic"
	"time"
)

var offset atomic.Int64 //nolint:gochecknoglobals // the clock is the process's

// Of returns what the wall clock showed at t, since 1970.
func Of(t time.Time) time.Duration { return time.Duration(t.UnixNano() + offset.Load()) }

// Step sets the clock forward by d, or back if d is negative. For tests.
func Step(d time.Duration) { offset.Add(int64(d)) }
