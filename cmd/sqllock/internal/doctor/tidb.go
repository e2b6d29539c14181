package doctor

import (
	"context"
	"database/sql"
	"errors"
)

func tidbChecks() []check {
	return []check{
		{"server", tidbServer},
		{"writable", mysqlWritable},
		{"transactions", tidbTransactions},
		{"timeouts", mysqlTimeouts},
		{"connections", mysqlConnections},
		clockOf(tidbClock),
	}
}

func tidbServer(ctx context.Context, e *exam) ([]Finding, error) {
	if refused, err := e.refused(ctx); err != nil || refused != nil {
		return refused, err
	}

	var version string
	if err := e.one(ctx, `SELECT VERSION()`, &version); err != nil {
		return nil, err
	}

	return fine("TiDB %s", version), nil
}

// tidbTransactions looks what the application's transactions are, in which locks are guarded.
func tidbTransactions(ctx context.Context, e *exam) ([]Finding, error) {
	mode, err := e.variable(ctx, "SESSION VARIABLES", "tidb_txn_mode")
	if err != nil {
		return nil, err
	}

	if mode != "optimistic" {
		return fine("they are pessimistic"), nil
	}

	return found(Note, "tidb_txn_mode is optimistic",
		"the locks' own transactions are pessimistic all the same; a guarded transaction keeps nobody from the lock, and its commit fails if the lock was taken over",
		"leave it out of the URL and of the server's variables, if guarded transactions are long"), nil
}

// tidbClock asks the clock that leases are counted by, which is one for all servers of a cluster.
func tidbClock(ctx context.Context, e *exam) (micros int64, err error) {
	tx, err := e.conn.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return 0, err
	}

	err = tx.QueryRowContext(ctx, `SELECT CAST(@@tidb_current_ts AS SIGNED) DIV 262144 * 1000`).Scan(&micros)

	return micros, errors.Join(err, tx.Rollback())
}
