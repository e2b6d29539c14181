package strategies

import (
	"errors"
	"fmt"
	"time"
)

// What a strategy's errors wrap. Those without a line of their own are sqllock's
// errors of the same names, which users see.
var (
	ErrNotAcquired        = errors.New("not acquired")
	ErrDeadlock           = errors.New("deadlock")
	ErrLost               = errors.New("lock lost")
	ErrReleased           = errors.New("lock already released")
	ErrUnsupported        = errors.New("not supported")
	ErrInvalidOption      = errors.New("invalid option")
	ErrNoSchema           = errors.New("sqllock's tables are missing or outdated")
	ErrReadOnly           = errors.New("database is read-only")
	ErrNotAllowed         = errors.New("the database user lacks a privilege on sqllock's tables")
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

	for _, clear := range []error{
		ErrNotAcquired, ErrUnsupported, ErrNoSchema, ErrReadOnly, ErrNotAllowed, ErrInvalidOption,
		ErrNotSent, ErrBusy, ErrTooManyConnections, ErrNotBatched,
	} {
		if errors.Is(err, clear) {
			return false
		}
	}

	return true
}

// HeldError reports that a name is not free. It matches ErrNotAcquired.
type HeldError struct {
	// Name that is not free.
	Name string
	// Holder is who has it, Token that grant's; both zero if they are not known.
	Holder Holder
	Token  int64
	// Owner of that grant, empty if it is not known. Two answers that have the same tell of the same grant.
	Owner string
	// Shared: readers have it, of whom Holder is one.
	Shared bool
	// Remaining is how long the name stays taken without a renewal; zero if not known.
	Remaining time.Duration
	// Line is not zero if the name is free, and kept for those who wait: for Request.
	Line int64
	// Detail says more where there is more to say.
	Detail string
	// Err says more for errors.Is and errors.As, that the attempt is ErrUnsettled for example. It may be nil.
	Err error
}

// Error is for logs; users see the core's *sqllock.HeldError.
func (e *HeldError) Error() string {
	return fmt.Sprintf("lock %q is held", e.Name) + by(e.Holder) + inBrackets(e.Detail)
}

// Is reports whether target is ErrNotAcquired.
func (*HeldError) Is(target error) bool { return target == ErrNotAcquired }

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
	said := "strategy " + e.Strategy
	if e.Op != "" {
		said = e.Op
	}

	said += ": " + ErrUnsupported.Error() + " " + e.Where

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
	// Expired: its lease expired.
	Expired Reason = "expired"
	// TakenOver: another has been granted the name.
	TakenOver Reason = "taken over"
	// Forced: ForceRelease ended it.
	Forced Reason = "forced"
	// SessionGone: the database session that held it has ended.
	SessionGone Reason = "session gone"
	// Unknown: the database does not know why.
	Unknown Reason = "unknown"
)

// LostError reports that a grant is gone. It matches ErrLost.
type LostError struct {
	// Reason is why.
	Reason Reason
	// Detail says more, as the reason given to ForceRelease.
	Detail string
	// Holder and Token are those of the name's latest grant, if the grant was TakenOver.
	// The holder is zero if that has ended.
	Holder Holder
	Token  int64
	// Err is the database's error that showed it, or nil.
	Err error
	// Unsettled: it matches ErrUnsettled, too.
	Unsettled bool
}

// Error is for logs; users see the core's *sqllock.LostError.
func (e *LostError) Error() string {
	said := "grant lost: " + string(e.Reason) + by(e.Holder) + inBrackets(e.Detail)
	if e.Token != 0 {
		said += fmt.Sprintf(" (since then granted with token %d)", e.Token)
	}

	return said
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

// by names a holder, if it is known.
func by(h Holder) string {
	if h.Host == "" && h.PID == 0 {
		return ""
	}

	return fmt.Sprintf(" by %s, pid %d", h.Host, h.PID)
}

// inBrackets is what more there is to say, if there is anything.
func inBrackets(detail string) string {
	if detail == "" {
		return ""
	}

	return " (" + detail + ")"
}

// Is reports whether target is ErrLost, or ErrUnsettled if the loss is that.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || e.Unsettled && target == ErrUnsettled
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }
