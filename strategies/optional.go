package strategies

import (
	"context"
	"time"
)

// Queuer is a strategy that keeps in the database who waits for a name: one line for each
// name, in the order of arrival. Exclusion does not depend on it.
type Queuer interface {
	// Enqueue puts waiters at the ends of the lines for their names, for ttl, unless they are in them. One that was Behind
	// begins at the end when it is not any more. It says whether a name is taken, so that
	// its release will be told to those who listen. If not it may be free, or may have been
	// released before this was known: Stand says.
	//
	// Several are of one process and of different names, and none is Behind. ErrNotBatched says
	// that one has to go alone: a transaction has the row of its name locked, for example. It
	// may be in the line all the same.
	Enqueue(ctx context.Context, all []Waiter, ttl time.Duration) (taken []bool, errs []error)
	// Keep gives all that was noted for a process another ttl, and returns how many
	// those are.
	Keep(ctx context.Context, process string, ttl time.Duration) (int, error)
	// Leave ends what Enqueue noted of a process's waits, by their IDs. It may be repeated.
	Leave(ctx context.Context, process string, ids []string) error
	// Stand says how those of a process stand that are not Behind. If ttl is not zero it also gives all another one, as Keep does.
	Stand(ctx context.Context, process string, ttl time.Duration) ([]Standing, error)
	// Waiters lists those who wait and whose ttl has not ended, by name and in the order of
	// arrival, those Behind last.
	Waiters(ctx context.Context, f WaiterFilter) ([]Waiter, error)
	// Join says whether more readers of this process may have a reader's grant, too: nobody waits for the name, or it is
	// first their turn. Of r it heeds First, Line, Process and Wait, as an acquisition does. Errors are those of Strategy.Renew.
	Join(ctx context.Context, g Grant, r Request) (bool, error)
	// Listen calls ready when from now on nothing is missed that is told to a process,
	// if that can be known. It calls turn when a wait of the process was the first in the line of a
	// name that was released, with its ID and what Request.Line says, and look if that is not
	// known, with the name, or empty if it may be any: Stand says. It also calls look, not released, when a name was announced. It returns when ctx or the connection ends, and an ErrUnsupported where it
	// cannot work.
	Listen(ctx context.Context, process string, ready func(), turn func(name, id string, line int64), look func(name string, released bool)) error
	// Call tells the process that is the first in the line of a name, for each of the names, that it
	// may be free. It follows a wait that was given up, and where Features.Calls says so a
	// release. It may fail for some.
	Call(ctx context.Context, names []string) error
}

// Standing is how a waiter stands.
type Standing struct {
	// Name that it waits for, and its ID.
	Name string
	ID   string
	// Ahead is how many others are before it, zero for a reader with none but readers before it. Life for how long the first of those who are
	// is believed to wait if nobody says so again.
	Ahead int
	Life  time.Duration
	// Taken is for how long the name stays taken without a renewal; zero if it is free, or has readers and
	// a reader waits.
	Taken time.Duration
	// Free is how many slots are free that those before it leave to it, if it waits for one of
	// several. Taken and Line are of no account then.
	Free int
	// Alone: there are no others. Then Line is for Request. It is zero if newcomers do not
	// see that anybody waits, which Enqueue mends.
	Alone bool
	Line  int64
}

// Waiter is one who waits for a name.
type Waiter struct {
	// Name that is waited for.
	Name string
	// Process is random, one for each locker, ID one for each wait.
	Process string
	ID      string
	// Holder says who waits.
	Holder Holder
	// Holding are the owners of the locks under whose contexts it waits, which stay
	// held until the wait ends. A sign before one (+, - or =) is the core's, for finding deadlocks.
	Holding []string
	// Behind: it waits for another wait of its process, and is in no line.
	Behind bool
	// Slots is how many slots the name has for it, of which any will do. Zero is one.
	Slots int
	// Shared: it wants the name as one of its readers, and is behind no other reader.
	Shared bool

	// Waited is how long it has waited, by the database's clock when it is listed.
	Waited time.Duration

	// What follows is not asked for, but told. Ticket says when it came, by the
	// database's clock in microseconds: the smallest is the first.
	Ticket int64
	// Owner of the grant that it waits for; empty if nobody holds the name, or it waits for one of
	// several slots.
	Owner string
	// Place among those who wait for the name, from 1. One that is Behind comes after all who are in line. The core sets it.
	Place int
}

// HoldsOthers reports whether it waits under the context of another lock that it holds.
func (w Waiter) HoldsOthers() bool { return len(w.Holding) > 0 }

// WaitersAhead returns, of what Waiters says of a name, those ahead of the waiter of a process that has an ID.
func WaitersAhead(line []Waiter, process, id string) []Waiter {
	for i, w := range line {
		if w.Process == process && w.ID == id || w.Behind {
			return line[:i]
		}
	}

	return line
}

// WaiterFilter narrows Waiters. The zero value matches all.
type WaiterFilter struct {
	// Name matches one name, Prefix those that begin with it; empty is every name.
	Name   string
	Prefix string
	// Holding matches those only who hold other locks.
	Holding bool
	// Limit is the most waiters to return; zero is no limit.
	Limit int
}

// Placer is a strategy that is Unbatched and can keep only so many locks at a time,
// because each holds a connection of the pool. TryAcquire, which does not wait, returns
// ErrTooManyConnections if there is no place.
type Placer interface {
	// Place waits for a place until ctx ends, first come, first served, and calls
	// waits if it has to, with why. The request that has the place is made at once;
	// its grant has it until it ends, and without a grant it is free again. Errors
	// match ErrTooManyConnections; or ErrDeadlock and ErrNotAcquired at once if all places
	// have locks under which somebody waits for one. This wait is under those of the
	// owners in holding.
	Place(ctx context.Context, holding []string, waits func(why error)) (any, error)
}

// Noter is a strategy that keeps more of a name than its grants.
type Noter interface {
	// Notes reads that. Of a name that was never granted they are zero.
	Notes(ctx context.Context, name string) (Notes, error)
	// Mark records the mark of a name, and says whether the owner had the name then. A mark that is smaller than the recorded
	// one changes nothing. It may be repeated. A mark that is a time of the last 366 days, in microseconds since 1970, keeps the
	// name's row.
	Mark(ctx context.Context, name, owner string, mark int64) (noted bool, err error)
	// Ask notes that whoever has the name is asked to release it, and why, and tells all who listen. It says whether somebody
	// had it. The next grant forgets it.
	Ask(ctx context.Context, name, reason string) (asked bool, err error)
	// Announce tells all who listen that somebody else has the name, or nobody. Their Listen calls look. It does nothing where
	// that cannot be told.
	Announce(ctx context.Context, name string) error
}

// Notes are what is kept of a name beside its grants.
type Notes struct {
	// Owner of the grant; empty if the lease has ended, or nobody has the name. Left is how long the lease runs.
	Owner string
	Left  time.Duration
	// Mark is the largest that was recorded, zero if none was.
	Mark int64
	// Asked is why the owner was asked to release the name; empty if it was not.
	Asked string
}

// Guarder is a strategy whose locks can be used in the caller's transactions.
type Guarder interface {
	// Guard checks in tx that the grant is the name's latest and keeps any
	// other from being made until tx ends. A *LostError: it is not.
	Guard(ctx context.Context, tx Tx, g Grant) error
	// ReleaseTx ends the grant as part of tx: the name is free when tx commits. A mark that is not zero is recorded in tx, too,
	// as Noter.Mark does. ErrUnsupported: it is a reader's, or a session's (Features.ConnectionHeld).
	ReleaseTx(ctx context.Context, tx Tx, g Grant, mark int64) error
}

// Raiser is a strategy whose tokens can be raised. One that is made of several others, which each draw tokens, brings
// them to one.
type Raiser interface {
	// Raise returns the grant, which is no reader's, under a token, or under its own if that is larger. The next grant of
	// the name, whoever gets it, has a larger token than that, also after a crash. Errors are those of Renew. With an error the
	// grant is as before, and the call may be repeated. It waits for no transaction of somebody else that has the name's row locked.
	Raise(ctx context.Context, g Grant, token int64) (Grant, error)
}

// Recoverer is a strategy whose database may have a recovery pause, where Features.Recovers says so.
type Recoverer interface {
	// Recovery says what is known of fail-overs; nothing before the first attempt.
	Recovery(ctx context.Context) (Recovery, error)
	// EndRecovery ends a pause, and one that has not begun yet.
	EndRecovery(ctx context.Context, reason string) error
	// SetLossless says that no commit is lost in a fail-over, and there is no pause, or takes that back.
	SetLossless(ctx context.Context, lossless bool, reason string) error
}
