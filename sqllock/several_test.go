package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/around"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

func TestSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, first := setup(t)
		second := newLocker(t, memory.Peer())

		locks, err := first.Acquire(t.Context(), "b", sqllock.WithNames("a", "b"))
		if err != nil {
			t.Fatalf("Acquire() = %v, want the locks", err)
		}

		if names := locks.Names(); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("Names() = %q, want each once, sorted", names)
		}

		if token, owner := locks.TokenOf("c"), locks.OwnerOf("c"); token != 0 || owner != "" {
			t.Errorf("TokenOf() and OwnerOf() of another name = %d, %q, want none", token, owner)
		}

		all := func(what string, call func(*sqllock.Lock) error) {
			t.Helper()

			if err := call(locks); err != nil {
				t.Errorf("%s of all = %v, want nil", what, err)
			}
		}

		all("Check()", func(l *sqllock.Lock) error { return l.Check(t.Context()) })
		all("Mark()", func(l *sqllock.Lock) error { return l.Mark(t.Context(), 7) })
		all("Extend()", func(l *sqllock.Lock) error { return l.Extend(t.Context(), time.Hour) })

		for _, name := range locks.Names() {
			status, err := second.Inspect(t.Context(), name)
			if err != nil || status.Mark != 7 || status.Remaining != time.Hour {
				t.Errorf("Inspect(%q) = %+v, %v, want the mark 7 and an hour", name, status, err)
			}

			if token, owner := locks.TokenOf(name), locks.OwnerOf(name); token != status.Token || owner != status.Owner {
				t.Errorf("TokenOf(%q) and OwnerOf() = %d, %s, want %d, %s", name, token, owner, status.Token, status.Owner)
			}
		}

		if locks.Name() != "b" || locks.Token() != locks.TokenOf("b") || locks.Owner() != locks.OwnerOf("b") {
			t.Errorf("Name(), Token() and Owner() = %q, %d, %s, want those of the name given first", locks.Name(), locks.Token(), locks.Owner())
		}

		if left := locks.Remaining(); left <= 0 || left > time.Hour {
			t.Errorf("Remaining() = %s, want at most an hour", left)
		}

		_, err = second.Acquire(t.Context(), "c", sqllock.WithNames("b"), sqllock.WithMaxWait(time.Minute))
		wantIs(t, "Acquire() beside a holder of one", err, sqllock.ErrNotAcquired)

		const says = `lock "b" not acquired: gave up after 1m0s; held by `
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("Acquire() beside a holder of one = %v, want %s…", err, says)
		}

		if err := locks.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		wantIs(t, "Err() after the release", locks.Err(), sqllock.ErrReleased)
		wantIs(t, "Cause() after the release", context.Cause(locks.Context()), sqllock.ErrReleased)
	})
}

// secondLost is a strategy whose answer to the second attempt for one name is lost.
type secondLost struct {
	*sqllocktest.Memory
	attempts atomic.Int64
}

func (s *secondLost) Features() strategies.Features {
	f := s.Memory.Features()
	f.Unbatched = true

	return f
}

func (s *secondLost) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := s.Memory.Acquire(ctx, requests)
	if s.attempts.Add(1) == 2 {
		grants[0], errs[0] = strategies.Grant{}, sqllocktest.ErrBroken
	}

	return grants, errs
}

// Whatever an attempt for several names may have left of any of them is ended, and not only by its lease.
func TestSeveralSettlesEach(t *testing.T) {
	t.Parallel()

	unsettled := sqllocktest.NewMemory()
	unsettled.Fail("acquire-all", 1, sqllocktest.After, &strategies.HeldError{Name: "b", Err: strategies.ErrUnsettled})

	for what, strategy := range map[string]strategies.Strategy{
		"an attempt that may have left something": unsettled,
		"one after the other":                     &secondLost{Memory: sqllocktest.NewMemory()},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				started := time.Now()

				locks, err := newLocker(t, strategy).Acquire(t.Context(), "a", sqllock.WithNames("b", "c"), sqllock.WithLease(time.Hour))
				if err != nil {
					t.Fatalf("Acquire() = %v, want the locks", err)
				}

				if took := time.Since(started); took > 10*time.Second {
					t.Errorf("Acquire() took %s, as long as a lease that nobody has", took)
				}

				if err := locks.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}
			})
		})
	}
}

// Locks that are kept while another one is waited for do not end by what bounds those that are held: that begins with the last.
func TestSeveralKeepsWhileItWaits(t *testing.T) {
	t.Parallel()

	for what, option := range map[string]sqllock.LockerOption{
		"the longest hold":    sqllock.WithMaxHold(lease),
		"a lease without end": sqllock.WithoutRenewal(),
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t, option)
				one := acquireNames(t, newLocker(t, memory.Peer()), 2)[1]
				began := time.Now()

				time.AfterFunc(10*lease, func() { release(t, one) })

				locks, err := locker.Acquire(t.Context(), "1", sqllock.WithNames("0a"))
				if err != nil {
					t.Fatalf("Acquire() = %v, want the locks", err)
				}

				if token := locks.TokenOf("0a"); token > began.Add(lease).UnixMicro() {
					t.Errorf("token of the first = %d, want that it was acquired once", token)
				}

				if left := locks.Remaining(); left < lease/2 {
					t.Errorf("Remaining() = %s, want more than half of %s", left, lease)
				}

				time.Sleep(lease + time.Second)
				wantIs(t, "Err() after that", locks.Err(), sqllock.ErrLost)
			})
		})
	}
}

// Nor do they while others are given back, which may take longer.
func TestSeveralKeepsWhileItGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		locker := newLocker(t, slowReleases{memory}, sqllock.WithMaxHold(5*time.Second))
		one := acquireNames(t, newLocker(t, memory.Peer()), 2)[1]
		began := time.Now()

		time.AfterFunc(20*time.Second, func() { release(t, one) })

		locks, err := locker.Acquire(t.Context(), "1", sqllock.WithNames("0a", "2"))
		if err != nil {
			t.Fatalf("Acquire() = %v, want the locks", err)
		}

		if token := locks.TokenOf("0a"); token > began.Add(time.Second).UnixMicro() {
			t.Errorf("token of the first = %d, want that it was acquired once", token)
		}

		_ = locks.Release(t.Context())

		time.Sleep(time.Minute) // Close would wait for a release where the bubble's time does not go on
	})
}

// Hooks hear of the locks of who has them all, and watchers hear of them at once.
func TestSeveralTells(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var (
			mu   sync.Mutex // locks are released at once
			told []string
		)

		tell := func(e sqllock.Event) {
			mu.Lock()
			defer mu.Unlock()

			told = append(told, e.Name)
		}
		memory, locker := setup(t, observed(hooks{Acquired: tell, Released: tell}))
		one := acquireNames(t, newLocker(t, memory.Peer()), 2)[1]

		_, err := locker.TryAcquire(t.Context(), "0a", sqllock.WithNames("1", "2"))
		wantIs(t, "TryAcquire() beside a holder of one", err, sqllock.ErrNotAcquired)

		if len(told) > 0 {
			t.Errorf("hooks were told of %q, which nobody had", told)
		}

		release(t, one)

		locks, err := locker.Acquire(t.Context(), "0a", sqllock.WithNames("1", "2"))
		if err != nil {
			t.Fatalf("Acquire() = %v, want the locks", err)
		}

		if !slices.Equal(told, locks.Names()) {
			t.Errorf("hooks were told of %q, want %q", told, locks.Names())
		}

		if err := locks.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	})
}

func TestSeveralRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)

		many := make([]string, sqllock.MaxNames)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}

		for what, test := range map[string]struct {
			more   []string
			option sqllock.LockOption
			want   error
			says   string
		}{
			"too many":       {many, sqllock.WithNames(), sqllock.ErrInvalidOption, "WithNames: 201 names, at most 200"},
			"an empty name":  {[]string{"b", ""}, sqllock.WithNames(), sqllock.ErrInvalidName, "WithNames: invalid lock name: it is empty"},
			"permits":        {[]string{"b"}, sqllock.WithPermits(2), sqllock.ErrUnsupported, "WithPermits: not supported with WithNames"},
			"readers":        {[]string{"b"}, sqllock.WithShared(), sqllock.ErrUnsupported, "take the names one after the other"},
			"a wrong option": {[]string{"b"}, sqllock.WithLease(-1), sqllock.ErrInvalidOption, "WithLease"},
		} {
			_, err := locker.Acquire(t.Context(), name, sqllock.WithNames(test.more...), test.option)
			wantIs(t, "Acquire() of "+what, err, test.want)

			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Acquire() of %s = %v, want %s", what, err, test.says)
			}
		}

		wantIs(t, "Do() of no function", locker.Do(t.Context(), "a", nil, sqllock.WithNames("b")), sqllock.ErrInvalidOption)

		release(t, acquire(t, locker)) // nothing is left
	})
}

// A context knows all the locks that were acquired together, and an acquisition under it those that it asks for again.
func TestSeveralUnderALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t, sqllock.WithReentrant())
		outer := acquire(t, locker)

		locks, err := locker.Acquire(outer.Context(), "a", sqllock.WithNames(name, "z"))
		if err != nil {
			t.Fatalf("Acquire() under one of the locks = %v, want the locks", err)
		}

		if token := locks.TokenOf(name); token != outer.Token() {
			t.Errorf("token of the lock that was held = %d, want %d", token, outer.Token())
		}

		for _, each := range []string{"a", name, "z"} {
			lock, err := locker.TryAcquire(locks.Context(), each)
			if err != nil || lock.Token() != locks.TokenOf(each) {
				t.Fatalf("TryAcquire(%q) under the locks = %v, want that lock", each, err)
			}

			release(t, lock)
		}

		all, err := locker.TryAcquire(locks.Context(), "z", sqllock.WithNames("a"))
		if err != nil {
			t.Fatalf("TryAcquire() under the same locks = %v, want them", err)
		}

		for _, one := range []*sqllock.Lock{all, locks} {
			if err := one.Release(t.Context()); err != nil {
				t.Errorf("Release() = %v, want nil", err)
			}
		}

		if err := outer.Err(); err != nil {
			t.Errorf("Err() of the outer lock = %v, want nil: it has a handle of its own", err)
		}

		release(t, outer)
	})
}

func TestDoSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		failed := errors.New("failed")

		err := locker.Do(t.Context(), "a", func(ctx context.Context, locks *sqllock.Lock) error {
			if err := sqllocktest.ForceRelease(ctx, locker, "b", "the reason"); err != nil {
				t.Errorf("ForceRelease() = %v, want nil", err)
			}

			<-ctx.Done()

			wantIs(t, "Cause() of the context", context.Cause(ctx), sqllock.ErrLost)
			wantIs(t, "Err() of all", locks.Err(), sqllock.ErrLost)

			if status, err := locker.Inspect(context.WithoutCancel(ctx), "a"); err != nil || !status.Held() {
				t.Errorf("Inspect() of the other name = %+v, %v, want it held until the release", status, err)
			}

			return failed
		}, sqllock.WithNames("b"))

		if lines := strings.Count(err.Error(), "\n"); lines != 1 {
			t.Errorf("Do() = %v, want a line for the function and one for the loss", err)
		}

		wantIs(t, "Do() whose function failed", err, failed)
		wantIs(t, "Do() whose locks were lost", err, sqllock.ErrLost)

		err = locker.TryDo(t.Context(), "c", func(ctx context.Context, _ *sqllock.Lock) error {
			_, err := locker.TryAcquire(ctx, "c")
			wantIs(t, "TryAcquire() under the lock", err, sqllock.ErrNotAcquired)

			return ctx.Err()
		}, sqllock.WithNames("d"))
		if err != nil {
			t.Errorf("TryDo() of names that are free = %v, want nil", err)
		}
	})
}

// The context of all looks at the clocks of each, as one does whose process was stopped.
func TestSeveralLooksAtTheClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		locks, err := locker.Acquire(t.Context(), "a", sqllock.WithNames("b"))
		if err != nil {
			t.Fatalf("Acquire() = %v, want the locks", err)
		}

		memory.Fail("renew", 1000, sqllocktest.Before, nil)
		<-locks.Done()

		wantIs(t, "Err() of all", locks.Err(), sqllock.ErrLost)
		wantIs(t, "Cause() of all", context.Cause(locks.Context()), sqllock.ErrLost)
		wantIs(t, "Release() of locks that were lost", locks.Release(t.Context()), sqllock.ErrLost)
		memory.Reset()
	})
}

// lateBatches answers attempts for several names late, whatever their context says.
type lateBatches struct{ *sqllocktest.Memory }

func (s lateBatches) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if len(requests) == 1 {
		return s.Memory.Acquire(ctx, requests)
	}

	grants, errs := s.Memory.Acquire(context.WithoutCancel(ctx), requests)

	<-time.After(500 * time.Millisecond)

	return grants, errs
}

// What an attempt for several names brings that is under way when its wait ends is given back when it is known, and
// Close does not look for more.
func TestSeveralThatIsAbandoned(t *testing.T) {
	t.Parallel()

	for what, taken := range map[string]int{"granted": 0, "refused": 1} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) { abandonAll(t, taken) })
		})
	}
}

func abandonAll(t *testing.T, taken int) {
	t.Helper()

	memory := sqllocktest.NewMemory()
	locker := newLocker(t, lateBatches{memory})
	acquireNames(t, newLocker(t, memory.Peer()), taken)

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)

	_, err := locker.Acquire(ctx, "0", sqllock.WithNames("1"))
	wantIs(t, "Acquire() that was cancelled", err, context.Canceled)

	began := time.Now()

	if err := locker.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}

	if took := time.Since(began); took > time.Second {
		t.Errorf("Close() took %s, though the outcome was known after half a second", took)
	}

	if n := held(t, memory); n != taken {
		t.Errorf("%d names are held after Close, want %d", n, taken)
	}
}

// slowReleases are answered after a while.
type slowReleases struct{ *sqllocktest.Memory }

func (s slowReleases) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	time.Sleep(10 * time.Second)

	return s.Memory.Release(ctx, grants)
}

// What an acquisition of several names gives back does not keep it longer than it may take, and is given back all the same.
func TestSeveralGivenBackSlowly(t *testing.T) {
	t.Parallel()

	for what, most := range map[string]time.Duration{"cancelled": time.Second, "limited": 2 * time.Second, "tried": 5 * time.Second} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := sqllocktest.NewMemory()
				locker := newLocker(t, slowReleases{memory})
				acquireNames(t, newLocker(t, memory.Peer()), 2)

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()

				var err error

				began := time.Now()

				switch what {
				case "cancelled":
					time.AfterFunc(time.Second, cancel)

					_, err = locker.Acquire(ctx, "0", sqllock.WithNames("/", "2"))
				case "limited":
					_, err = locker.Acquire(ctx, "0", sqllock.WithNames("/", "2"), sqllock.WithMaxWait(2*time.Second))
				default:
					_, err = locker.TryAcquire(ctx, "0", sqllock.WithNames("/", "2"))
				}

				if err == nil {
					t.Error("it got names that another has")
				}

				if took := time.Since(began); took > most+10*time.Millisecond {
					t.Errorf("it took %s, want at most %s: %v", took, most, err)
				}

				time.Sleep(time.Minute) // Close would wait for a release where the bubble's time does not go on

				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("Close() = %v, want nil", err)
				}

				if n := held(t, memory); n != 2 {
					t.Errorf("%d names are held after Close, want the 2 of the other", n)
				}
			})
		})
	}
}

// With locks of several names under others, some call gets its locks or ErrDeadlock every few seconds, and none that holds nothing
// gets that.
func TestSeveralNested(t *testing.T) {
	t.Parallel()

	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { nestAtRandom(t, seed) })
		})
	}
}

func nestAtRandom(t *testing.T, seed uint64) {
	t.Helper()

	memory := sqllocktest.NewMemory()

	var (
		group sync.WaitGroup
		mu    sync.Mutex
		last  = time.Now()
	)

	for i := range 9 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		locker := newLocker(t, memory.Peer())

		get := func(ctx context.Context, ends ...error) *sqllock.Lock {
			names := []string{"a", "b", "c", "d", "e", "f"}
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })

			ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
			defer cancel()

			lock, err := locker.Acquire(ctx, names[0], sqllock.WithNames(names[1]), sqllock.WithReentrant())
			if err != nil && !slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) }) {
				t.Errorf("Acquire() of %q = %v, want the locks", names[:2], err)
			}

			mu.Lock()
			if took := time.Since(last); took > 10*time.Second {
				t.Errorf("nobody got anything, or ErrDeadlock, for %s", took)
			}

			last = time.Now()
			mu.Unlock()

			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)

			return lock
		}

		group.Go(func() {
			for range 5 {
				outer := get(t.Context())
				inner := get(outer.Context(), sqllock.ErrDeadlock)

				for _, lock := range []*sqllock.Lock{inner, outer} {
					_ = lock.Release(t.Context())
				}
			}
		})
	}

	group.Wait()
}

// The names are those that were given, whatever becomes of the slice.
func TestSeveralKeepsNoSlice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		names := []string{"b"}
		option := sqllock.WithNames(names...)
		names[0] = "changed"

		lock, err := locker.TryAcquire(t.Context(), "a", option)
		if err != nil || !slices.Equal(lock.Names(), []string{"a", "b"}) {
			t.Errorf("Names() = %q, %v, want a and b", lock.Names(), err)
		}

		wantIs(t, "Release()", lock.Release(t.Context()), nil)
	})
}

// slowTx answers a release in a transaction late.
type slowTx struct{ *sqllocktest.Memory }

func (s slowTx) ReleaseTx(ctx context.Context, tx strategies.Tx, held strategies.Grant, mark int64) error {
	defer time.Sleep(2 * lease / 3)

	return s.Memory.ReleaseTx(ctx, tx, held, mark)
}

// A lock whose window ends before all names are released in a transaction is lost, and not released.
func TestReleaseTxThatTakesTooLong(t *testing.T) {
	t.Parallel()

	for what, test := range map[string]struct {
		names []string
		lease time.Duration
	}{"one name": {nil, lease / 2}, "several names": {[]string{"b", "c"}, lease}} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := sqllocktest.NewMemory()
				locker := newLocker(t, slowTx{memory}, sqllock.WithLease(test.lease))

				lock, err := locker.Acquire(t.Context(), "a", sqllock.WithNames(test.names...))
				if err != nil {
					t.Fatalf("Acquire() = %v, want the lock", err)
				}

				tx := memory.Begin()

				wantIs(t, "ReleaseTx()", lock.ReleaseTx(t.Context(), tx), sqllock.ErrLost)
				wantIs(t, "Err()", lock.Err(), sqllock.ErrLost)
				wantIs(t, "Cause()", context.Cause(lock.Context()), sqllock.ErrLost)

				if err := tx.Rollback(); err != nil {
					t.Errorf("Rollback() = %v, want nil", err)
				}

				wantIs(t, "Release()", lock.Release(t.Context()), sqllock.ErrLost)
			})
		})
	}
}

// The metadata are those that were given, whatever becomes of the map.
func TestMetadataKeepsNoMap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		metadata := map[string]string{"build": "1"}
		option := sqllock.WithMetadata(metadata)
		metadata["build"] = "2"

		lock := acquire(t, locker, option)

		status, err := locker.Inspect(t.Context(), name)
		if want := `{"build":"1"}`; err != nil || status.Holder.Metadata != want {
			t.Errorf("Metadata = %s, %v, want %s", status.Holder.Metadata, err, want)
		}

		release(t, lock)
	})
}

// A process that another one waits for is in a deadlock with what that holds, if it is told.
func TestAround(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, outside := setup(t)
		other, inner := newLocker(t, memory.Peer()), newLocker(t, memory.Peer())

		outer := acquire(t, outside)
		held := acquireNames(t, other, 1)[0]
		first := make(chan error, 1)

		go func() {
			lock, err := other.Acquire(held.Context(), name)
			first <- errors.Join(err, lock.Release(t.Context()))
		}()

		<-time.After(time.Second)

		_, err := inner.Acquire(around.With(t.Context(), outer.Owner()), held.Name())
		wantIs(t, "Acquire() of what one holds who waits for a lock around this process", err, sqllock.ErrDeadlock)

		release(t, outer)

		if err := <-first; err != nil {
			t.Errorf("Acquire() of the other one = %v, want the lock", err)
		}

		release(t, held)
	})
}
