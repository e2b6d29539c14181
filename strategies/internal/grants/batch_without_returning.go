package grants

import (
	"context"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Where the dialect has WithoutReturning, an UPDATE returns no rows, and how many it changed does
// not say which. So the leases are read beside it, and a call counts as done if a lease
// with its name and owner, byte for byte, shows it.

// renewWithoutReturning reads afterwards. The answer has the clock that the leases were
// renewed by: one that was not, because somebody has it locked, ends earlier.
func (t *together) renewWithoutReturning(
	ctx context.Context, conn databases.Conn, statement databases.Statement, values databases.Values,
) error {
	result, err := conn.Exec(ctx, statement, values)
	if err != nil || result.LastInsertID == 0 {
		return err // or there was none to renew, and no clock was read
	}

	ends, err := t.leases(ctx, conn, t.sql.Batch.Leases, t.requests)
	if err != nil {
		return err
	}

	lease, _ := values["lease"].(int64)

	for _, r := range t.requests {
		if end, ok := ends[r.Owner]; ok && end >= result.LastInsertID+lease {
			t.done(r.Owner, false)
		}
	}

	return nil
}

// releaseWithoutReturning reads before: what is there afterwards may be a successor's already,
// and would not say whether the lock was released or lost. Only leases that were
// seen are released. If fewer rows changed than that it looks which are left, which
// somebody has locked: the others were ours during the call, and are not any more.
func (t *together) releaseWithoutReturning(ctx context.Context, conn databases.Conn, statement databases.Statement) error {
	seen, err := t.seen(ctx, conn)
	if err != nil || len(seen) == 0 {
		return err
	}

	result, err := conn.Exec(ctx, statement, t.batchValues(statement, seen))
	if err != nil {
		return err
	}

	var left map[string]int64

	if result.RowsAffected != int64(len(seen)) {
		if left, err = t.leases(ctx, conn, t.sql.Batch.Leases, seen); err != nil {
			return err
		}
	}

	for _, r := range seen {
		if _, ok := left[r.Owner]; !ok {
			t.done(r.Owner, result.LastInsertID != 0)
		}
	}

	return nil
}

// seen are the requests whose leases are there, after their rows are deleted where there are such.
func (t *together) seen(ctx context.Context, conn databases.Conn) ([]strategies.Request, error) {
	if t.inSteps() {
		return t.deleted(ctx, conn)
	}

	before, err := t.leases(ctx, conn, t.sql.Batch.Leases, t.requests)
	seen := make([]strategies.Request, 0, len(before))

	for _, r := range t.requests {
		if _, ok := before[r.Owner]; ok {
			seen = append(seen, r)
		}
	}

	return seen, err
}

// leases returns, by owner, when those of the requests end by the database's clock
// that the owners have.
func (s *Store) leases(
	ctx context.Context, conn databases.Conn, statement databases.Statement, requests []strategies.Request,
) (map[string]int64, error) {
	type lease struct{ name, owner string }

	found := make(map[lease]int64, len(requests))

	err := conn.Query(ctx, statement, s.batchValues(statement, requests), func(row databases.Row) error {
		var (
			l   lease
			end int64
		)

		err := row(&l.name, &l.owner, &end)
		found[l] = end

		return err
	})
	if err != nil {
		return nil, err
	}

	ends := make(map[string]int64, len(requests))

	for _, r := range requests {
		if end, ok := found[lease{r.Name, r.Owner}]; ok {
			ends[r.Owner] = end
		}
	}

	return ends, nil
}
