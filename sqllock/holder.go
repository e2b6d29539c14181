package sqllock

import (
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/plain"
)

// Holder says who holds a lock, or asks for it.
type Holder struct {
	// Host and PID of the process.
	Host string
	PID  int
	// Label is what WithLabel gave.
	Label string
	// Metadata is what WithMetadata gave, as a JSON object; empty if nothing.
	Metadata string
}

// String is "label (host, pid N)", as far as it is known, fit for a terminal.
func (h Holder) String() string {
	var place []string

	if h.Host != "" {
		place = append(place, plain.Text(h.Host))
	}

	if h.PID != 0 {
		place = append(place, fmt.Sprintf("pid %d", h.PID))
	}

	where, label := strings.Join(place, ", "), plain.Text(h.Label)

	switch {
	case label == "":
		return where
	case where == "":
		return label
	default:
		return fmt.Sprintf("%s (%s)", label, where)
	}
}

// HeldLock is a lock that somebody holds, as the database knows it.
type HeldLock struct {
	// Name of the lock, Strategy that keeps it, Token of the grant: where several
	// holders of one process have it one after the other, the largest of theirs.
	Name     string
	Strategy string
	Token    int64
	// Holder is who has it.
	Holder Holder
	// HeldFor is how long the holder has had it, and Remaining how long its
	// lease runs without renewal, both by the database's clock.
	HeldFor   time.Duration
	Remaining time.Duration
	// Owner identifies the acquisition. Together with the name it can release
	// the lock by hand, so do not show it to those who must not.
	Owner string
}

// LastGrant is the latest grant of a name, whether somebody still holds it or
// not.
type LastGrant struct {
	// Name of the lock and Token of the grant.
	Name  string
	Token int64
	// Holder had it, or still has.
	Holder Holder
	// Remaining is how long its lease runs without renewal, by the database's
	// clock; zero if nobody holds the name.
	Remaining time.Duration
	// Taken is how long nobody is granted the name though nobody holds it: until
	// the minimum hold of a lock that was released is over, or the lock delay of
	// one whose lease ran out. Zero if there is no such thing.
	Taken time.Duration
	// Ended says why it ended, if that was not its own release: ReasonForced,
	// ReasonExpired if it was reaped, else empty. Detail is the text given to
	// ForceRelease.
	Ended  Reason
	Detail string
	// Guarded: the row is locked against the next grant at this moment. If that
	// lasts, a transaction with a Guard is open; for an instant it may be a
	// renewal or an attempt. It is not known on SQLite, and false there.
	Guarded bool
}

// Filter narrows Holders. The zero value matches all locks.
type Filter struct {
	// Prefix of the names; empty is every name.
	Prefix string
	// Limit is the most locks to return; zero is no limit.
	Limit int
}

// Reaped counts what Reap did.
type Reaped struct {
	// Expired counts grants whose lease had run out.
	Expired int
	// Removed counts idle names whose rows were deleted.
	Removed int
}
