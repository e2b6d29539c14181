package strategies

import "time"

// Status is what the database knows of a name.
type Status struct {
	// Name of the lock, Strategy that keeps it, Token of its latest grant: where several
	// holders of one process have it one after the other, the largest of theirs.
	Name     string
	Strategy string
	Token    int64
	// Owner of that grant; empty if it was released.
	Owner string
	// Holder is who has it, or had it.
	Holder Holder
	// HeldFor is how long ago it was granted, and Remaining how long its lease runs
	// without renewal, both by the database's clock. Both are zero if nobody holds it.
	HeldFor   time.Duration
	Remaining time.Duration
	// Taken is how long nobody is granted the name though nobody holds it, for a
	// minimum hold or a lock delay.
	Taken time.Duration
	// Ended says why the grant ended, if not by its own release: Forced, or Expired if
	// it was reaped. Detail is the text given to ForceRelease; or, of a grant that is in several places, in how many,
	// if not in all.
	Ended  Reason
	Detail string
	// Shared: it is one of the name's readers, whom List tells one by one. Status tells of one of them.
	Shared bool
	// Mark and Asked are those of Notes. List does not tell them.
	Mark  int64
	Asked string
	// Guarded: the row is locked against the next grant at this moment. List does not
	// ask.
	Guarded bool
}

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
