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
	"fmt"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

const name = "insert"

// Strategy keeps locks as rows that exist. It is safe for concurrent use.
type Strategy struct {
	base

	store *grants.Store
	sql   grants.Insert
	// take takes the record and makes the row.
	take func(ctx context.Context, conn databases.Conn, r strategies.Request) (int64, error)
}

// base is what strategies have whose locks are leases.
type base = grants.Leased

// New returns the strategy for a database. sqllock.New reports what is wrong with db.
func New(db databases.DB) *Strategy {
	store := grants.New(db, name, withRows)
	s := &Strategy{base: store.Leased(), store: store, sql: store.Dialect().Insert}

	switch {
	case s.sql.Acquire.SQL != "":
		s.take = s.inOne
	case s.sql.Begin.SQL != "":
		s.take = s.inTransaction
	default:
		s.take = s.oneByOne
	}

	return s
}

// withRows puts what sees to the row, too, in the place of what is about the record alone, whose lease decides. Where no
// statement does both, a release deletes the row before the record is freed, so that the row of a name that is free is left
// over only by a crash.
func withRows(d *grants.Dialect) {
	own := d.Insert

	if own.Acquire.SQL != "" {
		d.Acquire, d.AcquireFromLine = own.Acquire, own.AcquireFromLine
		d.Release, d.ReleaseTelling, d.ReleaseLater = own.Releases.Release, own.Releases.ReleaseTelling, own.Releases.ReleaseLater
		d.ReleaseTx, d.Shares.End = own.Releases.ReleaseTx, own.Releases.EndShares
		d.Batch.Acquire, d.Batch.Release, d.Batch.ReleaseQuietly = own.AcquireAll, own.ReleaseAll, own.ReleaseAllQuietly

		return
	}

	d.BeforeRelease, d.Rows = own.Gone, own.Rows

	if own.LookAll.SQL != "" {
		d.Batch.State = own.LookAll
	}
}

// Features says what the strategy can do: everything.
func (s *Strategy) Features() strategies.Features {
	f := s.store.Features()
	f.MinHold, f.LockDelay, f.Shared = true, true, true

	return f
}

// Acquire takes the records that are free and makes their rows. Records and rows of many names change together on PostgreSQL and
// SQLite. On MySQL they change in steps that each commit by themselves, as for one name.
func (s *Strategy) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.try, s.store.AcquireAll)
}

func (s *Strategy) try(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	grant, err := s.acquire(ctx, r)
	if s.store.Busy(err) {
		return grant, &strategies.HeldError{Name: r.Name, Detail: err.Error()}
	}

	return grant, err
}

func (s *Strategy) acquire(ctx context.Context, r strategies.Request) (grant strategies.Grant, err error) {
	conn, ctx, cancel, err := s.store.Attempt(ctx)
	if err != nil {
		return grant, err
	}

	defer s.store.Return(conn, &err)
	defer cancel()

	acquire := func(ctx context.Context, r strategies.Request, _ grants.State) (int64, error) {
		return s.take(ctx, conn, r)
	}

	record, err := s.store.Grants(ctx, conn, r, false, acquire)
	if err == nil {
		grant = record.Granted()
	}

	return grant, err
}

// inOne does all in the statement that takes the record.
func (s *Strategy) inOne(ctx context.Context, conn databases.Conn, r strategies.Request) (int64, error) {
	return s.store.Acquire(ctx, conn, r, grants.Replaces{})
}

// oneByOne looks first, without a lock: that is all that a try costs while
// the name is held.
func (s *Strategy) oneByOne(ctx context.Context, conn databases.Conn, r strategies.Request) (int64, error) {
	var owner string

	st, found, err := grants.ReadState(ctx, conn, s.sql.Look, r.Name, &owner)

	switch {
	case err != nil:
		return 0, err
	case found && (st.Owner != r.Owner && st.Left+st.Delay > 0 || st.Waits(r)):
		return 0, s.store.Refused(ctx, conn, st, r)
	case owner != "" && owner != r.Owner:
		// Before anything is taken: it may be that it cannot be deleted.
		cleared, err := s.store.Exec(ctx, conn, s.sql.Clear, r)
		if err != nil {
			return 0, err
		}

		if cleared.RowsAffected == 0 {
			return 0, st.Held(r.Name)
		}
	}

	token, err := s.store.Acquire(ctx, conn, r, grants.Replaces{})
	if err != nil {
		return 0, err
	}

	made, err := s.store.Exec(ctx, conn, s.sql.Make, r)

	if err == nil && made.RowsAffected == 0 {
		// It was there, from an attempt before; or somebody has a row locked.
		_, _, err = grants.ReadState(ctx, conn, s.sql.Look, r.Name, &owner)
	}

	if err == nil && (made.RowsAffected > 0 || owner == r.Owner) || !s.store.Clean(err) {
		return token, err
	}

	return 0, s.giveBack(ctx, conn, r, err)
}

// giveBack frees the record whose row could not be made, or the name would be held by
// nobody until its lease ends. If that fails, too, the outcome is open.
func (s *Strategy) giveBack(ctx context.Context, conn databases.Conn, r strategies.Request, cause error) (err error) {
	refused := cause != nil && !s.store.Busy(cause)

	switch {
	case r.Mode == strategies.Shared:
		// Others may have joined the phase since. It ends when the last of them leaves, as this one does now.
	case refused:
		// A user who may not insert may not delete, either. A row that an attempt before has
		// made is in nobody's way without the record.
		err = s.store.ReleaseRecord(ctx, conn, r)
	default:
		err = s.store.Release(ctx, conn, r)
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
func (s *Strategy) inTransaction(ctx context.Context, conn databases.Conn, r strategies.Request) (int64, error) {
	if _, err := s.store.Exec(ctx, conn, s.sql.Begin, r); err != nil {
		return 0, s.store.AsHeld(ctx, conn, r.Name, err)
	}

	token, err := s.store.Acquire(ctx, conn, r, grants.Replaces{})

	for _, step := range []databases.Statement{s.sql.Make, s.sql.Commit} {
		if err == nil {
			_, err = s.store.Exec(ctx, conn, step, r)
		}
	}

	if err == nil {
		return token, nil
	}

	// Also though ctx has ended: the connection goes back to the pool.
	if _, failed := s.store.Exec(context.WithoutCancel(ctx), conn, s.sql.Rollback, r); failed != nil {
		return 0, grants.Doubt(errors.Join(err, fmt.Errorf("roll back: %w", failed)))
	}

	return 0, s.store.AsHeld(ctx, conn, r.Name, err)
}
