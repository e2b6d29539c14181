// Package insert keeps a lock as the existence of a row: inserting it takes
// the lock, a unique key refuses the second insert, deleting it frees the lock.
// It is how many teams do it by hand; this is the form that does not break.
//
//	locker, err := sqllock.New(insert.New(postgres.New(pool)))
//
// Databases: PostgreSQL, MySQL, MariaDB, SQLite. It needs no session state and
// holds no connection. Choose it if a table whose rows are just the locks that
// are held is what you want; package cas does the same with fewer writes.
//
// On MySQL and MariaDB an acquisition is two statements with one more round
// trip before, on SQLite a transaction, on PostgreSQL one statement.
package insert

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/internal/record"
)

const name = "insert"

// Strategy keeps locks as rows that exist. It is safe for concurrent use.
type Strategy struct {
	record.Admin
	store *record.Store
	steps steps
}

// New returns the strategy for a database. What is wrong with db, if anything,
// sqllock.New reports.
func New(db databases.DB) *Strategy {
	store := record.New(db, name, statements)

	return &Strategy{store.Admin(), store, acquire[store.Dialect()]}
}

// Features says what the strategy can do: everything.
func (s *Strategy) Features() sqllock.Features {
	return sqllock.Features{
		Strategy: name, Database: string(s.store.Dialect()),
		Guard: true, ReleaseTx: true, MinHold: true, LockDelay: true, Administer: true,
	}
}

// TryAcquire inserts the row if there is none, or takes one over whose lease
// ran out.
func (s *Strategy) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	var token int64

	err := s.store.On(ctx, func(conn databases.Conn) (err error) {
		// The second round follows the making of the name's row.
		for range 2 {
			if token, err = s.insert(ctx, conn, r); token != 0 || err != nil {
				return err
			}

			if err = s.missing(ctx, conn, r); err != nil {
				return err
			}
		}

		return &sqllock.HeldError{Name: r.Name, Detail: "its row comes and goes"}
	})

	switch {
	case s.store.Busy(err):
		return nil, &sqllock.HeldError{Name: r.Name, Detail: err.Error()}
	case err != nil:
		return nil, err
	default:
		return s.store.Grant(r, token), nil
	}
}

// missing makes the name's row if there is none; otherwise the name is held.
func (s *Strategy) missing(ctx context.Context, conn databases.Conn, r sqllock.Request) error {
	st, found, err := s.store.State(ctx, conn, r.Name)

	switch {
	case err != nil:
		return err
	case found:
		return st.Held(r.Name)
	default:
		return s.store.Create(ctx, conn, r.Name)
	}
}

// insert returns the token, or zero if the name is held or has no row.
func (s *Strategy) insert(ctx context.Context, conn databases.Conn, r sqllock.Request) (int64, error) {
	switch s.store.Dialect() {
	case databases.MySQL:
		return s.insertMySQL(ctx, conn, r)
	case databases.SQLite:
		return s.insertSQLite(ctx, conn, r)
	default:
		return s.store.Draw(ctx, conn, s.steps.insert, r)
	}
}

// insertMySQL looks first, without a lock: that is all that a try costs while
// the name is held.
func (s *Strategy) insertMySQL(ctx context.Context, conn databases.Conn, r sqllock.Request) (int64, error) {
	st, found, err := s.store.State(ctx, conn, r.Name)

	switch {
	case err != nil || !found:
		return 0, err
	case st.Owner != r.Owner && st.Left+st.Delay > 0:
		return 0, st.Held(r.Name)
	}

	if _, err := s.store.Exec(ctx, conn, s.steps.insert, r); err != nil {
		return 0, err
	}

	token, err := s.store.Draw(ctx, conn, s.steps.token, r)
	if token != 0 || err != nil && !s.store.Busy(err) {
		return token, err
	}

	// Somebody else's, or ours and a guard or a deadlock came between: then it
	// is given back, or it would stand there without a token until its lease
	// ends. If that fails, too, the outcome is open.
	if _, failed := s.store.Exec(ctx, conn, grants[databases.MySQL].Release, r); failed != nil {
		return 0, record.Doubt(failed)
	}

	return 0, err
}

// insertSQLite does both in one transaction.
func (s *Strategy) insertSQLite(ctx context.Context, conn databases.Conn, r sqllock.Request) (token int64, err error) {
	if _, err := s.store.Exec(ctx, conn, s.steps.begin, r); err != nil {
		return 0, err
	}

	inserted, err := s.store.Draw(ctx, conn, s.steps.insert, r)

	if err == nil && inserted != 0 {
		token, err = s.store.Draw(ctx, conn, s.steps.token, r)
	}

	if err == nil && token != 0 {
		_, err = s.store.Exec(ctx, conn, s.steps.commit, r)
	}

	if err == nil && token != 0 {
		return token, nil
	}

	// Also though ctx has ended: the connection goes back to the pool.
	if _, failed := s.store.Exec(context.WithoutCancel(ctx), conn, s.steps.rollback, r); failed != nil {
		return 0, record.Doubt(errors.Join(err, fmt.Errorf("roll back: %w", failed)))
	}

	return 0, err
}
