package line

// Protocol is how a line is kept, with a fault if it has one, and what may happen to it.
type Protocol struct {
	Variant Variant
	Fault   Fault
	Scope   Scope
}

// Variant is how the databases keep the line.
type Variant int8

const (
	// OneStatement is PostgreSQL's: a wait begins with one statement, a release notifies, and a grant ends
	// the wait.
	OneStatement Variant = iota
	// TwoStatements is that of MySQL and MariaDB: first the entry is made, then the number is changed
	// if it is not young; who releases calls the first in line after that; who was granted the name
	// leaves the line later.
	TwoStatements
)

func (v Variant) String() string { return [...]string{"one statement", "two statements"}[v] }

// Scope bounds a search.
type Scope struct {
	Name string
	// Acquisitions is how many each process may make.
	Acquisitions [processes]int8
	// Faults is how many processes may crash; or stand still, if they do.
	Faults int8
	Stops  bool
	// Slow is how many ticks may pass between the look that says whose turn it is and the attempt.
	Slow int8
	// GivesUp: waits end without the lock, and some only try.
	GivesUp bool
	// Polls: who waits looks now and then. Without, being told has to be enough.
	Polls bool
	// Overlaps: of PostgreSQL's statements that tell, others may come between what they see and what
	// they do.
	Overlaps bool
	// Strict has one in line whose second statement found the row locked, once it has looked, though what had it
	// locked has not ended.
	Strict bool
	// Locks: the second statement of one that enters the line may find the row locked.
	Locks bool
	// Prompt: who was granted the name in its turn has left the line when it releases it.
	Prompt bool
	// Unanswered: who enters the line may get no answer.
	Unanswered bool
	// Entries: of PostgreSQL's statement that makes an entry, others may come between what it sees of the line and what it does.
	Entries bool
	// Heirs: who gives up may hand its place on.
	Heirs bool
	// Naps: the session that is called sleeps, and is awake between.
	Naps bool
}

// The scopes. Everything in one of them would be too much.
var (
	Told    = Scope{Name: "told", Acquisitions: [...]int8{1, 1, 1}, GivesUp: true}
	Again   = Scope{Name: "again", Acquisitions: [...]int8{2, 2, 0}, GivesUp: true}
	Seen    = Scope{Name: "seen", Acquisitions: [...]int8{2, 1, 1}, GivesUp: true, Overlaps: true, Prompt: true}
	Unsure  = Scope{Name: "unsure", Acquisitions: [...]int8{1, 1, 1}, GivesUp: true, Unanswered: true}
	Noted   = Scope{Name: "noted", Acquisitions: [...]int8{1, 1, 1}, GivesUp: true, Locks: true}
	Napped  = Scope{Name: "napped", Acquisitions: [...]int8{2, 2, 0}, Naps: true}
	Leaves  = Scope{Name: "leaves", Acquisitions: [...]int8{1, 1, 1}, Polls: true, GivesUp: true, Overlaps: true, Locks: true}
	Dies    = Scope{Name: "dies", Acquisitions: [...]int8{1, 1, 1}, Polls: true, Faults: 1, Locks: true}
	Stops   = Scope{Name: "stops", Acquisitions: [...]int8{2, 1, 0}, Polls: true, Faults: 1, Stops: true, Locks: true}
	Slow    = Scope{Name: "slow", Acquisitions: [...]int8{1, 1, 1}, Polls: true, Slow: 3, Locks: true}
	Delayed = Scope{Name: "delayed", Acquisitions: [...]int8{1, 1, 1}, Polls: true, Slow: 5, Locks: true}
	Behind  = Scope{Name: "behind others", Acquisitions: [...]int8{2, 1, 1}, Polls: true, Faults: 1}
	Newer   = Scope{Name: "newer", Acquisitions: [...]int8{2, 1, 1}, Polls: true, Slow: 1}
)

// The scopes in which the protocol breaks a promise: what it does not do.
var (
	// Slower: a number can be forgotten by a newcomer who saw that nobody waits, and was granted the name four
	// seconds later. Whoever came meanwhile and did not change it notes that with the next look.
	Slower = Scope{Name: "slower", Acquisitions: [...]int8{2, 1, 1}, Polls: true, Slow: 4}
	// Locked: a number that somebody found locked can be forgotten by what had it locked, and that is noted
	// with the next look.
	Locked = Scope{Name: "locked", Acquisitions: [...]int8{2, 1, 0}, Polls: true, Locks: true, Strict: true}
	// Unswept: the entry of a wait that was granted counts again after the next grant, until it is removed. Nobody
	// calls who looked meanwhile; it polls.
	Unswept = Scope{Name: "unswept", Acquisitions: [...]int8{2, 1, 1}}
	// Crowded: who enters behind others does not change the number. If the line moves on to the last of these while the statement runs, the
	// number can be forgotten by that one, and that is noted with the next look.
	Crowded = Scope{Name: "crowded", Acquisitions: [...]int8{2, 1, 1}, Polls: true, Entries: true}
	// Handed: a turn that was taken is not handed on with the place, if it came to nothing. The next one looks within
	// two seconds.
	Handed = Scope{Name: "handed on", Acquisitions: [...]int8{1, 1, 0}, GivesUp: true, Heirs: true}
)

// naps says whether the session is modelled that sleeps. A PostgreSQL connection listens all the time.
func (p Protocol) naps() bool { return p.Scope.Naps && p.Variant == TwoStatements }
