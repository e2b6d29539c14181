package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// A port that accepts connections and never answers is not somebody who has the
// lock: a job would be skipped, on every machine.
func TestSilenceIsNobodysLock(t *testing.T) {
	t.Parallel()

	for what, options := range map[string][]sqllock.LockerOption{"alone": {sqllock.WithTuning(sqllock.Tuning{NoBatching: true})}, "in batches": nil} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t, options...)

				_, resume := memory.Pause("acquire", sqllocktest.Before)
				defer resume()

				started := time.Now()

				// The first asks the database; the others find it asking.
				var group sync.WaitGroup

				for range 3 {
					group.Go(func() {
						_, err := locker.TryAcquire(t.Context(), name)
						wantIs(t, "TryAcquire() at a silent database", err, sqllock.ErrUnreachable)
						wantNot(t, "TryAcquire() at a silent database", err, sqllock.ErrNotAcquired)
					})
				}

				group.Wait()

				if took := time.Since(started); took > 5100*time.Millisecond {
					t.Errorf("TryAcquire() at a silent database took %s, want 5s", took)
				}

				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()

				_, err := locker.TryAcquire(ctx, name)
				wantIs(t, "TryAcquire() with a deadline", err, sqllock.ErrUnreachable, context.DeadlineExceeded)
				wantNot(t, "TryAcquire() with a deadline", err, sqllock.ErrNotAcquired)

				_, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(2*time.Second))
				wantIs(t, "Acquire() with a longest wait", err, sqllock.ErrUnreachable)
				wantNot(t, "Acquire() with a longest wait", err, sqllock.ErrNotAcquired)
			})
		})
	}
}

// What the database said counts until it has been silent for a while.
func TestSilenceAfterAnAnswer(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		silent time.Duration // before the end of the wait
		held   bool
	}{{500 * time.Millisecond, true}, {3 * time.Second, false}, {time.Minute, false}} {
		t.Run(c.silent.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoNotifications: true, PollMin: time.Millisecond, PollMax: 10 * time.Millisecond}))
				acquire(t, newLocker(t, memory.Peer()))

				const wait = 2 * time.Minute

				time.AfterFunc(wait-c.silent, func() {
					for _, operation := range []string{"acquire", "stand", "keep", "enqueue"} {
						_, resume := memory.Pause(operation, sqllocktest.Before)
						t.Cleanup(resume)
					}
				})

				_, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(wait))
				if got := errors.Is(err, sqllock.ErrNotAcquired); got != c.held {
					t.Errorf("Acquire() = %v; it matches ErrNotAcquired: %t, want %t", err, got, c.held)
				}

				if got := errors.Is(err, sqllock.ErrUnreachable); got == c.held {
					t.Errorf("Acquire() = %v; it matches ErrUnreachable: %t, want %t", err, got, !c.held)
				}
			})
		})
	}
}

// A try does not take for the lock's holder who is only asking for it.
func TestTryBesideSomebodyWhoAsks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)

		reached, resume := memory.Pause("acquire", sqllocktest.Before)

		var group sync.WaitGroup

		defer group.Wait()

		group.Go(func() {
			lock, err := locker.Acquire(t.Context(), name)
			if err != nil {
				t.Errorf("Acquire() = %v", err)
			}

			time.Sleep(time.Second)
			release(t, lock)
		})

		<-reached
		time.AfterFunc(time.Second, resume)

		started := time.Now()
		_, err := locker.TryAcquire(t.Context(), name)
		wantIs(t, "TryAcquire() of what this process has", err, sqllock.ErrNotAcquired)

		if took := time.Since(started); took != time.Second {
			t.Errorf("TryAcquire() took %s, want until the first was answered", took)
		}
	})
}

// A restart of the database, or a fail-over, ends no wait.
func TestWaitOverARestart(t *testing.T) {
	t.Parallel()

	refused := fmt.Errorf("%w: connection refused", sqllock.ErrUnreachable)

	for what, fault := range map[string]error{"refused": refused, "read-only": sqllock.ErrReadOnly} {
		t.Run(what+" once reached", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
				release(t, acquire(t, locker))
				memory.Fail("acquire", 200, sqllocktest.Before, fault)

				_, err := locker.TryAcquire(t.Context(), name)
				wantIs(t, "TryAcquire() during a restart", err, fault)

				release(t, acquire(t, locker))
			})
		})

		t.Run(what+" never reached", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
				memory.Fail("acquire", 200, sqllocktest.Before, fault)

				started := time.Now()
				_, err := locker.Acquire(t.Context(), name)
				wantIs(t, "Acquire() of a locker that never reached the database", err, fault)

				if took := time.Since(started); took > time.Second {
					t.Errorf("Acquire() took %s, want an answer at once", took)
				}
			})
		})
	}
}

// The first attempt is executed when the second one of the same owner has been
// granted and released.
func TestAttemptThatArrivesAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		overtaken := &overtaken{Memory: memory}
		locker := newLocker(t, overtaken, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}), sqllock.WithLease(time.Hour))

		release(t, acquire(t, locker))
		overtaken.arrive(t)
		wantHeld(t, memory, "by the attempt that came late")

		time.Sleep(10 * time.Second)
		wantFree(t, memory, "some seconds later")
	})
}

// overtaken is a strategy whose first attempt is still on its way when its
// connection breaks.
type overtaken struct {
	*sqllocktest.Memory

	first *strategies.Request
}

func (o *overtaken) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if o.first == nil {
		first := requests[0]
		o.first = &first

		return make([]strategies.Grant, 1), []error{errors.New("the connection broke")}
	}

	return o.Memory.Acquire(ctx, requests)
}

func (o *overtaken) arrive(t *testing.T) {
	t.Helper()

	if _, err := single.TryAcquire(t.Context(), o.Memory, *o.first); err != nil {
		t.Fatalf("TryAcquire() = %v", err)
	}
}

// Thousands of acquisitions that were given up leave no goroutine each, and no
// storm of statements when the database answers again. Not parallel: it counts
// the goroutines of the process.
func TestManyUnansweredAcquisitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 250 // not more: the race detector crashes at some thousand goroutines that begin at once

		memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
		_, resume := memory.Pause("*", sqllocktest.After)
		before := runtime.NumGoroutine()

		var group sync.WaitGroup

		for i := range calls {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()

				_, err := locker.TryAcquire(ctx, strconv.Itoa(i))
				wantIs(t, "TryAcquire()", err, sqllock.ErrUnreachable)
			})
		}

		group.Wait()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()

		if left := runtime.NumGoroutine() - before; left > 100 {
			t.Errorf("%d goroutines are left of %d acquisitions, want some dozens", left, calls)
		}

		resume()
		time.Sleep(time.Minute)
		wantFree(t, memory, "when the database has answered for a while")
	})
}

// It was granted, and the answer came when its lease had ended: nobody has it.
func TestTryWhoseAnswerCameTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := &late{Memory: sqllocktest.NewMemory(), delay: 990 * time.Millisecond}
		attempts := 0
		locker := newLocker(t, strategy, sqllock.WithLease(time.Second), sqllock.WithTuning(sqllock.Tuning{NoBatching: true}), observed(hooks{
			Acquired: func(e sqllock.Event) { attempts = e.Attempts },
		}))

		lock, err := locker.TryAcquire(t.Context(), name)
		if err != nil {
			t.Fatalf("TryAcquire() = %v, want the lock by the next attempt", err)
		}

		if attempts != 2 {
			t.Errorf("it took %d attempts, want two", attempts)
		}

		release(t, lock)

		started := time.Now()

		if err := locker.Close(t.Context()); err != nil || time.Since(started) > time.Second {
			t.Errorf("Close() = %v after %s, want nil at once: nothing is in doubt", err, time.Since(started))
		}
	})
}

// rowLocked is a strategy whose first attempts take the lock, and get no answer. Those that follow find the row locked, and tell
// of the grant that is in it.
type rowLocked struct {
	*sqllocktest.Memory

	times atomic.Int64
}

func (s *rowLocked) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	r := requests[0]

	switch n := s.times.Add(1); {
	case n == 1:
		_, _ = s.Memory.Acquire(ctx, requests)

		return make([]strategies.Grant, 1), []error{strategies.ErrUnreachable}
	case n < 4:
		return make([]strategies.Grant, 1), []error{&strategies.HeldError{Name: r.Name, Holder: r.Holder, Owner: r.Owner, Token: 1, Remaining: time.Second}}
	default:
		return s.Memory.Acquire(ctx, requests)
	}
}

// The lock is the caller's own, so that a job must not be skipped, nor wait for the end of its own lease.
func TestOwnGrantWhoseRowIsLocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, try := range []bool{true, false} {
			locker := newLocker(t, &rowLocked{Memory: sqllocktest.NewMemory()}, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
			acquire := locker.Acquire

			if try {
				acquire = locker.TryAcquire
			}

			started := time.Now()

			lock, err := acquire(t.Context(), name)
			if err != nil {
				t.Fatalf("%t: Acquire() = %v, want the lock", try, err)
			}

			if took := time.Since(started); took > time.Second {
				t.Errorf("%t: Acquire() took %s, want that it does not wait for its own lease", try, took)
			}

			release(t, lock)
		}
	})
}

// somebodyLooks is a strategy whose row somebody else has locked for the first
// attempts, as whoever looks at a name does for a moment.
type somebodyLooks struct {
	*sqllocktest.Memory

	times atomic.Int64
}

func (s *somebodyLooks) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if s.times.Add(-1) >= 0 {
		return make([]strategies.Grant, 1), []error{&strategies.HeldError{Name: requests[0].Name, Detail: "its row is locked"}}
	}

	return s.Memory.Acquire(ctx, requests)
}

// A job must not be skipped because somebody looked at its lock.
func TestTryBesideSomebodyWhoLooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := &somebodyLooks{Memory: sqllocktest.NewMemory()}
		locker := newLocker(t, strategy, sqllock.WithTuning(sqllock.Tuning{NoBatching: true, PollMin: time.Hour, PollMax: time.Hour}))

		strategy.times.Store(2)

		lock, err := locker.TryAcquire(t.Context(), name)
		if err != nil {
			t.Fatalf("TryAcquire() = %v, want the lock by the third attempt", err)
		}

		release(t, lock)
		strategy.times.Store(1000)

		started := time.Now()
		_, err = locker.TryAcquire(t.Context(), name)
		wantIs(t, "TryAcquire() of a row that stays locked", err, sqllock.ErrUnreachable)

		if errors.Is(err, sqllock.ErrNotAcquired) {
			t.Errorf("TryAcquire() = %v, which says that somebody has the lock", err)
		}

		if took := time.Since(started); took > 1100*time.Millisecond {
			t.Errorf("TryAcquire() took %s, want about a second", took)
		}

		_, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(time.Second))
		if errors.Is(err, sqllock.ErrNotAcquired) || !errors.Is(err, sqllock.ErrUnreachable) {
			t.Errorf("Acquire() = %v, want ErrUnreachable, and not ErrNotAcquired", err)
		}
	})
}
