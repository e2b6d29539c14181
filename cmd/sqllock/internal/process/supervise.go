package process

import (
	"context"
	"os"
	"time"
)

// Lock is what supervision needs of a lock.
type Lock interface {
	// Context ends when the lock is lost.
	Context() context.Context
	// Remaining is how long the lock can be trusted without a renewal.
	Remaining() time.Duration
}

// Supervision is one command under one lock.
type Supervision struct {
	Lock     Lock
	Group    *Group
	Watchdog *Watchdog
	// Grace is how long before the end of the trust in the lock the command is
	// asked to end; zero never asks.
	Grace time.Duration
	// Signals are passed on to the command.
	Signals <-chan os.Signal
	// Warn is called once if the command is asked to end.
	Warn func(left time.Duration)
}

// latency is for the watchdog, which shall act only if this process did not.
const latency = 5 * time.Millisecond

// Run returns when the command has ended and says whether it was left alone
// until then. The group is killed the moment the lock's context ends.
func (s Supervision) Run() (undisturbed bool) {
	lost := s.Lock.Context()

	// Not in the loop below, which a signal or a warning may keep busy.
	forget := context.AfterFunc(lost, s.Group.Kill)
	defer forget()

	asked := false
	timer := time.NewTimer(0)

	defer timer.Stop()

	for {
		select {
		case <-s.Group.Done():
			return !asked && lost.Err() == nil && s.Lock.Remaining() > 0
		case sig := <-s.Signals:
			s.Group.Forward(sig)
		case <-timer.C:
			left := s.Lock.Remaining()
			s.Watchdog.Until(left + latency)

			if left <= s.Grace && left > 0 && !asked {
				asked = true

				s.Group.Terminate()
				s.Warn(left)
			}

			timer.Reset(pause(left, s.Grace))
		}
	}
}

// pause is until the next look: before the grace period begins, and early
// enough for the watchdog to hear of renewals before its time is over.
func pause(left, grace time.Duration) time.Duration {
	if left <= 0 {
		return 20 * time.Millisecond // the group is dying
	}

	wait := left / 2

	if left > grace {
		wait = min(wait, left-grace)
	}

	return max(wait, time.Millisecond)
}
