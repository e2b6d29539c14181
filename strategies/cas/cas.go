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
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// Strategy keeps locks as the status of a row. It is safe for concurrent use, and can do everything.
type Strategy struct{ base }

// base is what strategies have whose locks are leases.
type base = grants.Leased

// New returns the strategy for a database. sqllock.New reports what is wrong with db.
func New(db databases.DB) *Strategy {
	store := grants.New(db, "cas")

	return &Strategy{store.Leased(store.Acquire)}
}
