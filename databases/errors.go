package databases

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
)

var (
	// ErrWrongServer is wrapped by [DB.Verify] when the server is of another
	// kind than the constructor says, or set up so that locks cannot be kept.
	ErrWrongServer = errors.New("unsuitable server")
	// ErrReadOnly is wrapped by [DB.Verify] when the server takes no writes: a
	// replica, a standby, a server in read-only mode.
	ErrReadOnly = errors.New("server is read-only")
	// ErrReplaced is wrapped by [DB.Conn] when the database is not the one any more
	// that it was: SQLite's file was removed, or another has its name.
	ErrReplaced = errors.New("the database file was removed or replaced")
	// ErrNoNotifications is wrapped by [Listener.Listen] where notifications do
	// not come, or the driver cannot wait for them.
	ErrNoNotifications = errors.New("no notifications")
)

// ServerError reports a server that [DB.Verify] refuses. It matches ErrWrongServer.
type ServerError struct {
	// Found is what the server is, or how it is set up.
	Found string
	// Fix says what to do about it; empty if nothing but another server helps.
	Fix string
	// Untested: the server may do, and AllowUntested lets you try it.
	Untested bool
	// Err is the driver's error that showed it, or nil.
	Err error
}

// Error says all of it.
func (e *ServerError) Error() string {
	said := ErrWrongServer.Error() + ": " + e.Found

	if e.Err != nil {
		said += ": " + e.Err.Error()
	}

	if e.Fix != "" {
		said += "; " + e.Fix
	}

	if e.Untested {
		said += "; AllowUntested lets you try it"
	}

	return said
}

// Is reports whether target is ErrWrongServer.
func (*ServerError) Is(target error) bool { return target == ErrWrongServer }

// Unwrap returns Err.
func (e *ServerError) Unwrap() error { return e.Err }

// Class says what an error of a driver means for a statement that had one.
type Class int

const (
	// Unknown means that the statement may or may not have run. The connection is in
	// doubt.
	Unknown Class = iota
	// Refused means that the server answered the statement with an error that is none
	// of those below: a right is missing, a value is none that it takes, a trigger
	// objects. What the statement did is undone, and the connection goes on.
	Refused
	// Busy means that the server refused the statement because of somebody else's lock
	// or transaction (deadlock victim, serialization failure, lock wait). It
	// did not run, and may be tried again.
	Busy
	// NoSchema means that a table or a column is missing.
	NoSchema
	// Changed means that the session is not set any more as it was when Verify looked at it, which the statement tells by an
	// error. It did nothing.
	Changed
	// NoSession means that the session to be ended is not there.
	NoSession
	// ReadOnly means that the server takes no writes. The connection is useless: after a
	// fail-over a pool keeps connections to the server that was the primary.
	ReadOnly
	// Full means, of a connection that was asked for, that the server takes no more.
	Full
	// Unreachable means that no answer came: the server cannot be reached, is starting
	// or shutting down, or the connection broke. The statement may or may not have run.
	Unreachable
	// NotAllowed means that the server refused the statement because its user lacks a
	// privilege. It did not run.
	NotAllowed
)

// Broken reports whether err, which does not come from the server, is a connection
// error: refused, reset, closed, or without an answer until a deadline.
func Broken(err error) bool {
	var network net.Error

	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
