package locks

import (
	"context"
	"errors"
	"time"

	client "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// cleanup is how long a library may take to clean up after an attempt that was given up.
const cleanup = time.Second

func etcd() []Lock {
	return []Lock{{
		Name: "etcd concurrency.Mutex", Server: "etcd",
		Settings: "a session for each attempt; Check: Session.Done", Smallest: "etcdcut",
		Module:  "go.etcd.io/etcd/client/v3",
		Promise: "the lock alone excludes nobody: what it protects has to check the revision",
		Source:  "https://etcd.io/docs/v3.6/learning/why/#notes-on-the-usage-of-lock-and-lease",
		Token:   "the revision",
		Open: func(_ context.Context, c Config) (Locker, error) {
			opened, err := client.New(client.Config{
				Endpoints: c.Servers, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
			})
			if err != nil {
				return nil, err
			}

			return &etcdLocker{opened, c.Lease}, nil
		},
	}}
}

type etcdLocker struct {
	client *client.Client
	lease  time.Duration
}

// Acquire waits for the lock.
func (l *etcdLocker) Acquire(ctx context.Context, name string) (Held, error) {
	session, end, err := l.open(ctx)
	if err != nil {
		return nil, err
	}

	mutex := concurrency.NewMutex(session, "/"+name)

	// When the context ends, the library deletes its key without a limit of time.
	locked := make(chan error, 1)
	go func() { locked <- mutex.Lock(ctx) }()

	select {
	case err = <-locked:
	case <-ctx.Done():
		select {
		case err = <-locked:
		case <-time.After(cleanup):
			err = ctx.Err()
		}
	}

	if err != nil {
		// The lease runs out if it cannot be revoked.
		go func() {
			defer end()
			_ = session.Close()
		}()

		return nil, err
	}

	return &etcdHeld{session, mutex, end}, nil
}

// open makes a session that lives on when the context ends, unless that comes first.
func (l *etcdLocker) open(ctx context.Context) (*concurrency.Session, context.CancelFunc, error) {
	living, end := context.WithCancel(l.client.Ctx())
	abandon := context.AfterFunc(ctx, end)

	session, err := concurrency.NewSession(l.client,
		concurrency.WithTTL(int(l.lease/time.Second)), concurrency.WithContext(living))
	if err == nil && abandon() {
		return session, end, nil
	}

	end()

	return nil, nil, errors.Join(err, ctx.Err())
}

// Close ends the connections. The keys of those who hold or wait stay until their leases run out.
func (l *etcdLocker) Close() { _ = l.client.Close() }

type etcdHeld struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
	end     context.CancelFunc
}

// Check looks whether the session is kept alive.
func (h *etcdHeld) Check() error {
	select {
	case <-h.session.Done():
		return errors.New("the session has ended")
	default:
		return nil
	}
}

func (h *etcdHeld) Token() int64 { return h.mutex.Header().GetRevision() }

// Release frees the lock, and then ends the session.
func (h *etcdHeld) Release(ctx context.Context) error {
	err := h.mutex.Unlock(ctx)

	// Revoking the lease frees the lock too, should that not have worked.
	closed := make(chan error, 1)

	go func() {
		defer h.end()
		closed <- h.session.Close()
	}()

	select {
	case failed := <-closed:
		return errors.Join(err, failed)
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}
