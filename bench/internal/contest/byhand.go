package contest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The names of the locks that targets speak of: those that a team writes by
// hand in an afternoon. A connection of the pool is checked out for each lock
// that is held. There is no record of it, no token and no lease.
const (
	AdvisoryByHand = "advisory lock by hand"
	GetLockByHand  = "GET_LOCK by hand"
)

// byHandPause is how long a lock by hand waits until it asks PostgreSQL again.
const byHandPause = 20 * time.Millisecond

func byHand() []Contestant {
	all := []Contestant{{
		Server: "postgres", Name: AdvisoryByHand, Group: Peer,
		Note: "pg_try_advisory_lock; no token, no lease, and a connection for each lock; asks again after 20 ms",
		Open: func(ctx context.Context, c Config) (Locker, error) {
			pool, err := openPgxPool(ctx, c)
			if err != nil {
				return nil, err
			}

			return advisoryByHand{pool}, nil
		},
	}}

	for _, on := range []string{"mysql", "mariadb"} {
		all = append(all, Contestant{
			Server: on, Name: GetLockByHand, Group: Peer,
			Note: "no token, no lease, and a connection for each lock; waits in the server, a second at a time",
			Open: func(_ context.Context, c Config) (Locker, error) {
				db, err := openMySQLStd(c)
				if err != nil {
					return nil, err
				}

				return getLockByHand{db}, nil
			},
		})
	}

	return all
}

type advisoryByHand struct{ pool *pgxpool.Pool }

func (l advisoryByHand) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	key := int64(hash.Sum64())

	for {
		release, err := l.try(ctx, key)
		if release != nil || err != nil {
			return release, err
		}

		// The connection is back in the pool: whoever waits needs none.
		select {
		case <-time.After(byHandPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try returns nil if another session holds the key.
func (l advisoryByHand) try(ctx context.Context, key int64) (Release, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}

	held := false
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, key).Scan(&held); err != nil {
		return nil, errors.Join(err, l.discard(ctx, conn)) // it may hold the lock
	}

	if !held {
		conn.Release()

		return nil, nil //nolint:nilnil // neither held nor a fault
	}

	return func(ctx context.Context) error {
		freed := false

		err := conn.QueryRow(ctx, `SELECT pg_advisory_unlock($1)`, key).Scan(&freed)
		if err == nil && !freed {
			err = errors.New("the session did not hold the lock")
		}

		if err != nil {
			return errors.Join(err, l.discard(ctx, conn))
		}

		conn.Release()

		return nil
	}, nil
}

// discard ends the session, and any lock with it.
func (advisoryByHand) discard(ctx context.Context, conn *pgxpool.Conn) error {
	return conn.Hijack().Close(ctx)
}

func (l advisoryByHand) Close(context.Context) error {
	l.pool.Close()

	return nil
}

type getLockByHand struct{ db *sql.DB }

func (l getLockByHand) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}

	for {
		held, err := answersYes(ctx, conn, `SELECT GET_LOCK(?, 1)`, name)

		switch {
		case err != nil:
			return nil, errors.Join(err, l.discard(conn)) // it may hold the lock
		case held:
			return func(ctx context.Context) error { return l.release(ctx, conn, name) }, nil
		}
	}
}

func (l getLockByHand) release(ctx context.Context, conn *sql.Conn, name string) error {
	freed, err := answersYes(ctx, conn, `SELECT RELEASE_LOCK(?)`, name)
	if err == nil && !freed {
		err = errors.New("the session did not hold the lock")
	}

	if err != nil {
		return errors.Join(err, l.discard(conn))
	}

	return conn.Close()
}

// answersYes says whether a statement returned 1. NULL is an error of the
// server's, or a lock that does not exist.
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

// discard ends the session, and any lock with it.
func (getLockByHand) discard(conn *sql.Conn) error {
	err := errors.Join(conn.Raw(func(any) error { return driver.ErrBadConn }), conn.Close())
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return nil
	}

	return err
}

func (l getLockByHand) Close(context.Context) error { return l.db.Close() }
