package sqllock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func TestHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var (
			mu   sync.Mutex
			told []string
		)

		hook := func(what string) func(sqllock.Event) {
			return func(e sqllock.Event) {
				mu.Lock()
				defer mu.Unlock()

				told = append(told, what)

				if e.Name != name || e.Strategy != "memory" {
					t.Errorf("%s(%+v), want the lock's name and strategy", what, e)
				}
			}
		}

		memory, locker := setup(t, observed(hooks{
			Acquired: hook("acquired"), NotAcquired: hook("not acquired"), Renewed: hook("renewed"),
			RenewalFailed: hook("renewal failed"), Lost: hook("lost"), Released: hook("released"),
		}))

		lock := acquire(t, locker)

		_, err := locker.TryAcquire(t.Context(), name)
		wantIs(t, "TryAcquire()", err, sqllock.ErrNotAcquired)

		time.Sleep(lease / 3)
		memory.Fail("renew", 1, sqllocktest.Before, nil)
		time.Sleep(lease / 2)

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		lock = acquire(t, locker)
		memory.Lose(name)
		<-lock.Done()
		synctest.Wait()

		_ = lock.Release(t.Context())

		mu.Lock()
		defer mu.Unlock()

		want := []string{
			"acquired", "not acquired", "renewed", "renewal failed", "renewed", "released", "acquired", "lost",
		}
		if !slices.Equal(told, want) {
			t.Errorf("hooks were called as %q, want %q", told, want)
		}
	})
}

// Several observers are all called, in the order given, and see the values of the context that the lock was asked for with.
func TestSeveralObservers(t *testing.T) {
	type key struct{}

	bubble(t, func(t *testing.T) {
		var told []string

		observer := func(who string) sqllock.LockerOption {
			return sqllock.WithObserver(func(ctx context.Context, e sqllock.Event) {
				told = append(told, fmt.Sprint(who, " ", ctx.Value(key{}), " ", e.Kind == sqllock.Released, " ", ctx.Err()))
			})
		}

		_, locker := setup(t, observer("first"), observer("second"))

		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))

		lock, err := locker.Acquire(ctx, name)
		if err != nil {
			t.Fatal(err)
		}

		cancel()
		release(t, lock)

		want := []string{"first value false <nil>", "second value false <nil>", "first value true <nil>", "second value true <nil>"}
		if !slices.Equal(told, want) {
			t.Errorf("observers were called as %q, want %q", told, want)
		}
	})
}

// The log does not call a lock released that is not.
func TestLogOfAReleaseThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer

		logger := slog.New(slog.NewTextHandler(&out, nil))
		memory, locker := setup(t, sqllock.WithLogger(logger))

		lock := acquire(t, locker)
		memory.Fail("release", 100, sqllocktest.Before, nil)

		_ = lock.Release(t.Context())

		if want := `level=WARN msg="lock not released, trying again" name="the lock"`; !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, out.String())
		}

		memory.Reset()
		time.Sleep(time.Minute)
		out.Reset()

		lock = acquire(t, locker)
		memory.Lose(name)

		_ = lock.Release(t.Context())

		if want := `level=WARN msg="lock lost before its release" name="the lock"`; !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, out.String())
		}
	})
}

func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer

		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		memory, locker := setup(t, sqllock.WithLogger(logger))
		lock := acquire(t, locker)

		time.Sleep(lease / 3)
		memory.Fail("renew", 1, sqllocktest.Before, nil)
		time.Sleep(lease / 3)
		memory.Lose(name)
		<-lock.Done()
		synctest.Wait() // It is logged after the context ended.

		for _, want := range []string{
			`level=DEBUG msg="lock acquired" name="the lock" strategy=memory token=`,
			`level=DEBUG msg="lock renewed"`,
			`level=WARN msg="lock not renewed, trying again"`,
			`level=WARN msg="lock lost"`,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, out.String())
			}
		}
	})
}

// An outage is told once, once more when it is of another kind, and once a minute while it lasts.
func TestLogOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer

		logger := slog.New(slog.NewTextHandler(&out, nil))
		told := 0
		memory, locker := setup(t, sqllock.WithLogger(logger), observed(hooks{RenewalFailed: func(sqllock.Event) { told++ }}))

		const long = 10 * time.Minute

		// It is renewed after a third of that, and what failed is tried again after half a minute at most.
		acquire(t, locker, sqllock.WithLease(long))

		// warned has renewals fail with an error for so long, and returns what the log has told until then.
		warned := func(err error, last time.Duration) []string {
			memory.Reset()
			memory.Fail("renew", 1000, sqllocktest.Before, err)
			time.Sleep(last)
			synctest.Wait()

			return strings.SplitAfter(out.String(), "\n")[:strings.Count(out.String(), "\n")]
		}

		refused := errors.New("refused")

		if got := warned(errors.New("cut off at port 4711"), long/3+50*time.Second); len(got) != 1 || told < 2 {
			t.Errorf("the log told of %d failures within a minute:\n%q\nwant one line", told, got)
		}

		if got := warned(errors.New("cut off at port 12"), 40*time.Second); len(got) != 2 || !strings.Contains(got[1], " repeated=") {
			t.Errorf("the log told of %d failures in a minute and a half:\n%q\nwant another line, with how many there were between the two", told, got)
		}

		if got := warned(refused, 40*time.Second); len(got) != 3 || !strings.Contains(got[2], "refused") {
			t.Errorf("the log told of another error:\n%q\nwant one more line", got)
		}

		memory.Reset()
		time.Sleep(time.Minute)

		// Renewed within half a minute after the outage, and a third of the lease later; told again a minute after that.
		if got := warned(refused, 3*time.Minute); len(got) != 4 || strings.Contains(got[3], "repeated") {
			t.Errorf("the log told of the next outage:\n%q\nwant one more line", got)
		}
	})
}

// blocker is a log that blocks at some messages until the test ends it, as a full
// pipe does.
type blocker struct {
	slog.Handler

	message string
	until   <-chan struct{}
}

func (blocker) Enabled(context.Context, slog.Level) bool { return true }

func (b blocker) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == b.message {
		<-b.until
	}

	return b.Handler.Handle(ctx, r)
}

// blocked returns a logger that blocks at a message until end is called.
func blocked(message string) (logger *slog.Logger, end func()) {
	until := make(chan struct{})

	return slog.New(blocker{slog.DiscardHandler, message, until}),
		sync.OnceFunc(func() { close(until) })
}

// acquireNames acquires so many locks of a locker.
func acquireNames(t *testing.T, l *sqllock.Locker, n int, options ...sqllock.LockOption) []*sqllock.Lock {
	t.Helper()

	locks := make([]*sqllock.Lock, n)

	for i := range locks {
		lock, err := l.Acquire(t.Context(), fmt.Sprint(i), options...)
		if err != nil {
			t.Fatalf("Acquire() = %v, want the lock", err)
		}

		locks[i] = lock
	}

	return locks
}

func TestBlockedLogKeepsNoLockAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		logger, end := blocked("lock lost")
		defer end()

		_, locker := setup(t, sqllock.WithLogger(logger), sqllock.WithoutRenewal())
		started := time.Now()

		for i, lock := range acquireNames(t, locker, 20) {
			<-lock.Done()

			if took := time.Since(started); took != window {
				t.Fatalf("the context of lock %d ended after %s, want %s", i, took, window)
			}
		}
	})
}

func TestBlockedHookKeepsNobodyFromLooking(t *testing.T) {
	bubble(t, func(t *testing.T) {
		until := make(chan struct{})
		defer close(until)

		_, locker := setup(t, sqllock.WithoutRenewal(), observed(hooks{Lost: func(sqllock.Event) { <-until }}))
		locks := acquireNames(t, locker, 2)

		time.Sleep(window)

		for _, lock := range locks {
			wantLost(t, "Err()", lock.Err(), sqllock.ReasonExpired)
			wantLost(t, "Release()", lock.Release(t.Context()), sqllock.ReasonExpired)
		}
	})
}

func TestBlockedLogStopsNoRenewal(t *testing.T) {
	t.Parallel()

	for _, message := range []string{"lock renewed", "lock not renewed, trying again"} {
		t.Run(message, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				logger, end := blocked(message)
				defer end()

				memory, locker := setup(t, sqllock.WithLogger(logger), sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
				locks := acquireNames(t, locker, 50)

				memory.Fail("renew", 50, sqllocktest.Before, nil)
				time.Sleep(10 * lease)

				for i, lock := range locks {
					if err := lock.Err(); err != nil {
						t.Fatalf("Err() of lock %d = %v, want nil", i, err)
					}
				}
			})
		})
	}
}

func TestBlockedLogKeepsNobodyWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		logger, end := blocked("lock released")
		defer end()

		memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoHandOff: true}), sqllock.WithLogger(logger))
		lock := acquire(t, locker)
		next := make(chan *sqllock.Lock, 1)

		go func() { next <- acquire(t, locker) }()

		synctest.Wait()

		released := make(chan error, 2)
		for range 2 {
			go func() { released <- lock.Release(t.Context()) }()
		}

		last, gone := <-next, make(chan error)

		go func() { gone <- last.Release(t.Context()) }()

		synctest.Wait()
		wantFree(t, memory, "after both released")

		// One of the two is told of what the other did, whose log blocks.
		if err := <-released; err != nil {
			t.Errorf("Release() beside one whose log blocks = %v, want nil", err)
		}

		end()
		<-released
		<-gone
	})
}

func TestBlockedLogKeepsNoReleaseFromGoingOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		logger, end := blocked("lock released")
		defer end()

		memory, locker := setup(t, sqllock.WithLogger(logger))
		lock := acquire(t, locker)
		memory.Fail("release", 3, sqllocktest.Before, nil)

		go func() { _ = lock.Release(t.Context()) }()

		time.Sleep(lease / 2)
		wantFree(t, memory, "after a release that failed three times")
	})
}

func TestCloseDoesNotHangForABlockedLog(t *testing.T) {
	t.Parallel()

	for _, message := range []string{"lock released", "lock renewed", "lock lost"} {
		t.Run(message, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				logger, end := blocked(message)
				defer end()

				memory, locker := setup(t, sqllock.WithLogger(logger))
				locks := acquireNames(t, locker, 3)

				go func() { _ = locks[0].Release(t.Context()) }()

				time.Sleep(lease / 2)
				memory.Lose("1")
				time.Sleep(lease)

				started := time.Now()

				if err := locker.Close(t.Context()); err != nil || time.Since(started) > time.Second {
					t.Errorf("Close() = %v after %s, want nil within a second", err, time.Since(started))
				}

				wantFree(t, memory, "after Close")
			})
		})
	}
}

// What a program is told last is not lost when it closes its locker and ends.
func TestCloseTellsWhatIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lost, released int

		hooks := hooks{
			Lost:     func(sqllock.Event) { time.Sleep(100 * time.Millisecond); lost++ },
			Released: func(sqllock.Event) { released++ },
		}
		memory, locker := setup(t, observed(hooks))
		locks := acquireNames(t, locker, 3)

		memory.Lose("1")

		wantLost(t, "Check()", locks[1].Check(t.Context()), sqllock.ReasonTakenOver)

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}

		if lost != 1 || released != 2 {
			t.Errorf("told of %d losses and %d releases when Close returned, want 1 and 2", lost, released)
		}
	})
}

// A log that blocks for hours costs no memory without end, and no loss.
func TestBlockedLogDropsTheOldestButNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var (
			out           bytes.Buffer
			until         = make(chan struct{})
			renewed, lost int
		)

		hooks := hooks{
			Renewed: func(sqllock.Event) { <-until; renewed++ },
			Lost:    func(sqllock.Event) { lost++ },
		}
		memory, locker := setup(t, observed(hooks), sqllock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		locks := acquireNames(t, locker, 50)

		time.Sleep(100 * lease)

		for i := range locks {
			memory.Lose(fmt.Sprint(i))
		}

		time.Sleep(lease)
		close(until)
		synctest.Wait()

		if renewed > 1100 || lost != len(locks) {
			t.Errorf("told of %d renewals and %d losses, want about 1024 and %d", renewed, lost, len(locks))
		}

		if !strings.Contains(out.String(), "events of locks dropped") {
			t.Errorf("the log does not tell of what was dropped:\n%s", out.String())
		}
	})
}

// A wait tells of its place when that is known and when it changes, and who has the lock.
func TestWaitingTells(t *testing.T) {
	type key struct{}

	bubble(t, func(t *testing.T) {
		var (
			mu   sync.Mutex
			told []sqllock.Event
			log  bytes.Buffer
		)

		memory, other := setup(t)
		ahead := newLocker(t, memory.Peer())
		locker := newLocker(t, memory.Peer(), sqllock.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
			sqllock.WithObserver(func(ctx context.Context, e sqllock.Event) {
				mu.Lock()
				defer mu.Unlock()

				if told = append(told, e); ctx.Value(key{}) != "the caller's" {
					t.Errorf("the context of %+v lacks the caller's value", e)
				}
			}))

		held := acquire(t, other)
		first, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)

		go func() {
			_, err := ahead.Acquire(first, name)
			left <- err
		}()

		time.Sleep(time.Second)

		got := make(chan *sqllock.Lock, 1)

		go func() {
			lock, err := locker.Acquire(context.WithValue(t.Context(), key{}, "the caller's"), name)
			if err != nil {
				t.Errorf("Acquire() = %v, want the lock", err)
			}

			got <- lock
		}()

		time.Sleep(20 * time.Second)
		leave()
		wantIs(t, "Acquire() of the first in line", <-left, context.Canceled)
		time.Sleep(20 * time.Second)
		release(t, held)

		lock := <-got

		release(t, lock)

		mu.Lock()
		defer mu.Unlock()

		var places []int

		for _, e := range told {
			if e.Kind != sqllock.Waiting {
				continue
			}

			places = append(places, e.Place)

			if e.Name != name || e.Held == nil || e.Held.Token != held.Token() || e.Waited < 0 || e.Waited > 30*time.Second {
				t.Errorf("Waiting tells %+v, want the name, its holder, and how long", e)
			}
		}

		if !slices.Equal(places, []int{2, 1}) {
			t.Errorf("Waiting told of the places %d, want 2 and then 1", places)
		}

		if !strings.Contains(log.String(), `msg="waiting for lock" name="the lock" strategy=memory place=2 waited=`) {
			t.Errorf("the log says %s, want the place", log.String())
		}
	})
}
