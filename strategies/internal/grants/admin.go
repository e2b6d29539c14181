package grants

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Settle ends what attempts of the request's owner left.
func (b Base) Settle(ctx context.Context, r strategies.Request) error {
	s := b.store

	return s.Use(ctx, func(on databases.Conn) error {
		if r.Mode == strategies.Shared {
			return s.reader(r, "", 0).leaveAndTell(ctx, on)
		}

		return s.Release(ctx, on, r)
	})
}

// Release is Settle for a writer on a connection that the caller has.
func (s *Store) Release(ctx context.Context, on databases.Session, r strategies.Request) error {
	if err := ExecAll(ctx, on, s.sql.BeforeRelease, s.Values(r)); err != nil {
		return err
	}

	return s.ReleaseRecord(ctx, on, r)
}

// ReleaseRecord is Release without what goes before it.
func (s *Store) ReleaseRecord(ctx context.Context, on databases.Session, r strategies.Request) error {
	return s.quietly(s.sql.ReleaseTelling, s.sql.Release, func(release databases.Statement) error {
		_, err := on.Run(ctx, release, s.Values(r), nil)

		return err
	})
}

// List returns the names that are held or taken, of every strategy.
func (b Base) List(ctx context.Context, f strategies.Filter) ([]strategies.Status, error) {
	return result(ctx, b.store.look, func(on databases.Conn) ([]strategies.Status, error) { return b.store.list(ctx, on, f) })
}

func (s *Store) list(ctx context.Context, on databases.Conn, f strategies.Filter) ([]strategies.Status, error) {
	holders := s.sql.Holders
	if f.Name != "" {
		holders = s.sql.Slots
	}

	above, below := strategies.SlotRange(f.Name, strategies.MaxSlots)
	values := databases.Values{"name": f.Name, "above": above, "below": below, "prefix": f.Prefix, "limit": limit(f.Limit)}

	return readAll(ctx, on, holders, values, func(row databases.Row, st *strategies.Status) error {
		var heldFor, left, delay int64

		err := row(&st.Name, &st.Strategy, &st.Token, &st.Holder.Host, &st.Holder.PID, &st.Holder.Label, &st.Holder.Metadata,
			&heldFor, &left, &delay, &st.Owner, &st.Shared)

		if st.Remaining, st.Taken = (State{Owner: st.Owner, Left: micros(left), Delay: micros(delay)}).runs(); st.Remaining > 0 {
			st.HeldFor, st.Detached = micros(heldFor), detached(st.Owner)
		}

		return err
	})
}

// limit is a filter's as a statement has it.
func limit(n int) int64 { return cmp.Or(int64(n), math.MaxInt64) }

// Status tells of the name's latest grant, and whether it is guarded.
func (b Base) Status(ctx context.Context, name string) (status strategies.Status, found bool, err error) {
	status, err = result(ctx, b.store.look, func(on databases.Conn) (strategies.Status, error) { return b.store.status(ctx, on, name) })

	return status, status.Token > 0, err
}

func (s *Store) status(ctx context.Context, on databases.Conn, name string) (status strategies.Status, err error) {
	st, err := s.State(ctx, on, name)
	if err != nil || st.Token <= 0 {
		return status, err
	}

	status = strategies.Status{Name: name, Token: st.Token, Owner: st.Owner, Holder: st.Holder}
	status.Remaining, status.Taken = st.runs()

	// Names sort by their bytes, so the name itself comes first of its slots.
	listed, err := s.list(ctx, on, strategies.Filter{Name: name, Limit: 1})
	if err != nil {
		return status, err
	}

	if len(listed) == 1 && listed[0].Name == name && listed[0].Token == status.Token {
		status = listed[0]
	}

	status.Ended, status.Detail = st.end()

	notes, err := s.notes(ctx, on, name)
	if err != nil {
		return status, err
	}

	status.Mark = notes.Mark
	if notes.Owner == status.Owner {
		status.ReleaseRequested = notes.Asked
	}

	status.Guarded, err = s.guarded(ctx, on, name)

	return status, err
}

// guarded says whether the name's row is locked. That is not known where there is no
// statement for it.
func (s *Store) guarded(ctx context.Context, on databases.Conn, name string) (bool, error) {
	if s.sql.Unguarded.SQL == "" {
		return false, nil
	}

	free, err := ReadOne(ctx, on, s.sql.Unguarded, databases.Values{"name": name}, &name)

	switch class := s.db.Classify(err); {
	case class == databases.ReadOnly, errors.Is(err, driver.ErrBadConn) && s.readOnly(ctx):
		return false, nil // guards are at the primary, and a replica knows nothing of them
	case class == databases.NotAllowed:
		return false, nil // this user may only look, and not lock a row
	default:
		return !free, err
	}
}

// readOnly asks the server on another connection whether it takes no writes, after a driver has closed one and has not
// said why.
func (s *Store) readOnly(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, strategies.AttemptTime) // a pool of one has none until the closed one is back
	defer cancel()

	s.verified.Store(false)

	return errors.Is(s.Use(ctx, func(databases.Conn) error { return nil }), strategies.ErrReadOnly)
}

// ForceRelease ends the grant that was seen, or what keeps the name taken after it.
func (b Base) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (bool, error) {
	_, found, err := b.store.Force(ctx, seen, reason)

	return found, err
}

// Force is ForceRelease, and returns the owner whose grant it ended; empty if there was
// none.
func (s *Store) Force(ctx context.Context, seen strategies.Status, reason string) (owner string, found bool, err error) {
	err = s.Use(ctx, func(on databases.Conn) error {
		var before State

		// The second round follows the holder's own release, after which a minimum hold
		// keeps the name taken.
		for {
			st, err := s.State(ctx, on, seen.Name)

			switch {
			case err != nil || st.free():
				return err
			case !seen.Is(st.Token, st.Owner):
				return st.successor(seen.Name)
			case before.Token != 0 && st.Token == before.Token && st.Owner == before.Owner:
				return st.Held(seen.Name) // its row is locked
			}

			found, err = s.force(ctx, on, seen.Name, st, forced+reason)

			switch {
			case err != nil:
				return err
			case found:
				named := databases.Values{"name": seen.Name}

				// Those who wait, and those who watch: the holder is one.
				if owner, err = st.Owner, s.hint(ctx, on, s.sql.TellAll, named); err == nil {
					err = s.hint(ctx, on, s.sql.Announce, named)
				}

				return err
			}

			before = st
		}
	})

	return owner, found, err
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
		result, err := on.Run(ctx, statement, values, nil)

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
func (b Base) Reap(ctx context.Context, retention time.Duration) (reaped strategies.Reaped, err error) {
	s := b.store

	err = s.Use(ctx, func(on databases.Conn) (err error) {
		if reaped.Expired, err = s.clear(ctx, on, s.sql.Expired, s.sql.End); err != nil {
			return err
		}

		if reaped.Removed, err = s.removeForgotten(ctx, on, retention); err != nil {
			return err
		}

		if err = s.lowerPromise(ctx, on); err != nil {
			return err
		}

		if _, err = s.clear(ctx, on, s.sql.StaleRows, s.sql.ClearRow); err != nil {
			return err
		}

		if _, err = s.clear(ctx, on, s.sql.Shares.Stale, s.sql.Shares.Clear); err != nil {
			return err
		}

		return s.sweep(ctx, on)
	})

	return reaped, err
}

// clear sends a statement for each name and owner that another one lists, and counts how often that changed something. One that
// is refused is left for the next time.
func (s *Store) clear(ctx context.Context, on databases.Session, list, each databases.Statement) (count int, err error) {
	stale, err := readAll(ctx, on, list, nil, func(row databases.Row, r *strategies.Request) error { return row(&r.Name, &r.Owner) })

	for i := 0; i < len(stale) && err == nil; i++ {
		var result databases.Result

		result, err = on.Run(ctx, each, databases.Values{"name": stale[i].Name, "owner": stale[i].Owner}, nil)
		if s.Busy(err) {
			err = nil
		} else if result.RowsAffected > 0 {
			count++
		}
	}

	return count, err
}
