//go:build !linux && !darwin && !freebsd

package worker

import "time"

// Clock is the wall clock's, which jumps when somebody sets it.
func Clock() time.Duration { return time.Duration(time.Now().UnixNano()) }
