// Fencing protects a store that is not in the database of the locks: it keeps
// the largest token that it has seen and refuses a smaller one. It needs no
// server.
//
//	go run ./examples/fencing
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Store stands for whatever the lock protects: an object store, a device, a
// service. All that it needs is to compare and write in one step.
type Store struct {
	mu    sync.Mutex
	token int64
	value string
}

// ErrFenced says that a later holder of the lock has written already.
var ErrFenced = errors.New("fenced off: a later holder of the lock has written")

// Write keeps the value, unless the token is older than one seen before.
func (s *Store) Write(token int64, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if token < s.token {
		return fmt.Errorf("write %q: %w", value, ErrFenced)
	}

	s.token, s.value = token, value

	return nil
}

// Value returns what is stored.
func (s *Store) Value() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.value
}

func run(ctx context.Context) error {
	// Locks in memory, so that the program runs by itself. A real one has
	// cas.New(postgres.New(pool)) here; the rest is the same. The peer is the
	// same locks as another process sees them.
	memory := sqllocktest.NewMemory()

	slow, err := sqllock.New(memory, sqllock.WithLabel("slow"))
	if err != nil {
		return err
	}

	quick, err := sqllock.New(memory.Peer(), sqllock.WithLabel("quick"))
	if err != nil {
		return err
	}

	store := &Store{}

	first, err := slow.Acquire(ctx, "report")
	if err != nil {
		return err
	}

	// The process is paused here for longer than its lease, and does not know.
	memory.Age("report", 2*sqllock.DefaultLease)

	second, err := quick.Acquire(ctx, "report")
	if err != nil {
		return err
	}

	fmt.Println("quick writes:", store.Write(second.Token(), "from quick"))

	// It goes on. Its token is smaller, so the store is safe.
	fmt.Println("slow writes: ", store.Write(first.Token(), "from slow"))
	fmt.Println("stored:      ", store.Value())

	// The release tells, too, that the work under the lock is suspect.
	fmt.Println("slow's lock was lost:", errors.Is(first.Release(ctx), sqllock.ErrLost))

	return second.Release(ctx)
}
