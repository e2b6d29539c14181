package tidb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
)

// What a transaction begins and ends with. PESSIMISTIC, because tidb_txn_mode may say
// otherwise: an optimistic transaction locks no row before its commit
// (https://docs.pingcap.com/tidb/stable/pessimistic-transaction/).
var (
	begin    = databases.Statement{Name: "tidb.begin", SQL: `BEGIN PESSIMISTIC`}
	commit   = databases.Statement{Name: "tidb.commit", SQL: `COMMIT`}
	rollback = databases.Statement{Name: "tidb.rollback", SQL: `ROLLBACK`}
)

// connection sends each statement in a transaction, with the steps that follow it.
type connection struct {
	databases.Conn

	open bool // a transaction that a BEGIN has begun, and that goes on
}

// Run runs a statement and calls each for every row, before the commit. Of several the answer is that of the last which is no query.
func (c *connection) Run(
	ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	switch s.SQL {
	case "BEGIN":
		_, err = c.Conn.Run(ctx, begin, nil, nil)
		c.open = err == nil

		return result, err
	case rollback.SQL:
		c.open = false

		return c.Conn.Run(ctx, rollback, nil, nil)
	case commit.SQL:
		c.open = false

		return result, c.commit(ctx)
	}

	if c.open {
		return run(ctx, c.Conn, s, v, each)
	}

	if _, err = c.Conn.Run(ctx, begin, nil, nil); err != nil {
		return result, err
	}

	if result, err = run(ctx, c.Conn, s, v, each); err != nil {
		return result, c.undo(ctx, err)
	}

	if err = c.commit(ctx); err != nil {
		return databases.Result{}, err
	}

	return result, nil
}

func (c *connection) commit(ctx context.Context) error {
	if _, err := c.Conn.Run(ctx, commit, nil, nil); err != nil {
		return &endError{fmt.Errorf("commit: %w", err), true}
	}

	return nil
}

// endError is the error of a COMMIT, after which what was done may be there all the same; or of a ROLLBACK, after which the
// connection may have a transaction.
type endError struct {
	error

	commits bool
}

func (e *endError) Unwrap() error { return e.error }

// undoTime bounds a ROLLBACK.
const undoTime = time.Second

// undo rolls back after an error, which it returns, also though ctx has ended: the connection goes back
// to its pool.
func (c *connection) undo(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()

	if _, err := c.Conn.Run(ctx, rollback, nil, nil); err != nil {
		return &endError{errors.Join(cause, fmt.Errorf("roll back: %w", err)), false}
	}

	return cause
}

// run sends the steps of a statement one after the other. A query that finds nothing is the last
// of several: what follows is about the rows that it has locked.
func run(
	ctx context.Context, on databases.Session, s databases.Statement, v databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	for step := &s; step != nil; step = step.Then {
		if !reads(*step) {
			if result, err = on.Run(ctx, *step, v, nil); err != nil {
				return databases.Result{}, err
			}

			continue
		}

		found := false

		_, err = on.Run(ctx, *step, v, func(row databases.Row) error {
			if found = true; each == nil {
				return nil
			}

			return each(row)
		})
		if !found && errors.Is(err, errNotNow) {
			err = nil
		}

		if err != nil || !found {
			return databases.Result{}, err
		}
	}

	return result, nil
}

func reads(step databases.Statement) bool {
	return strings.HasPrefix(step.SQL, "SELECT") || strings.HasPrefix(step.SQL, "SHOW")
}

// errNotNow is the error of a NOWAIT that met a row which somebody has locked. That is no row: TiDB takes
// SKIP LOCKED, which says so, and ignores it (seen on 8.5,
// https://github.com/pingcap/tidb/issues/69720).
var errNotNow = &driver.MySQLError{Number: 3572}
