package locks_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/locks"
	"github.com/sqllock/sqllock/bench/torture/internal/servers"
)

// TestSQL: each lock on a SQL database excludes, is handed on by a release, and keeps what its description says.
func TestSQL(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			server, err := servers.Start(t.Context(), kind, false)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})

			config := locks.Config{
				Servers: []string{server.DSN(0, server.Endpoints()[0])}, Lease: 3 * time.Second, Pool: 4,
			}

			for _, lock := range locks.All() {
				if lock.Server != kind {
					continue
				}

				prepare(t, lock, config)

				t.Run(lock.Name, func(t *testing.T) {
					t.Parallel()

					if lock.Settings == "" || lock.Promise == "" || !strings.HasPrefix(lock.Source, "https://") {
						t.Errorf("the page would lack something of %+v", lock)
					}

					try(t, lock, config)
				})
			}
		})
	}
}

// TestSQLFill: while the application has the whole pool, nothing else gets a connection of it; then it does.
func TestSQLFill(t *testing.T) {
	t.Parallel()

	for _, id := range []string{"postgres/sqllock cas", "mysql/GET_LOCK by hand"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()

			lock, ok := locks.Find(id)
			if !ok {
				t.Fatal("there is no such lock")
			}

			server, err := servers.Start(ctx, lock.Server, false)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()

			config := locks.Config{Servers: []string{server.DSN(0, server.Endpoints()[0])}, Lease: 3 * time.Second, Pool: 2}
			prepare(t, lock, config)

			locker := openSQL(t, lock, config)

			free, err := locker.(locks.Pooled).Fill(ctx)
			if err != nil {
				t.Fatal(err)
			}

			short, end := context.WithTimeout(ctx, 300*time.Millisecond)
			defer end()

			if held, err := locker.Acquire(short, "name"); err == nil {
				t.Errorf("acquired with a full pool: %v", held.Release(ctx))
			}

			free()
			free()

			held, err := locker.Acquire(ctx, "name")
			if err != nil {
				t.Fatal(err)
			}

			// The pool is filled beside a holder, too, who is done all the same.
			if free, err = locker.(locks.Pooled).Fill(ctx); err != nil {
				t.Fatal(err)
			}

			free()

			if err := held.Release(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSQLLoss: when the server is gone, a holder is told by those locks that tell anybody anything, in two leases at most, and can
// leave.
func TestSQLLoss(t *testing.T) {
	t.Parallel()

	silent := []string{
		"postgres/pg_advisory_lock by hand", "postgres/goose session lock", "postgres/goose table lock", "mysql/GET_LOCK by hand",
	}

	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()

			server, err := servers.Start(ctx, kind, false)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})

			config := locks.Config{Servers: []string{server.DSN(0, server.Endpoints()[0])}, Lease: 3 * time.Second, Pool: 4}
			holders := map[string]locks.Held{}

			for _, lock := range locks.All() {
				if lock.Server != kind {
					continue
				}

				prepare(t, lock, config)

				if holders[lock.ID()], err = openSQL(t, lock, config).Acquire(ctx, lock.Name); err != nil {
					t.Fatalf("%s: %v", lock.ID(), err)
				}
			}

			if err := server.Kill(ctx); err != nil {
				t.Fatal(err)
			}

			killed := time.Now()

			var running sync.WaitGroup

			for id, held := range holders {
				running.Go(func() {
					told := false

					tick := time.NewTicker(10 * time.Millisecond)
					defer tick.Stop()

					for !told && time.Since(killed) < 2*config.Lease {
						<-tick.C

						told = held.Check() != nil
					}

					t.Logf("%s: told %v after %v", id, told, time.Since(killed).Round(10*time.Millisecond))

					if told == slices.Contains(silent, id) {
						t.Errorf("%s: told is %v", id, told)
					}

					left, end := context.WithTimeout(ctx, time.Second)
					defer end()

					asked := time.Now()
					_ = held.Release(left)

					if took := time.Since(asked); took > 8*time.Second {
						t.Errorf("%s: a release of 1 s took %v", id, took)
					}
				})
			}

			running.Wait()
		})
	}
}

// TestSQLFailOver: after a fail-over to a standby that does not know of a lock, another is granted it; one of ours not before its
// holder was told.
func TestSQLFailOver(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()

			server, err := servers.Start(ctx, kind, true)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})

			config := locks.Config{Servers: []string{server.DSN(0, server.Endpoints()[0])}, Lease: 3 * time.Second, Pool: 4}
			all := slices.DeleteFunc(locks.All(), func(lock locks.Lock) bool { return lock.Server != kind })

			for _, lock := range all {
				prepare(t, lock, config)
			}

			if err := server.Lag(ctx); err != nil {
				t.Fatal(err)
			}

			holders := map[string]locks.Held{}

			for _, lock := range all {
				if holders[lock.ID()], err = openSQL(t, lock, config).Acquire(ctx, lock.Name); err != nil {
					t.Fatalf("%s: %v", lock.ID(), err)
				}
			}

			if err := server.FailOver(ctx); err != nil {
				t.Fatal(err)
			}

			config.Servers = []string{server.DSN(0, server.Endpoints()[0])}

			var running sync.WaitGroup

			for _, lock := range all {
				running.Go(func() {
					waiting, end := context.WithTimeout(ctx, 30*time.Second)
					defer end()

					held, err := openSQL(t, lock, config).Acquire(waiting, lock.Name)
					told := holders[lock.ID()].Check()

					if err != nil {
						t.Errorf("%s: %v", lock.ID(), err)

						return
					}

					if lock.Ours && told == nil {
						t.Errorf("%s: granted to another while its holder knows nothing of it", lock.ID())
					}

					if err := held.Release(ctx); err != nil {
						t.Errorf("%s: %v", lock.ID(), err)
					}
				})
			}

			running.Wait()
		})
	}
}

func prepare(t *testing.T, lock locks.Lock, config locks.Config) {
	t.Helper()

	if lock.Prepare == nil {
		return
	}

	if err := lock.Prepare(t.Context(), config); err != nil {
		t.Fatalf("%s: %v", lock.ID(), err)
	}
}

func openSQL(t *testing.T, lock locks.Lock, config locks.Config) locks.Locker {
	t.Helper()

	locker, err := lock.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(locker.Close)

	return locker
}

type granted struct {
	held locks.Held
	err  error
}

func try(t *testing.T, lock locks.Lock, config locks.Config) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	name := strings.ReplaceAll(lock.Name, " ", "-")

	first, err := openSQL(t, lock, config).Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}

	// A wait of somebody else ends with its context.
	other := openSQL(t, lock, config)

	short, end := context.WithTimeout(ctx, 500*time.Millisecond)
	defer end()

	began := time.Now()

	if held, err := other.Acquire(short, name); err == nil {
		t.Fatalf("two have it: %v", held.Release(ctx))
	}

	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("a wait of 500 ms took %v", took)
	}

	// Held for more than a lease.
	second := make(chan granted, 1)

	go func() {
		held, err := other.Acquire(ctx, name)
		second <- granted{held, err}
	}()

	select {
	case got := <-second:
		t.Fatalf("two have it: %v, %v", got.held, got.err)
	case <-time.After(config.Lease * 4 / 3):
	}

	if err := first.Check(); err != nil {
		t.Errorf("lost while nothing happened: %v", err)
	}

	last := writeTwice(ctx, t, first, 0)

	if err := first.Release(ctx); err != nil {
		t.Error(err)
	}

	got := <-second
	if got.err != nil {
		t.Fatal(got.err)
	}

	if err := got.held.Check(); err != nil {
		t.Errorf("lost while nothing happened: %v", err)
	}

	if before, after := first.Token(), got.held.Token(); lock.Token != "" && after <= before || lock.Token == "" && after != 0 {
		t.Errorf("tokens %d, then %d", before, after)
	}

	writeTwice(ctx, t, got.held, last)

	if guarded, ok := first.(locks.Guarded); ok {
		if n, err := guarded.Write(ctx); err == nil {
			t.Errorf("write %d of somebody who has released it was accepted", n)
		}
	}

	if err := got.held.Release(ctx); err != nil {
		t.Error(err)
	}
}

// writeTwice sees the numbers of two writes grow, if the lock has guarded ones, and returns the last.
func writeTwice(ctx context.Context, t *testing.T, held locks.Held, last int64) int64 {
	t.Helper()

	guarded, ok := held.(locks.Guarded)
	if !ok {
		return last
	}

	for range 2 {
		n, err := guarded.Write(ctx)
		if err != nil || n <= last {
			t.Errorf("write %d, %v, after %d", n, err, last)
		}

		last = n
	}

	return last
}
