// Package insert keeps a row for each lock that is held: an acquisition inserts
// it, a unique key refuses a second, a release deletes it. It is how many teams do
// it by hand; this is the form that does not break.
//
//	locker, err := sqllock.New(insert.New(postgres.New(pool)))
//
// Databases: PostgreSQL, MySQL, MariaDB, TiDB, SQLite. It needs no session state and
// holds no connection. Choose it if a table whose rows are just the locks that
// are held is what you want; package cas does the same with fewer writes.
//
// The lease, the token and who holds the name are in its record, where every
// strategy has them, so that they exclude each other. A row whose holder crashed
// stays until the next holder replaces it or a reaper deletes it.
//
// On MySQL and MariaDB an acquisition is two statements with one more round
// trip before, on SQLite a transaction, on PostgreSQL one statement. Many names take no
// more of them than one, but on MySQL and MariaDB, where it is five, and two to release.
package insert

import (
	"context"
	"errors"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// Strategy keeps locks as rows that exist. It is safe for concurrent use, and can do everything. Records and rows of many names
// change together on PostgreSQL and SQLite. On MySQL they change in steps that each commit by themselves, as for one name.
type Strategy struct{ base }

// base is what strategies have whose locks are leases.
type base = grants.Leased

// New returns the strategy for a database. sqllock.New reports what is wrong with db.
func New(db databases.DB) *Strategy {
	s := taker{grants.New(db, "insert")}

	// Where no statement does both, a release deletes the row before the record is freed, so that the row of a name that is free
	// is left over only by a crash.
	switch sql := s.Dialect(); {
	case sql.Insert.Make.SQL == "":
		return &Strategy{s.Leased(s.Acquire)} // all is in the statement that takes the record
	case len(sql.Rows.Begin) > 0:
		return &Strategy{s.Leased(s.inTransaction)}
	default:
		return &Strategy{s.Leased(s.oneByOne)}
	}
}

// taker takes records and makes their rows.
type taker struct{ *grants.Store }

// oneByOne looks first, without a lock: that is all that a try costs while
// the name is held.
func (s taker) oneByOne(ctx context.Context, on databases.Session, r strategies.Request, instead grants.Replaces) (int64, error) {
	var owner string

	named := databases.Values{"name": r.Name}

	st, err := grants.ReadState(ctx, on, s.Dialect().Insert.Look, named, &owner)

	switch {
	case err != nil:
		return 0, err
	case st.Owner != r.Owner && st.Left+st.Delay > 0, st.Waits(r):
		_, err = s.Refused(ctx, on, st, r)

		return 0, err
	case owner != "" && owner != r.Owner:
		// Before anything is taken: it may be that it cannot be deleted.
		cleared, err := on.Run(ctx, s.Dialect().Insert.Clear, s.Values(r), nil)
		if err != nil {
			return 0, err
		}

		if cleared.RowsAffected == 0 {
			return 0, st.Held(r.Name)
		}
	}

	token, err := s.Acquire(ctx, on, r, instead)
	if err != nil {
		return 0, err
	}

	made, err := on.Run(ctx, s.Dialect().Insert.Make, s.Values(r), nil)

	if err == nil && made.RowsAffected == 0 {
		// It was there, from an attempt before; or somebody has a row locked.
		_, err = grants.ReadState(ctx, on, s.Dialect().Insert.Look, named, &owner)
	}

	if err == nil && (made.RowsAffected > 0 || owner == r.Owner) || !s.Clean(err) {
		return token, err
	}

	return 0, s.giveBack(ctx, on, r, err)
}

// giveBack frees the record whose row could not be made, or the name would be held by
// nobody until its lease ends. If that fails, too, the outcome is open.
func (s taker) giveBack(ctx context.Context, on databases.Session, r strategies.Request, cause error) (err error) {
	refused := cause != nil && !s.Busy(cause)

	switch {
	case r.Mode == strategies.Shared:
		// Others may have joined the phase since. It ends when the last of them leaves, as this one does now.
	case refused:
		// A user who may not insert may not delete, either. A row that an attempt before has
		// made is in nobody's way without the record.
		err = s.ReleaseRecord(ctx, on, r)
	default:
		err = s.Release(ctx, on, r)
	}

	switch {
	case err != nil:
		return grants.Doubt(errors.Join(cause, err))
	case refused:
		return cause
	default:
		return &strategies.HeldError{Name: r.Name, Detail: "a transaction has its row locked"}
	}
}

// inTransaction does both in one transaction.
func (s taker) inTransaction(ctx context.Context, on databases.Session, r strategies.Request, instead grants.Replaces) (token int64, err error) {
	err = s.InTransaction(ctx, on, s.Dialect().Rows.Begin, func() error {
		if token, err = s.Acquire(ctx, on, r, instead); err == nil {
			_, err = on.Run(ctx, s.Dialect().Insert.Make, s.Values(r), nil)
		}

		return err
	})

	return token, err
}
