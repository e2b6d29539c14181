package locks_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/locks"
	"github.com/sqllock/sqllock/bench/torture/internal/servers"
)

// lease is short, but a whole number of seconds, as etcd and Kubernetes count it.
const lease = 3 * time.Second

func TestNoSQL(t *testing.T) {
	t.Parallel()

	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			server := start(t.Context(), t, kind)

			for _, lock := range locks.All() {
				if lock.Server == kind {
					t.Run(lock.Name, func(t *testing.T) { takeTurns(t, lock, server.Endpoints()) })
				}
			}
		})
	}
}

// takeTurns has two lockers take a lock after each other, and then one of them for longer than a lease.
func takeTurns(t *testing.T, lock locks.Lock, endpoints []string) {
	t.Helper()

	if lock.Module == "" || lock.Promise == "" || lock.Source == "" || lock.Settings == "" {
		t.Errorf("%s lacks a module, promise, source or settings", lock.ID())
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	config := locks.Config{Servers: endpoints, Lease: lease, Pool: 4}
	first, second := open(ctx, t, lock, config), open(ctx, t, lock, config)
	name := "turns-" + strings.Map(letters, lock.Name)

	held, err := first.Acquire(ctx, name)
	if err != nil {
		t.Fatalf("the first Acquire = %v", err)
	}

	if err := held.Check(); err != nil {
		t.Errorf("Check of a lock that is held = %v", err)
	}

	// One that gives up is in nobody's way later.
	short, stop := context.WithTimeout(ctx, lease/6)
	defer stop()

	began := time.Now()

	if _, err := second.Acquire(short, name); err == nil {
		t.Fatal("the lock was granted twice")
	}

	if took := time.Since(began); took > lease/6+2*time.Second {
		t.Errorf("Acquire went on for %s after its context had ended", took)
	}

	// The other one waits.
	type outcome struct {
		held locks.Held
		err  error
	}

	granted := make(chan outcome, 1)

	go func() {
		held, err := second.Acquire(ctx, name)
		granted <- outcome{held, err}
	}()

	select {
	case got := <-granted:
		t.Fatalf("Acquire of a lock that is held did not wait: %v", got.err)
	case <-time.After(lease / 6):
	}

	if err := held.Check(); err != nil {
		t.Errorf("Check while another one waits = %v", err)
	}

	if err := held.Release(ctx); err != nil {
		t.Errorf("Release = %v", err)
	}

	got := <-granted
	if got.err != nil {
		t.Fatalf("Acquire after a release = %v", got.err)
	}

	if lock.Token != "" && got.held.Token() <= held.Token() {
		t.Errorf("the token was %d, and is %d after a grant more", held.Token(), got.held.Token())
	}

	if lock.Token == "" && got.held.Token() != 0 {
		t.Errorf("the lock says that it has no token, and has %d", got.held.Token())
	}

	if !lock.Brief {
		<-time.After(lease + lease/3)
	}

	if err := got.held.Check(); err != nil {
		t.Errorf("Check of a lock that is held for longer than a lease = %v", err)
	}

	if err := got.held.Release(ctx); err != nil {
		t.Errorf("Release = %v", err)
	}

	again, err := first.Acquire(ctx, name)
	if err != nil {
		t.Fatalf("Acquire of a free lock = %v", err)
	}

	if lock.Token != "" && again.Token() <= got.held.Token() {
		t.Errorf("the token was %d, and is %d after a grant more", got.held.Token(), again.Token())
	}

	if err := again.Release(ctx); err != nil {
		t.Errorf("Release = %v", err)
	}

	fill(ctx, t, first)
}

// fill sees that nobody gets a connection of a pool that is full.
func fill(ctx context.Context, t *testing.T, locker locks.Locker) {
	t.Helper()

	pooled, ok := locker.(locks.Pooled)
	if !ok {
		return
	}

	free, err := pooled.Fill(ctx)
	if err != nil {
		t.Fatal(err)
	}

	short, stop := context.WithTimeout(ctx, lease/6)
	defer stop()

	if _, err := locker.Acquire(short, "full"); err == nil {
		t.Error("Acquire got a lock while the application had all connections")
	} else if short.Err() == nil {
		t.Errorf("Acquire did not wait for a connection: %v", err)
	}

	free()

	held, err := locker.Acquire(ctx, "free")
	if err != nil {
		t.Fatalf("Acquire after the application gave its connections back = %v", err)
	}

	if err := held.Release(ctx); err != nil {
		t.Errorf("Release = %v", err)
	}
}

func open(ctx context.Context, t *testing.T, lock locks.Lock, config locks.Config) locks.Locker {
	t.Helper()

	locker, err := lock.Open(ctx, config)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}

	t.Cleanup(locker.Close)

	return locker
}

// letters is for names that every server takes.
func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}

	return -1
}

// TestCrowd has many of one process wait for the same name, and sees that each is granted it alone.
func TestCrowd(t *testing.T) {
	t.Parallel()

	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			server := start(ctx, t, kind)

			for _, lock := range locks.All() {
				if lock.Server != kind {
					continue
				}

				config := locks.Config{Servers: server.Endpoints(), Lease: lease, Pool: 4}
				lockers := []locks.Locker{open(ctx, t, lock, config), open(ctx, t, lock, config)}

				var (
					all    sync.WaitGroup
					inside atomic.Int32
					last   atomic.Int64
				)

				for i := range 12 {
					all.Go(func() {
						held, err := lockers[i%2].Acquire(ctx, "crowd"+strings.Map(letters, lock.Name))
						if err != nil {
							t.Errorf("%s: Acquire = %v", lock.Name, err)

							return
						}

						if inside.Add(1) != 1 {
							t.Errorf("%s: two have the lock", lock.Name)
						}

						if before := last.Swap(held.Token()); lock.Token != "" && before >= held.Token() {
							t.Errorf("%s: the token was %d, and is %d after a grant more", lock.Name, before, held.Token())
						}

						inside.Add(-1)

						if err := held.Release(ctx); err != nil {
							t.Errorf("%s: Release = %v", lock.Name, err)
						}
					})
				}

				all.Wait()
			}
		})
	}
}

func kinds() []string { return []string{"redis", "redis3", "etcd", "zookeeper", "kubernetes"} }

func start(ctx context.Context, t *testing.T, kind string) servers.Server {
	t.Helper()

	server, err := servers.Start(ctx, kind, false)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})

	return server
}

// TestUnreachable has an Acquire give up on a server that is gone, when its context ends.
func TestUnreachable(t *testing.T) {
	t.Parallel()

	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()

			server := start(ctx, t, kind)

			config := locks.Config{Servers: server.Endpoints(), Lease: lease, Pool: 4}

			for _, lock := range locks.All() {
				if lock.Server != kind {
					continue
				}

				locker := open(ctx, t, lock, config)

				// It is in use before the server goes.
				held, err := locker.Acquire(ctx, "gone"+strings.Map(letters, lock.Name))
				if err != nil {
					t.Fatalf("%s: Acquire = %v", lock.Name, err)
				}

				if err := server.Kill(ctx); err != nil {
					t.Fatal(err)
				}

				began := time.Now()
				short, stop := context.WithTimeout(ctx, lease)

				if _, err := locker.Acquire(short, "other"); err == nil {
					t.Errorf("%s: Acquire of a server that is gone succeeded", lock.Name)
				}

				if err := held.Release(short); err == nil && !errors.Is(short.Err(), context.DeadlineExceeded) {
					t.Logf("%s: Release says nothing of a server that is gone", lock.Name)
				}

				stop()

				if took := time.Since(began); took > lease+2*time.Second {
					t.Errorf("%s: Acquire and Release went on for %s, their context was of %s", lock.Name, took, lease)
				}

				if err := server.Restart(ctx); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestMain lets the test's binary be the API server's stand-in too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == servers.APIServer {
		if err := servers.RunAPIServer(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}

		return
	}

	os.Exit(m.Run())
}
