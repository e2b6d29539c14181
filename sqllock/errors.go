package sqllock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/internal/plain"
)

// Sentinels, for errors.Is. Each may come with the driver's error beside it,
// which errors.As reaches.
var (
	// ErrNotAcquired: the lock is somebody else's, or the wait ended first. A
	// *HeldError tells who holds it. When ctx ended the wait, the error
	// matches ctx.Err() too.
	ErrNotAcquired = errors.New("not acquired")
	// ErrLost: the lock was ours and is not any more. A *LostError tells why.
	ErrLost = errors.New("lock lost")
	// ErrReleased: the handle was released before.
	ErrReleased = errors.New("lock already released")
	// ErrNotHeld: nobody holds the name.
	ErrNotHeld = errors.New("lock not held by anyone")
	// ErrClosed: the locker was closed.
	ErrClosed = errors.New("locker closed")
	// ErrUnsupported: the strategy, the database or the server can not do it.
	ErrUnsupported = errors.New("not supported")
	// ErrInvalidName: the name is empty, longer than MaxNameLength bytes, not
	// UTF-8, or has a NUL byte.
	ErrInvalidName = errors.New("invalid lock name")
	// ErrInvalidOption: an option's value makes no sense.
	ErrInvalidOption = errors.New("invalid option")
	// ErrNoSchema: sqllock's tables are missing or older than this version.
	ErrNoSchema = errors.New("sqllock's tables are missing or outdated")
	// ErrReadOnly: the server is a replica or takes no writes.
	ErrReadOnly = errors.New("database is read-only")
	// ErrTooManyConnections: the server takes no more connections. A waiting
	// Acquire goes on waiting for one, as for the lock.
	ErrTooManyConnections = errors.New("the server takes no more connections")
)

// HeldError says that a name is held and by whom. It matches ErrNotAcquired.
type HeldError struct {
	// Name of the lock.
	Name string
	// Holder is who has it; zero if that is not known, for example in the
	// moment of a hand-over.
	Holder Holder
	// Token is the holder's fencing token, zero if not known.
	Token int64
	// Remaining is how long the holder's lease runs without renewal, as the
	// database saw it; zero if not known. A holder that lives renews it.
	Remaining time.Duration
	// Detail says more where there is more to say.
	Detail string
}

// Error is one line: the name, the holder and the time left.
func (e *HeldError) Error() string {
	return fmt.Sprintf("lock %q is held%s", e.Name, e.how())
}

// how says by whom and for how long.
func (e *HeldError) how() string {
	var b strings.Builder

	remaining := e.Remaining.Round(time.Millisecond)

	switch {
	case e.Holder != (Holder{}) && remaining > 0:
		fmt.Fprintf(&b, " by %s, lease ends in %s unless renewed", e.Holder, remaining)
	case e.Holder != (Holder{}):
		fmt.Fprintf(&b, " by %s", e.Holder)
	case remaining > 0:
		fmt.Fprintf(&b, " for another %s", remaining)
	}

	if e.Detail != "" {
		fmt.Fprintf(&b, " (%s)", plain.Text(e.Detail))
	}

	return b.String()
}

// Is reports whether target is ErrNotAcquired.
func (*HeldError) Is(target error) bool { return target == ErrNotAcquired }

// Reason says why a lock was lost.
type Reason string

// The reasons.
const (
	// ReasonExpired: the trust window ended without a confirmed renewal.
	ReasonExpired Reason = "expired"
	// ReasonTakenOver: another holder has the lock.
	ReasonTakenOver Reason = "taken over"
	// ReasonForced: ForceRelease took it away.
	ReasonForced Reason = "forced"
	// ReasonSessionGone: the database session that held the lock has ended.
	ReasonSessionGone Reason = "session gone"
	// ReasonMaxHold: the lock was held for as long as WithMaxHold allows.
	ReasonMaxHold Reason = "held for the longest time allowed"
	// ReasonUnknown: the database says that the lock is not ours, not why.
	ReasonUnknown Reason = "unknown"
)

// LostError says that a lock was lost and why. It matches ErrLost.
type LostError struct {
	// Name of the lock and Token of the grant that was lost.
	Name  string
	Token int64
	// Reason is why.
	Reason Reason
	// Detail says more: the reason given to ForceRelease, the successor.
	Detail string
	// Err is the last error of the database, or nil.
	Err error
}

// Error is one line.
func (e *LostError) Error() string {
	var b strings.Builder

	fmt.Fprintf(&b, "lock %q (token %d) lost: %s", e.Name, e.Token, e.Reason)

	if e.Detail != "" {
		fmt.Fprintf(&b, " (%s)", plain.Text(e.Detail))
	}

	if e.Err != nil {
		fmt.Fprintf(&b, ": %s", oneLine(e.Err))
	}

	return b.String()
}

// Is reports whether target is ErrLost.
func (*LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// final says whether an attempt's error is an answer rather than a doubt.
func final(err error) bool {
	return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrNoSchema) ||
		errors.Is(err, ErrReadOnly) || errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalidName) || errors.Is(err, ErrInvalidOption)
}

// waitError is the error of a wait that ended before the lock was acquired. It
// matches ErrNotAcquired, what ended the wait, and what the last attempt said.
type waitError struct {
	name  string
	cause error
	last  error
}

func (e *waitError) Error() string {
	cause := oneLine(e.cause)

	if e.last == nil {
		return fmt.Sprintf("lock %q not acquired: %s", e.name, cause)
	}

	if held := new(HeldError); errors.As(e.last, &held) && held.Name == e.name {
		return fmt.Sprintf("lock %q not acquired: %s; it is held%s", e.name, cause, held.how())
	}

	return fmt.Sprintf("lock %q not acquired: %s; the last attempt said: %s", e.name, cause, oneLine(e.last))
}

// oneLine joins the lines of an error: of several, or of a driver that tells what
// each address of a server answered.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", ": ") }

func (*waitError) Is(target error) bool { return target == ErrNotAcquired }

func (e *waitError) Unwrap() []error {
	if e.last == nil {
		return []error{e.cause}
	}

	return []error{e.cause, e.last}
}
