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

// tidbClock asks the clock that leases are counted by, which is one for all servers of a cluster.
func tidbClock(ctx context.Context, e *exam) (micros int64, err error) {
	tx, err := e.conn.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return 0, err
	}

	err = tx.QueryRowContext(ctx, `SELECT CAST(@@tidb_current_ts AS SIGNED) DIV 262144 * 1000`).Scan(&micros)

	return micros, errors.Join(err, tx.Rollback())
}
