package sqllock

import "time"

// Hooks are functions that the locker calls, for metrics. Each may be nil. They
// must be quick and must not call the locker.
//
// One that blocks, or a log that does, holds up nobody's lock: no context, no
// renewal and no turn waits for it. Acquired, NotAcquired and Released run on the
// goroutine of the call that they tell of, when all else of it is done. Renewed,
// RenewalFailed and Lost, and Released by Close, run one after the other on a
// goroutine that the locker has while there is something to tell, so a Released
// may overtake a Renewed. If they do not keep up, the oldest beyond 1024 are
// dropped, which the log says, but never a loss. Close waits for what is left to
// tell, a second at most.
type Hooks struct {
	// Acquired: a lock was acquired, after Waited and Attempts.
	Acquired func(Event)
	// NotAcquired: [Locker.Acquire] or [Locker.TryAcquire] ended without the lock; Err says why.
	NotAcquired func(Event)
	// Renewed: a renewal was confirmed. Remaining is what was left of the
	// trust window when it was: the closest call is its smallest value. Of a lock on several servers
	// Err says which of them did not confirm it, each time; the log says it once.
	Renewed func(Event)
	// RenewalFailed: a renewal had an error that leaves the lock in doubt.
	RenewalFailed func(Event)
	// Lost: a lock was lost; Err is a *[LostError].
	Lost func(Event)
	// Released: a lock was released, after HeldFor. Err is nil if all is well. It is a *[LostError] if the lock turned out to
	// be lost, and otherwise why the release failed, which goes on in the background.
	Released func(Event)
}

// Event says what happened to which lock. Fields that do not apply are zero.
type Event struct {
	// Name of the lock, and Token of its grant. Slot is which of the permits of [WithPermits]
	// it is.
	Name  string
	Slot  int
	Token int64
	// Strategy is the name of the locker's strategy.
	Strategy string
	// Attempts is how often the acquisition asked the database, and Waited how long it
	// took.
	Attempts int
	Waited   time.Duration
	// HeldFor is how long the lock was held.
	HeldFor time.Duration
	// Remaining is what was left of the trust window.
	Remaining time.Duration
	// Err is why it failed, or why the lock was lost; nil if all is well.
	Err error
}

// of is the function for a kind of event; nil if there is none.
func (h *Hooks) of(k kind) func(Event) {
	switch k {
	case eventAcquired:
		return h.Acquired
	case eventNotAcquired:
		return h.NotAcquired
	case eventRenewed, eventPartlyRenewed:
		return h.Renewed
	case eventRenewalFailed:
		return h.RenewalFailed
	case eventLost:
		return h.Lost
	case eventReleased:
		return h.Released
	default:
		return nil
	}
}
