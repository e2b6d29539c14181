package sqllock

import "time"

// Hooks are functions that the locker calls, for metrics. Each may be nil.
// They run on the goroutine that does the work, so they must be quick and must
// not call the locker.
type Hooks struct {
	// Acquired: a lock was acquired, after Waited and Attempts.
	Acquired func(Event)
	// NotAcquired: Acquire or TryAcquire ended without the lock; Err says why.
	NotAcquired func(Event)
	// Renewed: a renewal was confirmed. Remaining is what was left of the
	// trust window when it was: the closest call is its smallest value.
	Renewed func(Event)
	// RenewalFailed: a renewal had an error that leaves the lock in doubt.
	RenewalFailed func(Event)
	// Lost: a lock was lost; Err is a *LostError.
	Lost func(Event)
	// Released: a lock was released, after HeldFor. Err is nil if all is well.
	Released func(Event)
}

// Event says what happened to which lock. Fields that do not apply are zero.
type Event struct {
	Name      string
	Token     int64
	Strategy  string
	Attempts  int
	Waited    time.Duration
	HeldFor   time.Duration
	Remaining time.Duration
	Err       error
}

func call(hook func(Event), e Event) {
	if hook != nil {
		hook(e)
	}
}
