package grants

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// noConn says what it means that a connection was not to be had.
func (s *Store) noConn(err error) error {
	if errors.Is(err, databases.ErrReplaced) {
		return fmt.Errorf("%w: %w", strategies.ErrUnsupported, err)
	}

	err = fmt.Errorf("connect: %w", err)

	switch s.db.Classify(err) {
	case databases.Full:
		err = fmt.Errorf("%w: %w", strategies.ErrTooManyConnections, err)
	case databases.Unreachable:
		err = fmt.Errorf("%w: %w", strategies.ErrUnreachable, err)
	case databases.NotAllowed:
		err = s.Explain(err)
	case databases.Busy:
		err = busyError{busyFile, err}
	default:
		if s.reached.Load() && s.absent(err) {
			err = fmt.Errorf("%w: %w", strategies.ErrUnreachable, err)
		}
	}

	return notSentError{err}
}

// absent says whether an error of connecting is an answer, of a server or of who stands in front of it. Where there has been a
// connection before, that means that the server is away: a pooler has no login to pass on, a name leads elsewhere during a
// fail-over, a password is being changed. What the pool says by itself, such as that it is closed, is none. A file is no server.
func (s *Store) absent(err error) bool {
	if s.sql.OneWriter {
		return false
	}

	// PostgreSQL's, of which those that end the session are in no class.
	var coded interface{ SQLState() string }

	return errors.As(err, &coded) && coded.SQLState() != "" || s.db.Classify(err) == databases.Refused
}

// NotSent marks an error before anything was sent that takes a lock and leaves it.
func NotSent(err error) error {
	if verdict(err) {
		return err
	}

	return notSentError{err}
}

type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// Is reports whether target is strategies.ErrNotSent.
func (notSentError) Is(target error) bool { return target == strategies.ErrNotSent }

// doubtful is an error after which the connection is in doubt, whatever the
// error itself would say.
type doubtful struct{ error }

func (d doubtful) Unwrap() error { return d.error }

// Doubt marks an error after which the connection must be discarded.
func Doubt(err error) error { return doubtful{err} }

// Clean says whether a connection can go back to its pool after err, outside
// a transaction.
func (s *Store) Clean(err error) bool {
	var d doubtful

	switch {
	case errors.As(err, &d):
		return false
	case err == nil, verdict(err), errors.As(err, new(notSentError)), errors.Is(err, strategies.ErrBusy):
		return true
	default:
		class := s.db.Classify(err)

		return class == databases.Refused || class == databases.Busy || class == databases.NoSchema || class == databases.NotAllowed
	}
}

// refused says whether the server answered a statement with an error that undid it, and that is about the statement
// itself.
func (s *Store) refused(err error) bool {
	var d doubtful

	if err == nil || verdict(err) || errors.As(err, &d) {
		return false
	}

	class := s.db.Classify(err)

	return class == databases.Refused || class == databases.NotAllowed
}

// unheardError is that of a hint which leaves the connection in doubt, after something that was done.
type unheardError struct{ error }

func (e unheardError) Unwrap() error { return e.error }

// verdict says whether err is an answer of ours rather than of the driver.
func verdict(err error) bool {
	return errors.Is(err, strategies.ErrNotAcquired) || errors.Is(err, strategies.ErrLost)
}

// Explain adds to an error what it means to sqllock.
func (s *Store) Explain(err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		// All that go-sql-driver with rejectReadOnly says of a server that takes no writes any more. The next connection is asked.
		s.verified.Store(false)
	}

	switch {
	case err == nil, verdict(err):
		return err
	case errors.Is(err, databases.ErrWrongServer):
		return fmt.Errorf("%w: %w", strategies.ErrUnsupported, err)
	case errors.Is(err, databases.ErrReadOnly), s.db.Classify(err) == databases.ReadOnly:
		// A pool that followed a fail-over may reach another server next time.
		s.verified.Store(false)

		if s.sql.WhyReadOnly != "" {
			return fmt.Errorf("%w: %s: %w", strategies.ErrReadOnly, s.sql.WhyReadOnly, err)
		}

		return fmt.Errorf("%w: %w", strategies.ErrReadOnly, err)
	case s.db.Classify(err) == databases.Changed:
		// The next connection is looked at before.
		s.verified.Store(false)

		return busyError{changed + "; " + ownPool, err}
	case s.db.Classify(err) == databases.NoSchema:
		return &strategies.SchemaError{Err: err}
	case s.db.Classify(err) == databases.NotAllowed:
		return fmt.Errorf("%w; \"sqllock doctor\" says which GRANTs are missing: %w", strategies.ErrNotAllowed, err)
	case s.db.Classify(err) == databases.Unreachable && !errors.Is(err, strategies.ErrUnreachable):
		return fmt.Errorf("%w: %w", strategies.ErrUnreachable, err)
	default:
		return err
	}
}

// Busy says whether the server refused because of somebody else's transaction,
// so that nothing was done.
func (s *Store) Busy(err error) bool {
	var d doubtful

	return err != nil && !errors.As(err, &d) && !errors.Is(err, strategies.ErrBusy) && s.db.Classify(err) == databases.Busy
}

// busyFile is SQLite's one writer, or whoever has locked a file without a WAL.
const busyFile = "another process writes to the database file, and did not end in time"

// changedError says that a session was changed, which is to be given up. What the server said of it is text: that tables are missing,
// for example, which are not.
func changedError(err error) error {
	return Doubt(busyError{changed + "; " + ownPool, errors.New(err.Error())})
}

// busyError says that another's transaction was in the way of an attempt, or that the session was, so that
// nobody is known to have the name, and nothing was taken.
type busyError struct {
	what string
	error
}

func (e busyError) Error() string { return fmt.Sprintf("%s: %s", e.what, e.error) }
func (e busyError) Unwrap() error { return e.error }

// Is reports whether target is strategies.ErrBusy or strategies.ErrUnreachable.
func (busyError) Is(target error) bool {
	return target == strategies.ErrBusy || target == strategies.ErrUnreachable
}
