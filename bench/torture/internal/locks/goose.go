package locks

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"log/slog"
	"math"
	"time"

	"github.com/pressly/goose/v3/lock"
)

const (
	gooseModule = "github.com/pressly/goose/v3"
	gooseSource = "https://pkg.go.dev/github.com/pressly/goose/v3/lock"
)

// goose are the locks of pressly/goose, which are made for migrations. Each acquisition has a locker of its own, as each provider
// that migrates has. They tell their holder nothing.
func goose() []Lock {
	return []Lock{
		{
			Name: "goose session lock", Server: "postgres", Module: gooseModule,
			Settings: "NewPostgresSessionLocker, tried each second",
			Promise:  "for migrations; the lock ends with its session",
			Source:   gooseSource + "#NewPostgresSessionLocker",
			Open: func(_ context.Context, c Config) (Locker, error) {
				pool, err := openPgxStd(c)
				if err != nil {
					return nil, err
				}

				return gooseSession{pool}, nil
			},
		},
		{
			Name: "goose table lock", Server: "postgres", Module: gooseModule,
			Settings: "NewPostgresTableLocker, tried each second; a heartbeat each third of the lease", Smallest: "goosetable",
			Promise: "for migrations; heartbeats keep it until it is released, and others take it after the lease if the process dies",
			Source:  gooseSource + "#NewPostgresTableLocker", Prepare: prepareGooseTable,
			Open: func(_ context.Context, c Config) (Locker, error) {
				pool, err := openPgxStd(c)
				if err != nil {
					return nil, err
				}

				return gooseTable{pool, c.Lease}, nil
			},
		},
	}
}

// gooseID is the lock's number of a name. That of a table is larger than 0.
func gooseID(name string) int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))

	return int64(hash.Sum64()>>1) | 1
}

type gooseSession struct{ stdShared }

func (l gooseSession) Acquire(ctx context.Context, name string) (Held, error) {
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(gooseID(name)), lock.WithLockTimeout(1, math.MaxInt32), lock.WithUnlockTimeout(1, 3),
	)
	if err != nil {
		return nil, err
	}

	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}

	if err := locker.SessionLock(ctx, conn); err != nil {
		return nil, errors.Join(err, discardStd(conn)) // it may hold the lock
	}

	return heldGooseSession{locker, conn}, nil
}

type heldGooseSession struct {
	locker lock.SessionLocker
	conn   *sql.Conn
}

func (heldGooseSession) Check() error { return nil }
func (heldGooseSession) Token() int64 { return 0 }

func (h heldGooseSession) Release(ctx context.Context) error {
	if err := h.locker.SessionUnlock(ctx, h.conn); err != nil {
		return errors.Join(err, discardStd(h.conn))
	}

	return h.conn.Close()
}

type gooseTable struct {
	stdShared

	lease time.Duration
}

// prepareGooseTable acquires a lock once: the first one makes the table.
func prepareGooseTable(ctx context.Context, c Config) error {
	pool, err := openPgxStd(c)
	if err != nil {
		return err
	}
	defer pool.Close()

	held, err := gooseTable{pool, c.Lease}.Acquire(ctx, "prepare")
	if err != nil {
		return err
	}

	return held.Release(ctx)
}

func (l gooseTable) Acquire(ctx context.Context, name string) (Held, error) {
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableLockID(gooseID(name)), lock.WithTableLeaseDuration(l.lease), lock.WithTableHeartbeatInterval(l.lease/3),
		lock.WithTableLockTimeout(time.Second, math.MaxInt32), lock.WithTableUnlockTimeout(time.Second, 3),
		lock.WithTableLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, err
	}

	// Heartbeats end with the context of Lock.
	heartbeats, stop := context.WithCancel(context.WithoutCancel(ctx))
	waiting := context.AfterFunc(ctx, stop)

	if err := locker.Lock(heartbeats, l.db); err != nil {
		stop()

		return nil, errors.Join(err, ctx.Err())
	}

	held := heldGooseTable{locker, l.db, stop}

	if !waiting() { // the context ended meanwhile
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateRelease)
		defer cancel()

		return nil, errors.Join(context.Cause(ctx), held.Release(limited))
	}

	return held, nil
}

type heldGooseTable struct {
	locker lock.Locker
	db     *sql.DB
	stop   func() // its heartbeats, after the release
}

func (heldGooseTable) Check() error { return nil }
func (heldGooseTable) Token() int64 { return 0 }

// Release does not wait for Unlock, which goes on after its context has ended.
func (h heldGooseTable) Release(ctx context.Context) error {
	return bounded(ctx, func() error {
		defer h.stop()

		return h.locker.Unlock(ctx, h.db)
	})
}
