package grants

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// result is what f returns on a connection, which Use or look gives it.
func result[T any](
	ctx context.Context, use func(context.Context, func(databases.Conn) error) error, f func(on databases.Conn) (T, error),
) (made T, err error) {
	err = use(ctx, func(on databases.Conn) (err error) {
		made, err = f(on)

		return err
	})

	return made, err
}

// Use runs f on a connection of the pool, and returns that afterwards.
func (s *Store) Use(ctx context.Context, f func(on databases.Conn) error) error {
	return s.useConn(ctx, s.Conn, f)
}

// useToRenew is Use for a renewal, which a pool that the application uses up does not keep waiting where there is a connection beside it.
func (s *Store) useToRenew(ctx context.Context, f func(on databases.Conn) error) error {
	return s.useConn(ctx, s.connToRenew, f)
}

// look is Use for statements that change and lock nothing: a read-only server, such as a replica, will do.
func (s *Store) look(ctx context.Context, f func(on databases.Conn) error) error {
	return s.useConn(ctx, func(ctx context.Context) (databases.Conn, error) { return s.conn(ctx, s.pooled, true) }, f)
}

func (s *Store) useConn(
	ctx context.Context, connect func(context.Context) (databases.Conn, error), f func(databases.Conn) error,
) (err error) {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}

	defer s.Return(conn, &err)

	return f(conn)
}

// readAll reads the rows that a statement returns.
func readAll[T any](
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values, read func(databases.Row, *T) error,
) (all []T, err error) {
	_, err = on.Run(ctx, statement, values, func(row databases.Row) error {
		var one T

		err := read(row, &one)
		all = append(all, one)

		return err
	})

	return all, err
}

// ReadOne reads the row that a statement returns, if there is one.
func ReadOne(
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values, dest ...any,
) (found bool, err error) {
	_, err = on.Run(ctx, statement, values, func(row databases.Row) error {
		found = true

		return row(dest...)
	})

	return found, err
}

// readTexts reads the only column of a statement.
func readTexts(ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values) ([]string, error) {
	return readAll(ctx, on, statement, values, func(row databases.Row, text *string) error { return row(text) })
}

// readMap reads a key, and a value for it, from each row.
func readMap[V any](
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values,
	read func(row databases.Row, key *string, value *V) error,
) (map[string]V, error) {
	answers := make(map[string]V)

	_, err := on.Run(ctx, statement, values, func(row databases.Row) error {
		var (
			key   string
			value V
		)

		err := read(row, &key, &value)
		answers[key] = value

		return err
	})
	if err != nil {
		return nil, err // the rows come before the commit, which can still fail
	}

	return answers, nil
}

// readByKey reads two columns: a key, and its value.
func readByKey[V any](
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values,
) (map[string]V, error) {
	return readMap(ctx, on, statement, values, func(row databases.Row, key *string, value *V) error { return row(key, value) })
}

// ExecAll runs statements that bind the same.
func ExecAll(ctx context.Context, on databases.Session, statements []databases.Statement, values databases.Values) error {
	for _, statement := range statements {
		if _, err := on.Run(ctx, statement, values, nil); err != nil {
			return err
		}
	}

	return nil
}

// conflictTries is how often a statement is sent that was refused because another transaction changed the row. Above the
// isolation level Read Committed it fails where it would have waited. A waiter that notes itself is enough.
// One that waits for a row lock, for a second or two each time, is not sent so often.
const (
	conflictTries = 20
	conflictTime  = 2 * time.Second
)

// retry sends a statement that must not fail because of others who change the row, too.
func (s *Store) retry(send func() error) (err error) {
	began := time.Now()

	for range conflictTries {
		if err = send(); !s.Busy(err) || s.sql.OneWriter || time.Since(began) > conflictTime {
			break
		}
	}

	return err
}

// retryBusy is Exec for such a statement. It may wait for them.
func (s *Store) retryBusy(
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values,
) (result databases.Result, err error) {
	err = s.withLockTimeout(ctx, on, func() error {
		return s.retry(func() (err error) {
			result, err = on.Run(ctx, statement, values, nil)

			return err
		})
	})

	return result, err
}

// WithLockTimeout runs statements that insert rows, and waits no longer than it must for
// somebody who has inserted the same and not committed. There is no SKIP LOCKED for
// that.
func (s *Store) WithLockTimeout(
	ctx context.Context, on databases.Session, statements []databases.Statement, values databases.Values,
) error {
	err := s.execBriefly(ctx, on, statements, values)

	// Of one that makes the same, or on InnoDB has locked the gap, which a
	// guard of another name can.
	return s.busy(err, "another transaction keeps the row of the name from being made, and has not ended")
}

// execBriefly is ExecAll for statements that wait for no row lock for long.
func (s *Store) execBriefly(
	ctx context.Context, on databases.Session, statements []databases.Statement, values databases.Values,
) error {
	return s.withLockTimeout(ctx, on, func() error { return ExecAll(ctx, on, statements, values) })
}

// Create makes the rows of a request's name, if they are not there.
func (s *Store) Create(ctx context.Context, on databases.Session, r strategies.Request) error {
	return s.WithLockTimeout(ctx, on, s.sql.Create, s.Values(r))
}

// patientTime bounds what puts a session's patience back.
const patientTime = time.Second

// withLockTimeout calls do, whose statements give up waiting for a row lock after a second, where Brief says so: on MySQL and
// MariaDB a statement goes on waiting after its client has given it up, on a connection that the pool does not count
// any more.
func (s *Store) withLockTimeout(ctx context.Context, on databases.Session, do func() error) error {
	if s.sql.Brief.SQL == "" {
		return do()
	}

	if _, err := on.Run(ctx, s.sql.Brief, nil, nil); err != nil {
		return err
	}

	err := do()
	if !s.Clean(err) {
		return err // the connection does not go back to the pool
	}

	return putBack(ctx, on, s.sql.Patient, err)
}

// putBack sends what makes a session again what it was, also though ctx has ended: it goes back to the pool. It returns the
// cause.
func putBack(ctx context.Context, on databases.Session, statement databases.Statement, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patientTime)
	defer cancel()

	if _, failed := on.Run(ctx, statement, nil, nil); failed != nil {
		return Doubt(errors.Join(cause, failed))
	}

	return cause
}

// InTransaction commits what do has done, and rolls it back after an error. Without statements to begin with there is
// no transaction.
func (s *Store) InTransaction(ctx context.Context, on databases.Session, begin []databases.Statement, do func() error) error {
	err := ExecAll(ctx, on, begin, nil)
	if err != nil {
		return err
	}

	if err = do(); len(begin) == 0 {
		return err
	}

	if err == nil {
		if _, err = on.Run(ctx, s.sql.Commit, nil, nil); err == nil {
			return nil
		}
	}

	// A commit that SQLite refuses has left the transaction open.
	return putBack(ctx, on, s.sql.Rollback, err)
}
