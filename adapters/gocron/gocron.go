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
	"slices"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// ErrNoJob reports a job name that the scheduler does not have, or has more than once.
var ErrNoJob = errors.New("not the name of one job")

// TakeOver is a tag of a job ([gocron.WithTags]). If another machine runs the job at its time, this one does not skip the run
// but waits, until just before the next time of the schedule, and runs it if the other one died or failed. If that succeeded,
// the run is skipped with [once.ErrDone]. A machine that died has the lock until its lease ends. A run that waits counts
// as running in gocron's limits. A run without a time of the schedule does not wait.
const TakeOver = "sqllock: take over"

// early is how much before the time of a schedule its run may begin, because a clock was set back meanwhile.
const early = 100 * time.Millisecond

// NewScheduler returns a scheduler whose jobs run once for each time of their schedule, on one of all schedulers that share
// the database. The lock has the name of the job: give each job one with [gocron.WithName]. A scheduler that comes late skips
// what was done, and runs what failed, panicked or died elsewhere.
//
// The times are those of the schedule, by the scheduler's clock ([gocron.WithClock]), or, of a [gocron.DurationJob], one for each
// interval since the zero time, because each scheduler begins at another moment. Not once in all are:
//   - a [gocron.DurationRandomJob], and a job that RunNow starts, which have no time and run under the lock alone;
//   - the first run with [gocron.OneTimeJobStartImmediately] or [gocron.WithStartImmediately], whose time is the moment at which each
//     scheduler starts it, and times that are counted from there or from the end of a run ([gocron.WithIntervalFromCompletion]),
//     unless it is a DurationJob;
//   - a daily, weekly or monthly job with an interval of more than one, which each scheduler counts from its own start;
//   - a job with [gocron.WithLimitedRuns], of whose runs each scheduler counts its own;
//   - a job with [gocron.WithDistributedJobLocker] or [gocron.WithDisabledDistributedJobLocker], which is not asked for here.
//
// A run for which another scheduler has the lock is skipped, unless the job is tagged with [TakeOver].
//
// The options are those of [gocron.NewScheduler], except [gocron.WithDistributedLocker] and [gocron.WithMonitorStatus], which are
// used here, and [gocron.WithDistributedElector], with which gocron would not ask for locks. A listener for
// [gocron.AfterLockError] gets the error of a run that was skipped: [once.ErrDone], [sqllock.ErrNotAcquired], [ErrNoJob],
// or another one of [once.TryAcquire]. Errors: [sqllock.ErrInvalidOption] if the locker is nil, and those of
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
	tick   time.Time // zero if it has none
	done   bool      // under the mutex of the locker
}

// Lock is called before each run, which an error skips.
func (l *jobLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	job, err := l.find(key)
	if err != nil {
		return nil, fmt.Errorf("gocron job %q: %w", key, err)
	}

	tick, wait, err := l.timeOf(job)
	if err != nil {
		return nil, fmt.Errorf("gocron job %q: %w", key, err)
	}

	lock, err := l.acquire(ctx, key, tick, wait)
	if err != nil {
		return nil, err
	}

	r := &run{locker: l, id: job.ID(), lock: lock, began: time.Now(), tick: tick}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.runs[r.id] = r

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
	if done && !r.tick.IsZero() {
		err = once.Complete(ctx, r.lock, r.tick)
	}

	return errors.Join(err, r.lock.Release(ctx))
}

// acquire waits for so long, or tries if that is zero.
func (l *jobLocker) acquire(ctx context.Context, name string, tick time.Time, wait time.Duration) (*sqllock.Lock, error) {
	switch {
	case tick.IsZero():
		return l.locker.TryAcquire(ctx, name)
	case wait <= 0:
		return once.TryAcquire(ctx, l.locker, name, tick)
	default:
		return once.Acquire(ctx, l.locker, name, tick, sqllock.WithMaxWait(wait))
	}
}

// find returns the job of a name.
func (l *jobLocker) find(name string) (gocron.Job, error) {
	var found []gocron.Job

	for _, job := range l.scheduler.Jobs() {
		if job.Name() == name {
			found = append(found, job)
		}
	}

	if len(found) != 1 {
		return nil, fmt.Errorf("%w: the scheduler has %d jobs of that name", ErrNoJob, len(found))
	}

	return found[0], nil
}

// unlimited is how long a job waits that has no next time.
const unlimited = 366 * 24 * time.Hour

// timeOf returns the latest time of the schedule that has come, zero if none has, and how long the run waits for another
// one. gocron lists that time first until the run is allowed, or after one that it has kept too long because a clock was
// set back.
func (l *jobLocker) timeOf(job gocron.Job) (tick time.Time, wait time.Duration, err error) {
	schedule := job.Schedule()
	if schedule.JobType() == gocron.DurationRandomJobType {
		return tick, 0, nil
	}

	times, err := job.NextRuns(2)
	if err != nil {
		return tick, 0, err
	}

	now, next := l.now(), time.Time{}

	for _, at := range times {
		switch {
		case at.IsZero(): // there is none after the last
		case at.After(now.Add(early)):
			next = at
		default:
			tick = at
		}
	}

	switch {
	case !slices.Contains(job.Tags(), TakeOver):
	case next.IsZero():
		wait = unlimited
	default:
		wait = next.Sub(now) - early // gocron leaves out a time that has come before the wait ends
	}

	if every, ok := schedule.(gocron.DurationJobSchedule); ok && !tick.IsZero() {
		tick = tick.Truncate(every.Duration)
	}

	return tick, wait, nil
}

// now is the time by the scheduler's clock, which gocron tells to nobody but the options of a new job.
func (l *jobLocker) now() time.Time {
	_, err := l.scheduler.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(func() {}), tellTime)

	var told toldTimeError
	if errors.As(err, &told) {
		return time.Time(told)
	}

	return time.Now() // an option for all jobs was an error
}

// toldTimeError is the error of tellTime.
type toldTimeError time.Time

func (t toldTimeError) Error() string { return time.Time(t).String() }

// tellTime is a gocron.JobOption that adds no job. The type of a job has no name outside gocron.
func tellTime[J any](_ J, now time.Time) error { return toldTimeError(now) }

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
