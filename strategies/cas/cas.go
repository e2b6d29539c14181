// Package cas keeps a lock as the status of a row: one row for each name, which
// an UPDATE takes if it is free (compare and set). It is the
// strategy to choose unless there is a reason for another.
//
//	locker, err := sqllock.New(cas.New(postgres.New(pool)))
//
// Databases: PostgreSQL, MySQL, MariaDB, TiDB, SQLite. It needs no session state, so
// it works behind transaction-pooling proxies, and holds no connection. An
// uncontended acquisition, renewal and release are one statement each.
//
// What is sent is nearly the same for all strategies, which keep such a row too: see
// strategies/internal/grants, and cas.acquire in its .sql files for the compare-and-set.
package cas

import (
	"context"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

const name = "cas"

// Strategy keeps locks as the status of a row. It is safe for concurrent use.
type Strategy struct {
	base

	store *grants.Store
}

// base is what strategies have whose locks are leases.
type base = grants.Leased

// New returns the strategy for a database. sqllock.New reports what is wrong with db.
func New(db databases.DB) *Strategy {
	store := grants.New(db, name, func(d *grants.Dialect) {
		d.Acquire, d.AcquireFromLine = d.Cas.Acquire, d.Cas.AcquireFromLine
	})

	return &Strategy{store.Leased(), store}
}

// Features says what the strategy can do: everything.
func (s *Strategy) Features() strategies.Features {
	f := s.store.Features()
	f.MinHold, f.LockDelay, f.Shared = true, true, true

	return f
}

// Acquire takes the rows that are free. One is not passed on to a function of its own: this is what most acquisitions go through.
func (s *Strategy) Acquire(ctx context.Context, requests []strategies.Request) (made []strategies.Grant, errs []error) {
	if len(requests) != 1 {
		return s.store.AcquireAll(ctx, requests)
	}

	r := requests[0]
	made, errs = make([]strategies.Grant, 1), make([]error, 1)

	conn, ctx, cancel, err := s.store.Attempt(ctx)
	if errs[0] = err; err != nil {
		return made, errs
	}

	defer s.store.Return(conn, &errs[0])
	defer cancel()

	if r.Mode == strategies.Shared {
		record, err := s.store.Grants(ctx, conn, r, false, func(ctx context.Context, r strategies.Request, _ grants.State) (int64, error) {
			return s.store.Acquire(ctx, conn, r, grants.Replaces{})
		})
		if errs[0] = err; err == nil {
			made[0] = record.Granted()
		}

		return made, errs
	}

	token, err := s.store.Acquire(ctx, conn, r, grants.Replaces{})
	if errs[0] = err; err == nil {
		made[0] = s.store.Grant(r, token).Granted()
	}

	return made, errs
}
