//go:build linux || darwin || freebsd

package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the time since some moment that is the same for all processes of
// the machine.
func Clock() time.Duration {
	var ts unix.Timespec

	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return time.Duration(time.Now().UnixNano())
	}

	return time.Duration(ts.Nano())
}
