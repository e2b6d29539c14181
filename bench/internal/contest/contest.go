// Package contest holds those that are measured side by side: this library's
// strategies, other lock libraries, and the least that a database could be
// asked to do. Each is reached through the same small interface.
package contest

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// Address says where a server is. It goes to worker processes as JSON.
type Address struct {
	// DSN is a data source name, or host:port for what is no SQL database.
	DSN string
	// Database is the one that was made for this run, if the server has such.
	Database string
}

// Config is what a contestant is opened with.
type Config struct {
	Address Address
	// Pool is the most connections, for those that have a pool.
	Pool int
	// Lease is how long a lock outlives its holder.
	Lease time.Duration
	// Statements counts what the driver sends, where it can tell.
	Statements *atomic.Int64
}

// Release frees what was acquired.
type Release func(ctx context.Context) error

// Locker is an open contestant.
type Locker interface {
	// Acquire waits for the lock. The slot is the number of the caller's
	// goroutine: some libraries tell holders apart by session only.
	Acquire(ctx context.Context, slot int, name string) (Release, error)
	// Close ends connections. Nothing is held any more.
	Close(ctx context.Context) error
}

// Group says what a contestant is.
type Group int

// The groups.
const (
	Library Group = iota // this library
	Peer                 // another one
	Floor                // no lock: what the database takes for the least work
)

// Contestant is one that takes part.
type Contestant struct {
	Server string
	Name   string
	Group  Group
	// Variant is true for a strategy with an option that few set.
	Variant bool
	// Note says what a reader must know about how it is set up.
	Note string
	Open func(ctx context.Context, c Config) (Locker, error)
}

// ID names it among all.
func (c Contestant) ID() string { return c.Server + "/" + c.Name }

// All are the contestants, by server.
func All() []Contestant {
	all := slices.Concat(floors(), []Contestant{toldFloor()}, libraries(), byHand(), goose(), redis(), etcd(), zooKeeper())
	order := []string{"postgres", "mysql", "mariadb", "sqlite", "redis", "etcd", "zookeeper"}

	slices.SortStableFunc(all, func(a, b Contestant) int {
		return slices.Index(order, a.Server) - slices.Index(order, b.Server)
	})

	return all
}

// Find returns the contestant of that ID.
func Find(id string) (Contestant, bool) {
	all := All()

	i := slices.IndexFunc(all, func(c Contestant) bool { return c.ID() == id })
	if i < 0 {
		return Contestant{}, false
	}

	return all[i], true
}
