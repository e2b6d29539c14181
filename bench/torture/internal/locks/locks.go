// Package locks has the locks that are put through the faults, each used as its documentation says, behind one small
// interface.
package locks

import (
	"context"
	"slices"
	"time"
)

// Config is what a lock is opened with.
type Config struct {
	// Servers are data source names, or host:port for what is no SQL database: one, or each member of a group.
	Servers []string
	// Lease is how long a lock is to outlive its holder, where the library lets one choose.
	Lease time.Duration
	// Pool is the most connections of the pool that the lock shares with the application, where it has one.
	Pool int

	session map[string]string // variables of the sessions of the pool
}

// Locker is one that is open.
type Locker interface {
	// Acquire waits for the lock until the context ends.
	Acquire(ctx context.Context, name string) (Held, error)
	// Close ends its connections, whatever is held.
	Close()
}

// Held is a lock that was acquired.
type Held interface {
	// Check is what its documentation tells a holder to look at before it acts: an error when that says that the lock is
	// held no more. Of a lock whose documentation knows no such thing it is always nil. It asks no server, unless the
	// documentation says that a holder should.
	Check() error
	// Token is a number that is larger with each grant of the name; 0 where the library has none.
	Token() int64
	// Release frees it.
	Release(ctx context.Context) error
}

// Guarded is a Held that can write in a transaction which the lock's database refuses if the lock is held no more.
type Guarded interface {
	// Write writes the protected row of the lock's own database, under a guard, and returns the number of the write: larger than that
	// of each earlier one, also where a fail-over has lost some of them, which the server's clock sees to.
	Write(ctx context.Context) (int64, error)
}

// Pooled is a Locker that shares a pool of connections with the application.
type Pooled interface {
	// Fill takes all connections of the pool, as a busy application does, and returns what gives them back.
	Fill(ctx context.Context) (free func(), err error)
}

// Lock is a way to lock, with the settings that it is used with.
type Lock struct {
	// Name is that in the table, without the server's.
	Name string
	// Server is the kind of server that it needs, as package servers names them.
	Server string
	// Ours is true for this library.
	Ours bool
	// Settings says how it is used, in a few words for the page: what is set besides the lease, and what is done in a
	// loop of ours because the documentation says so.
	Settings string
	// Module is the path of the library's module, whose version the page tells; "" for a lock by hand.
	Module string
	// Promise is what its documentation promises of these faults, in a sentence, and Source is where it does.
	Promise, Source string
	// Brief says that nothing renews it: the work has to end within the lease.
	Brief bool
	// Smallest is the program in the folder smallest that shows what is broken most surprisingly; "" if there is none.
	Smallest string
	// Token says what the number of [Held.Token] is, "" where there is none.
	Token string
	// Prepare is done once before anything else, on a server that nothing disturbs: tables are made. It may be nil.
	Prepare func(ctx context.Context, c Config) error
	Open    func(ctx context.Context, c Config) (Locker, error)
}

// ID names it among all.
func (l Lock) ID() string { return l.Server + "/" + l.Name }

// All are the locks in the order of the table.
func All() []Lock {
	return slices.Concat(ours(), postgresByHand(), mysqlByHand(), pglock(), goose(), redis(), etcd(), zooKeeper(), kubernetes())
}

// Find returns the lock of that ID.
func Find(id string) (Lock, bool) {
	all := All()

	i := slices.IndexFunc(all, func(l Lock) bool { return l.ID() == id })
	if i < 0 {
		return Lock{}, false
	}

	return all[i], true
}
