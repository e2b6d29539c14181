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

	scheduler, err := locks.NewScheduler(filelock.NewLocker(t, file), gocron.WithClock(clock{clockwork.NewRealClock(), behind}))
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
		if n, skips := len(b.all()), b.skips("late", sqllock.ErrTickDone); n < 5 || skips < 3 {
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
		if n, skips := len(b.all()), b.skips("late", sqllock.ErrTickDone); n < 3 || skips < 2 {
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
			lock, err := filelock.NewLocker(t, file).TryAcquire(ctx, "report", sqllock.WithTick(time.Now().Add(-time.Minute)))
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
