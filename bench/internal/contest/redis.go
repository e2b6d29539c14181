package contest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	driver "github.com/redis/go-redis/v9"
)

// RedisLock and RedSync are the names of contestants that scenarios and targets speak of.
const (
	RedisLock = "bsm/redislock"
	RedSync   = "go-redsync/redsync"
)

func redis() []Contestant {
	return []Contestant{
		{
			Server: "redis", Name: RedisLock, Group: Peer,
			Note: "asks again after 20 ms; it has no default and its examples have 100 ms",
			Open: func(_ context.Context, c Config) (Locker, error) {
				client := openRedis(c)

				return redisLocker{redislock.New(client), client, c.Lease}, nil
			},
		},
		{
			Server: "redis", Name: RedSync, Group: Peer,
			Note: "on one server; asks again after 50 to 250 ms as by default, but without an end",
			Open: func(_ context.Context, c Config) (Locker, error) {
				client := openRedis(c)

				return redsyncLocker{redsync.New(goredis.NewPool(client)), client, c.Lease}, nil
			},
		},
	}
}

func openRedis(c Config) *driver.Client {
	return driver.NewClient(&driver.Options{
		Addr: c.Address.DSN, PoolSize: c.Pool,
		// As long as the pools of the SQL drivers, which have no limit of their own.
		PoolTimeout: time.Minute,
	})
}

type redisLocker struct {
	locks  *redislock.Client
	client *driver.Client
	lease  time.Duration
}

func (l redisLocker) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	for {
		held, err := l.locks.Obtain(ctx, name, l.lease, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond),
		})

		switch {
		case err == nil:
			return held.Release, nil
		case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return nil, err
		}
		// It waits no longer than a lease at a time.
	}
}

func (l redisLocker) Close(context.Context) error { return l.client.Close() }

type redsyncLocker struct {
	locks  *redsync.Redsync
	client *driver.Client
	lease  time.Duration
}

func (l redsyncLocker) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	mutex := l.locks.NewMutex(name, redsync.WithExpiry(l.lease), redsync.WithTries(math.MaxInt32))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}

	return func(ctx context.Context) error {
		_, err := mutex.UnlockContext(ctx)

		return err
	}, nil
}

func (l redsyncLocker) Close(context.Context) error { return l.client.Close() }
