package moving

import (
	"context"
	"errors"

	client "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/sqllock/sqllock/sqllock"
)

// WithEtcd edits the document while nobody else does.
func WithEtcd(ctx context.Context, etcd *client.Client, edit Work) error {
	session, err := concurrency.NewSession(etcd, concurrency.WithTTL(30))
	if err != nil {
		return err
	}

	defer func() { _ = session.Close() }() // which unlocks

	mutex := concurrency.NewMutex(session, "/document/7")
	if err := mutex.Lock(ctx); err != nil {
		return err
	}

	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)

	stop := context.AfterFunc(session.Ctx(), func() { lost(errors.New("session ended")) })
	defer stop()

	return edit(ctx)
}

// WithEtcdAndSQLLock is for the version between the two.
func WithEtcdAndSQLLock(ctx context.Context, etcd *client.Client, locker *sqllock.Locker, edit Work) error {
	return WithEtcd(ctx, etcd, func(ctx context.Context) error {
		return WithSQLLock(ctx, locker, edit)
	})
}
