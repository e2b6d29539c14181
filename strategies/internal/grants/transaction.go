package grants

import (
	"context"
	"errors"

	"github.com/sqllock/sqllock/databases"
)

// What a transaction of several statements begins and ends with, as package databases/tidb knows them.
var (
	groupBegin    = databases.Statement{Name: "group.begin", SQL: `BEGIN`}
	groupCommit   = databases.Statement{Name: "group.commit", SQL: `COMMIT`}
	groupRollback = databases.Statement{Name: "group.rollback", SQL: `ROLLBACK`}
)

// inTransaction commits what do has done if it says so, and rolls it back otherwise.
func inTransaction(ctx context.Context, conn databases.Conn, do func() (done bool, err error)) (done bool, err error) {
	return transaction(ctx, conn, []databases.Statement{groupBegin}, do)
}

// transaction is inTransaction for one that begins in another way.
func transaction(
	ctx context.Context, conn databases.Conn, begin []databases.Statement, do func() (done bool, err error),
) (done bool, err error) {
	if err := execAll(ctx, conn, begin, nil); err != nil {
		return false, err
	}

	if done, err = do(); done && err == nil {
		if _, err := conn.Exec(ctx, groupCommit, nil); err != nil {
			return false, Doubt(err)
		}

		return true, nil
	}

	return false, rollBack(ctx, conn, err)
}

// rollBack ends a transaction, also though ctx has ended: the connection goes back to the pool. It returns the cause.
func rollBack(ctx context.Context, conn databases.Conn, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patientTime)
	defer cancel()

	if _, failed := conn.Exec(ctx, groupRollback, nil); failed != nil {
		return Doubt(errors.Join(cause, failed))
	}

	return cause
}
