package sqllock_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// late is a strategy whose first attempt takes so long and does not return when
// its context ends, as with a driver whose connection was cut off; then it is
// granted.
type late struct {
	*sqllocktest.Memory
	delay    time.Duration
	attempts atomic.Int64
	returned atomic.Int64
}

func (l *late) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	defer l.returned.Add(1)

	if l.attempts.Add(1) == 1 {
		time.Sleep(l.delay)

		ctx = context.WithoutCancel(ctx)
	}

	return l.Memory.Acquire(ctx, requests)
}

// The next attempt is made while the first goes on, or was too late. What
// becomes of the first must not touch the lock that the next one got.
func TestLateGrantIsNotTheLock(t *testing.T) {
	t.Parallel()

	const (
		lease  = 6 * time.Second
		window = 5930 * time.Millisecond
	)

	for what, delay := range map[string]time.Duration{
		"too late":                window + 10*time.Millisecond,
		"abandoned":               window + time.Second,
		"abandoned for a minute":  window + time.Minute,
		"abandoned past its time": 3 * window,
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				strategy := &late{Memory: sqllocktest.NewMemory(), delay: delay}
				strategy.Fail("release", 1, sqllocktest.Before, nil)
				strategy.Fail("settle", 1, sqllocktest.Before, nil)

				lock := acquire(t, newLocker(t, strategy, sqllock.WithTuning(sqllock.Tuning{PollMin: time.Millisecond, PollMax: time.Second})),
					sqllock.WithLease(lease), sqllock.WithMaxWait(5*time.Minute))

				time.Sleep(2 * delay)

				if err := lock.Check(t.Context()); err != nil {
					t.Errorf("Check() = %v, want nil", err)
				}

				if err := lock.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v, want nil", err)
				}

				if n := held(t, strategy.Memory); n != 0 {
					t.Errorf("%d locks are held after the release, want none", n)
				}
			})
		})
	}
}

// Nobody got the grant, so nobody's minimum hold has begun.
func TestLateGrantHasNoMinHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := &late{Memory: sqllocktest.NewMemory(), delay: 2 * time.Second}
		locker := newLocker(t, strategy, sqllock.WithMinHold(time.Hour))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if _, err := locker.TryAcquire(ctx, name); err == nil {
			t.Fatal("TryAcquire() = a lock after its deadline")
		}

		time.Sleep(time.Minute)
		acquire(t, newLocker(t, strategy.Peer()))
	})
}

// A renewal under way finds that the transaction released the lock.
func TestReleaseTxBesideARenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)

		reached, resume := memory.Pause("renew", sqllocktest.Before)
		<-reached

		tx := memory.Begin()
		if err := lock.ReleaseTx(t.Context(), tx); err != nil {
			t.Fatalf("ReleaseTx() = %v", err)
		}

		if err := tx.Commit(); err != nil {
			t.Fatalf("Commit() = %v", err)
		}

		resume()
		synctest.Wait()

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() after the commit = %v, want nil", err)
		}
	})
}

// The lock would be free while other handles of it are in use.
func TestReleaseTxByTheLastHandleOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithReentrant())
		outer := acquire(t, locker)

		inner, err := locker.Acquire(outer.Context(), name)
		if err != nil {
			t.Fatal(err)
		}

		err = inner.ReleaseTx(t.Context(), memory.Begin())
		wantIs(t, "ReleaseTx() beside another handle", err, sqllock.ErrUnsupported)

		if want := `lock "the lock": ReleaseTx is not supported while other handles of it are open`; err.Error() != want {
			t.Errorf("ReleaseTx() beside another handle = %q, want %q", err, want)
		}

		if err := inner.Release(t.Context()); err != nil {
			t.Errorf("Release() of the inner handle = %v, want nil", err)
		}

		if err := outer.ReleaseTx(t.Context(), memory.Begin()); err != nil {
			t.Errorf("ReleaseTx() of the last handle = %v, want nil", err)
		}

		_, err = locker.Acquire(outer.Context(), name)
		wantIs(t, "Acquire() under a lock that is being released", err, sqllock.ErrReleased)
	})
}

// Release takes seconds at most, however slowly the lock was waited for.
func TestReleaseDoesNotPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{PollMin: 5 * time.Minute, PollMax: time.Hour}))
		lock := acquire(t, locker)
		memory.Fail("release", 2, sqllocktest.Before, nil)

		started := time.Now()

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil by the third try", err)
		}

		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("Release() took %s, want some seconds at most", took)
		}
	})
}

// B is asked for with a context that ended because A was lost.
func TestLossOfAnotherLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		a, err := locker.Acquire(t.Context(), "A")
		if err != nil {
			t.Fatal(err)
		}

		b, err := locker.Acquire(a.Context(), "B")
		if err != nil {
			t.Fatal(err)
		}

		_, resume := memory.Hang("check", sqllocktest.Before)
		defer resume()

		memory.Lose("A")

		if err := b.Check(a.Context()); err == nil {
			t.Error("Check() = nil, want the end of its context")
		}

		if err := b.Err(); err != nil {
			t.Errorf("Err() = %v, want nil: B is not lost", err)
		}
	})
}

// hung is a strategy that never answers a renewal for an hour, each of which goes alone.
type hung struct{ *sqllocktest.Memory }

func (h hung) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	switch {
	case lease != time.Hour:
		return h.Memory.Renew(ctx, grants, lease)
	case len(grants) > 1:
		return calls.RenewAlone(ctx, grants, lease)
	}

	<-ctx.Done()

	return []error{ctx.Err()}
}

// Long leases whose renewals hang leave renewers for short ones.
func TestLongLeasesDoNotStarveShortOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		locker := newLocker(t, hung{sqllocktest.NewMemory()})

		for _, long := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
			if _, err := locker.Acquire(t.Context(), long, sqllock.WithLease(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}

		time.Sleep(19*time.Minute + 55*time.Second)

		lock := acquire(t, locker)

		time.Sleep(5 * time.Minute)

		if err := lock.Err(); err != nil {
			t.Errorf("Err() = %v, want nil: its renewals are answered", err)
		}

		// Renewals under way end by themselves.
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		time.Sleep(time.Minute)
	})
}

// connected is a strategy whose locks hold a connection, which cannot be had for a
// while.
type connected struct {
	*sqllocktest.Memory
	free     time.Time
	returned *atomic.Int64 // connections that were given back
}

func (c connected) Features() strategies.Features {
	f := c.Memory.Features()
	f.ConnectionHeld = true

	return f
}

func (c connected) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	if time.Now().Before(c.free) {
		<-ctx.Done()

		return make([]bool, len(grants)), slices.Repeat([]error{ctx.Err()}, len(grants))
	}

	c.returned.Add(1)

	return c.Memory.Release(ctx, grants)
}

// The lease ends the lock, but it is the release that gives the connection
// back: however late. Close says so if it has to return before.
func TestReleaseGivesTheConnectionBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := connected{sqllocktest.NewMemory(), time.Now().Add(10 * lease), new(atomic.Int64)}
		locker := newLocker(t, strategy)

		lock := acquire(t, locker)
		if err := lock.Release(t.Context()); err == nil {
			t.Fatal("Release() = nil while the connection cannot be had")
		}

		err := locker.Close(t.Context())
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("Close() while the connection cannot be had = %v, want an error that names the lock", err)
		}

		time.Sleep(10 * lease)

		if strategy.returned.Load() == 0 {
			t.Error("the connection was not given back")
		}
	})
}

// followed is a strategy whose first release gets no answer, and whose lock
// somebody else takes at once.
type followed struct {
	*sqllocktest.Memory

	tries atomic.Int64
}

func (f *followed) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	contended, errs := f.Memory.Release(ctx, grants)

	if f.tries.Add(1) == 1 {
		_, taken := strategies.AcquireOne(ctx, f.Memory, strategies.Request{Name: name, Owner: "the successor", Lease: lease})
		errs[0] = cmp.Or(taken, errors.New("no answer"))
	}

	return contended, errs
}

// The lock was not lost but released, or nobody could have it while its lease
// ran.
func TestReleaseWithoutAnswerBeforeASuccessor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lock := acquire(t, newLocker(t, &followed{Memory: sqllocktest.NewMemory()}))

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
	})
}

// Whether the transaction has committed, and somebody else has the lock, a handle
// cannot know. Its context goes on, because the transaction may run under it.
func TestNothingIsVouchedForAfterReleaseTx(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)

		memory.Fail("releasetx", 1, sqllocktest.Before, nil)

		if err := lock.ReleaseTx(t.Context(), memory.Begin()); err == nil {
			t.Fatal("ReleaseTx() that fails = nil, want an error")
		}

		if err := lock.Err(); err != nil || lock.Remaining() == 0 {
			t.Errorf("Err() after a ReleaseTx that failed = %v with %s left, want that it is held", err, lock.Remaining())
		}

		first, second := memory.Begin(), memory.Begin()

		for _, tx := range []*sqllocktest.MemoryTx{first, second} {
			if err := lock.ReleaseTx(t.Context(), tx); err != nil {
				t.Fatalf("ReleaseTx() = %v, want nil, also in a transaction that repeats one", err)
			}

			wantIs(t, "Err() after ReleaseTx", lock.Err(), sqllock.ErrReleased)
			wantIs(t, "Extend() after ReleaseTx", lock.Extend(t.Context(), lease), sqllock.ErrReleased)

			if left := lock.Remaining(); left != 0 {
				t.Errorf("Remaining() after ReleaseTx = %s, want 0", left)
			}

			if err := lock.Context().Err(); err != nil {
				t.Errorf("Context().Err() after ReleaseTx = %v, want nil", err)
			}

			if tx == first {
				_ = tx.Rollback()
			}
		}

		if err := lock.Check(t.Context()); err != nil {
			t.Errorf("Check() before the commit = %v, want nil", err)
		}

		if err := second.Commit(); err != nil {
			t.Fatalf("Commit() = %v", err)
		}

		release(t, acquire(t, newLocker(t, memory.Peer())))
		wantIs(t, "Err() after the commit", lock.Err(), sqllock.ErrReleased)
		time.Sleep(lease)
		wantIs(t, "context.Cause after the window", context.Cause(lock.Context()), sqllock.ErrReleased)
		release(t, lock)
	})
}

// The first attempt is granted too late and is being ended when the second meets its
// grant. Nobody has the lock, so a try must not say that somebody does.
func TestTryBesideItsOwnLateGrant(t *testing.T) {
	t.Parallel()

	for what, delay := range map[string]time.Duration{
		"too late": 985 * time.Millisecond, "abandoned": 1200 * time.Millisecond,
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				strategy := &late{Memory: sqllocktest.NewMemory(), delay: delay}
				strategy.Fail("settle", 1000, sqllocktest.Before, nil)

				// The lease ends what cannot be settled.
				lock, err := newLocker(t, strategy, sqllock.WithLease(time.Second)).TryAcquire(t.Context(), name)
				if err != nil {
					t.Fatalf("TryAcquire() beside its own late grant = %v, want the lock", err)
				}

				release(t, lock)
			})
		})
	}
}

// The window of a lock is over, and its lease runs: that is the time that its work has
// to stop. An attempt of its owner whose outcome was unknown is settled only then, because
// what ends the attempt ends the lock.
func TestOverdueLockIsLeftToItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lease = 30 * time.Second

		memory, locker := setup(t, sqllock.WithLease(lease))
		memory.Fail("acquire", 1, sqllocktest.After, errors.New("the connection broke off"))

		acquire(t, locker, sqllock.WithMaxHold(time.Second))

		other := newLocker(t, memory.Peer())

		for range 25 {
			time.Sleep(time.Second)

			if _, err := other.TryAcquire(t.Context(), name); !errors.Is(err, sqllock.ErrNotAcquired) {
				t.Fatalf("TryAcquire() in the lease of a lock that was held for too long = %v, want ErrNotAcquired", err)
			}
		}

		time.Sleep(lease)
		acquire(t, other)
	})
}

// Close leaves nothing of such a lock, and waits for what may still come of the attempt.
func TestCloseOfAnOverdueLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithLease(30*time.Second))
		memory.Fail("acquire", 1, sqllocktest.After, errors.New("the connection broke off"))

		acquire(t, locker, sqllock.WithMaxHold(time.Second))
		time.Sleep(2 * time.Second)

		begun := time.Now()
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if took := time.Since(begun); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("Close() took %s, want the rest of the six seconds after the attempt", took)
		}

		if n := held(t, memory); n != 0 {
			t.Errorf("%d locks are held after Close, want none", n)
		}
	})
}

// unsettled is a strategy that says of its grants, or of their renewals or releases, that something may be left.
type unsettled struct {
	*sqllocktest.Memory

	grant            bool
	renewal, release error
}

func (u unsettled) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := u.Memory.Acquire(ctx, requests)
	grants[0].Unsettled = u.grant

	return grants, errs
}

func (u unsettled) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	return []error{cmp.Or(u.Memory.Renew(ctx, grants, lease)[0], u.renewal)}
}

func (u unsettled) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	contended, errs := u.Memory.Release(ctx, grants)

	return contended, []error{cmp.Or(errs[0], u.release)}
}

// What a call may have left that a grant could do without is settled when the lock has ended, and not before. It is not a failure.
func TestUnsettledIsSettled(t *testing.T) {
	t.Parallel()

	partial := &strategies.PartialError{Unsettled: true}

	for what, c := range map[string]struct {
		strategy unsettled
		longest  time.Duration
		fails    int // tries to release
	}{
		"a grant":              {strategy: unsettled{grant: true}},
		"an overdue grant":     {strategy: unsettled{grant: true}, longest: time.Second},
		"a renewal":            {strategy: unsettled{renewal: partial}},
		"a renewal that fails": {strategy: unsettled{renewal: strategies.ErrUnsettled}},
		"a release":            {strategy: unsettled{release: partial}},
		"a late release":       {strategy: unsettled{release: partial}, fails: 3},
		"a loss":               {strategy: unsettled{release: &strategies.LostError{Reason: strategies.Unknown, Unsettled: true}}},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c.strategy.Memory = sqllocktest.NewMemory()
				lock := acquire(t, newLocker(t, c.strategy), sqllock.WithLease(6*time.Second), sqllock.WithMaxHold(c.longest))

				time.Sleep(3 * time.Second)

				if n := c.strategy.Count("settle"); n != 0 {
					t.Errorf("Count(settle) = %d while the lease runs, want 0", n)
				}

				if c.longest == 0 {
					c.strategy.Fail("release", c.fails, sqllocktest.Before, nil)

					if err := lock.Release(t.Context()); (err != nil) != (c.fails > 0 || errors.Is(c.strategy.release, sqllock.ErrLost)) {
						t.Errorf("Release() = %v", err)
					}
				}

				time.Sleep(time.Minute)

				if c.strategy.Count("settle") == 0 {
					t.Error("Count(settle) = 0 after the lock has ended, want that it was settled")
				}
			})
		})
	}
}
