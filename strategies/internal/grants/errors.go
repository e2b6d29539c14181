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

	switch class := s.db.Classify(err); {
	case class == databases.Full:
		err = fmt.Errorf("%w: %w", strategies.ErrTooManyConnections, err)
	case class == databases.Unreachable, class != databases.NotAllowed && class != databases.Busy && s.reached.Load() && s.absent(err):
		err = fmt.Errorf("%w: %w", strategies.ErrUnreachable, err)
	case class == databases.NotAllowed:
		err = s.Explain(err)
	case class == databases.Busy:
		err = busyError(busyFile, err)
	}

	return notSent(err)
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

// marked is an error that means something more.
type marked struct {
	error

	marks []error
}

func (m *marked) Unwrap() []error { return append(m.marks, m.error) }

// NotSent marks an error before anything was sent that takes a lock and leaves it.
func NotSent(err error) error {
	if verdict(err) {
		return err
	}

	return notSent(err)
}

func notSent(err error) error { return &marked{err, []error{strategies.ErrNotSent}} }

var (
	errDoubt   = errors.New("the connection is in doubt")
	errUnheard = errors.New("a hint left the connection in doubt")
)

// Doubt marks an error after which the connection must be discarded, whatever the error itself would say.
func Doubt(err error) error { return &marked{err, []error{errDoubt}} }

// unheard marks that of a hint which leaves the connection in doubt, after something that was done.
func unheard(err error) error { return &marked{err, []error{errUnheard}} }

// isUnheard says whether it is one. Wrapped, it is the reason of another error.
func isUnheard(err error) bool {
	m, ok := err.(*marked) //nolint:errorlint // see above

	return ok && errors.Is(m.marks[0], errUnheard)
}

// Clean says whether a connection can go back to its pool after err, outside
// a transaction.
func (s *Store) Clean(err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, errDoubt):
		return false
	case verdict(err), errors.Is(err, strategies.ErrNotSent), errors.Is(err, strategies.ErrBusy):
		return true
	}

	switch s.db.Classify(err) {
	case databases.Refused, databases.Busy, databases.NoSchema, databases.NotAllowed:
		return true
	default:
		return false
	}
}

// refused says whether the server answered a statement with an error that undid it, and that is about the statement
// itself.
func (s *Store) refused(err error) bool {
	if err == nil || verdict(err) || errors.Is(err, errDoubt) {
		return false
	}

	class := s.db.Classify(err)

	return class == databases.Refused || class == databases.NotAllowed
}

// verdict says whether err is an answer of ours rather than of the driver.
func verdict(err error) bool {
	return errors.As(err, new(*strategies.HeldError)) || errors.Is(err, strategies.ErrNotAcquired) || errors.Is(err, strategies.ErrLost)
}

// Explain adds to an error what it means to sqllock.
func (s *Store) Explain(err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		// All that go-sql-driver with rejectReadOnly says of a server that takes no writes any more. The next connection is asked.
		s.verified.Store(false)
	}

	if err == nil || verdict(err) {
		return err
	}

	class := s.db.Classify(err)
	if errors.Is(err, databases.ErrReadOnly) {
		class = databases.ReadOnly
	}

	if class == databases.ReadOnly || class == databases.Changed {
		// A pool that followed a fail-over may reach another server next time, and a session is looked at before.
		s.verified.Store(false)
	}

	switch {
	case errors.Is(err, databases.ErrWrongServer):
		return fmt.Errorf("%w: %w", strategies.ErrUnsupported, err)
	case errors.Is(err, databases.ErrReadOnly):
		return &marked{err, []error{strategies.ErrReadOnly}} // which says the same
	case class == databases.ReadOnly && s.sql.WhyReadOnly != "":
		return fmt.Errorf("%w: %s: %w", strategies.ErrReadOnly, s.sql.WhyReadOnly, err)
	case class == databases.ReadOnly:
		return fmt.Errorf("%w: %w", strategies.ErrReadOnly, err)
	case class == databases.Changed:
		return busyError(changed, err)
	case class == databases.NoSchema:
		return &strategies.SchemaError{Err: err}
	case class == databases.NotAllowed && !errors.Is(err, strategies.ErrNotAllowed):
		return fmt.Errorf("%w; \"sqllock doctor\" says which GRANTs are missing: %w", strategies.ErrNotAllowed, err)
	case class == databases.Unreachable && !errors.Is(err, strategies.ErrUnreachable):
		return fmt.Errorf("%w: %w", strategies.ErrUnreachable, err)
	default:
		return err
	}
}

// Busy says whether the server refused because of somebody else's transaction,
// so that nothing was done.
func (s *Store) Busy(err error) bool {
	return err != nil && !errors.Is(err, errDoubt) && !errors.Is(err, strategies.ErrBusy) && s.db.Classify(err) == databases.Busy
}

// busy says of such an error what was in the way; others stay.
func (s *Store) busy(err error, what string) error {
	if s.Busy(err) {
		return busyError(what, err)
	}

	return err
}

// busyError says that another's transaction was in the way of an attempt, or that the session was, so that
// nobody is known to have the name, and nothing was taken.
func busyError(what string, err error) error {
	return &marked{fmt.Errorf("%s: %w", what, err), []error{strategies.ErrBusy, strategies.ErrUnreachable}}
}

const (
	// busyFile is SQLite's one writer, or whoever has locked a file without a WAL.
	busyFile = "another process writes to the database file, and did not end in time"
	// changed is what is wrong with a session of a pool for several uses, and what to do.
	changed = "the program has changed the session (search_path, client_encoding, USE, role, timestamp, autocommit, sql_select_limit, " +
		"LOCK TABLES) and not set it back; give the locker a pool of its own"
)
