package databases

import "errors"

var (
	// ErrWrongServer is wrapped by [DB.Verify] when the server is of another
	// kind than the constructor says, or set up so that locks can not be kept.
	ErrWrongServer = errors.New("unsuitable server")
	// ErrReadOnly is wrapped by [DB.Verify] when the server takes no writes: a
	// replica, a standby, a server in read-only mode.
	ErrReadOnly = errors.New("server is read-only")
	// ErrNoNotifications is wrapped by [Listener.Listen] where notifications do
	// not come, or the driver can not wait for them.
	ErrNoNotifications = errors.New("no notifications")
)

// Class says what an error of a driver means for a statement that had one.
type Class int

const (
	// Unknown means that the statement may or may not have run. The connection is in
	// doubt.
	Unknown Class = iota
	// Busy means that the server refused the statement because of somebody else's lock
	// or transaction (deadlock victim, serialization failure, lock wait). It
	// did not run, and may be tried again.
	Busy
	// NoSchema means that a table or a column is missing.
	NoSchema
	// NoSession means that the session to be ended is not there.
	NoSession
	// ReadOnly means that the server takes no writes. The connection is useless: after a
	// fail-over a pool keeps connections to the server that was the primary.
	ReadOnly
	// Full means, of a connection that was asked for, that the server takes no more.
	Full
)
