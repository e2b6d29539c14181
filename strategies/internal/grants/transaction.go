package grants

import (
	"context"
	"errors"

	"github.com/sqllock/sqllock/databases"
)

// inTransaction commits what do has done if it says so, and rolls it back otherwise.
func (s *Store) inTransaction(ctx context.Context, conn databases.Conn, do func() (done bool, err error)) (done bool, err error) {
	return s.transaction(ctx, conn, []databases.Statement{s.sql.Begin}, do)
}

// transaction is inTransaction for one that begins in another way.
func (s *Store) transaction(
	ctx context.Context, conn databases.Conn, begin []databases.Statement, do func() (done bool, err error),
) (done bool, err error) {
	if err := execAll(ctx, conn, begin, nil); err != nil {
		return false, err
	}

	if done, err = do(); done && err == nil {
		if _, err := conn.Exec(ctx, s.sql.Commit, nil); err != nil {
			return false, Doubt(err)
		}

		return true, nil
	}

	return false, s.rollBack(ctx, conn, err)
}

// rollBack ends a transaction, also though ctx has ended: the connection goes back to the pool. It returns the cause.
func (s *Store) rollBack(ctx context.Context, conn databases.Conn, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patientTime)
	defer cancel()

	if _, failed := conn.Exec(ctx, s.sql.Rollback, nil); failed != nil {
		return Doubt(errors.Join(cause, failed))
	}

	return cause
}
