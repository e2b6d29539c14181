// Package gocron lets several schedulers of github.com/go-co-op/gocron/v2 share a SQL database. With [NewScheduler] each job
// runs once for each time of its schedule, on one of them:
//
//	scheduler, err := locks.NewScheduler(locker)
//
// With [Elect] one scheduler runs all jobs:
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(locks.Elect(ctx, leader)))
package gocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/sqllock/sqllock/sqllock"
)

// ErrNoJob reports a job name that the scheduler does not have, or has more than once.
var ErrNoJob = errors.New("not the name of one job")

// early is how much before the time of a schedule its run may begin, because a clock was set back meanwhile.
const early = 100 * time.Millisecond

// NewScheduler returns a scheduler whose jobs run once for each time of their schedule, on one of all schedulers that share
// the database. The lock has the name of the job: give each job one with [gocron.WithName]. A scheduler that comes late skips
// what was done, and runs what failed, panicked or died elsewhere.
//
// The times are those of the schedule, or, of a [gocron.DurationJob], one for each interval since the zero time, because each
// scheduler begins at another moment. Under the lock alone, and not once, run a [gocron.DurationRandomJob], and a job that
// RunNow starts.
//
// The options are those of [gocron.NewScheduler], except [gocron.WithDistributedLocker] and [gocron.WithMonitorStatus], which are
// used here, and [gocron.WithDistributedElector], with which gocron would not ask for locks. A listener for
// [gocron.AfterLockError] gets the error of a run that was skipped: [sqllock.ErrTickDone], [sqllock.ErrNotAcquired], [ErrNoJob],
// or another one of [sqllock.Locker.TryAcquire]. Errors: [sqllock.ErrInvalidOption] if the locker is nil, and those of
// gocron.NewScheduler.
func NewScheduler(locker *sqllock.Locker, options ...gocron.SchedulerOption) (gocron.Scheduler, error) {
	if locker == nil {
		return nil, fmt.Errorf("gocron scheduler: %w: the *sqllock.Locker is nil", sqllock.ErrInvalidOption)
	}

	l := &jobLocker{locker: locker, runs: map[uuid.UUID]*run{}}
	options = append(options[:len(options):len(options)], gocron.WithDistributedLocker(l), gocron.WithMonitorStatus(l))

	scheduler, err := gocron.NewScheduler(options...)
	l.scheduler = scheduler // before the first job

	return scheduler, err
}

// jobLocker is the gocron.Locker of a scheduler. It is its gocron.MonitorStatus, too, to hear how a run ended.
type jobLocker struct {
	locker    *sqllock.Locker
	scheduler gocron.Scheduler

	mu   sync.Mutex
	runs map[uuid.UUID]*run // the latest run of each job
}

// run is a run of a job, and its lock.
type run struct {
	locker *jobLocker
	id     uuid.UUID
	lock   *sqllock.Lock
	began  time.Time
	ticks  bool
	done   bool // under the mutex of the locker
}

// Lock is called before each run, which an error skips.
func (l *jobLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	id, tick, err := l.find(key)
	if err != nil {
		return nil, fmt.Errorf("gocron job %q: %w", key, err)
	}

	var options []sqllock.Option
	if !tick.IsZero() {
		options = append(options, sqllock.WithTick(tick))
	}

	lock, err := l.locker.TryAcquire(ctx, key, options...)
	if err != nil {
		return nil, err
	}

	r := &run{locker: l, id: id, lock: lock, began: time.Now(), ticks: !tick.IsZero()}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.runs[id] = r

	return r, nil
}

// Unlock is called after the run. gocron drops the error.
func (r *run) Unlock(ctx context.Context) error {
	r.locker.mu.Lock()

	done := r.done
	if r.locker.runs[r.id] == r {
		delete(r.locker.runs, r.id)
	}

	r.locker.mu.Unlock()

	var err error
	if done && r.ticks {
		err = r.lock.Complete(ctx)
	}

	return errors.Join(err, r.lock.Release(ctx))
}

// find returns the job of a name, and for which time of its schedule it runs now; zero if for none.
func (l *jobLocker) find(name string) (id uuid.UUID, tick time.Time, err error) {
	var found []gocron.Job

	for _, job := range l.scheduler.Jobs() {
		if job.Name() == name {
			found = append(found, job)
		}
	}

	if len(found) != 1 {
		return id, tick, fmt.Errorf("%w: the scheduler has %d jobs of that name", ErrNoJob, len(found))
	}

	tick, err = tickOf(found[0])

	return found[0].ID(), tick, err
}

// tickOf returns the latest time of the schedule that has come. gocron lists it first until the run is allowed, or after
// one that it has kept too long because a clock was set back.
func tickOf(job gocron.Job) (tick time.Time, err error) {
	schedule := job.Schedule()
	if schedule.JobType() == gocron.DurationRandomJobType {
		return tick, nil
	}

	times, err := job.NextRuns(2)
	if err != nil {
		return tick, err
	}

	now := time.Now().Add(early)

	for _, at := range times {
		if !at.After(now) {
			tick = at
		}
	}

	if every, ok := schedule.(gocron.DurationJobSchedule); ok && !tick.IsZero() {
		tick = tick.Truncate(every.Duration)
	}

	return tick, nil
}

// RecordJobTimingWithStatus is called at the end of a run, before Unlock, but not when it panics and nobody listens.
func (l *jobLocker) RecordJobTimingWithStatus(
	began, _ time.Time, id uuid.UUID, _ string, _ []string, status gocron.JobStatus, _ error,
) {
	l.mu.Lock()
	defer l.mu.Unlock()

	// A run that began before is one that had lost the lock.
	if r := l.runs[id]; r != nil && !began.Before(r.began) {
		r.done = status == gocron.Success
	}
}

// IncrementJob is for other monitors.
func (*jobLocker) IncrementJob(uuid.UUID, string, []string, gocron.JobStatus) {}

// RecordJobTiming is for other monitors.
func (*jobLocker) RecordJobTiming(time.Time, time.Time, uuid.UUID, string, []string) {}
