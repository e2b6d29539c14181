package locks

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// mysqlByHand is GET_LOCK as a team writes it in an afternoon.
func mysqlByHand() []Lock {
	return []Lock{{
		Name: "GET_LOCK by hand", Server: "mysql",
		Settings: "a connection for each who holds it or waits",
		Promise:  "held until it is released or its session ends",
		Source:   "https://dev.mysql.com/doc/refman/9.7/en/locking-functions.html",
		Open: func(_ context.Context, c Config) (Locker, error) {
			shared, err := openMySQL(c)
			if err != nil {
				return nil, err
			}

			return getLockByHand{shared}, nil
		},
	}}
}

type getLockByHand struct{ stdShared }

func (l getLockByHand) Acquire(ctx context.Context, name string) (Held, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}

	for {
		held, err := answersYes(ctx, conn, `SELECT GET_LOCK(?, 1)`, name)

		switch {
		case err != nil:
			return nil, errors.Join(err, discardStd(conn)) // it may hold the lock
		case held:
			return heldGetLock{conn, name}, nil
		}
	}
}

type heldGetLock struct {
	conn *sql.Conn
	name string
}

func (heldGetLock) Check() error { return nil }
func (heldGetLock) Token() int64 { return 0 }

func (h heldGetLock) Release(ctx context.Context) error {
	freed, err := answersYes(ctx, h.conn, `SELECT RELEASE_LOCK(?)`, h.name)
	if err == nil && !freed {
		err = errors.New("the session did not hold the lock")
	}

	if err != nil {
		return errors.Join(err, discardStd(h.conn))
	}

	return h.conn.Close()
}

// answersYes says whether a statement returned 1. NULL is an error of the server's, or a lock that does not exist.
func answersYes(ctx context.Context, conn *sql.Conn, query, name string) (bool, error) {
	var answer sql.NullInt64
	if err := conn.QueryRowContext(ctx, query, name).Scan(&answer); err != nil {
		return false, err
	}

	if !answer.Valid {
		return false, errors.New(query + " returned NULL")
	}

	return answer.Int64 == 1, nil
}

// discardStd ends the session, and any lock with it.
func discardStd(conn *sql.Conn) error {
	err := errors.Join(conn.Raw(func(any) error { return driver.ErrBadConn }), conn.Close())
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return nil
	}

	return err
}
