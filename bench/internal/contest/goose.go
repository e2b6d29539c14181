package contest

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"math"

	"github.com/pressly/goose/v3/lock"
)

// goose is the session lock of pressly/goose: a session-level advisory lock
// on a connection of the caller's, which it asks for again after a period.
func goose() []Contestant {
	return []Contestant{{
		Server: "postgres", Name: "goose/v3/lock", Group: Peer,
		Note: "asks again every second, the shortest it allows; the default is every 5 s",
		Open: func(_ context.Context, c Config) (Locker, error) {
			db, err := openPostgresStd(c)
			if err != nil {
				return nil, err
			}

			return gooseLocker{db}, nil
		},
	}}
}

type gooseLocker struct{ db *sql.DB }

func (g gooseLocker) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))

	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(int64(hash.Sum64())), lock.WithLockTimeout(1, math.MaxInt32), lock.WithUnlockTimeout(1, 3),
	)
	if err != nil {
		return nil, err
	}

	conn, err := g.db.Conn(ctx)
	if err != nil {
		return nil, err
	}

	if err := locker.SessionLock(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	return func(ctx context.Context) error {
		return errors.Join(locker.SessionUnlock(ctx, conn), conn.Close())
	}, nil
}

func (g gooseLocker) Close(context.Context) error { return g.db.Close() }
