package sqllock

import (
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Holder says who holds a lock, or asks for it. Its String is "label (host, pid N)", as far as it is known, fit for a terminal.
type Holder = strategies.Holder

// Status is what the database knows of a name.
type Status struct {
	// Name of the lock, Strategy that keeps it, Token of its latest grant: where several
	// holders of one process have it one after the other, the largest of theirs.
	Name     string
	Strategy string
	Token    int64
	// Slot is which of the permits of [WithPermits] it is.
	Slot int
	// Holder is who has it, or had it last.
	Holder Holder
	// HeldFor is how long ago the holder got it, and Remaining how long its
	// lease runs without renewal, both by the database's clock. Both are zero if
	// nobody holds it.
	HeldFor   time.Duration
	Remaining time.Duration
	// Taken is how long nobody is granted the name though nobody holds it: until
	// the minimum hold of a lock that was released is over, or the lock delay of
	// one whose lease expired. Zero if somebody holds it.
	Taken time.Duration
	// Owner identifies the acquisition; empty if it was released. Together with the
	// name it can release the lock by hand, so do not show it to those who must not.
	Owner string
	// Ended says why the latest grant ended, if that was not its own release:
	// [ReasonForced], or [ReasonExpired] if it was reaped. Detail is the text given to
	// [Locker.ForceRelease]; or, of a lock of strategy quorum that is held, on how many of the servers it is, if not on all.
	Ended  Reason
	Detail string
	// Mark is the largest number that was recorded with the name ([Lock.Mark]), zero if none was. ReleaseRequested is why the holder
	// was asked to release the lock ([Locker.RequestRelease]), empty if it was not. [Locker.Inspect] asks, [Locker.Holders] does not.
	Mark             int64
	ReleaseRequested string
	// Shared: it is one of the readers ([WithShared]). [Locker.Holders] lists each, those who share a grant
	// once; [Locker.Inspect] tells of one. Its Owner is its own, and not that of Lock.Owner.
	Shared bool
	// Guarded: the row is locked against the next grant at this moment. If that
	// lasts, a transaction with a Guard is open; for an instant it may be a
	// renewal or an attempt. [Locker.Inspect] asks, [Locker.Holders] does not. It is not known on SQLite,
	// and false there.
	Guarded bool
}

// Held reports whether somebody holds the lock.
func (s Status) Held() bool { return s.Remaining > 0 }

func statusOf(s strategies.Status) Status {
	name, slot := strategies.SplitSlot(s.Name)

	return Status{
		Mark: s.Mark, ReleaseRequested: s.Asked,
		Name: name, Slot: slot, Strategy: s.Strategy, Token: s.Token, Holder: s.Holder, HeldFor: s.HeldFor,
		Remaining: s.Remaining, Taken: s.Taken, Owner: s.Owner, Ended: s.Ended, Detail: s.Detail, Shared: s.Shared, Guarded: s.Guarded,
	}
}

// Filter narrows [Locker.Holders]. The zero value matches all locks.
type Filter = strategies.Filter

// Waiter is one who waits for a lock.
type Waiter struct {
	// Name of the lock.
	Name string
	// Place among those who wait for the name, from 1. One that waits behind another of its own
	// process comes after all who are in line.
	Place int
	// Holder says who waits.
	Holder Holder
	// Waited is how long it has waited, by the database's clock.
	Waited time.Duration
	// Shared: it waits for a shared lock.
	Shared bool
	// HoldsOthers: it waits under the context of another lock that it holds.
	HoldsOthers bool
}

func waitersOf(listed []strategies.Waiter) []Waiter {
	waiters := make([]Waiter, len(listed))
	place := 0

	for i, w := range listed {
		if place++; i > 0 && listed[i-1].Name != w.Name {
			place = 1
		}

		waiters[i] = Waiter{Name: w.Name, Place: place, Holder: w.Holder, Waited: w.Waited, Shared: w.Shared, HoldsOthers: len(w.Holding) > 0}
	}

	return waiters
}

// WaiterFilter narrows [Locker.Waiters]. The zero value matches all who wait.
type WaiterFilter = strategies.WaiterFilter

// Reaped counts what [Locker.Reap] did.
type Reaped = strategies.Reaped
