// Package cron runs the jobs of github.com/robfig/cron/v3 once for each time of their schedule, on one of all machines
// that share a SQL database:
//
//	jobs := locks.New(c, locker, logger)
//	c.Schedule(schedule, jobs.Job(ctx, "report", schedule, report))
package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// early is how much before the time of a schedule its job may begin, because a clock was set back meanwhile.
const early = 100 * time.Millisecond

// Jobs makes jobs of a cron run once.
type Jobs struct {
	cron   *cron.Cron
	locker *sqllock.Locker
	logger cron.Logger
	waits  bool
}

// New returns what makes jobs of c run once. The logger is told of runs that were skipped (Info) and of failures (Error);
// nil is [cron.DefaultLogger].
func New(c *cron.Cron, locker *sqllock.Locker, logger cron.Logger) *Jobs {
	if logger == nil {
		logger = cron.DefaultLogger
	}

	return &Jobs{cron: c, locker: locker, logger: logger}
}

// TakeOver returns what makes jobs that do not skip a run if another machine runs the job, but wait until the next time of the
// schedule, and run it if the other machine died or failed. If that succeeded, the run is skipped. A machine that died has
// the lock until its lease ends.
func (j *Jobs) TakeOver() *Jobs {
	waiting := *j
	waiting.waits = true

	return &waiting
}

// Once returns a wrapper that runs a job once for each time of the schedule, under the lock of that name. Each job has a name
// of its own, so the wrapper is for a chain of that job, and not for [cron.WithChain]:
//
//	c.Schedule(schedule, cron.NewChain(cron.Recover(logger), jobs.Once(ctx, "report", schedule)).Then(job))
//
// A job that panicked is not done, and a machine that comes later runs it. The panic goes on to the wrapper before this one.
// Give that of [cron.DelayIfStillRunning] after it or not at all: a job that begins late is for the latest time that has come.
// Otherwise it is as [Jobs.Job].
func (j *Jobs) Once(ctx context.Context, name string, schedule cron.Schedule) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return j.Job(ctx, name, schedule, func(context.Context, *sqllock.Lock) error {
			job.Run()

			return nil
		})
	}
}

// Job returns a job that runs f once for each time of the schedule, under the lock of that name. The context of f ends
// when the lock is lost, or when ctx does. If f returns an error or panics, or the machine dies, the job is not done, and a
// machine that comes later runs it. If it still runs, here or elsewhere, this run is skipped, but see [Jobs.TakeOver].
//
// The schedule is the one that the job is added with, and the same on all machines. Its times are those of the cron's
// location. [cron.Every] has times of each machine's own; its job runs once in each interval, counted from the zero time.
func (j *Jobs) Job(
	ctx context.Context, name string, schedule cron.Schedule, f func(ctx context.Context, lock *sqllock.Lock) error,
) cron.Job {
	return cron.FuncJob(func() {
		ran := false

		limit := time.Now().In(j.cron.Location()).Add(early)
		tick, err := latest(schedule, limit)

		if err == nil {
			err = j.do(ctx, name, func(ctx context.Context, lock *sqllock.Lock) error {
				ran = true

				return f(ctx, lock)
			}, tick, schedule.Next(limit))
		}

		switch {
		case err == nil:
		case ran:
			j.logger.Error(err, "job failed", "lock", name, "tick", tick)
		case errors.Is(err, once.ErrDone):
			j.logger.Info("skip: done", "lock", name, "tick", tick)
		case errors.Is(err, sqllock.ErrNotAcquired) && !errors.Is(err, sqllock.ErrUnreachable):
			j.logger.Info("skip: running", "lock", name, "tick", tick, "holder", err)
		default:
			j.logger.Error(err, "job not run", "lock", name, "tick", tick)
		}
	})
}

// do runs f if the job of the tick was not done. If the jobs wait, it waits until the next time, which is zero if there is none.
func (j *Jobs) do(
	ctx context.Context, name string, f func(context.Context, *sqllock.Lock) error, tick, next time.Time,
) error {
	var options []sqllock.Option

	switch {
	case !j.waits:
		return once.TryDo(ctx, j.locker, name, tick, f)
	case !next.IsZero():
		options = append(options, sqllock.WithMaxWait(max(0, time.Until(next))))
	}

	return once.Do(ctx, j.locker, name, tick, f, options...)
}

// errNoTick reports a schedule that has no time in the five years before; it would never have run.
var errNoTick = errors.New("the schedule has no time that has come")

const mostBack = 5 * 366 * 24 * time.Hour

// latest returns the latest time of a schedule that is not after limit. A schedule only tells what comes next, so this looks
// further and further back for one, and then for the last of those.
func latest(schedule cron.Schedule, limit time.Time) (time.Time, error) {
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
		return limit.Truncate(every.Delay), nil
	}

	come := func(from time.Time) (next time.Time, ok bool) {
		next = schedule.Next(from)

		return next, !next.IsZero() && !next.After(limit)
	}

	for back := time.Second; back <= mostBack; back *= 2 {
		tick, ok := come(limit.Add(-back))
		if !ok {
			continue
		}

		// Between tick and none is the last one.
		for none := limit; none.Sub(tick) > time.Second; {
			middle := tick.Add(none.Sub(tick) / 2)

			if next, ok := come(middle); ok {
				tick = next
			} else {
				none = middle
			}
		}

		for next, ok := come(tick); ok; next, ok = come(tick) {
			tick = next
		}

		return tick, nil
	}

	return time.Time{}, fmt.Errorf("%w: none in five years before %s", errNoTick, limit.Format(time.RFC3339))
}
