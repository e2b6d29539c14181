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

	err = on.Query(ctx, s.sql.ManyPrimaries, nil, func(row databases.Row) error {
		var variable, value string

		err := row(&variable, &value)
		setting = variable + "=" + value

		return err
	})
	if err == nil {
		s.primaries.Store(&setting)
	}

	return setting, err
}

// Sessions returns the ids of the server's sessions that a statement lists.
func Sessions(
	ctx context.Context, on databases.Session, list databases.Statement, values databases.Values,
) (ids []int64, err error) {
	err = on.Query(ctx, list, values, func(row databases.Row) error {
		// MySQL may evaluate what it lists twice, and the session ends in between.
		var id *int64

		err := row(&id)
		if id != nil {
			ids = append(ids, *id)
		}

		return err
	})

	return ids, err
}

var errSessionEnds = errors.New("the server is ending the session that had the lock")

// EndSessions ends those of the sessions that a statement lists which are ours. nil:
// there are none.
func (s *Store) EndSessions(
	ctx context.Context, list databases.Statement, values databases.Values, ours func(id int64) bool, kill databases.Statement,
) error {
	left, err := s.endSessions(ctx, list, values, ours, kill)
	if err == nil && left {
		return errSessionEnds
	}

	return err
}

func (s *Store) endSessions(
	ctx context.Context, list databases.Statement, values databases.Values, ours func(id int64) bool, kill databases.Statement,
) (left bool, err error) {
	conn, err := s.Conn(ctx)
	if err != nil {
		return false, err
	}

	defer s.Return(conn, &err)

	find := func() ([]int64, error) {
		ids, err := Sessions(ctx, conn, list, values)

		return slices.DeleteFunc(ids, func(id int64) bool { return !ours(id) }), err
	}

	ids, err := find()
	if err != nil || len(ids) == 0 {
		return false, err
	}

	if err := s.Kill(ctx, conn, ids, kill); err != nil {
		return true, err
	}

	// It has ended a moment later.
	ids, err = find()

	return len(ids) > 0, err
}

// Kill ends sessions, whose holders' locks are to end with them. One that has
// ended by itself does not keep the others.
func (s *Store) Kill(ctx context.Context, on databases.Session, ids []int64, kill databases.Statement) error {
	var errs []error

	for _, id := range ids {
		if _, err := on.Exec(ctx, Written(kill, id), databases.Values{"id": id}); err != nil && !s.gone(err) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

// gone says whether a session could not be ended because there is none.
func (s *Store) gone(err error) bool { return s.db.Classify(err) == databases.NoSession }
