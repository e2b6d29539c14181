package grants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Replaces names grants that an acquisition may replace though their lease
// runs, because the caller has the lock of the session that they were made in.
type Replaces struct {
	// Strategy of those grants; empty for none.
	Strategy string
	// Token that the caller saw under the session's lock: a later grant is not
	// replaced by a statement that was held up on its way. AnyToken where the
	// statement is sent on the session itself.
	Token int64
	// Held is what the server knows the session's lock by, for a strategy's own Acquire, which binds it as "held".
	Held string
}

// AnyToken is no token.
const AnyToken int64 = -1

// Acquire grants the name to the request's owner, if it is free, and returns
// the token.
func (s *Store) Acquire(ctx context.Context, on databases.Session, r strategies.Request, instead Replaces) (int64, error) {
	values := s.values(r)
	values["session"], values["seen"], values["held"] = instead.Strategy, instead.Token, instead.Held

	acquire := s.sql.Acquire
	if r.Wait != "" {
		acquire = s.sql.AcquireFromLine
	}

	// The second round follows the making of the row, once in a name's life.
	for range 2 {
		token, err := s.draw(ctx, on, acquire, values)
		if token != 0 || err != nil {
			return token, s.AsHeld(ctx, on, r.Name, err)
		}

		st, found, err := ReadState(ctx, on, s.sql.State, r.Name)

		switch {
		case err != nil:
			return 0, err
		case found && !s.Unready(st):
			return 0, s.Refused(ctx, on, st, r)
		}

		if err := s.WithLockTimeout(ctx, on, s.sql.Create, values); err != nil {
			return 0, s.AsHeld(ctx, on, r.Name, err)
		}
	}

	return 0, &strategies.HeldError{Name: r.Name, Detail: "its row comes and goes"}
}

// Unready says whether a row has no token yet: whoever made it has not come so far, or has died.
func (s *Store) Unready(st State) bool { return st.Token == 0 && len(s.sql.Create) > 0 }

// AsHeld turns a refusal by the server into the answer that it is; other errors stay. The
// one writer of all names may be at work on any: there it looks whether this is held.
func (s *Store) AsHeld(ctx context.Context, on databases.Session, name string, refused error) error {
	switch {
	case !s.Busy(refused):
		return refused
	case !s.sql.OneWriter:
		return &strategies.HeldError{Name: name, Detail: refused.Error()}
	}

	if st, _, err := ReadState(ctx, on, s.sql.State, name); err == nil && st.Left+st.Delay > 0 {
		return st.Held(name)
	}

	return busyError{busyFile, refused}
}

// draw runs a statement that grants and returns the token, zero if it did not.
func (s *Store) draw(
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values,
) (token int64, err error) {
	if s.sql.WithoutReturning {
		result, err := on.Exec(ctx, statement, values)
		if err == nil && result.LastInsertID != 0 {
			err = sound(result.LastInsertID)
		}

		return result.LastInsertID, err
	}

	err = on.Query(ctx, statement, values, func(row databases.Row) error {
		if err := row(&token); err != nil {
			return err
		}

		return sound(token)
	})

	return token, err
}

// sound reports a token that the statements cannot have drawn. A server that
// answers with one does something else than it says, and a grant of it would be
// refused wherever a larger one was seen.
func sound(token int64) error {
	if token > 0 {
		return nil
	}

	return fmt.Errorf("the server answered token %d: it does not keep the promise that tokens are positive and grow, "+
		"so that this is no grant", token)
}

// WithLockTimeout runs statements that insert rows, and waits no longer than it must for
// somebody who has inserted the same and not committed. There is no SKIP LOCKED for
// that.
func (s *Store) WithLockTimeout(
	ctx context.Context, on databases.Session, statements []databases.Statement, values databases.Values,
) error {
	_, err := withLockTimeout(ctx, s, on, func() (struct{}, error) { return struct{}{}, execAll(ctx, on, statements, values) })
	if s.Busy(err) {
		// Of one that makes the same, or on InnoDB has locked the gap, which a
		// guard of another name can.
		return busyError{"another transaction keeps the row of the name from being made, and has not ended", err}
	}

	return err
}

// withLockTimeout calls do, whose statements give up waiting for a row lock after a second, where Brief says so: on MySQL and
// MariaDB a statement goes on waiting after its client has given it up, on a connection that the pool does not count
// any more.
func withLockTimeout[T any](ctx context.Context, s *Store, on databases.Session, do func() (T, error)) (result T, err error) {
	if s.sql.Brief.SQL == "" {
		return do()
	}

	if _, err := on.Exec(ctx, s.sql.Brief, nil); err != nil {
		return result, err
	}

	result, err = do()
	if !s.Clean(err) {
		return result, err // the connection does not go back to the pool
	}

	// Also though ctx has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patientTime)
	defer cancel()

	if _, failed := on.Exec(ctx, s.sql.Patient, nil); failed != nil {
		return result, Doubt(errors.Join(err, failed))
	}

	return result, err
}

// ending is brief for a release that is repeated. Most of the others wait for nobody, and save the round trips.
func ending[T any](ctx context.Context, s *Store, on databases.Session, again bool, do func() (T, error)) (T, error) {
	if !again {
		return do()
	}

	return withLockTimeout(ctx, s, on, do)
}

// patientTime bounds what puts a session's patience back.
const patientTime = time.Second
