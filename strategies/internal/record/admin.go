package record

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// Admin is what all strategies do alike with rows that are not a grant's own.
// They embed it.
type Admin struct{ store *Store }

// Admin returns the store's Admin.
func (s *Store) Admin() Admin { return Admin{s} }

// Validate reports a database that is nil, or that can not carry the strategy.
func (a Admin) Validate() error { return a.store.Validate() }

// Settle ends what attempts of the request's owner left.
func (a Admin) Settle(ctx context.Context, r sqllock.Request) error {
	return a.store.On(ctx, func(conn databases.Conn) error {
		_, err := conn.Exec(ctx, a.store.statements.Release, a.store.values(r))

		return err
	})
}

// Holders lists the locks that are held, of every strategy.
func (a Admin) Holders(ctx context.Context, f sqllock.Filter) (held []sqllock.HeldLock, err error) {
	limit := int64(f.Limit)
	if limit == 0 {
		limit = math.MaxInt64
	}

	err = a.store.On(ctx, func(conn databases.Conn) error {
		values := databases.Values{"prefix": f.Prefix, "limit": limit}

		return conn.Query(ctx, a.store.shared.Holders, values, func(row databases.Row) error {
			var (
				h                       sqllock.HeldLock
				pid, heldFor, remaining int64
			)

			err := row(&h.Name, &h.Strategy, &h.Token, &h.Holder.Host, &pid, &h.Holder.Label, &h.Holder.Metadata,
				&heldFor, &remaining, &h.Owner)
			h.Holder.PID, h.HeldFor, h.Remaining = int(pid), micros(heldFor), micros(remaining)
			held = append(held, h)

			return err
		})
	})

	return held, err
}

// LastGrant tells of the name's latest grant.
func (a Admin) LastGrant(ctx context.Context, name string) (last sqllock.LastGrant, err error) {
	err = a.store.On(ctx, func(conn databases.Conn) error {
		st, found, err := a.store.State(ctx, conn, name)
		if err != nil {
			return err
		}

		if !found || st.Token == 0 {
			return sqllock.ErrNotHeld
		}

		last = st.last(name)

		if a.store.shared.Unguarded.SQL == "" {
			return nil
		}

		last.Guarded = true

		return conn.Query(ctx, a.store.shared.Unguarded, databases.Values{"name": name}, func(row databases.Row) error {
			last.Guarded = false

			return row(&name)
		})
	})

	return last, err
}

// last is the state as the core tells it.
func (st State) last(name string) sqllock.LastGrant {
	last := sqllock.LastGrant{Name: name, Token: st.Token, Holder: st.Holder}

	if st.Owner != "" && st.Left > 0 {
		last.Remaining = st.Left
	} else {
		last.Taken = max(0, st.Left+st.Delay)
	}

	if detail, found := strings.CutPrefix(st.Ended, forced); found {
		last.Ended, last.Detail = sqllock.ReasonForced, detail
	} else if st.Ended == expired {
		last.Ended = sqllock.ReasonExpired
	}

	return last
}

// ForceRelease ends the grant of whoever holds the name.
func (a Admin) ForceRelease(ctx context.Context, name, reason string) error {
	return a.store.On(ctx, func(conn databases.Conn) error {
		st, _, err := a.store.State(ctx, conn, name)
		if err != nil {
			return err
		}

		if st.Owner == "" {
			return sqllock.ErrNotHeld
		}

		// Of this owner and no other: a successor that came meanwhile is not
		// the one that was to go.
		values := databases.Values{"name": name, "owner": st.Owner, "ended": forced + reason}
		found := false

		for _, statement := range a.store.statements.Force {
			result, err := conn.Exec(ctx, statement, values)
			if err != nil {
				return err
			}

			found = found || result.RowsAffected > 0
		}

		if !found {
			return sqllock.ErrNotHeld
		}

		return nil
	})
}

// What the column ended says.
const (
	forced  = "forced: "
	expired = "expired"
)

// Reap ends grants that ran out and removes the rows of idle names.
func (a Admin) Reap(ctx context.Context, retention time.Duration) (reaped sqllock.Reaped, err error) {
	values := databases.Values{"retention": retention.Microseconds()}

	err = a.store.On(ctx, func(conn databases.Conn) error {
		for _, step := range []struct {
			list  databases.Statement
			each  []databases.Statement
			count *int
		}{
			{a.store.shared.Expired, []databases.Statement{a.store.shared.End}, &reaped.Expired},
			{a.store.shared.ExpiredInserts, a.store.shared.EndInsert, &reaped.Expired},
			{a.store.shared.Idle, a.store.shared.Remove, &reaped.Removed},
		} {
			var names []string

			err := conn.Query(ctx, step.list, values, func(row databases.Row) error {
				var name string

				err := row(&name)
				names = append(names, name)

				return err
			})
			if err != nil {
				return err
			}

			for _, name := range names {
				count, err := a.reapOne(ctx, conn, step.each, name, values)
				if err != nil {
					return err
				}

				*step.count += count
			}
		}

		return nil
	})

	return reaped, err
}

// reapOne runs the statements for one name, if the first of them does
// anything, and says whether it did. One that is refused is left for the next
// time.
func (a Admin) reapOne(
	ctx context.Context, conn databases.Conn, statements []databases.Statement, name string, values databases.Values,
) (int, error) {
	count := 0
	values["name"] = name

	for i, statement := range statements {
		result, err := conn.Exec(ctx, statement, values)

		switch {
		case a.store.Busy(err):
			return count, nil
		case err != nil:
			return count, err
		case i == 0 && result.RowsAffected == 0:
			// Renewed or used meanwhile: the rest is not for it.
			return 0, nil
		}

		count = 1
	}

	return count, nil
}
