package moving

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"

	"github.com/sqllock/sqllock/sqllock"
)

// WithRedislock edits the document while nobody else does.
func WithRedislock(ctx context.Context, locks *redislock.Client, edit Work) error {
	lock, err := locks.Obtain(ctx, "document/7", 30*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return err
	}

	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()

	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)

	go keep(ctx, 10*time.Second, func(ctx context.Context) error {
		return lock.Refresh(ctx, 30*time.Second, nil)
	}, lost)

	return edit(ctx)
}

// WithRedsync edits the document while nobody else does.
func WithRedsync(ctx context.Context, locks *redsync.Redsync, edit Work) error {
	mutex := locks.NewMutex("document/7", redsync.WithExpiry(30*time.Second), redsync.WithTries(math.MaxInt32))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}

	defer func() { _, _ = mutex.UnlockContext(context.WithoutCancel(ctx)) }()

	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)

	go keep(ctx, 10*time.Second, func(ctx context.Context) error {
		ok, err := mutex.ExtendContext(ctx)
		if err == nil && !ok {
			err = errors.New("not extended")
		}

		return err
	}, lost)

	return edit(ctx)
}

// WithRedisAndSQLLock is for the version between the two.
func WithRedisAndSQLLock(ctx context.Context, locks *redislock.Client, locker *sqllock.Locker, edit Work) error {
	return WithRedislock(ctx, locks, func(ctx context.Context) error {
		return WithSQLLock(ctx, locker, edit)
	})
}
