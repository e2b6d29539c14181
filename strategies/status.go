package strategies

import "time"

// Status is what the database knows of a name.
type Status struct {
	// Name of the lock, Strategy that keeps it, Token of its latest grant: where several
	// holders of one process have it one after the other, the largest of theirs.
	Name     string
	Strategy string
	Token    int64
	// Slot is which of the permits of the name it is. A strategy has it in Name, as SlotName makes that, and leaves it zero.
	Slot int
	// Owner identifies the acquisition; empty if it was released, and in what users see if it was detached. Together with the
	// name it can release the lock by hand, so do not show it to those who must not.
	Owner string
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
	// Ended says why the latest grant ended, if that was not its own release: Forced, or Expired if it was reaped. Detail is the
	// reason given to ForceRelease; or, of a lock on several servers, on how many of them it is, if not on all.
	Ended  Reason
	Detail string
	// Shared: it is one of the readers. List tells of each, those who share a grant once; Strategy.Status tells of one. Its Owner is
	// its own, and not Grant.Phase.
	Shared bool
	// Detached: no process has it, since its holder has detached it, and it can be adopted.
	Detached bool
	// Mark is the largest number that was recorded with the name, zero if none was. ReleaseRequested is why the holder
	// was asked to release the lock, empty if it was not. List tells neither.
	Mark             int64
	ReleaseRequested string
	// Guarded: the row is locked against the next grant at this moment. If that
	// lasts, a transaction with a Guard is open; for an instant it may be a
	// renewal or an attempt. List does not tell it. It is not known on SQLite, nor to a
	// database user who may not UPDATE the table, and false then.
	Guarded bool
}

// Held reports whether somebody holds the lock.
func (s Status) Held() bool { return s.Remaining > 0 }

// Is says whether a grant with a token and an owner, who is empty if it was released, is the one that s tells of. Strategies
// that are made of several raise the token of one that has been granted.
func (s Status) Is(token int64, owner string) bool {
	return s.Token == token || owner != "" && s.Owner == owner
}

// Filter narrows List. The zero value matches every name.
type Filter struct {
	// Name matches the slots of one name, Prefix names that begin with it; empty is every name.
	Name   string
	Prefix string
	// Limit is the most names to return; zero is no limit.
	Limit int
}

// Reaped counts what Reap did.
type Reaped struct {
	// Expired counts grants whose lease had expired, Removed the idle names that were
	// removed.
	Expired int
	Removed int
}

// Recovery is what the database knows of fail-overs. A server that becomes the primary may lack what the one before has granted: it
// grants nothing until the longest grant has ended that there may be.
type Recovery struct {
	// Remaining is how long nothing is granted yet; zero if it is.
	Remaining time.Duration
	// Server is this one, Noted the one that took writes last, and Previous the one before that. If Server is not Noted, the pause
	// begins with the next attempt.
	Server   string
	Noted    string
	Previous string
	// Reason is why there was the latest pause, or why it was ended.
	Reason string
	// Lossless: no commit is lost in a fail-over, and there is no pause.
	Lossless bool
	// Asynchronous: grants commit asynchronously, so that a crash of the server has a pause, too. Crashed: it has crashed, and the pause
	// begins with the next attempt.
	Asynchronous bool
	Crashed      bool
	// Longest is how long the longest grant may last, and with that a pause. LongestBy is who asked for it.
	Longest   time.Duration
	LongestBy string
}

// Pause is how long nothing is granted yet: what remains of a pause, or the whole of one that begins with the next attempt. It is
// zero if locks are granted.
func (r Recovery) Pause() time.Duration {
	if r.Crashed || r.Noted != "" && r.Server != r.Noted && !r.Lossless {
		return max(r.Remaining, r.Longest)
	}

	return r.Remaining
}
