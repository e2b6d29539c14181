package contest

import (
	"context"
	"errors"
	"sync"
	"time"

	client "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func etcd() []Contestant {
	return []Contestant{{
		Server: "etcd", Name: "etcd concurrency.Mutex", Group: Peer,
		Note: "a session for each goroutine, because those of one session do not exclude each other",
		Open: func(_ context.Context, c Config) (Locker, error) {
			opened, err := client.New(client.Config{
				Endpoints: []string{c.Address.DSN}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
			})
			if err != nil {
				return nil, err
			}

			return &etcdLocker{client: opened, lease: c.Lease, sessions: make(map[int]*concurrency.Session)}, nil
		},
	}}
}

type etcdLocker struct {
	client *client.Client
	lease  time.Duration

	mu       sync.Mutex
	sessions map[int]*concurrency.Session
}

func (l *etcdLocker) Acquire(ctx context.Context, slot int, name string) (Release, error) {
	session, err := l.session(slot)
	if err != nil {
		return nil, err
	}

	mutex := concurrency.NewMutex(session, "/"+name)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}

	return mutex.Unlock, nil
}

// session returns that of the slot, which the warm-up makes.
func (l *etcdLocker) session(slot int) (*concurrency.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if session, ok := l.sessions[slot]; ok {
		return session, nil
	}

	session, err := concurrency.NewSession(l.client, concurrency.WithTTL(int(l.lease.Seconds())))
	if err != nil {
		return nil, err
	}

	l.sessions[slot] = session

	return session, nil
}

func (l *etcdLocker) Close(context.Context) error {
	var faults []error
	for _, session := range l.sessions {
		faults = append(faults, session.Close())
	}

	return errors.Join(append(faults, l.client.Close())...)
}
