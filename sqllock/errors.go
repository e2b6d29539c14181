package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/strategies"
)

// Sentinels, for errors.Is. Each may come with the driver's error beside it,
// which errors.As reaches, unless it comes after the work: in a [LostError] or a [ReleaseError].
var (
	// ErrNotAcquired reports that the lock is somebody else's: the database said so, or
	// this process has it, or had it while the call waited. A *[HeldError] tells who
	// holds it. When ctx ended the wait, the error matches ctx.Err() too. Nothing is
	// acquired under the context of a lock that has ended, whoever has the name: that
	// error matches ErrLost or ErrReleased as well.
	ErrNotAcquired = strategies.ErrNotAcquired
	// ErrDeadlock reports a wait for a lock whose holder waits for this one, directly or over
	// others. It comes with ErrNotAcquired: look for it first. The youngest of these waits gets it, with a *[DeadlockError]. Each
	// must have begun under the context of the lock that its process holds, which [Lock.Context] returns and
	// [Locker.Do] passes on. A wait with a limit counts, too. A holder counts as waiting if
	// anything waits under the context of its lock. Strategy forupdate also returns it, without a *[DeadlockError], if all
	// connections of the pool that may hold locks do, and another one is waited for under each of those.
	ErrDeadlock = strategies.ErrDeadlock
	// ErrRecovering reports that nothing is granted yet: another server has become the primary of the database, and may lack what the
	// one before has granted, whose holders trust their locks until their leases end; or the server has crashed, and grants do not
	// wait for its disk ([Tuning].AsynchronousCommit). A *[HeldError] says how long that is. An Acquire
	// goes on waiting.
	ErrRecovering = strategies.ErrRecovering
	// ErrLost reports that the lock was ours and is not any more. A *[LostError] tells why.
	ErrLost = strategies.ErrLost
	// ErrReleased reports that the handle was released before.
	ErrReleased = strategies.ErrReleased
	// ErrNotHeld reports that nobody holds the name.
	ErrNotHeld = errors.New("lock not held by anyone")
	// ErrChangedHands reports that the name was acquired again since the look that [Locker.ForceRelease] was
	// given, by somebody who keeps it. A *[HeldError] tells who: look again.
	ErrChangedHands = errors.New("it has changed hands since it was looked at")
	// ErrClosed reports that the locker was closed.
	ErrClosed = errors.New("locker closed")
	// ErrUnsupported reports that the strategy, the database or the server cannot do it. A
	// *databases.ServerError tells what is wrong with a server, a *[UnsupportedError] where
	// the strategy does not work.
	ErrUnsupported = strategies.ErrUnsupported
	// ErrInvalidName reports a name that is empty, longer than [MaxNameLength] bytes (250 bytes with
	// [WithPermits]), not UTF-8, or has a NUL byte or U+001F.
	ErrInvalidName = errors.New("invalid lock name")
	// ErrInvalidOption reports an option whose value makes no sense.
	ErrInvalidOption = strategies.ErrInvalidOption
	// ErrNoSchema reports that sqllock's tables are missing or older than this version.
	ErrNoSchema = strategies.ErrNoSchema
	// ErrReadOnly reports that the server is a replica or takes no writes.
	ErrReadOnly = strategies.ErrReadOnly
	// ErrNotAllowed reports that the database user lacks a privilege: on sqllock's tables, or to end another user's session.
	ErrNotAllowed = strategies.ErrNotAllowed
	// ErrUnreachable reports that the database cannot be reached, or did not answer in
	// time, or that another transaction kept it from answering, such as an open guard under
	// a lease that has ended, so that it is not known who holds the lock. An Acquire of a
	// locker that has reached the database before goes on waiting for it, as for the lock.
	// Whatever is answered while connecting counts as this once the database had been reached: poolers answer for a
	// server that is away.
	ErrUnreachable = strategies.ErrUnreachable
	// ErrTooManyConnections reports that the server takes no more connections, or that
	// the pool has none left to hold one more lock with, which strategy forupdate needs. A
	// waiting Acquire goes on waiting for one, as for the lock.
	ErrTooManyConnections = strategies.ErrTooManyConnections
)

// Retryable says whether the call that returned err may succeed later, with a context that has not ended, though the program
// changes nothing: somebody has the lock, or the database grants nothing yet after a fail-over, cannot be reached, takes no more connections, or takes no writes. It is
// false after [ErrDeadlock], where what is held has to be released first, under the context of a lock that has ended, and when the
// lock was acquired and work has run: after a *[LostError] or a *[ReleaseError]. [Locker.Do] also returns the error of its function,
// which Retryable cannot tell from one of Do itself: if the function returned an [ErrUnreachable] of its own, it is true, although
// work has run. So note in the function what was sent and committed, as the example of a handler at Do does.
func Retryable(err error) bool {
	return !isAny(err, ErrDeadlock, ErrLost, ErrReleased, ErrClosed) &&
		isAny(err, ErrNotAcquired, ErrRecovering, ErrUnreachable, ErrTooManyConnections, ErrReadOnly)
}

// isAny says whether an error matches one of some.
func isAny(err error, some ...error) bool {
	return slices.ContainsFunc(some, func(one error) bool { return errors.Is(err, one) })
}

// HeldError says that a name is held and by whom, or that nothing is granted yet. It matches [ErrNotAcquired], or [ErrRecovering]. Its
// fields are those of [strategies.HeldError].
type HeldError = strategies.HeldError

// Reason says why a lock was lost.
type Reason = strategies.Reason

// The reasons.
const (
	// ReasonExpired: the trust window ended without a confirmed renewal.
	ReasonExpired = strategies.Expired
	// ReasonTakenOver: another holder has the lock.
	ReasonTakenOver = strategies.TakenOver
	// ReasonAdopted: the lock of the claim was adopted, and has not ended. SuccessorToken is its own token.
	ReasonAdopted Reason = "adopted"
	// ReasonForced: [Locker.ForceRelease] took it away.
	ReasonForced = strategies.Forced
	// ReasonSessionGone: the database session that held the lock has ended.
	ReasonSessionGone = strategies.SessionGone
	// ReasonMaxHold: the lock was held for as long as [WithMaxHold] allows.
	ReasonMaxHold = strategies.MaxHold
	// ReasonUnknown: the database says that the lock is not ours, not why.
	ReasonUnknown = strategies.Unknown
)

// LostError says that a lock was lost and why. It matches [ErrLost], and nothing that its Err matches: what ran under the lock
// may have had its effect, and a caller that tries again after [ErrUnreachable] or an error of the driver would repeat it. Its
// fields are those of [strategies.LostError].
type LostError = strategies.LostError

// OptionError reports an option that cannot be used. It matches [ErrInvalidOption], or
// [ErrUnsupported] if it is the strategy or the server that cannot do it.
type OptionError struct {
	// Option is the function that made the option, "WithLease", or "Extend". Value is what it was
	// given; empty if that is not shown.
	Option string
	Value  string
	// Reason says what is wrong with it.
	Reason string
	// Instead is an option that could be used in its place, "WithoutRenewal"; empty if
	// there is none.
	Instead string
	// Err is ErrInvalidOption or ErrUnsupported.
	Err error

	rule bool // the reason is a rule, and not what the option is or does
}

// Error begins with Err, or has it behind the option if that is ErrUnsupported.
func (e *OptionError) Error() string {
	option, reason := e.Option, e.Reason

	if e.Value != "" {
		option += "(" + e.Value + ")"
	}

	if e.Instead != "" {
		reason += " or " + e.Instead
	}

	switch {
	case errors.Is(e.Err, ErrUnsupported):
		return fmt.Sprintf("%s: %s %s", option, e.Err, reason)
	case e.rule:
		return fmt.Sprintf("%s: %s: %s", e.Err, option, reason)
	default:
		return fmt.Sprintf("%s: %s %s", e.Err, option, reason)
	}
}

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }

// badOption reports an option by what is wrong with it: that it "is negative".
func badOption(option, value, reason string, args ...any) *OptionError {
	return &OptionError{Option: option, Value: value, Reason: fmt.Sprintf(reason, args...), Err: ErrInvalidOption}
}

// againstRule reports an option by the rule that it breaks.
func againstRule(option, value, rule string, args ...any) *OptionError {
	return &OptionError{Option: option, Value: value, Reason: fmt.Sprintf(rule, args...), Err: ErrInvalidOption, rule: true}
}

// unsupportedOption reports an option that a strategy cannot honour.
func unsupportedOption(option string, features strategies.Features) *OptionError {
	reason := fmt.Sprintf("by strategy %s on %s", features.Strategy, features.Database)
	if features.Strategy != "cas" {
		reason += "; use strategy cas"
	}

	return &OptionError{Option: option, Err: ErrUnsupported, Reason: reason}
}

// ofExtend is an error in a lease that Extend was given.
func ofExtend(err error) error {
	option := new(OptionError)
	if !errors.As(err, &option) || option.Option != "WithLease" {
		return err
	}

	own := *option
	own.Option, own.Instead = "Extend", ""

	return &own
}

// ReleaseError reports a release that failed and goes on in the background. The lock was held, and
// what ran under it has run. So it matches nothing that Err matches, with errors.Is or errors.As: a
// caller that tries again after [ErrUnreachable] or an error of the driver would do the work twice.
type ReleaseError struct {
	// Name of the lock.
	Name string
	// FreeAfter is when others can have the lock at the latest, from now on: when its
	// lease, its minimum hold and its lock delay are over. The lease of a lock with a renewal
	// that got no answer may begin up to six seconds after that was given up.
	FreeAfter time.Duration
	// Err is why: the last error of the database.
	Err error
}

// Error is one line, which says what becomes of the lock.
func (e *ReleaseError) Error() string {
	return fmt.Sprintf("release lock %q: %s (tried again in the background; it is free after %s, at the latest)",
		e.Name, plain.Line(e.Err), e.FreeAfter.Round(time.Millisecond))
}

// UnsupportedError reports that a strategy does not work with a database. It matches
// [ErrUnsupported]. Its fields are those of [strategies.UnsupportedError].
type UnsupportedError = strategies.UnsupportedError

// SchemaError reports that sqllock's tables are missing or older than this version. It
// matches [ErrNoSchema]. Its fields are those of [strategies.SchemaError].
type SchemaError = strategies.SchemaError

// asHeld is a strategy's answer about a name, as users see it.
func asHeld(name string, err error) error {
	held := new(HeldError)
	if !errors.As(err, &held) {
		return err
	}

	seen := *held
	seen.Name, seen.At, seen.Err = name, time.Now(), nil

	return &seen
}

// isAnswer says whether an attempt's error is an answer rather than a doubt.
func isAnswer(err error) bool {
	return isAny(err, ErrNotAcquired, ErrRecovering, ErrUnsupported, ErrNoSchema, ErrReadOnly, ErrNotAllowed, ErrClosed,
		ErrInvalidName, ErrInvalidOption)
}

// waitError is the error of a wait that ended before the lock was acquired. It
// matches what ended the wait and what the last attempt said: ErrNotAcquired if that
// was that somebody has the lock.
type waitError struct {
	name  string // of the lock
	cause error
	last  error
}

func (e *waitError) Error() string {
	said := fmt.Sprintf("lock %q not acquired: %s", e.name, plain.Line(e.cause))
	held, unheld := new(HeldError), new(unheldError)

	switch {
	case e.last == nil:
		return said
	case errors.As(e.last, &held):
		return said + "; " + held.How()
	case errors.As(e.last, &unheld):
		return said + "; " + unheld.how()
	case errors.Is(e.last, ErrUnreachable):
		return said + "; " + plain.Line(e.last)
	default:
		return said + "; the last attempt said: " + plain.Line(e.last)
	}
}

func (e *waitError) Unwrap() []error {
	if e.last == nil {
		return []error{e.cause}
	}

	return []error{e.cause, e.last}
}

// ownTime is what a caller with ctx is told of err. If ctx has not ended, the time was over that this package or a strategy
// gives a call, which must not look like the end of a context of the caller's.
func ownTime(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}

	return outOfTime(err)
}

// outOfTime is ownTime where no caller's context ends what failed.
func outOfTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ownTimeError{err}
	}

	return err
}

// ownTimeError is an error without the end of the context that is in it. It matches ErrUnreachable, unless it is an answer.
type ownTimeError struct{ err error }

func (e ownTimeError) Error() string { return e.err.Error() }

// Is reports whether err matches target.
func (e ownTimeError) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded, context.Canceled:
		return false
	case ErrUnreachable:
		return !isAnswer(e.err) || errors.Is(e.err, target)
	default:
		return errors.Is(e.err, target)
	}
}

// As finds what errors.As finds in err.
func (e ownTimeError) As(target any) bool { return errors.As(e.err, target) }

// unheld says whether an answer tells of nobody who holds the name.
func unheld(held *HeldError) bool {
	return held.Holder == (Holder{}) && held.Remaining == 0 && held.Line == 0
}

// orUnheld is the error of an attempt or of a wait, for who has to know whether somebody
// has the lock: a job must not be skipped because of a transaction that has the name's
// row locked for long.
func orUnheld(err error) error {
	if held := new(HeldError); errors.As(err, &held) && unheld(held) {
		return &unheldError{held}
	}

	return err
}

// unheldError reports that a name could not be had though nobody is known to hold it.
// It matches ErrUnreachable.
type unheldError struct{ held *HeldError }

func (e *unheldError) Error() string {
	return fmt.Sprintf("lock %q not acquired: %s", e.held.Name, e.how())
}

// how says why without the name.
func (e *unheldError) how() string {
	return fmt.Sprintf("nobody is known to hold it (%s: see \"sqllock show\")", plain.Text(e.held.Detail))
}

// endedContext is the error of an acquisition whose context is that of a lock that has
// ended.
func endedContext(name string, ended error) error {
	return fmt.Errorf("lock %q %w: its context is that of a lock that has ended: %w: %w", name, ErrNotAcquired, context.Canceled, ended)
}

// uncertain says whether an attempt that failed may have been granted all the same.
func uncertain(err error) bool {
	return strategies.Uncertain(err) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrInvalidName)
}

// Is reports whether target is ErrUnreachable.
func (*unheldError) Is(target error) bool { return target == ErrUnreachable }
