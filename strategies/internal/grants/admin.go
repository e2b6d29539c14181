package grants

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Settle ends what attempts of the request's owner left.
func (s *Store) Settle(ctx context.Context, r strategies.Request) (err error) {
	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}

	defer s.Return(conn, &err)

	if r.Mode == strategies.Shared {
		return s.settleShare(ctx, conn, r)
	}

	return s.Release(ctx, conn, r)
}

// Release is Settle on a connection that the caller has.
func (s *Store) Release(ctx context.Context, on databases.Session, r strategies.Request) error {
	if err := execAll(ctx, on, s.sql.BeforeRelease, s.values(r)); err != nil {
		return err
	}

	return s.ReleaseRecord(ctx, on, r)
}

// ReleaseRecord is Release without what goes before it.
func (s *Store) ReleaseRecord(ctx context.Context, on databases.Session, r strategies.Request) error {
	return s.quietly(s.sql.ReleaseTelling, s.sql.Release, func(release databases.Statement) error {
		_, err := on.Exec(ctx, release, s.values(r))

		return err
	})
}

// List returns the names that are held or taken, of every strategy.
func (s *Store) List(ctx context.Context, f strategies.Filter) (listed []strategies.Status, err error) {
	conn, err := s.LookConn(ctx)
	if err != nil {
		return nil, err
	}

	defer s.Return(conn, &err)

	if f.Name != "" {
		return readHolders(ctx, conn, s.sql.Slots, f)
	}

	return readHolders(ctx, conn, s.sql.Holders, f)
}

func readHolders(
	ctx context.Context, conn databases.Conn, holders databases.Statement, f strategies.Filter,
) (listed []strategies.Status, err error) {
	above, below := strategies.SlotRange(f.Name, strategies.MaxSlots)
	values := databases.Values{"name": f.Name, "above": above, "below": below, "prefix": f.Prefix, "limit": limit(f.Limit)}

	err = conn.Query(ctx, holders, values, func(row databases.Row) error {
		var (
			st                        strategies.Status
			pid, heldFor, left, delay int64
		)

		err := row(&st.Name, &st.Strategy, &st.Token, &st.Holder.Host, &pid, &st.Holder.Label, &st.Holder.Metadata,
			&heldFor, &left, &delay, &st.Owner, &st.Shared)
		st.Holder.PID = int(pid)

		if st.Remaining, st.Taken = (State{Owner: st.Owner, Left: micros(left), Delay: micros(delay)}).runs(); st.Remaining > 0 {
			st.HeldFor = micros(heldFor)
		}

		listed = append(listed, st)

		return err
	})

	return listed, err
}

// limit is a filter's as a statement has it.
func limit(n int) int64 {
	if n == 0 {
		return math.MaxInt64
	}

	return int64(n)
}

// Status tells of the name's latest grant, and whether it is guarded.
func (s *Store) Status(ctx context.Context, name string) (status strategies.Status, found bool, err error) {
	conn, err := s.LookConn(ctx)
	if err != nil {
		return status, false, err
	}

	defer s.Return(conn, &err)

	st, found, err := ReadState(ctx, conn, s.sql.State, name)
	if err != nil || !found || st.Token <= 0 {
		return status, false, err
	}

	status = st.status(name)

	// Names sort by their bytes, so the name itself comes first of its slots.
	listed, err := readHolders(ctx, conn, s.sql.Slots, strategies.Filter{Name: name, Limit: 1})
	if err != nil {
		return status, true, err
	}

	if len(listed) == 1 && listed[0].Name == name && listed[0].Token == status.Token {
		status = listed[0]
		status.Ended, status.Detail = st.end()
	}

	notes, err := s.notes(ctx, conn, name)
	if err != nil {
		return status, true, err
	}

	status.Mark = notes.Mark
	if notes.Owner == status.Owner {
		status.ReleaseRequested = notes.Asked
	}

	status.Guarded, err = s.guarded(ctx, conn, s.sql.Unguarded, name)

	return status, true, err
}

// guarded says whether the name's row is locked. That is not known where there is no
// statement for it.
func (s *Store) guarded(
	ctx context.Context, conn databases.Conn, unguarded databases.Statement, name string,
) (guarded bool, err error) {
	if unguarded.SQL == "" {
		return false, nil
	}

	guarded = true

	err = conn.Query(ctx, unguarded, databases.Values{"name": name}, func(row databases.Row) error {
		guarded = false

		return row(&name)
	})
	if s.db.Classify(err) == databases.ReadOnly || errors.Is(err, driver.ErrBadConn) && s.readOnly(ctx) {
		// Guards are at the primary, and a replica knows nothing of them.
		return false, nil
	}

	return guarded, err
}

// readOnly asks the server on another connection whether it takes no writes, after a driver has closed one and has not
// said why.
func (s *Store) readOnly(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, attemptTime) // a pool of one has none until the closed one is back
	defer cancel()

	s.verified.Store(false)

	conn, err := s.Conn(ctx)
	if err == nil {
		conn.Release()
	}

	return errors.Is(err, strategies.ErrReadOnly)
}

// ForceRelease ends the grant that was seen, or what keeps the name taken after it.
func (s *Store) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (found bool, err error) {
	_, found, err = s.Force(ctx, seen, reason)

	return found, err
}

// Force is ForceRelease, and returns the owner whose grant it ended; empty if there was
// none.
func (s *Store) Force(ctx context.Context, seen strategies.Status, reason string) (owner string, found bool, err error) {
	conn, err := s.Conn(ctx)
	if err != nil {
		return "", false, err
	}

	defer s.Return(conn, &err)

	var before State

	// The second round follows the holder's own release, after which a minimum hold
	// keeps the name taken.
	for {
		st, _, err := ReadState(ctx, conn, s.sql.State, seen.Name)

		switch {
		case err != nil || st.free():
			return "", false, err
		case !seen.Is(st.Token, st.Owner):
			return "", false, st.successor(seen.Name)
		case before.Token != 0 && st.Token == before.Token && st.Owner == before.Owner:
			return "", false, st.Held(seen.Name) // its row is locked
		}

		found, err := s.force(ctx, conn, seen.Name, st, forced+reason)
		if err == nil && found {
			err = s.hint(ctx, conn, s.sql.TellAll, databases.Values{"name": seen.Name})
		}

		if err != nil || found {
			return st.Owner, found, err
		}

		before = st
	}
}

// successor says who was granted the name after somebody who was seen; nil if the name is free again.
func (st State) successor(name string) error {
	if remaining, taken := st.runs(); remaining+taken == 0 {
		return nil
	}

	held := st.Held(name)
	held.Token = st.Token

	return held
}

// force ends what the state says, and nothing that came later. One that was released
// has no owner, but a token.
func (s *Store) force(ctx context.Context, on databases.Session, name string, st State, ended string) (found bool, err error) {
	values := databases.Values{"name": name, "owner": st.Owner, "token": st.Token, "ended": ended}

	for _, statement := range s.sql.Force {
		result, err := on.Exec(ctx, statement, values)

		switch {
		case found && s.Busy(err):
			return true, nil // the grant has ended, and reapers clear what is left over
		case err != nil:
			return found, err
		}

		found = found || result.RowsAffected > 0
	}

	return found, nil
}

// Reap ends grants that expired, removes the rows of idle names, and clears what
// grants of any strategy left behind.
func (s *Store) Reap(ctx context.Context, retention time.Duration) (reaped strategies.Reaped, err error) {
	conn, err := s.Conn(ctx)
	if err != nil {
		return reaped, err
	}

	defer s.Return(conn, &err)

	if reaped.Expired, err = s.endExpired(ctx, conn); err != nil {
		return reaped, err
	}

	if reaped.Removed, err = s.removeForgotten(ctx, conn, retention); err != nil {
		return reaped, err
	}

	if err := s.clear(ctx, conn, s.sql.StaleRows, s.sql.ClearRow, "name", "owner"); err != nil {
		return reaped, err
	}

	if err := s.clearShares(ctx, conn); err != nil {
		return reaped, err
	}

	return reaped, s.sweep(ctx, conn)
}

// endExpired ends grants whose lease has ended, and counts those that it has ended. One that is refused is left for the
// next time.
func (s *Store) endExpired(ctx context.Context, conn databases.Conn) (count int, err error) {
	names, err := column(ctx, conn, s.sql.Expired, nil)
	if err != nil {
		return 0, err
	}

	for _, name := range names {
		result, err := conn.Exec(ctx, s.sql.End, databases.Values{"name": name})

		switch {
		case s.Busy(err):
		case err != nil:
			return count, err
		case result.RowsAffected > 0:
			count++
		}
	}

	return count, nil
}

// clear deletes what was left behind, by two values that list returns of each. There may
// be nothing.
func (s *Store) clear(ctx context.Context, conn databases.Session, list, each databases.Statement, first, second string) error {
	if list.SQL == "" {
		return nil
	}

	var stale []databases.Values

	err := conn.Query(ctx, list, nil, func(row databases.Row) error {
		var one, other string

		err := row(&one, &other)
		stale = append(stale, databases.Values{first: one, second: other})

		return err
	})
	if err != nil {
		return err
	}

	for _, values := range stale {
		if _, err := conn.Exec(ctx, each, values); err != nil && !s.Busy(err) {
			return err
		}
	}

	return nil
}
