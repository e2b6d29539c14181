package grants

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// MaxLease is the longest lease of a lock that a session holds: the longest that a
// server's limit on idle sessions can be. PostgreSQL's is in milliseconds and 32 bits
// (https://www.postgresql.org/docs/current/runtime-config-client.html), MySQL's on
// Windows the same in seconds
// (https://dev.mysql.com/doc/refman/9.7/en/server-system-variables.html#sysvar_wait_timeout).
const MaxLease = math.MaxInt32 / 1000 * time.Second

func roundUp(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

// RefuseManyPrimaries returns ErrUnsupported on a server whose locks of a
// session hold on one node only.
func (s *Store) RefuseManyPrimaries(ctx context.Context, on databases.Session) error {
	setting, err := s.manyPrimaries(ctx, on)
	if err != nil || setting == "" {
		return err
	}

	return &strategies.UnsupportedError{
		Strategy: s.strategy, Instead: "cas",
		Where: fmt.Sprintf("on a server with %s, where its locks hold on one node only", setting),
	}
}

// manyPrimaries returns the setting that makes a server one of several that take writes, or nothing. It asks once.
func (s *Store) manyPrimaries(ctx context.Context, on databases.Session) (setting string, err error) {
	if s.sql.ManyPrimaries.SQL == "" {
		return "", nil
	}

	if known := s.primaries.Load(); known != nil {
		return *known, nil
	}

	var variable, value string

	found, err := ReadOne(ctx, on, s.sql.ManyPrimaries, nil, &variable, &value)
	if found {
		setting = variable + "=" + value
	}

	if err == nil {
		s.primaries.Store(&setting)
	}

	return setting, err
}

// Gate is the right to use something, which one has at a time. It is a channel, so that waiting for it can end with a context.
type Gate chan struct{}

// NewGate returns the gate of something that nobody uses.
func NewGate() Gate { return make(Gate, 1) }

// Enter waits until it has the right. Leave has to follow.
func (g Gate) Enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		// Not its cause, which may be another lock's loss.
		return ctx.Err()
	}
}

// Leave passes the right on.
func (g Gate) Leave() { <-g }

// ofSessions says whether the strategy's locks are those of sessions.
func (s *Store) ofSessions() bool { return s.strategy == "forupdate" || s.strategy == "advisory" }

// ValidateSessions reports a database that cannot carry a strategy whose locks are held by sessions: one that is in refused, for
// the reason given there, or a pool of one connection, for the reason in onePool.
func (s *Store) ValidateSessions(refused map[databases.Dialect]string, onePool string) error {
	if s.invalid != nil {
		return s.invalid
	}

	invalid := &strategies.UnsupportedError{Op: s.strategy + ".New", Strategy: s.strategy, Where: refused[s.sql.Name], Instead: "cas"}

	switch {
	case invalid.Where != "":
		return invalid
	case s.MaxConns() == 1:
		invalid.Where, invalid.Fix, invalid.Instead = "with a pool of one connection"+onePool, "allow two or more", ""

		return invalid
	default:
		return nil
	}
}

// Sessions returns the ids of the server's sessions that a statement lists, and that are among some; nil is all.
func Sessions(
	ctx context.Context, on databases.Session, list databases.Statement, values databases.Values, among []int64,
) (ids []int64, err error) {
	_, err = on.Run(ctx, list, values, func(row databases.Row) error {
		// MySQL may evaluate what it lists twice, and the session ends in between.
		var id *int64

		err := row(&id)
		if id != nil && (among == nil || slices.Contains(among, *id)) {
			ids = append(ids, *id)
		}

		return err
	})

	return ids, err
}

// ErrSessionEnds is the error of a release after EndSessions has left a session.
var ErrSessionEnds = errors.New("the server is ending the session that had the lock")

// EndSessions ends the sessions that a statement lists and that are among some. left: one of them is still there, and ends in
// a moment.
func (s *Store) EndSessions(
	ctx context.Context, list databases.Statement, values databases.Values, among []int64, kill databases.Statement,
) (left bool, err error) {
	err = s.Use(ctx, func(on databases.Conn) error {
		ids, err := Sessions(ctx, on, list, values, among)

		if err == nil && len(ids) > 0 {
			if err = s.kill(ctx, on, ids, kill); err == nil {
				ids, err = Sessions(ctx, on, list, values, among)
			}
		}

		left = len(ids) > 0

		return err
	})

	return left, err
}

// kill ends sessions, whose holders have no lock any more. One that has ended by itself does not keep the others.
func (s *Store) kill(ctx context.Context, on databases.Session, ids []int64, kill databases.Statement) error {
	var errs []error

	for _, id := range ids {
		_, err := on.Run(ctx, Written(kill, id), databases.Values{"id": id}, nil)

		switch {
		case err == nil, s.gone(err):
		case s.db.Classify(err) == databases.NotAllowed:
			errs = append(errs, fmt.Errorf("%w: the lock was taken away, but this user may not end session %d, which keeps it from others of "+
				"this strategy until the holder notices; an administrator may end it: %w", strategies.ErrNotAllowed, id, err))
		default:
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

// gone says whether a session could not be ended because there is none.
func (s *Store) gone(err error) bool { return s.db.Classify(err) == databases.NoSession }

// Outcome is what became of the release of a lock that a session holds beside its
// record, over all attempts at it.
type Outcome struct {
	Freed    bool  // by the release, until which the session had the lock
	Recorded bool  // the record is released, or lost
	Err      error // of the release: the loss it found
}

// Note keeps what became of the record, if err tells.
func (o *Outcome) Note(err error) {
	lost := new(strategies.LostError)
	if err != nil && !errors.As(err, &lost) {
		return
	}

	// A successor that came after the session gave the lock back took nothing away.
	if err != nil && o.Freed && lost.Reason == strategies.TakenOver {
		err = nil
	}

	o.Recorded = true

	// An operator who forces a release ends the session, too.
	if err != nil && (o.Err == nil || lost.Reason == strategies.Forced) {
		o.Err = err
	}
}
