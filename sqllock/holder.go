package sqllock

import (
	"fmt"
	"strings"
	"time"
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

// String is "label (host, pid N)", as far as it is known.
func (h Holder) String() string {
	var place []string

	if h.Host != "" {
		place = append(place, h.Host)
	}

	if h.PID != 0 {
		place = append(place, fmt.Sprintf("pid %d", h.PID))
	}

	where := strings.Join(place, ", ")

	switch {
	case h.Label == "":
		return where
	case where == "":
		return h.Label
	default:
		return fmt.Sprintf("%s (%s)", h.Label, where)
	}
}

// HeldLock is a lock that somebody holds, as the database knows it.
type HeldLock struct {
	// Name of the lock, Strategy that keeps it, Token of the grant.
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
