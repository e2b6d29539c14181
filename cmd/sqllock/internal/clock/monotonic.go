//go:build linux || darwin || freebsd

// Package clock reads a clock that several processes of one machine can
// compare.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since some moment that is the same for all processes of the
// machine. It does not jump.
func Now() time.Duration {
	var ts unix.Timespec

	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return time.Duration(time.Now().UnixNano())
	}

	return time.Duration(ts.Nano())
}
