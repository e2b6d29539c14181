package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
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
	Lock  Lock
	Group *Group
	// Ask is the signal that asks the command to end, so long before it is
	// killed as Grace says; a Grace of zero never asks.
	Ask   Signal
	Grace time.Duration
	// Lead is how long before the end of the trust in the lock the group is
	// killed, so that it is gone when the trust ends.
	Lead time.Duration
	// Signals are passed on to the command.
	Signals <-chan os.Signal
	// Warn is called once if the command is asked to end.
	Warn func(left time.Duration)
}

// Latency is for the watchdog, which shall act only if this process did not.
const Latency = 5 * time.Millisecond

// ErrNotKept says that the command was ended because its lock was lost or could
// not be renewed.
var ErrNotKept = errors.New("the lock could not be kept; the command was ended")

// Run returns when the command has ended, nil if it was left alone until then.
// The group is killed the moment the lock's context ends, or is about to, and
// when nobody watches over this process.
func (s Supervision) Run() error {
	lost := s.Lock.Context()

	// Not in the loop below, which a signal or a warning may keep busy.
	forget := context.AfterFunc(lost, s.Group.Kill)
	defer forget()

	asked, killed := false, false
	look := time.After(0)

	var unwatched error // why nobody watches, if that is so

	for {
		select {
		case <-s.Group.Done():
			switch {
			case asked || killed || lost.Err() != nil || s.late():
				return ErrNotKept
			case unwatched != nil:
				return fmt.Errorf("start the watchdog again: %w; the command was ended", unwatched)
			default:
				return nil
			}
		case unwatched = <-s.Group.Unwatched():
			s.Group.Kill()
		case sig := <-s.Signals:
			s.Group.Forward(sig)
		case <-look:
			left := s.Lock.Remaining() - s.Lead
			s.Group.Until(left + Latency)

			switch {
			case left <= 0:
				killed = true

				s.Group.Kill()
			case left <= s.Grace && !asked:
				asked = true

				s.Group.Ask(s.Ask)
				s.Warn(left)
			}

			look = time.After(pause(left, s.Grace))
		}
	}
}

// late says whether the command ended when the lock could not be trusted any
// more. In the lead before that it may have ended by itself, or by the watchdog,
// if this process was stopped or slow.
func (s Supervision) late() bool {
	left := s.Lock.Remaining()

	return left <= 0 || left <= s.Lead && s.Group.Status().Signal == int(syscall.SIGKILL)
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

	// Near the end not halves of halves, but the end itself.
	return max(min(wait, left), min(left, time.Millisecond))
}
