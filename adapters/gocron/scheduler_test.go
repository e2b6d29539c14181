// Package gocron_test lets schedulers share an SQLite file as processes do, each with a locker of its own.
package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	locks "github.com/sqllock/sqllock/adapters/gocron"
	"github.com/sqllock/sqllock/internal/filelock"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// book is what happened, by what and by scheduler.
type book struct {
	mu   sync.Mutex
	runs map[time.Time][]string // by the tick
	errs map[string][]error     // by the scheduler
}

func newBook() *book { return &book{runs: map[time.Time][]string{}, errs: map[string][]error{}} }

func (b *book) ran(scheduler string, tick time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.runs[tick] = append(b.runs[tick], scheduler)
}

func (b *book) all() map[time.Time][]string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return maps.Clone(b.runs)
}

// skips counts the runs of a scheduler that ended with an error of the lock.
func (b *book) skips(scheduler string, target error) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, err := range b.errs[scheduler] {
		if errors.Is(err, target) {
			n++
		}
	}

	return n
}

// listen writes down the errors of the lock.
func (b *book) listen(scheduler string) gocron.JobOption {
	return gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()

		b.errs[scheduler] = append(b.errs[scheduler], err)
	}), gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) {}))
}

// clock is behind by so much.
type clock struct {
	clockwork.Clock

	behind time.Duration
}

func (c clock) Now() time.Time { return c.Clock.Now().Add(-c.behind) }

// newScheduler returns a scheduler of another machine, whose clock is behind.
func newScheduler(t *testing.T, file string, behind time.Duration) gocron.Scheduler {
	t.Helper()

	return schedulerWith(t, file, clock{clockwork.NewRealClock(), behind})
}

// schedulerWith returns a scheduler of another machine.
func schedulerWith(t *testing.T, file string, clock clockwork.Clock) gocron.Scheduler {
	t.Helper()

	scheduler, err := locks.NewScheduler(filelock.NewLocker(t, file), gocron.WithClock(clock), gocron.WithLocation(time.UTC))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := scheduler.Shutdown(); err != nil {
			t.Error(err)
		}
	})

	return scheduler
}

func newJob(t *testing.T, s gocron.Scheduler, job gocron.JobDefinition, task any, options ...gocron.JobOption) gocron.Job {
	t.Helper()

	added, err := s.NewJob(job, gocron.NewTask(task), options...)
	if err != nil {
		t.Fatal(err)
	}

	return added
}

func everySecond() gocron.JobDefinition { return gocron.CronJob("* * * * * *", true) }

// once checks that each tick ran once.
func (b *book) once(t *testing.T) {
	t.Helper()

	for tick, by := range b.all() {
		if len(by) != 1 {
			t.Errorf("tick %s was run by %v, want one run", tick, by)
		}
	}
}

func TestEachTickRunsOnceAndTheLateSchedulerSkips(t *testing.T) {
	t.Parallel()

	const behind = 600 * time.Millisecond

	file, b := filelock.NewFile(t), newBook()

	for name, behind := range map[string]time.Duration{"on time": 0, "late": behind} {
		scheduler := newScheduler(t, file, behind)
		newJob(t, scheduler, everySecond(), func() {
			b.ran(name, time.Now().Add(-behind).Truncate(time.Second))
		}, gocron.WithName("report"), b.listen(name))
		scheduler.Start()
	}

	filelock.Eventually(t, func() error {
		if n, skips := len(b.all()), b.skips("late", once.ErrDone); n < 5 || skips < 3 {
			return fmt.Errorf("%d ticks ran and the late one skipped %d, want 5 and 3", n, skips)
		}

		return nil
	})
	b.once(t)
}

func TestSchedulersThatRunAtTheSameMomentRunOnce(t *testing.T) {
	t.Parallel()

	file, b := filelock.NewFile(t), newBook()

	for _, name := range []string{"a", "b", "c"} {
		scheduler := newScheduler(t, file, 0)
		newJob(t, scheduler, everySecond(), func() { b.ran(name, time.Now().Truncate(time.Second)) },
			gocron.WithName("report"), b.listen(name))
		scheduler.Start()
	}

	filelock.Eventually(t, func() error {
		if n := len(b.all()); n < 4 {
			return fmt.Errorf("%d ticks ran, want 4", n)
		}

		return nil
	})
	b.once(t)
}

func TestDurationJobsOfDifferentPhasesRunOncePerInterval(t *testing.T) {
	t.Parallel()

	const every = 2 * time.Second

	file, b := filelock.NewFile(t), newBook()
	start := time.Now().Truncate(every).Add(every + every/4)

	for name, after := range map[string]time.Duration{"early": 0, "late": every / 2} {
		scheduler := newScheduler(t, file, 0)
		newJob(t, scheduler, gocron.DurationJob(every), func() { b.ran(name, time.Now().Truncate(every)) },
			gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(start.Add(after))), b.listen(name))
		scheduler.Start()
	}

	filelock.Eventually(t, func() error {
		if n, skips := len(b.all()), b.skips("late", once.ErrDone); n < 3 || skips < 2 {
			return fmt.Errorf("%d intervals ran and the late one skipped %d, want 3 and 2", n, skips)
		}

		return nil
	})
	b.once(t)
}

func TestWhatFailedIsRunByTheNext(t *testing.T) {
	t.Parallel()

	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("no paper") },
		"panic": func() error { panic("no paper") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const behind = 500 * time.Millisecond

			file, b := filelock.NewFile(t), newBook()

			failing, next := newScheduler(t, file, 0), newScheduler(t, file, behind)
			newJob(t, failing, everySecond(), fail, gocron.WithName("report"), b.listen("failing"))
			newJob(t, next, everySecond(), func() { b.ran("next", time.Now().Add(-behind).Truncate(time.Second)) },
				gocron.WithName("report"), b.listen("next"))
			failing.Start()
			next.Start()

			filelock.Eventually(t, func() error {
				if n := len(b.all()); n < 2 {
					return fmt.Errorf("the next scheduler ran %d ticks that had failed, want 2", n)
				}

				return nil
			})
			b.once(t)
		})
	}
}

// TestTheClockIsThatOfTheScheduler has clocks that are far from the machine's.
func TestTheClockIsThatOfTheScheduler(t *testing.T) {
	t.Parallel()

	for name, start := range map[string]time.Time{
		"behind": time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), "ahead": time.Now().AddDate(0, 1, 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const days = 3

			file, b, fake := filelock.NewFile(t), newBook(), clockwork.NewFakeClockAt(start)
			looker := filelock.NewLocker(t, file)

			for _, name := range []string{"a", "b"} {
				newJob(t, started(t, schedulerWith(t, file, fake)), gocron.DailyJob(1, gocron.NewAtTimes(gocron.NewAtTime(2, 15, 0))),
					func() { b.ran(name, fake.Now().Truncate(time.Hour)) }, gocron.WithName("report"), b.listen(name))
			}

			for day := range days {
				if err := fake.BlockUntilContext(t.Context(), 2); err != nil {
					t.Fatal(err)
				}

				fake.Advance(24 * time.Hour)

				// The last 2:15 that has come.
				now := fake.Now().UTC()
				want := time.Date(now.Year(), now.Month(), now.Day(), 2, 15, 0, 0, time.UTC)

				if want.After(now) {
					want = want.AddDate(0, 0, -1)
				}

				filelock.Eventually(t, func() error {
					n := b.skips("a", sqllock.ErrNotAcquired) + b.skips("b", sqllock.ErrNotAcquired) +
						b.skips("a", once.ErrDone) + b.skips("b", once.ErrDone)
					if runs := len(b.all()); runs != day+1 || n != day+1 {
						return fmt.Errorf("on day %d jobs of %d days ran and %d were skipped: %v", day+1, runs, n, b.all())
					}

					// It is recorded a moment after the run, and released after that: the next day's would be skipped until then.
					if status, err := looker.Inspect(t.Context(), "report"); err != nil || status.Mark != want.UnixMicro() || status.Held() {
						return fmt.Errorf("on day %d the tick %s was recorded (%w), want %s, and that nobody holds the lock: %s",
							day+1, time.UnixMicro(status.Mark).UTC(), err, want, status.Holder)
					}

					return nil
				})
			}

			b.once(t)
		})
	}
}

func started(t *testing.T, s gocron.Scheduler) gocron.Scheduler {
	t.Helper()
	s.Start()

	return s
}

func TestAOneTimeJobRunsOnce(t *testing.T) {
	t.Parallel()

	const behind = 600 * time.Millisecond

	file, b, at := filelock.NewFile(t), newBook(), time.Now().Add(2*time.Second).Truncate(time.Second)

	for name, behind := range map[string]time.Duration{"on time": 0, "late": behind} {
		newJob(t, started(t, newScheduler(t, file, behind)), gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(at)),
			func() { b.ran(name, at) }, gocron.WithName("report"), b.listen(name))
	}

	filelock.Eventually(t, func() error {
		if len(b.all()) != 1 || b.skips("late", once.ErrDone) != 1 {
			return fmt.Errorf("runs: %v, want one, and that the late one skips it", b.all())
		}

		return nil
	})
	b.once(t)
}

// TestTakeOverWaitsForAnotherMachine whose run ends without success, and for one whose run succeeds.
func TestTakeOverWaitsForAnotherMachine(t *testing.T) {
	t.Parallel()

	for name, succeeds := range map[string]bool{"that dies": false, "that succeeds": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			file, b := filelock.NewFile(t), newBook()
			other, at := filelock.NewLocker(t, file), time.Now().Add(2*time.Second).Truncate(time.Second)
			lock := filelock.Acquire(t, other, "report")

			newJob(t, started(t, newScheduler(t, file, 0)), gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(at)),
				func() { b.ran("next", at) }, gocron.WithName("report"), gocron.WithTags(locks.TakeOver), b.listen("next"))
			filelock.UntilWaiting(t, other, "report", 1)

			if succeeds {
				if err := once.Complete(t.Context(), lock, at); err != nil {
					t.Fatal(err)
				}
			}

			filelock.Release(t, lock)
			filelock.Eventually(t, func() error {
				if done, ran := b.skips("next", once.ErrDone) == 1, len(b.all()) == 1; done != succeeds || ran == succeeds {
					return fmt.Errorf("it ran: %t, it was done: %t", ran, done)
				}

				return nil
			})
		})
	}
}

// TestTakeOverEndsBeforeTheNextTime so that the machine is not late for it.
func TestTakeOverEndsBeforeTheNextTime(t *testing.T) {
	t.Parallel()

	file, b := filelock.NewFile(t), newBook()
	lock := filelock.Acquire(t, filelock.NewLocker(t, file), "report")

	newJob(t, started(t, newScheduler(t, file, 0)), everySecond(), func() { b.ran("next", time.Now().Truncate(time.Second)) },
		gocron.WithName("report"), gocron.WithTags(locks.TakeOver), b.listen("next"))
	filelock.Eventually(t, func() error {
		if n := b.skips("next", sqllock.ErrNotAcquired); n < 2 {
			return fmt.Errorf("%d waits have ended, want 2", n)
		}

		return nil
	})
	filelock.Release(t, lock)
	filelock.Eventually(t, func() error {
		if n := len(b.all()); n < 2 {
			return fmt.Errorf("%d ticks ran, want 2", n)
		}

		return nil
	})
	b.once(t)
}

func TestRunNowTakesNoTick(t *testing.T) {
	t.Parallel()

	file, ran := filelock.NewFile(t), make(chan struct{}, 2)
	scheduler := newScheduler(t, file, 0)
	job := newJob(t, scheduler, gocron.DurationJob(time.Hour), func() { ran <- struct{}{} }, gocron.WithName("report"))
	scheduler.Start()

	for range 2 {
		if err := job.RunNow(); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), filelock.Deadline)
		defer cancel()

		select {
		case <-ran:
		case <-ctx.Done():
			t.Fatal("the job did not run")
		}

		// The lock is free a moment after the job.
		filelock.Eventually(t, func() error {
			lock, err := once.TryAcquire(ctx, filelock.NewLocker(t, file), "report", time.Now().Add(-time.Minute))
			if err != nil {
				return err
			}

			return lock.Release(ctx)
		})
	}
}

func TestTwoJobsOfOneNameAreRefused(t *testing.T) {
	t.Parallel()

	b := newBook()
	scheduler := newScheduler(t, filelock.NewFile(t), 0)

	for range 2 {
		newJob(t, scheduler, everySecond(), func() { b.ran("twin", time.Now()) }, gocron.WithName("twin"), b.listen("twin"))
	}

	scheduler.Start()
	filelock.Eventually(t, func() error {
		if b.skips("twin", locks.ErrNoJob) < 2 {
			return errors.New("no run was refused")
		}

		return nil
	})

	if runs := b.all(); len(runs) != 0 {
		t.Errorf("jobs of one name ran: %v", runs)
	}

	if _, err := locks.NewScheduler(nil); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("NewScheduler(nil) = %v, want ErrInvalidOption", err)
	}
}
