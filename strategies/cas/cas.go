// Package cas keeps a lock as the status of a row: one row for each name, kept
// for ever, that an UPDATE takes if it is free (compare and set). It is the
// strategy to choose unless there is a reason for another.
//
//	locker, err := sqllock.New(cas.New(postgres.New(pool)))
//
// Databases: PostgreSQL, MySQL, MariaDB, SQLite. It needs no session state, so
// it works behind transaction-pooling proxies, and holds no connection. An
// uncontended acquisition, renewal and release are one statement each.
//
// The row is the lock's record, which the other strategies keep too, so the
// statements are in strategies/internal/record/sql.go.
package cas

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/internal/record"
)

const name = "cas"

// Strategy keeps locks as the status of a row. It is safe for concurrent use.
type Strategy struct {
	record.Admin
	store *record.Store
}

var (
	_ sqllock.Batcher  = (*Strategy)(nil)
	_ sqllock.Notifier = (*Strategy)(nil)
)

// New returns the strategy for a database. What is wrong with db, if anything,
// sqllock.New reports.
func New(db databases.DB) *Strategy {
	store := record.New(db, name, record.Lease)

	return &Strategy{store.Admin(), store}
}

// Features says what the strategy can do: everything.
func (s *Strategy) Features() sqllock.Features {
	return sqllock.Features{
		Strategy: name, Database: string(s.store.Dialect()),
		Guard: true, ReleaseTx: true, MinHold: true, LockDelay: true, Administer: true,
	}
}

// TryAcquire takes the row if it is free.
func (s *Strategy) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	var token int64

	err := s.store.On(ctx, func(conn databases.Conn) (err error) {
		token, err = s.store.Acquire(ctx, conn, r, record.Instead{})

		return err
	})
	if err != nil {
		return nil, err
	}

	return s.store.Grant(r, token), nil
}

// TryAcquireAll takes the rows that are free, all in one statement.
func (s *Strategy) TryAcquireAll(ctx context.Context, requests []sqllock.Request) ([]sqllock.Grant, []error) {
	return s.store.TryAcquireAll(ctx, requests)
}

// RenewAll renews grants in one statement.
func (s *Strategy) RenewAll(ctx context.Context, grants []sqllock.Grant, lease time.Duration) []error {
	return s.store.RenewAll(ctx, grants, lease)
}

// ReleaseAll releases grants in one statement.
func (s *Strategy) ReleaseAll(ctx context.Context, grants []sqllock.Grant) []error {
	return s.store.ReleaseAll(ctx, grants)
}

// Listen tells of releases on PostgreSQL.
func (s *Strategy) Listen(ctx context.Context, ready func(), released func(name string)) error {
	return s.store.Listen(ctx, ready, released)
}

// Register notes in the row that somebody waits.
func (s *Strategy) Register(ctx context.Context, name string, d time.Duration) (bool, error) {
	return s.store.Register(ctx, name, d)
}
