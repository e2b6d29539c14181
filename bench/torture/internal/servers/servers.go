// Package servers brings up the servers that the locks need, on loopback and in temporary folders, and does to them what a
// power cut or a fail-over does.
package servers

import (
	"context"
	"errors"
	"fmt"
)

// ErrNone reports that a kind of server has no fail-over that could be had here.
var ErrNone = errors.New("no fail-over of this kind of server can be had here")

// Server is a lock server of the trial's own: one, or several that belong together.
type Server interface {
	// Version says in a few words what runs, with the settings that matter.
	Version() string
	// Endpoints are where it listens now, host:port, one for each server that a client is given. After Restart and FailOver they may
	// be others, as many as before.
	Endpoints() []string
	// DSN is what a client is given to reach the i-th of them at another address, that of a proxy.
	DSN(i int, address string) string
	// Kill ends all of it with SIGKILL.
	Kill(ctx context.Context) error
	// Restart brings it back with its data, and returns when it serves.
	Restart(ctx context.Context) error
	// Lag has the last writes from now on be lost in FailOver, where that can be: a standby gets no more of them.
	Lag(ctx context.Context) error
	// FailOver kills the primary, or the leader, and returns when another one serves in its place.
	FailOver(ctx context.Context) error
	// Close ends it and removes its data.
	Close() error
}

// Start brings up a server of a kind: postgres, mysql, redis, redis3, etcd, zookeeper, kubernetes. One that is to fail over has
// what that takes: a standby, or three members. (redis3 are three servers that know nothing of each other; what fails over is one
// of them.) ErrNone says that this kind is not to be had so.
func Start(ctx context.Context, kind string, failOver bool) (Server, error) {
	switch kind {
	case "postgres", "mysql":
		return startSQL(ctx, kind, failOver)
	case "redis":
		return startRedis(ctx, 1, failOver)
	case "redis3":
		return startRedis(ctx, 3, failOver)
	case "etcd":
		return startEtcd(ctx, failOver)
	case "zookeeper":
		return startZooKeeper(ctx, failOver)
	case "kubernetes":
		return startKubernetes(ctx, failOver)
	default:
		return nil, fmt.Errorf("there is no server of kind %q", kind)
	}
}
