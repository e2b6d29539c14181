package locks

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

func zooKeeper() []Lock {
	const (
		module = "github.com/go-zookeeper/zk"
		once   = "a session for each process, and a Lock for each attempt"
		token  = "the czxid of its node"
	)

	return []Lock{
		{
			Name: "go-zookeeper/zk Lock", Server: "zookeeper", Settings: once, Smallest: "zklock",
			Module:  module,
			Promise: "a mutual exclusion lock; of sessions that end it says nothing",
			Source:  "https://pkg.go.dev/github.com/go-zookeeper/zk@v1.0.4#Lock",
			Token:   token, Open: openZooKeeper(false),
		},
		{
			Name: "go-zookeeper/zk Lock, session watched", Server: "zookeeper",
			Settings: "the same; Check: the state of the session",
			Module:   module,
			Promise:  "ZooKeeper's guide: who is cut off learns of the end of its session only when it is connected again",
			Source:   "https://zookeeper.apache.org/doc/r3.8.0/zookeeperProgrammers.html#ch_zkSessions",
			Token:    token, Open: openZooKeeper(true),
		},
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

type zooLocker struct {
	conn    *zk.Conn
	lease   time.Duration
	watched bool
}

func openZooKeeper(watched bool) func(context.Context, Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		conn, events, err := zk.Connect(c.Servers, c.Lease, zk.WithLogger(silent{}), zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}

		for {
			select {
			case event := <-events:
				if event.State == zk.StateHasSession {
					return &zooLocker{conn, c.Lease, watched}, nil
				}
			case <-ctx.Done():
				conn.Close()

				return nil, fmt.Errorf("waiting for a session at %s: %w", strings.Join(c.Servers, ", "), ctx.Err())
			}
		}
	}
}

// Acquire waits for the lock. One that gives up frees it as soon as it is granted.
func (l *zooLocker) Acquire(ctx context.Context, name string) (Held, error) {
	type outcome struct {
		held *zooHeld
		err  error
	}

	granted := make(chan outcome, 1)

	go func() {
		held, err := l.lock("/" + strings.ReplaceAll(name, "/", "-"))
		granted <- outcome{held, err}
	}()

	select {
	case got := <-granted:
		if got.err != nil {
			return nil, got.err
		}

		return got.held, nil
	case <-ctx.Done():
		go func() {
			if got := <-granted; got.err == nil {
				_ = got.held.lock.Unlock()
			}
		}()

		return nil, ctx.Err()
	}
}

// lock waits for the lock, however long that takes.
func (l *zooLocker) lock(path string) (*zooHeld, error) {
	mark := rand.Text()

	lock := zk.NewLock(l.conn, path, zk.WorldACL(zk.PermAll))
	if err := lock.LockWithData([]byte(mark)); err != nil {
		return nil, err
	}

	node, err := l.holder(path, mark)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}

	return &zooHeld{l, lock, node}, nil
}

// holder finds the node of the holder, which has to have that mark.
func (l *zooLocker) holder(path, mark string) (*zk.Stat, error) {
	nodes, _, err := l.conn.Children(path)
	if err != nil {
		return nil, err
	}

	if len(nodes) == 0 {
		return nil, errors.New("the lock's node is gone already")
	}

	first := slices.MinFunc(nodes, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })

	data, node, err := l.conn.Get(path + "/" + first)
	if err != nil {
		return nil, err
	}

	if string(data) != mark {
		return nil, errors.New("the lock is another's already")
	}

	return node, nil
}

// sequence is the number at the end of a node's name, which has leading zeros.
func sequence(node string) string { return node[strings.LastIndex(node, "-")+1:] }

// Close ends the session, and with it what is held.
func (l *zooLocker) Close() { l.conn.Close() }

type zooHeld struct {
	locker *zooLocker
	lock   *zk.Lock
	node   *zk.Stat
}

// Check looks at the session, if it is watched. While there is no connection it waits, as long as the session may live.
func (h *zooHeld) Check() error {
	if !h.locker.watched {
		return nil
	}

	for lost := time.Now().Add(h.locker.lease); ; {
		// The state before the number: a new session has its number before its state.
		switch state := h.locker.conn.State(); {
		case state == zk.StateHasSession && h.locker.conn.SessionID() == h.node.EphemeralOwner:
			return nil
		case state == zk.StateHasSession, state == zk.StateExpired:
			return errors.New("the session in which the lock was granted has expired")
		case time.Now().After(lost):
			return fmt.Errorf("the connection has been without a session for %s: %s", h.locker.lease, state)
		}

		<-time.After(10 * time.Millisecond)
	}
}

func (h *zooHeld) Token() int64 { return h.node.Czxid }

// Release frees the lock, if need be when there is a connection again.
func (h *zooHeld) Release(ctx context.Context) error {
	freed := make(chan error, 1)

	go func() {
		err := h.lock.Unlock()
		for err != nil && !errors.Is(err, zk.ErrNotLocked) && !errors.Is(err, zk.ErrNoNode) && pause(ctx, 100*time.Millisecond) {
			err = h.lock.Unlock()
		}

		freed <- err
	}()

	select {
	case err := <-freed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
