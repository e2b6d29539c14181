package strategies

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/plain"
)

// What a strategy's errors wrap. Those without a line of their own are sqllock's
// errors of the same names, which users see.
var (
	ErrNotAcquired        = errors.New("not acquired")
	ErrDeadlock           = errors.New("deadlock")
	ErrRecovering         = errors.New("nothing is granted yet after a fail-over")
	ErrLost               = errors.New("lock lost")
	ErrReleased           = errors.New("lock already released")
	ErrUnsupported        = errors.New("not supported")
	ErrInvalidOption      = errors.New("invalid option")
	ErrNoSchema           = errors.New("sqllock's tables are missing or outdated")
	ErrReadOnly           = errors.New("database is read-only")
	ErrNotAllowed         = errors.New("the database user lacks a privilege")
	ErrUnreachable        = errors.New("the database cannot be reached or does not answer")
	ErrTooManyConnections = errors.New("no free connection")

	// ErrNotSent is wrapped by an error that came before anything was sent to the
	// database: while a connection was waited for, for example. Or what was taken was given back, and that
	// was confirmed.
	ErrNotSent = errors.New("nothing was sent")
	// ErrBusy is wrapped by an error of an attempt that somebody else's transaction
	// kept from an answer: nobody is known to have the lock, and nothing was taken; or by one of
	// a release, that nothing was released. The error matches ErrUnreachable, too.
	ErrBusy = errors.New("another transaction is in the way")
	// ErrUnsettled is wrapped by an error of an attempt, also by a HeldError, that may have left something which the next
	// attempt must not find. Settle has to follow, and the next attempt is another owner's. Of a renewal or a release it says
	// that a call for the grant got no answer, and may bring something yet.
	ErrUnsettled = errors.New("the attempt may have left something")
	// ErrNotBatched is a strategy's answer to one of several calls that needs a statement of its own.
	// Nothing was granted or released; a renewal may have been done all the same.
	ErrNotBatched = errors.New("not together with others")
)

// Uncertain says whether an attempt that failed with err may have been granted all the same, as Strategy.Acquire has it.
func Uncertain(err error) bool {
	if err == nil || errors.Is(err, ErrUnsettled) {
		return err != nil
	}

	certain := []error{
		ErrNotAcquired, ErrRecovering, ErrUnsupported, ErrNoSchema, ErrReadOnly, ErrNotAllowed, ErrInvalidOption,
		ErrNotSent, ErrBusy, ErrTooManyConnections, ErrNotBatched,
	}

	return !slices.ContainsFunc(certain, func(target error) bool { return errors.Is(err, target) })
}

// HeldError says that a name is held and by whom. It matches ErrNotAcquired, or ErrRecovering if nobody is granted it.
type HeldError struct {
	// Name of the lock.
	Name string
	// Holder is who has it; zero if that is not known, for example in the
	// moment of a hand-over, or if nobody has it and others are in line for it. At the end of a
	// long wait it is who has it then, unless the wait was cancelled.
	Holder Holder
	// Token is the holder's fencing token, zero if not known.
	Token int64
	// Owner of the grant; empty if it is not known, or the secret of a claim. Two answers that have the same tell of the same grant.
	Owner string
	// Shared: readers have it, and Holder is one of them.
	Shared bool
	// Remaining is how long the name stays taken without a renewal, as the
	// database saw it; zero if not known. A holder that lives renews its lease.
	Remaining time.Duration
	// Recovering: the database grants nothing until Remaining is over. Another server has become the primary, which may lack what the
	// one before has granted. Nobody is known to hold the name.
	Recovering bool
	// Line is not zero if the name is free, and kept for those who wait: for Request.
	Line int64
	// Place of the caller's process among those who wait, from 1, when that was last asked, which was within four seconds, as a
	// rule. Goroutines of one process have one place. Zero if it is not known, or the caller did not wait. A strategy leaves it zero.
	Place int
	// At is when the database said so, by this machine's clock; zero if this process has the lock. A strategy leaves it zero.
	At time.Time
	// Detail says more where there is more to say.
	Detail string
	// Err says more for errors.Is and errors.As, that the attempt is ErrUnsettled for example. It is nil in what users see.
	Err error
}

// Error is one line: the name, the holder and the time left.
func (e *HeldError) Error() string { return fmt.Sprintf("lock %q is %s", e.Name, e.How()) }

// How says by whom the name is held and for how long, or that nobody holds it.
func (e *HeldError) How() string {
	var b strings.Builder

	remaining := e.Remaining.Round(time.Millisecond)

	holder := e.Holder.String()
	if e.Shared {
		holder = "readers, one of them " + holder
	}

	switch {
	case e.Recovering:
		fmt.Fprintf(&b, "granted to nobody for another %s", remaining)
	case e.Holder != (Holder{}) && remaining > 0:
		fmt.Fprintf(&b, "held by %s, lease ends in %s unless renewed", holder, remaining)
	case e.Holder != (Holder{}):
		fmt.Fprintf(&b, "held by %s", holder)
	case remaining > 0:
		fmt.Fprintf(&b, "reserved for another %s", remaining)
	case e.Line != 0 && e.Detail == "":
		b.WriteString("not held, and goes to the first in line")
	default:
		b.WriteString("held")
	}

	if e.Detail != "" {
		fmt.Fprintf(&b, " (%s)", plain.Text(e.Detail))
	}

	if e.Place > 1 {
		fmt.Fprintf(&b, ", %d ahead in line", e.Place-1)
	}

	return b.String()
}

// Is reports whether target is ErrNotAcquired, or ErrRecovering if it is that.
func (e *HeldError) Is(target error) bool {
	if e.Recovering {
		return target == ErrRecovering
	}

	return target == ErrNotAcquired
}

// Unwrap returns Err.
func (e *HeldError) Unwrap() error { return e.Err }

// UnsupportedError reports that a strategy does not work with a database. It matches
// ErrUnsupported.
type UnsupportedError struct {
	// Op is the function that reports it, "advisory.New"; empty if it was an attempt.
	Op string
	// Strategy is the name of the strategy.
	Strategy string
	// Where says with what it does not work, and why: "on SQLite, which has no advisory locks".
	Where string
	// Fix says what to do about it, and Instead names a strategy that works there. Each
	// is empty if there is none.
	Fix     string
	Instead string
}

// Error is one line.
func (e *UnsupportedError) Error() string {
	said := cmp.Or(e.Op, "strategy "+e.Strategy) + ": " + ErrUnsupported.Error() + " " + e.Where

	switch {
	case e.Fix != "" && e.Instead != "":
		said += "; " + e.Fix + ", or use strategies/" + e.Instead
	case e.Fix != "":
		said += "; " + e.Fix
	case e.Instead != "":
		said += "; use strategies/" + e.Instead
	}

	return said
}

// Is reports whether target is ErrUnsupported.
func (*UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// SchemaError reports that sqllock's tables are missing or older than this version. It
// matches ErrNoSchema.
type SchemaError struct {
	// Err is what the database said.
	Err error
}

// Error says how to make the tables.
func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s: run \"sqllock migrate up\", or your own goose with the files of package migrations: %s", ErrNoSchema, e.Err)
}

// Is reports whether target is ErrNoSchema.
func (*SchemaError) Is(target error) bool { return target == ErrNoSchema }

// Unwrap returns Err.
func (e *SchemaError) Unwrap() error { return e.Err }

// Reason says why a grant ended other than by its release.
type Reason string

// The reasons.
const (
	// Expired: the lease ended by the database's clock, or the trust window without a confirmed renewal.
	Expired Reason = "expired"
	// TakenOver: another has been granted the name.
	TakenOver Reason = "taken over"
	// Forced: ForceRelease ended it.
	Forced Reason = "forced"
	// SessionGone: the database session that held it has ended.
	SessionGone Reason = "session gone"
	// Unknown: the database does not know why.
	Unknown Reason = "unknown"
	// MaxHold: the lock was held for as long as it may be. No strategy gives it.
	MaxHold Reason = "longest hold exceeded"
)

// LostError says that a lock was lost and why. It matches ErrLost, and nothing that Err matches: what ran under the lock
// may have had its effect, and a caller that tries again after ErrUnreachable or an error of the driver would repeat it.
type LostError struct {
	// Name of the lock and Token of the grant that was lost. A strategy leaves them empty.
	Name  string
	Token int64
	// Reason is why.
	Reason Reason
	// Detail says more, as the reason given to ForceRelease.
	Detail string
	// Successor and SuccessorToken are those of the name's latest grant, if the grant was TakenOver. The holder is zero if that has
	// ended, or is not known.
	Successor      Holder
	SuccessorToken int64
	// Err is the last error of the database; else nil.
	Err error
	// Unsettled: it matches ErrUnsettled, too. It is false in what users see.
	Unsettled bool
}

// Error is one line.
func (e *LostError) Error() string {
	if e.Name == "" {
		return "grant lost: " + e.why()
	}

	return fmt.Sprintf("lock %q (token %d) lost: %s", e.Name, e.Token, e.why())
}

// why is the line without what it is about.
func (e *LostError) why() string {
	var b strings.Builder

	switch detail := plain.Text(e.detail()); {
	case e.Reason == Forced:
		fmt.Fprintf(&b, "taken away: %s", detail)
	case e.Reason == MaxHold:
		fmt.Fprintf(&b, "WithMaxHold of %s exceeded", detail)
	case e.Reason == Unknown && detail != "":
		b.WriteString(detail)
	case detail != "":
		fmt.Fprintf(&b, "%s (%s)", e.Reason, detail)
	default:
		b.WriteString(string(e.Reason))
	}

	if e.Err != nil {
		fmt.Fprintf(&b, ": %s", plain.Line(e.Err))
	}

	return b.String()
}

// detail is Detail, or who has the name now.
func (e *LostError) detail() string {
	switch {
	case e.Detail != "" || e.SuccessorToken == 0:
		return e.Detail
	case e.Successor == Holder{}:
		return fmt.Sprintf("since then granted with token %d", e.SuccessorToken)
	default:
		return fmt.Sprintf("by %s with token %d", e.Successor, e.SuccessorToken)
	}
}

// Is reports whether target is ErrLost, or ErrUnsettled if the loss is that.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || e.Unsettled && target == ErrUnsettled
}

// PartialError reports that a grant was renewed or has ended, though not everything that was asked for it got an answer.
type PartialError struct {
	// Err says where a renewal was not confirmed, and why; nil if it was everywhere.
	Err error
	// Unsettled: it matches ErrUnsettled, too.
	Unsettled bool
}

// Error is for logs.
func (e *PartialError) Error() string {
	if e.Err == nil {
		return "it was done, but " + ErrUnsettled.Error()
	}

	return "it was done, but not everywhere: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *PartialError) Unwrap() error { return e.Err }

// Is reports whether target is ErrUnsettled and the error is that.
func (e *PartialError) Is(target error) bool { return e.Unsettled && target == ErrUnsettled }
