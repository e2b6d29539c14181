package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

func TestAcquireAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, first := setup(t)
		second := newLocker(t, memory.Peer())

		locks, err := first.AcquireAll(t.Context(), []string{"b", "a", "b"})
		if err != nil {
			t.Fatalf("AcquireAll() = %v, want the locks", err)
		}

		if names := locks.Names(); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("Names() = %q, want each once, sorted", names)
		}

		if locks.Of("c") != nil {
			t.Errorf("Of() another name = a lock, want nil")
		}

		all := func(what string, call func(*sqllock.Lock) error) {
			t.Helper()

			if err := call(locks); err != nil {
				t.Errorf("%s of all = %v, want nil", what, err)
			}
		}

		a, b := locks.Of("a"), locks.Of("b")
		all("Check()", func(l *sqllock.Lock) error { return l.Check(t.Context()) })
		all("Mark()", func(l *sqllock.Lock) error { return l.Mark(t.Context(), 7) })
		all("Extend()", func(l *sqllock.Lock) error { return l.Extend(t.Context(), time.Hour) })

		for _, name := range locks.Names() {
			if status, err := second.Inspect(t.Context(), name); err != nil || status.Mark != 7 || status.Remaining != time.Hour {
				t.Errorf("Inspect(%q) = %+v, %v, want the mark 7 and an hour", name, status, err)
			}
		}

		if locks.Name() != "a" || locks.Token() != a.Token() || locks.Owner() != a.Owner() {
			t.Errorf("Name(), Token() and Owner() = %q, %d, %s, want those of the first name", locks.Name(), locks.Token(), locks.Owner())
		}

		time.Sleep(time.Minute) // renewals come later

		if err := b.Extend(t.Context(), 10*time.Minute); err != nil {
			t.Errorf("Extend() of one = %v, want nil", err)
		}

		if left := locks.Remaining(); left != min(a.Remaining(), b.Remaining()) || left <= 0 {
			t.Errorf("Remaining() = %s, want the least of %s and %s", left, a.Remaining(), b.Remaining())
		}

		_, err = second.AcquireAll(t.Context(), []string{"c", "b"}, sqllock.WithMaxWait(time.Minute))
		wantIs(t, "AcquireAll() beside a holder of one", err, sqllock.ErrNotAcquired)

		const says = `lock "b" not acquired: gave up after 1m0s; held by `
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("AcquireAll() beside a holder of one = %v, want %s…", err, says)
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
func TestAcquireAllSettlesEach(t *testing.T) {
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

				locks, err := newLocker(t, strategy).AcquireAll(t.Context(), []string{"a", "b", "c"}, sqllock.WithLease(time.Hour))
				if err != nil {
					t.Fatalf("AcquireAll() = %v, want the locks", err)
				}

				if took := time.Since(started); took > 10*time.Second {
					t.Errorf("AcquireAll() took %s, as long as a lease that nobody has", took)
				}

				if err := locks.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}
			})
		})
	}
}

// Locks that are kept while another one is waited for do not end by what bounds those that are held: that begins with the last.
func TestAcquireAllKeepsWhileItWaits(t *testing.T) {
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

				locks, err := locker.AcquireAll(t.Context(), []string{"1", "0a"})
				if err != nil {
					t.Fatalf("AcquireAll() = %v, want the locks", err)
				}

				if token := locks.Of("0a").Token(); token > began.Add(lease).UnixMicro() {
					t.Errorf("token of the first = %d, want that it was acquired once", token)
				}

				for _, each := range locks.Names() {
					if left := locks.Of(each).Remaining(); left < lease/2 {
						t.Errorf("Remaining() of %q = %s, want more than half of %s", each, left, lease)
					}
				}

				time.Sleep(lease + time.Second)
				wantIs(t, "Err() after that", locks.Err(), sqllock.ErrLost)
			})
		})
	}
}

// Hooks hear of the locks of who has them all, and watchers hear of them at once.
func TestAcquireAllTells(t *testing.T) {
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

		_, err := locker.TryAcquireAll(t.Context(), []string{"0a", "1", "2"})
		wantIs(t, "TryAcquireAll() beside a holder of one", err, sqllock.ErrNotAcquired)

		if len(told) > 0 {
			t.Errorf("hooks were told of %q, which nobody had", told)
		}

		release(t, one)

		locks, err := locker.AcquireAll(t.Context(), []string{"0a", "1", "2"})
		if err != nil {
			t.Fatalf("AcquireAll() = %v, want the locks", err)
		}

		if !slices.Equal(told, locks.Names()) {
			t.Errorf("hooks were told of %q, want %q", told, locks.Names())
		}

		if err := locks.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	})
}

func TestAcquireAllRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)

		many := make([]string, sqllock.MaxNames+1)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}

		for what, test := range map[string]struct {
			names   []string
			options []sqllock.LockOption
			want    error
		}{
			"no names":       {nil, nil, sqllock.ErrInvalidName},
			"too many":       {many, nil, sqllock.ErrInvalidName},
			"an empty name":  {[]string{"a", ""}, nil, sqllock.ErrInvalidName},
			"permits":        {[]string{"a", "b"}, []sqllock.LockOption{sqllock.WithPermits(2)}, sqllock.ErrUnsupported},
			"a wrong option": {[]string{"a", "b"}, []sqllock.LockOption{sqllock.WithLease(-1)}, sqllock.ErrInvalidOption},
		} {
			_, err := locker.AcquireAll(t.Context(), test.names, test.options...)
			wantIs(t, "AcquireAll() of "+what, err, test.want)
		}

		wantIs(t, "DoAll() of no function", locker.DoAll(t.Context(), []string{"a"}, nil), sqllock.ErrInvalidOption)

		release(t, acquire(t, locker)) // nothing is left
	})
}

// A context knows all the locks that were acquired together, and an acquisition under it those that it asks for again.
func TestAcquireAllUnderALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t, sqllock.WithReentrant())
		outer := acquire(t, locker)

		locks, err := locker.AcquireAll(outer.Context(), []string{"a", name, "z"})
		if err != nil {
			t.Fatalf("AcquireAll() under one of the locks = %v, want the locks", err)
		}

		if again := locks.Of(name); again.Token() != outer.Token() {
			t.Errorf("token of the lock that was held = %d, want %d", again.Token(), outer.Token())
		}

		for _, each := range []string{"a", name, "z"} {
			lock, err := locker.TryAcquire(locks.Context(), each)
			if err != nil || lock.Token() != locks.Of(each).Token() {
				t.Fatalf("TryAcquire(%q) under the locks = %v, want that lock", each, err)
			}

			release(t, lock)
		}

		all, err := locker.TryAcquireAll(locks.Context(), []string{"z", "a"})
		if err != nil {
			t.Fatalf("TryAcquireAll() under the same locks = %v, want them", err)
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

func TestDoAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, locker := setup(t)
		failed := errors.New("failed")

		err := locker.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context, locks *sqllock.Lock) error {
			if err := sqllocktest.ForceRelease(ctx, locker, "b", "the reason"); err != nil {
				t.Errorf("ForceRelease() = %v, want nil", err)
			}

			<-ctx.Done()

			wantIs(t, "Cause() of the context", context.Cause(ctx), sqllock.ErrLost)
			wantIs(t, "Err() of all", locks.Err(), sqllock.ErrLost)

			if err := locks.Of("a").Err(); err != nil {
				t.Errorf("Err() of the other lock = %v, want nil until it is released", err)
			}

			return failed
		})

		if lines := strings.Count(err.Error(), "\n"); lines != 1 {
			t.Errorf("DoAll() = %v, want a line for the function and one for the loss", err)
		}

		wantIs(t, "DoAll() whose function failed", err, failed)
		wantIs(t, "DoAll() whose locks were lost", err, sqllock.ErrLost)

		err = locker.TryDoAll(t.Context(), []string{"c", "d"}, func(ctx context.Context, _ *sqllock.Lock) error {
			_, err := locker.TryAcquire(ctx, "c")
			wantIs(t, "TryAcquire() under the lock", err, sqllock.ErrNotAcquired)

			return ctx.Err()
		})
		if err != nil {
			t.Errorf("TryDoAll() of names that are free = %v, want nil", err)
		}
	})
}

// The context of all looks at the clocks of each, as one does whose process was stopped.
func TestAcquireAllLooksAtTheClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		locks, err := locker.AcquireAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatalf("AcquireAll() = %v, want the locks", err)
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
func TestAcquireAllThatIsAbandoned(t *testing.T) {
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

	_, err := locker.AcquireAll(ctx, []string{"0", "1"})
	wantIs(t, "AcquireAll() that was cancelled", err, context.Canceled)

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

// A process that another one waits for is in a deadlock with what that holds, if it is told.
func TestAround(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, around := setup(t)
		other, inner := newLocker(t, memory.Peer()), newLocker(t, memory.Peer())

		outer := acquire(t, around)
		held := acquireNames(t, other, 1)[0]
		first := make(chan error, 1)

		go func() {
			lock, err := other.Acquire(held.Context(), name)
			first <- errors.Join(err, lock.Release(t.Context()))
		}()

		<-time.After(time.Second)

		_, err := inner.Acquire(sqllock.Around(t.Context(), outer.Owner()), held.Name())
		wantIs(t, "Acquire() of what one holds who waits for a lock around this process", err, sqllock.ErrDeadlock)

		release(t, outer)

		if err := <-first; err != nil {
			t.Errorf("Acquire() of the other one = %v, want the lock", err)
		}

		release(t, held)
	})
}
