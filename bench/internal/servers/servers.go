// Package servers provides the servers that are measured: the databases that
// the environment names, and Redis, etcd and ZooKeeper, which it starts on
// loopback in temporary folders.
package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sqllock/sqllock/bench/internal/contest"
)

// Statistics are counters of a server since its start. What it does not count
// is below zero.
type Statistics struct {
	Statements float64
	LogBytes   float64 // of the write-ahead or redo log
}

// Unknown are the statistics of a server that counts nothing.
func Unknown() Statistics { return Statistics{-1, -1} }

// Since is what was counted after an earlier look.
func (s Statistics) Since(earlier Statistics) Statistics {
	difference := func(now, then float64) float64 {
		if now < 0 || then < 0 {
			return -1
		}

		return now - then
	}

	return Statistics{difference(s.Statements, earlier.Statements), difference(s.LogBytes, earlier.LogBytes)}
}

// Server is one that answers, or that could not be had.
type Server struct {
	Name    string
	Version string
	Address contest.Address
	// Missing says why it could not be had.
	Missing string

	statistics  func(ctx context.Context) (Statistics, error)
	connections func(ctx context.Context) (int, error)
	close       func(ctx context.Context) error
}

// Statistics asks the server what it has done so far.
func (s *Server) Statistics(ctx context.Context) (Statistics, error) {
	if s.statistics == nil {
		return Unknown(), nil
	}

	return s.statistics(ctx)
}

// Connections asks the server how many of its clients are ours; -1 if it does
// not tell.
func (s *Server) Connections(ctx context.Context) (int, error) {
	if s.connections == nil {
		return -1, nil
	}

	return s.connections(ctx)
}

// Set is the servers of one run.
type Set struct{ servers []*Server }

// Names are the servers that there can be, in the order of the tables.
func Names() []string {
	return []string{"postgres", "mysql", "mariadb", "sqlite", "redis", "etcd", "zookeeper"}
}

// Start provides the named servers. Unpacked programs are kept in the folder,
// for the next run. A server that cannot be had is in the set all the same,
// and says why.
func Start(ctx context.Context, names []string, folder string) *Set {
	set := &Set{servers: make([]*Server, len(names))}

	var (
		group  sync.WaitGroup
		unpack sync.Mutex // one at a time asks apt
	)

	for i, name := range names {
		group.Go(func() {
			server, err := start(ctx, name, folder, &unpack)
			if err != nil {
				server = &Server{Missing: err.Error()}
			}

			server.Name = name
			set.servers[i] = server
		})
	}

	group.Wait()

	return set
}

func start(ctx context.Context, name, folder string, unpack *sync.Mutex) (*Server, error) {
	switch name {
	case "postgres":
		return startPostgres(ctx)
	case "mysql", "mariadb":
		return startMySQL(ctx, name)
	case "sqlite":
		return startSQLite(ctx)
	case "redis":
		return startRedis(ctx, folder, unpack)
	case "etcd":
		return startEtcd(ctx, folder, unpack)
	case "zookeeper":
		return startZooKeeper(ctx, folder, unpack)
	default:
		return nil, fmt.Errorf("there is no server %q, only %v", name, Names())
	}
}

// All are the servers of the set.
func (s *Set) All() []*Server { return s.servers }

// Get returns the named one.
func (s *Set) Get(name string) (*Server, bool) {
	i := slices.IndexFunc(s.servers, func(server *Server) bool { return server.Name == name })
	if i < 0 {
		return nil, false
	}

	return s.servers[i], true
}

// Close drops what was made and ends what was started.
func (s *Set) Close(ctx context.Context) error {
	var faults []error

	for _, server := range s.servers {
		if server.close != nil {
			faults = append(faults, server.close(ctx))
		}
	}

	return errors.Join(faults...)
}
