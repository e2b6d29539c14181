package grants

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Exec runs a statement of the strategy's own about a request.
func (s *Store) Exec(
	ctx context.Context, on databases.Session, statement databases.Statement, r strategies.Request,
) (databases.Result, error) {
	return on.Exec(ctx, statement, s.values(r))
}

// conflictTries is how often a statement is sent that was refused because another transaction changed the row. Above the
// isolation level Read Committed it fails where it would have waited. A waiter that notes itself is enough.
const conflictTries = 20

// retryBusy is Exec for a statement that must not fail because of others who change the row, too. It may wait for them.
func (s *Store) retryBusy(
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values,
) (result databases.Result, err error) {
	return withLockTimeout(ctx, s, on, func() (result databases.Result, err error) {
		for range conflictTries {
			if result, err = on.Exec(ctx, statement, values); !s.Busy(err) || s.sql.OneWriter {
				break
			}
		}

		return result, err
	})
}

// execAll runs statements that bind the same.
func execAll(ctx context.Context, on databases.Session, statements []databases.Statement, values databases.Values) error {
	for _, statement := range statements {
		if _, err := on.Exec(ctx, statement, values); err != nil {
			return err
		}
	}

	return nil
}

// values are what the statements about a request bind.
func (s *Store) values(r strategies.Request) databases.Values {
	return databases.Values{
		"name": r.Name, "owner": r.Owner, "strategy": s.strategy, "where": s.Where(),
		"lease": s.lease(r.Lease), "delay": ceil(r.LockDelay), "min_hold": ceil(r.MinHold), "durable": r.DurableRelease, "tokens": tokens(r),
		"first": r.First, "line": r.Line, "process": r.Process, "wait": r.Wait,
		"host": r.Holder.Host, "pid": int64(r.Holder.PID), "label": r.Holder.Label, "metadata": r.Holder.Metadata,
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// lease is what the database adds to its clock for a lease. A clock that shows only
// what began last, a millisecond for example, would end one that begins within it as
// much too early.
func (s *Store) lease(d time.Duration) int64 { return ceil(d + s.sql.Resolution) }

// ceil returns microseconds, rounded up: with WithClockMargin(0, 0) the database
// would otherwise end a lease before its holder stops to trust it.
func ceil(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }
