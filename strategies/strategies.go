// Package strategies is the contract between the core, which knows no SQL, and
// strategies, which have no log. Users take a strategy from one of the folders
// here and give it to sqllock.New. Here are also the fields of sqllock's HeldError,
// LostError, Status, Holder and Waiter. The rest is for authors of strategies.
//
// Everything passes as data. A strategy reports who holds a name as a [HeldError]
// and why a grant is gone as a [LostError]; the core makes of them what users see.
//
// What every strategy must have is in [Strategy]. What only some have is an interface of its
// own, and the core finds it by a type assertion: [Queuer], [Guarder], [Noter], [Raiser],
// [Placer] and [Recoverer].
// The conformance suite in package sqllocktest says whether a strategy keeps the contract.
package strategies

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/plain"
)

// Strategy is how a lock is kept in a database. It is safe for concurrent use. It
// makes one attempt for each call and has no log or pause between attempts of its own: the
// core has those, and calls no strategy under a mutex that others need. It needs no goroutine,
// unless it asks several servers at once, as package quorum does, or gives back later what it keeps.
type Strategy interface {
	// Acquire makes one attempt for each request to take its name for its owner, and does not
	// wait for a holder, a guard or a transaction that stands in the way. Answers come in the order of the
	// requests, whose names differ. Of several none is Shared, nor has From.
	//
	// An error is a *HeldError if the name is not free. An error that wraps
	// ErrUnsupported, ErrNoSchema, ErrReadOnly or ErrNotAllowed is final. One that
	// wraps ErrNotSent, ErrBusy or ErrTooManyConnections says that nothing was taken,
	// or was given back with its connection. After any other error the outcome is
	// unknown: the grant may exist in the database. It wraps ErrUnreachable if
	// no answer came. An attempt that is repeated with the same
	// owner must then succeed, with the same token, or the strategy must have
	// ended what the first one took.
	//
	// Several calls share a statement, or a few. One that they could not serve, because a row was
	// locked for example, is answered with ErrNotBatched and not waited for: the core then makes it
	// alone. So are all if the strategy is Unbatched. The same goes for Renew and Release.
	Acquire(ctx context.Context, requests []Request) ([]Grant, []error)
	// Renew lets the leases of grants run for so long from now on, by the database's
	// clock, or longer if they do already: a renewal that was held up on its
	// way must not shorten what a later one gave. nil: renewed. A *LostError:
	// the grant is gone for good. Any other error: unknown, which is not renewed.
	// With a lease of zero it asks the database whether the grants are still there, and changes
	// nothing.
	//
	// A grant that is in several places counts though it is not in all of them: a *PartialError says
	// that it was renewed. An error that wraps ErrUnsettled, also of a Release, says that a call for the grant got no answer:
	// what that may have left, or bring yet, Release does not end, and Settle has to follow.
	Renew(ctx context.Context, grants []Grant, lease time.Duration) []error
	// Release ends grants. nil or a *PartialError: the grant was ended by this call or by an earlier
	// one. A *LostError: it had been lost before. Any other error: unknown, and the
	// call may be repeated. It says whether others are registered as waiting for a name that it has freed: the next one of
	// this process goes to the end of their line then.
	Release(ctx context.Context, grants []Grant) (contended []bool, errs []error)
	// Settle ends whatever attempts by r.Owner left behind, because an answer was
	// lost for example. nil: nothing is left. It may be repeated.
	Settle(ctx context.Context, r Request) error
	// Features says what the strategy can do on its database.
	Features() Features
	// Validate reports a strategy that was built wrong, for example with a nil pool or
	// for a database that cannot carry it. sqllock.New returns its error.
	Validate() error

	// List returns the names that match f and that are held, or taken though nobody
	// holds them, ordered by name, of whatever strategy.
	List(ctx context.Context, f Filter) ([]Status, error)
	// Status returns what is known of a name's latest grant, also when it has ended.
	// It waits for nobody's transaction. false: the name was never granted, or it was
	// removed since.
	Status(ctx context.Context, name string) (Status, bool, error)
	// ForceRelease ends the grant that seen tells of, or what keeps the name taken after it: the one of seen.Name for
	// which seen.Is says so. false: the name is free. A *HeldError: another grant was made since, and stays, whose Token it
	// tells; or a transaction has the row locked.
	ForceRelease(ctx context.Context, seen Status, reason string) (bool, error)
	// Reap ends grants whose lease has expired and removes what is left of names
	// that have been idle for longer than retention.
	Reap(ctx context.Context, retention time.Duration) (Reaped, error)
	// ReapIdle removes what is kept of so many names at most that were acquired longer ago than idle, if nothing is to be
	// known of them any more: nobody has them or waits for them, no mark is remembered, and no loss is to be told. Their
	// tokens go on growing all the same. It says how many it has removed, and whether there may be more. It waits for
	// nobody's row lock. The core has it do so in the background.
	ReapIdle(ctx context.Context, idle time.Duration, limit int) (removed int, more bool, err error)
	// Close gives back what the strategy keeps of the pool without a lock, for the next one. It may be used again.
	Close(ctx context.Context)
}

// AcquireOne makes an attempt for one request, as Strategy.Acquire has it.
func AcquireOne(ctx context.Context, s Strategy, r Request) (Grant, error) {
	grants, errs := s.Acquire(ctx, []Request{r})

	return grants[0], errs[0]
}

// RenewOne renews one grant of a strategy, or checks it if the lease is zero, as Strategy.Renew has it.
func RenewOne(ctx context.Context, s Strategy, g Grant, lease time.Duration) error {
	return s.Renew(ctx, []Grant{g}, lease)[0]
}

// ReleaseOne ends one grant of a strategy, as Strategy.Release has it.
func ReleaseOne(ctx context.Context, s Strategy, g Grant) (contended bool, err error) {
	waited, errs := s.Release(ctx, []Grant{g})

	return waited[0], errs[0]
}

// AttemptTime is the longest that what is sent for an attempt may take. The core looks for a second longer for what an attempt may
// have brought whose answer was lost.
const AttemptTime = 5 * time.Second

// Grant is what an attempt has brought. The zero value is none.
type Grant struct {
	// Token is the fencing token, larger than that of every earlier grant of the name. If the request reserved several
	// it is the first of them, and Last is the last: the core has holders of its process take the lock over, each under the
	// next of them, and passes the grant back with that. The next grant of the name, whoever gets it, has a larger token than
	// both, also after a crash.
	Token int64
	Last  int64
	// Phase is the Owner that Waiter tells while readers have the name, of whom the grant's is one; else empty.
	Phase string
	// Unsettled: a call for the grant that it can do without got no answer, as ErrUnsettled says of a renewal.
	Unsettled bool
	// State is the strategy's own, by which it knows the grant again. It is not nil.
	State any
}

// None says whether there is no grant.
func (g Grant) None() bool { return g.State == nil }

// Mode says who may hold a name at the same time.
type Mode int

// The modes.
const (
	// Exclusive, the zero value: one holder.
	Exclusive Mode = iota
	// Shared: any number of readers, and no other holder. The time from the first of them until
	// the last is a phase: all have the token that was drawn for the first.
	Shared
)

// Request is what an attempt asks for.
type Request struct {
	// Name of the lock, already checked.
	Name string
	// Owner is random, made for one acquisition, and scopes every statement.
	Owner string
	// From is nil unless another owner's grant is to go over to Owner, where Features.Passes says that it can: with its tokens, and
	// with a lease that begins anew. The answer is a *LostError if that owner has not got the name, and a *HeldError if it has, and
	// a transaction has the row locked or nothing is granted. First, Line, Process, Wait and Tokens are of no account. An attempt
	// that is repeated finds what the first one did. If From has the same owner nothing is asked: the answer is the grant as it
	// stands, to be renewed, checked or released.
	From *Source
	// Mode is Exclusive unless the strategy says in its Features that it knows others.
	Mode Mode
	// Lease is how long the grant lasts without renewal.
	Lease time.Duration
	// MinHold and LockDelay are zero unless the caller asked for them.
	MinHold   time.Duration
	LockDelay time.Duration
	// Tokens is how many tokens the grant is to reserve. Zero is one. A strategy may give it fewer.
	Tokens int64
	// First: it is the caller's turn, or order is of no account. Otherwise the name is not
	// granted while others wait for it, and the answer is a HeldError with Line.
	First bool
	// Line is what was told of a line that nobody but the caller is in; zero if that is not
	// so. With the grant the database forgets that anybody waits, if it is still that.
	Line int64
	// Process and Wait are what a Queuer knows the caller by, whom nobody in the line is
	// behind any more when the name is granted; empty if it is in none.
	Process string
	Wait    string
	// DurableRelease: the release waits until it is on disk, too. Otherwise it
	// need not: if it is lost in a crash of the server, the lease ends the grant.
	DurableRelease bool
	// AsynchronousCommit: the grant and its renewals need not wait until they are on disk, where the database tells of a crash and
	// grants nothing then until all leases have ended that it may have forgotten.
	AsynchronousCommit bool
	// Holder says who asks.
	Holder Holder
	// Place is what a Placer gave for this request, whose caller waits; else nil.
	Place any
}

// Source is a grant that goes over to another owner.
type Source struct {
	// Owner who has it, or DetachedPrefix and something random if it is nobody's for now.
	Owner string
	// Token and Last are those of the Grant.
	Token int64
	Last  int64
}

// Protocol is the one that this version speaks: what the rows in the database's tables mean, and how they may change. Tables for which
// a program has to speak another one are refused.
const Protocol = 1

// DetachedPrefix is how the owner of a grant begins that no process has: it waits for one that it goes over to.
const DetachedPrefix = "detached-"

// Holder says who holds a lock, or asks for it.
type Holder struct {
	// Host and PID of the process.
	Host string
	PID  int
	// Label is a text that the user gave, Metadata a JSON object of theirs, empty if nothing.
	Label    string
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

// Features says what a strategy can do, beside what its methods show. The core asks
// for nothing that is not here.
type Features struct {
	// Strategy and Database are names for messages: "cas", "postgres".
	Strategy string
	Database string
	// ConnectionHeld: the lock lives in a database session and ends the
	// instant that session does, for whatever reason.
	ConnectionHeld bool
	// MaxLease is the longest lease that the server can carry; zero is no limit but
	// the core's own.
	MaxLease time.Duration
	// LeavesLine: a grant ends the Wait of its Request. Otherwise Leave has to follow.
	LeavesLine bool
	// Calls: a release does not tell the first in line. Call of a Queuer has to follow.
	Calls bool
	// MinHold and LockDelay: the fields of Request of those names work.
	MinHold   bool
	LockDelay bool
	// Shared: the field Mode of Request works.
	Shared bool
	// Slots: the field Slots of Waiter works, and names with several slots can be waited for.
	Slots bool
	// Passes: the field From of Request works.
	Passes bool
	// Several: several names can be acquired at once.
	Several bool
	// Unbatched: calls are made one by one. Several are all answered with ErrNotBatched.
	Unbatched bool
	// Recovers: the strategy is a Recoverer, whose database may have recovery pauses.
	Recovers bool
	// AsynchronousCommit: the field of Request of that name works.
	AsynchronousCommit bool
	// Marks: the strategy is a Noter. Package sqllock sets it.
	Marks bool
}

// Tx is the caller's own transaction, as postgres.Tx, mysql.Tx, sqlite.Tx and
// their siblings wrap it. The core passes it on and does nothing with it.
type Tx interface {
	// Database names the dialect.
	Database() string
}
