package contest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

func zooKeeper() []Contestant {
	return []Contestant{{
		Server: "zookeeper", Name: "go-zookeeper/zk Lock", Group: Peer,
		Note: "one connection; a wait cannot be given up",
		Open: func(ctx context.Context, c Config) (Locker, error) {
			conn, events, err := zk.Connect([]string{c.Address.DSN}, c.Lease, zk.WithLogger(silent{}))
			if err != nil {
				return nil, err
			}

			for {
				select {
				case event := <-events:
					if event.State == zk.StateHasSession {
						return zooLocker{conn}, nil
					}
				case <-time.After(10 * time.Second):
					conn.Close()

					return nil, fmt.Errorf("no session at %s", c.Address.DSN)
				case <-ctx.Done():
					conn.Close()

					return nil, ctx.Err()
				}
			}
		},
	}}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

type zooLocker struct{ conn *zk.Conn }

func (l zooLocker) Acquire(_ context.Context, _ int, name string) (Release, error) {
	path := "/" + strings.ReplaceAll(name, "/", "-")

	lock := zk.NewLock(l.conn, path, zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		return nil, err
	}

	return func(context.Context) error { return lock.Unlock() }, nil
}

func (l zooLocker) Close(context.Context) error {
	l.conn.Close()

	return nil
}
