// Package cron_test lets crons share an SQLite file as processes do, each with a locker of its own.
package cron_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	_ "modernc.org/sqlite"

	locks "github.com/sqllock/sqllock/adapters/cron"
	"github.com/sqllock/sqllock/internal/filelock"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// book is what was told to a logger, and what ran.
type book struct {
	mu   sync.Mutex
	runs map[time.Time]int // by tick
	said map[string]int    // by message
	err  error             // the last one
}

func newBook() *book { return &book{runs: map[time.Time]int{}, said: map[string]int{}} }

func (b *book) Info(msg string, _ ...any) { b.Error(nil, msg) }

func (b *book) Error(err error, msg string, _ ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.said[msg]++
	b.err = err
}

func (b *book) told(msg string) int {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.said[msg]
}

func (b *book) lastError() error {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.err
}

func (b *book) ran(tick time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.runs[tick]++
}

func (b *book) all() map[time.Time]int {
	b.mu.Lock()
	defer b.mu.Unlock()

	return maps.Clone(b.runs)
}

func (b *book) once(t *testing.T) {
	t.Helper()

	for tick, n := range b.all() {
		if n != 1 {
			t.Errorf("tick %s ran %d times, want once", tick, n)
		}
	}
}

// machine has a cron, and a locker.
type machine struct {
	*book

	cron *cron.Cron
	jobs *locks.Jobs
}

func newMachine(t *testing.T, file string, options ...cron.Option) *machine {
	t.Helper()

	m := &machine{book: newBook(), cron: cron.New(append(options, cron.WithLogger(cron.DiscardLogger))...)}
	m.jobs = locks.New(m.cron, filelock.NewLocker(t, file), m.book)

	t.Cleanup(func() { <-m.cron.Stop().Done() })

	return m
}

// late is a schedule that fires later than the one for whose times it is, as the clock of a machine that is behind.
type late struct {
	cron.Schedule

	by time.Duration
}

func (l late) Next(t time.Time) time.Time { return l.Schedule.Next(t.Add(-l.by)).Add(l.by) }

func parse(t *testing.T, spec string) cron.Schedule {
	t.Helper()

	schedule, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(spec)
	if err != nil {
		t.Fatal(err)
	}

	return schedule
}

func nothing(context.Context, *sqllock.Lock) error { return nil }

func TestEachTickRunsOnceAndTheLateCronSkips(t *testing.T) {
	t.Parallel()

	file, ran, schedule := filelock.NewFile(t), newBook(), parse(t, "* * * * * *")
	machines := map[string]*machine{}

	for name, by := range map[string]time.Duration{"on time": 0, "as well": 0, "late": 400 * time.Millisecond} {
		m := newMachine(t, file)
		wrapper := m.jobs.Once(t.Context(), "report", schedule)
		m.cron.Schedule(late{schedule, by}, cron.NewChain(wrapper).Then(cron.FuncJob(func() {
			ran.ran(time.Now().Truncate(time.Second))
		})))
		m.cron.Start()

		machines[name] = m
	}

	filelock.Eventually(t, func() error {
		if n, skips := len(ran.all()), machines["late"].told("skip: done"); n < 5 || skips < 3 {
			return fmt.Errorf("%d ticks ran and the late one skipped %d, want 5 and 3", n, skips)
		}

		return nil
	})
	ran.once(t)
}

func TestWhatPanickedIsRunByTheNext(t *testing.T) {
	t.Parallel()

	file, ran, schedule := filelock.NewFile(t), newBook(), parse(t, "* * * * * *")
	failing, next := newMachine(t, file), newMachine(t, file)

	failing.cron.Schedule(schedule, cron.NewChain(cron.Recover(failing.book), failing.jobs.Once(t.Context(), "report", schedule)).Then(
		cron.FuncJob(func() { panic("no paper") })))
	next.cron.Schedule(late{schedule, 400 * time.Millisecond}, next.jobs.Job(t.Context(), "report", schedule,
		func(context.Context, *sqllock.Lock) error {
			ran.ran(time.Now().Truncate(time.Second))

			return nil
		}))
	failing.cron.Start()
	next.cron.Start()

	filelock.Eventually(t, func() error {
		if n, panics := len(ran.all()), failing.told("panic"); n < 3 || panics < 3 {
			return fmt.Errorf("%d panicked and the next machine ran %d, want 3 and 3", panics, n)
		}

		return nil
	})
	ran.once(t)
}

func TestWhatFailedIsNotDone(t *testing.T) {
	t.Parallel()

	const hour = "@every 1h"

	file, noPaper := filelock.NewFile(t), errors.New("no paper")
	a, b := newMachine(t, file), newMachine(t, file)

	// An error that looks like one of the lock is still one of the job.
	for n, failure := range []error{noPaper, once.ErrDone, sqllock.ErrNotAcquired} {
		a.jobs.Job(t.Context(), "report", parse(t, hour), func(context.Context, *sqllock.Lock) error { return failure }).Run()

		if got := a.told("job failed"); got != n+1 || !errors.Is(a.lastError(), failure) {
			t.Errorf("the logger was told of %d failures, the last is %v, want %d and %v", got, a.lastError(), n+1, failure)
		}
	}

	for n, m := range []*machine{b, a} {
		m.jobs.Job(t.Context(), "report", parse(t, hour), nothing).Run()

		if got := m.told("skip: done"); got != n {
			t.Errorf("machine %d skipped %d, want %d", n, got, n)
		}
	}
}

func TestWhatStillRunsIsSkipped(t *testing.T) {
	t.Parallel()

	file, schedule := filelock.NewFile(t), parse(t, "@every 1h")
	a, b := newMachine(t, file), newMachine(t, file)

	a.jobs.Job(t.Context(), "report", schedule, func(ctx context.Context, lock *sqllock.Lock) error {
		for _, m := range []*machine{a, b} {
			m.jobs.Job(context.WithoutCancel(ctx), "report", schedule, nothing).Run()
		}

		return lock.Err()
	}).Run()

	if here, there := a.told("skip: running"), b.told("skip: running"); here != 1 || there != 1 {
		t.Errorf("skipped %d here and %d there, want 1 and 1: %v", here, there, b.lastError())
	}
}

// TestTakeOverWaitsForAnotherMachine whose run ends without success, and for one whose run succeeds.
func TestTakeOverWaitsForAnotherMachine(t *testing.T) {
	t.Parallel()

	for name, succeeds := range map[string]bool{"that dies": false, "that succeeds": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			file, schedule := filelock.NewFile(t), parse(t, "@yearly")
			m, other, ran := newMachine(t, file), filelock.NewLocker(t, file), 0
			lock, tick := filelock.Acquire(t, other, "report"), time.Date(time.Now().Year(), 1, 1, 0, 0, 0, 0, time.Local)

			var group sync.WaitGroup

			group.Go(m.jobs.TakeOver().Job(t.Context(), "report", schedule, func(context.Context, *sqllock.Lock) error {
				ran++

				return nil
			}).Run)

			filelock.UntilWaiting(t, other, "report", 1)

			if succeeds {
				if err := once.Complete(t.Context(), lock, tick); err != nil {
					t.Fatal(err)
				}
			}

			filelock.Release(t, lock)
			group.Wait()

			if done := m.told("skip: done") == 1; done != succeeds || ran == 1 == succeeds {
				t.Errorf("it ran %d times, and was done: %t (%v)", ran, done, m.lastError())
			}
		})
	}
}

// TestTakeOverEndsAtTheNextTime whose run waits then.
func TestTakeOverEndsAtTheNextTime(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	m, lock := newMachine(t, file), filelock.Acquire(t, filelock.NewLocker(t, file), "report")

	m.jobs.TakeOver().Job(t.Context(), "report", parse(t, "* * * * * *"), nothing).Run()

	if m.told("skip: running") != 1 {
		t.Errorf("the wait did not end with the second: %v", m.lastError())
	}

	filelock.Release(t, lock)
}

func TestTicksAreTheLatestTimesOfTheSchedule(t *testing.T) {
	t.Parallel()

	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}

	now := time.Now().In(tokyo)
	today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, tokyo)
	yesterday := today.AddDate(0, 0, -1)
	seconds := fmt.Sprintf("* * * %d %d *", yesterday.Day(), yesterday.Month()) // all of that day

	for spec, want := range map[string]time.Time{
		"0 0 0 * * *":         today,
		"@daily":              today,
		"@monthly":            time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, tokyo),
		seconds:               today.Add(-time.Second),
		"@every 24h":          now.Truncate(24 * time.Hour),
		"TZ=UTC 30 0 0 1 1 *": time.Date(now.UTC().Year(), 1, 1, 0, 0, 30, 0, time.UTC),
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()

			file := filelock.NewFile(t)
			m := newMachine(t, file, cron.WithLocation(tokyo))
			m.jobs.Job(t.Context(), "report", parse(t, spec), nothing).Run()

			_, err := once.TryAcquire(t.Context(), filelock.NewLocker(t, file), "report", want)

			done := new(once.DoneError)
			if !errors.As(err, &done) || !done.Done.Equal(want) {
				t.Errorf("the tick %s was not recorded, but: %v (%v)", want, err, m.lastError())
			}
		})
	}
}

func TestScheduleWithoutTimesIsAnError(t *testing.T) {
	t.Parallel()

	m := newMachine(t, filelock.NewFile(t))
	m.jobs.Job(t.Context(), "report", parse(t, "0 0 0 30 2 *"), nothing).Run()

	if m.told("job not run") != 1 || m.lastError() == nil {
		t.Errorf("the logger was not told that the schedule has no time: %v", m.said)
	}
}
