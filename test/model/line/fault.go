package line

// Fault is a mistake built into the protocol. The search must find each of them.
type Fault int8

// The faults.
const (
	// NoFault is the protocol as it is.
	NoFault Fault = iota
	// HeadSkipped tells the second in line.
	HeadSkipped
	// DeafUntilAnswer drops what is told to one who has entered the line and has no answer yet.
	DeafUntilAnswer
	// SleepsUnseen does not look after it entered the line of a name that was free by then.
	SleepsUnseen
	// DeadHeadCounts lets entries count that nobody keeps.
	DeadHeadCounts
	// NewcomerOvertakes grants the name to newcomers though there is a line.
	NewcomerOvertakes
	// TurnIsGrant takes a turn for the lock.
	TurnIsGrant
	// ZeroWithoutCompare puts the zero in place of whatever number there is.
	ZeroWithoutCompare
	// ForgetsYoung puts the zero in place of a number under which somebody may have entered who did not change it.
	ForgetsYoung
	// NumberForEver never puts the zero back.
	NumberForEver
	// EntryAfterNumber changes the number first, and then makes the entry.
	EntryAfterNumber
	// GrantedWaitCounts counts entries of waits that the last grant ended.
	GrantedWaitCounts
	// LeavesSilently does not pass the turn on.
	LeavesSilently
	// NapWithoutLook does not look after a nap began.
	NapWithoutLook
	// CallsByID calls the session that was the sleeper's when it was looked up, whoever's it is now.
	CallsByID
	// TurnForAnyWait takes a turn for one that waits now, whoever it was for.
	TurnForAnyWait
	// LateTurnDropped does not pass on a turn for a wait that was given up.
	LateTurnDropped
	// PassesOnlyKnown passes a turn on only if it knew of it.
	PassesOnlyKnown
	// AloneUnderYoung takes a number for that of nobody else though others may enter under it.
	AloneUnderYoung
	// NoteUnheard does not look after it noted anew that it waits, and the name was free by then.
	NoteUnheard
	// CrowdOfOne does not change the number behind one, who may have been seen to be alone.
	CrowdOfOne
	// UnnamedEnds takes a wait for one that the grant ended though the request did not name it.
	UnnamedEnds
)
