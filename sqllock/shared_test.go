package sqllock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// Readers of one process have one grant: it is asked for once, renewed once, and released by the last.
func TestReadersOfOneProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		var locks []*sqllock.Lock
		for range 10 {
			locks = append(locks, acquire(t, locker, sqllock.WithShared()))
		}

		time.Sleep(lease)

		for operation, want := range map[string]int{"acquire": 1, "renew": 3, "renew-all": 0, "check": 0, "release": 0} {
			if n := memory.Count(operation); n < want || n > want+1 {
				t.Errorf("%d of %q for ten readers in a lease, want about %d: %v", n, operation, want, memory.Statements())
			}
		}

		for _, lock := range locks {
			wantHeld(t, memory, "while there are readers")

			if err := lock.Err(); err != nil {
				t.Errorf("Err() = %v, want nil", err)
			}

			release(t, lock)
		}

		wantFree(t, memory, "after the last reader")
	})
}

// A reader's context is its own: its values, and its end.
func TestReadersContexts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		one, other := acquire(t, locker, sqllock.WithShared()), acquire(t, locker, sqllock.WithShared())

		release(t, one)

		if err := context.Cause(one.Context()); !errors.Is(err, sqllock.ErrReleased) {
			t.Errorf("cause after the release = %v, want ErrReleased", err)
		}

		if err := other.Context().Err(); err != nil {
			t.Errorf("Err() of the other reader's context = %v, want nil", err)
		}

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v", err)
		}

		synctestWait(t, other)
		wantIs(t, "Err() after Close()", other.Err(), sqllock.ErrReleased, sqllock.ErrClosed)
	})
}

func synctestWait(t *testing.T, lock *sqllock.Lock) {
	t.Helper()

	select {
	case <-lock.Done():
	case <-time.After(time.Second):
		t.Fatal("the context did not end")
	}
}

// All readers of a process lose it together.
func TestReadersLose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lost atomic.Int64

		memory, locker := setup(t, observed(hooks{Lost: func(sqllock.Event) { lost.Add(1) }}))
		one, other := acquire(t, locker, sqllock.WithShared()), acquire(t, locker, sqllock.WithShared())

		memory.Lose(name)
		time.Sleep(lease)

		for _, lock := range []*sqllock.Lock{one, other} {
			synctestWait(t, lock)
			wantLost(t, "Err()", lock.Err(), sqllock.ReasonTakenOver)
			wantLost(t, "Release()", lock.Release(t.Context()), sqllock.ReasonTakenOver)
		}

		if n := lost.Load(); n != 1 {
			t.Errorf("the hook was called %d times, want once for the grant that they have together", n)
		}

		// Whoever comes now begins anew.
		again := acquire(t, locker, sqllock.WithShared())
		if again.Token() <= one.Token() {
			t.Errorf("Token() after the loss = %d, want more than %d", again.Token(), one.Token())
		}

		release(t, again)
	})
}

// Each reader tells of its acquisition and its release.
func TestReadersEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var (
			mu     sync.Mutex
			events []string
		)

		note := func(what string) func(sqllock.Event) {
			return func(e sqllock.Event) {
				mu.Lock()
				defer mu.Unlock()

				events = append(events, what)

				if e.Name != name || e.Token == 0 {
					t.Errorf("event %q = %+v, want the name and the token", what, e)
				}
			}
		}
		_, locker := setup(t, observed(hooks{Acquired: note("acquired"), Released: note("released")}))

		one, other := acquire(t, locker, sqllock.WithShared()), acquire(t, locker, sqllock.WithShared())
		release(t, other)
		release(t, other)
		release(t, one)

		mu.Lock()
		defer mu.Unlock()

		if want := []string{"acquired", "acquired", "released", "released"}; !slices.Equal(events, want) {
			t.Errorf("events = %v, want %v", events, want)
		}
	})
}

// Readers who come and go all the time do not keep a writer of another process waiting for long.
func TestReadersLetAWriterIn(t *testing.T) {
	t.Parallel()

	memory, readers := setup(t)
	writers := newLocker(t, memory.Peer())

	ctx, stop := context.WithCancel(t.Context())

	var group sync.WaitGroup

	defer group.Wait()
	defer stop()

	for range 8 {
		group.Go(func() {
			for ctx.Err() == nil {
				lock, err := readers.Acquire(t.Context(), name, sqllock.WithShared())
				if err != nil {
					t.Errorf("Acquire(WithShared) = %v", err)

					return
				}

				time.Sleep(time.Millisecond)

				if err := lock.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v", err)
				}
			}
		})
	}

	for range 10 {
		lock := acquire(t, writers, sqllock.WithMaxWait(10*time.Second))
		release(t, lock)
	}
}

// Different options mean different grants.
func TestReadersOfDifferentOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		var locks []*sqllock.Lock

		for _, option := range []sqllock.LockOption{
			sqllock.WithLease(lease), sqllock.WithLease(2 * lease), sqllock.WithLabel("another"), sqllock.WithMaxHold(time.Hour), sqllock.WithoutRenewal(),
			sqllock.WithLease(2 * lease),
		} {
			locks = append(locks, acquire(t, locker, sqllock.WithShared(), option))
		}

		if n := held(t, memory); n != 5 {
			t.Errorf("%d readers are in the database, want five: two have the same options", n)
		}

		for _, lock := range locks {
			if lock.Token() != locks[0].Token() {
				t.Errorf("Token() of readers = %d and %d, want the same", locks[0].Token(), lock.Token())
			}

			release(t, lock)
		}

		wantFree(t, memory, "after all releases")
	})
}

// Observers are told of a reader once, as of a writer, though it reads again under its own context.
func TestReadersAgainObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		acquired, released := 0, 0
		_, locker := setup(t, observed(hooks{
			Acquired: func(sqllock.Event) { acquired++ }, Released: func(sqllock.Event) { released++ },
		}))

		for _, innerFirst := range []bool{true, false} {
			acquired, released = 0, 0

			outer := acquire(t, locker, sqllock.WithShared())
			beside := acquire(t, locker, sqllock.WithShared())

			inner, err := locker.Acquire(outer.Context(), name, sqllock.WithShared(), sqllock.WithReentrant())
			if err != nil {
				t.Fatal(err)
			}

			release(t, beside)

			if innerFirst {
				release(t, inner)
				release(t, outer)
			} else {
				release(t, outer)
				release(t, inner)
			}

			if acquired != 2 || released != 2 {
				t.Errorf("inner first %t: told of %d acquisitions and %d releases, want two of each", innerFirst, acquired, released)
			}
		}
	})
}

// What does not go together with reading is refused with a message.
func TestSharedRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		for what, option := range map[string]sqllock.LockOption{
			"WithPermits": sqllock.WithPermits(2), "WithMinHold": sqllock.WithMinHold(time.Second), "WithLockDelay": sqllock.WithLockDelay(time.Second),
		} {
			_, err := locker.TryAcquire(t.Context(), name, sqllock.WithShared(), option)
			wantOption(t, what, err, `lock "the lock": invalid option: WithShared does not go together with `+what)
		}

		_, err := locker.TryAcquire(t.Context(), "a", sqllock.WithNames("b"), sqllock.WithShared())
		wantIs(t, "TryAcquire(WithNames, WithShared)", err, sqllock.ErrUnsupported)

		reader := acquire(t, locker, sqllock.WithShared())
		wantIs(t, "ReleaseTx()", reader.ReleaseTx(t.Context(), memory.Begin()), sqllock.ErrUnsupported)

		_, err = locker.Acquire(reader.Context(), name)
		wantIs(t, "Acquire() under a shared lock", err, sqllock.ErrUnsupported)
		release(t, reader)
	})
}

// A reader's handles have its own context, and what it holds, not that of whoever reads beside it.
func TestReadersKeepApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type user struct{}

		_, locker := setup(t, sqllock.WithReentrant())
		outer := func(who string) context.Context { return context.WithValue(t.Context(), user{}, who) }

		mine, err := locker.Acquire(outer("alice"), "alice's")
		if err != nil {
			t.Fatal(err)
		}

		alice, err := locker.Acquire(mine.Context(), name, sqllock.WithShared())
		if err != nil {
			t.Fatal(err)
		}

		bob, err := locker.Acquire(outer("bob"), name, sqllock.WithShared())
		if err != nil {
			t.Fatal(err)
		}

		again, err := locker.Acquire(bob.Context(), name, sqllock.WithShared())
		if err != nil {
			t.Fatalf("Acquire(WithShared) under a shared lock = %v, want the lock", err)
		}

		if who := again.Context().Value(user{}); who != "bob" {
			t.Errorf("the context of bob's second handle is that of %v", who)
		}

		_, err = locker.TryAcquire(again.Context(), "alice's")
		wantIs(t, "TryAcquire() of what another reader holds", err, sqllock.ErrNotAcquired)

		release(t, again)

		if again.Context().Err() == nil || bob.Context().Err() != nil {
			t.Errorf("Err() after the release of one handle = %v, of the other %v; want that this one has ended", again.Context().Err(), bob.Context().Err())
		}

		release(t, bob)

		// Alice still reads.
		for what, ctx := range map[string]context.Context{"reader": bob.Context(), "handle": again.Context()} {
			for _, options := range [][]sqllock.LockOption{nil, {sqllock.WithShared()}} {
				_, err := locker.TryAcquire(ctx, name, options...)
				wantIs(t, "TryAcquire() under the context of a released "+what, err, sqllock.ErrNotAcquired, sqllock.ErrReleased)
			}
		}

		free := context.WithoutCancel(bob.Context())
		if lock, err := locker.TryAcquire(free, name, sqllock.WithShared()); err != nil {
			t.Errorf("TryAcquire(WithShared) without the end of a released reader's context = %v, want the lock", err)
		} else {
			release(t, lock)
		}

		release(t, alice)
	})
}

// A context that has ended gets no lock, also if others of the process read.
func TestReaderWithAnEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		reader := acquire(t, locker, sqllock.WithShared())

		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		for what, f := range map[string]func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lock, error){"Acquire": locker.Acquire, "TryAcquire": locker.TryAcquire} {
			_, err := f(ctx, name, sqllock.WithShared())
			wantIs(t, what+"() with an ended context", err, context.Canceled)
		}

		release(t, reader)
	})
}

// slowRenewals is a strategy whose answers to renewals come the later the shorter the lease is, and which notes the leases.
type slowRenewals struct {
	*sqllocktest.Memory

	mu     sync.Mutex
	leases []time.Duration
}

func (s *slowRenewals) Renew(ctx context.Context, held []strategies.Grant, lease time.Duration) []error {
	s.mu.Lock()
	s.leases = append(s.leases, lease)
	s.mu.Unlock()

	errs := s.Memory.Renew(ctx, held, lease)

	time.Sleep(time.Second - lease/1000)

	return errs
}

// Of two readers of one process that extend their lock at the same time, the longer lease is the one that is renewed.
func TestReadersExtendAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &slowRenewals{Memory: sqllocktest.NewMemory()}
		locker := newLocker(t, s)

		var extending sync.WaitGroup

		for _, lease := range []time.Duration{time.Minute, 90 * time.Second} {
			lock := acquire(t, locker, sqllock.WithShared())
			defer release(t, lock)

			extending.Go(func() {
				if err := lock.Extend(t.Context(), lease); err != nil {
					t.Errorf("Extend(%s) = %v, want nil", lease, err)
				}
			})
		}

		extending.Wait()
		time.Sleep(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()

		if last := s.leases[len(s.leases)-1]; last != 90*time.Second {
			t.Errorf("renewed with leases %s, want the longer one in the end", s.leases)
		}
	})
}

// Whoever gives up waiting behind readers is told that it was those.
func TestWaitBehindReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		reader := acquire(t, newLocker(t, memory.Peer()), sqllock.WithShared())

		defer release(t, reader)

		_, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(5*time.Second))

		if held := new(sqllock.HeldError); !errors.As(err, &held) || !held.Shared {
			t.Errorf("Acquire() behind a reader = %v, want a *HeldError that is Shared", err)
		}
	})
}
