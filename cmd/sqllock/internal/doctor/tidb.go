package doctor

import (
	"context"
	"database/sql"
	"errors"
)

func tidbChecks() []check {
	return []check{
		server(`SELECT VERSION()`, func(_ *exam, version string) []Finding { return fine("TiDB %s", version) }),
		{"writable", mysqlWritable},
		{"timeouts", mysqlTimeouts},
		{"connections", mysqlConnections},
		clockOf(tidbClock),
	}
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
