package event

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the time since some moment that is the same for all processes of the machine, whatever their wall clocks say.
func Clock() time.Duration { return read(unix.CLOCK_MONOTONIC) }

// WallClock is the machine's, whatever time.Now says in this process.
func WallClock() time.Time { return time.Unix(0, int64(read(unix.CLOCK_REALTIME))) }

func read(clock int32) time.Duration {
	var ts unix.Timespec

	if err := unix.ClockGettime(clock, &ts); err != nil {
		panic(err) // it is Linux's own
	}

	return time.Duration(ts.Nano())
}
