package model

// Fault is a mistake that a lock with leases can make. Most are known from
// others' locks; the search must find each.
type Fault int

// The faults.
const (
	NoFault Fault = iota
	// ReleaseWithoutOwner frees whoever has the name.
	ReleaseWithoutOwner
	// RenewalWithoutOwner renews whoever has the name.
	RenewalWithoutOwner
	// RenewalShortens sets the end of the lease also if it was later.
	RenewalShortens
	// RetryLeavesLease finds that the owner has the name, and leaves the lease of the first attempt.
	RetryLeavesLease
	// RetryDrawsToken gives the owner that asks again another token.
	RetryDrawsToken
	// ExpiryByClientsClock compares the lease with the clock of the client that asks.
	ExpiryByClientsClock
	// LeaseWithoutEnd waits for the release, as a lock without a lease does.
	LeaseWithoutEnd
	// TokenDrawnBefore draws the token before it is known that the name is free.
	TokenDrawnBefore
	// TokenWithoutClock counts from the row alone, which may have been removed.
	TokenWithoutClock
	// RemovalWithoutFloor forgets the token of a row that is removed.
	RemovalWithoutFloor
	// GuardWithoutRowLock checks the grant and does not pin it.
	GuardWithoutRowLock
	// GuardWithoutCheck pins the row, whoever's it is.
	GuardWithoutCheck
	// ReaperTrustsItsList ends what was expired when it was listed.
	ReaperTrustsItsList
	// TrustFromAnswer counts the lease from when the answer came.
	TrustFromAnswer
	// NoClockMargin trusts for the whole lease.
	NoClockMargin
	// MonotonicClockAlone counts with a clock that stands still while the machine sleeps.
	MonotonicClockAlone
	// UnknownIsRenewed takes a renewal without an answer for one.
	UnknownIsRenewed
	// WindowUnwatched ends the context only when the database refuses.
	WindowUnwatched
	// LossTakenBack lets a renewal that was confirmed late revive a lost lock.
	LossTakenBack
	// LateConfirmation lets a renewal count whose answer is looked at after the window and before the clock.
	LateConfirmation
	// ReleaseBeforeTelling ends the context when the release was answered.
	ReleaseBeforeTelling
	// NoPause grants at once after a recovery.
	NoPause
	// PauseOfOneLease pauses for the lease that most ask for, and not for the longest.
	PauseOfOneLease
	// PauseByClientsClock compares the end of the pause with the clock of the client that asks.
	PauseByClientsClock
	// PauseOnce does not pause again when the server is lost whose pause it was.
	PauseOnce
	// AskedAgainInPause grants what its owner has already, though the lease has expired: the
	// grant to another one may be lost.
	AskedAgainInPause
	// RenewedInPause renews a lease that has expired.
	RenewedInPause
	// RaisedAfterGrant raises the longest lease when one was granted that is longer.
	RaisedAfterGrant
	// RaiseMayBeLost does not wait until the standby, or the disk, has what the longest lease was raised to.
	RaiseMayBeLost
	// LoweredEarly lowers the longest lease while one is trusted that is longer.
	LoweredEarly
)
