// Package once runs a job once for each time of its schedule, however many processes share the schedule, and however late one of
// them comes. It keeps the time of the latest job that was done with the name of a lock.
//
//	err := once.TryDo(ctx, locker, "report", fireTime, report)
//	switch {
//	case errors.Is(err, once.ErrDone): // before, here or elsewhere
//	case errors.Is(err, sqllock.ErrNotAcquired): // another process does it now
//	}
//
// # Ticks
//
// The time that a job belongs to is its tick. When the job has succeeded its tick is recorded, and from then on a call with that tick,
// or an earlier one, is [ErrDone], also one that waited meanwhile. A job that failed, or whose process died, is not done, and whoever
// waits or comes next does it.
//
// Pass the time that the schedule says, which is the same in all processes, and not the current time. A job that runs once a
// day at a local time belongs to the day; its date as one of UTC is the same in all zones:
//
//	year, month, day := fireTime.In(berlin).Date()
//	tick := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
//
// A time that is rounded to 24 hours is a day of UTC. When summer time begins, two of the job's times can be in one of those,
// and the second would be skipped.
//
// Ticks have microseconds: [sqllock.Status].Mark is the latest tick, in microseconds since 1970. A tick is remembered for at least
// 366 days after it. One that is before 1970, or more than 366 days from now, is [sqllock.ErrInvalidOption]: by mistake it would
// stop the job until then.
//
// # Order
//
// Hand out the ticks in order: when the job of a later tick is done, an earlier one is [ErrDone] and does not run any more. Nobody
// runs the ticks of a time when all processes were down, unless the program looks for them. This loop of a scheduler does, from
// the latest tick that was done:
//
//	status, err := locker.Inspect(ctx, "report")
//	...
//	tick := time.Now()
//	if status.Mark != 0 { // not the first run ever
//		tick = time.UnixMicro(status.Mark)
//	}
//
//	for {
//		tick = next(tick) // of the schedule
//
//		select {
//		case <-time.After(time.Until(tick)):
//		case <-ctx.Done():
//			return ctx.Err()
//		}
//
//		for err := once.Do(ctx, locker, "report", tick, report); err != nil && !errors.Is(err, once.ErrDone); {
//			slog.Error("not done, trying again in a minute", "tick", tick, "error", err)
//			...
//			err = once.Do(ctx, locker, "report", tick, report)
//		}
//	}
//
// # Exactly once
//
// The job may run twice if its process is gone between its end and the record, the database is away then until the lock has ended (a
// *[CompleteError]), or it lost the lock: what it does should bear that, or be guarded ([sqllock.Lock.Guard]). A job that writes to
// the database of the lock in one transaction, and ends that with [CompleteTx], is done exactly once.
package once

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// ErrDone reports that the job of a tick was done. A *[DoneError] tells which.
var ErrDone = errors.New("the job of this tick was done")

// DoneError says that the job of a tick, or of a later one, was done. It matches [ErrDone].
type DoneError struct {
	// Name of the lock.
	Name string
	// Tick that was asked for, and Done the latest one whose job was done, in UTC.
	Tick, Done time.Time
}

// Error is one line.
func (e *DoneError) Error() string {
	if e.Tick.Equal(e.Done) {
		return fmt.Sprintf("lock %q: %s: %s", e.Name, ErrDone, e.Tick.UTC().Format(time.RFC3339Nano))
	}

	return fmt.Sprintf("lock %q: not run for %s: the job of a later tick was done, %s",
		e.Name, e.Tick.UTC().Format(time.RFC3339Nano), e.Done.UTC().Format(time.RFC3339Nano))
}

// Is reports whether target is ErrDone.
func (*DoneError) Is(target error) bool { return target == ErrDone }

// CompleteError reports that a job was done, and that its tick could not be recorded, so that it may be done again. As the work
// was done, it matches nothing that Err matches, with errors.Is or errors.As, as a [sqllock.ReleaseError] does not.
type CompleteError struct {
	// Name of the lock.
	Name string
	// Tick of the job, in UTC.
	Tick time.Time
	// Err is why: that of [sqllock.Lock.Mark].
	Err error
}

// Error is one line.
func (e *CompleteError) Error() string {
	return fmt.Sprintf("complete the job of %s: %s", e.Tick.UTC().Format(time.RFC3339Nano), plain.Line(e.Err))
}

// Do acquires the lock and runs f, as [sqllock.Locker.Do] does, unless the job of the tick was done. If f returns nil the tick is
// recorded before the lock is released. It does not wait for the lock if the database says at once that the job was done.
//
// With [sqllock.WithReentrant] a call inside the job of the same tick records nothing: that is for the job around it, which may fail yet.
//
// Errors are those of [sqllock.Locker.Do]; a *[DoneError]; a *[CompleteError], after which f has run and the tick may be recorded or
// not; [sqllock.ErrInvalidOption] if the tick is too early or too late, or not that of the job around it; [sqllock.ErrUnsupported] if
// the strategy keeps no marks. Do also returns the error of f: if f returns an ErrDone, of another job say, the error
// of Do matches ErrDone although f has run.
//
// The database is asked under the lock until it answers, for as long as that is held: if it is lost meanwhile, f does not run and the
// error is [sqllock.ErrLost]. [sqllock.WithMaxWait] bounds the wait for the lock, and not the time that it takes to ask for the tick:
// a second at most before it.
func Do(
	ctx context.Context, locker *sqllock.Locker, name string, tick time.Time,
	f func(ctx context.Context, lock *sqllock.Lock) error, options ...sqllock.Option,
) error {
	return job{locker: locker, name: name}.do(ctx, tick, f, options)
}

// TryDo is [Do] with one attempt to get the lock, as [sqllock.Locker.TryDo] makes. [sqllock.ErrNotAcquired] says that the lock is
// somebody else's, who most likely does the job. At a database that does not answer it takes
// five seconds.
func TryDo(
	ctx context.Context, locker *sqllock.Locker, name string, tick time.Time,
	f func(ctx context.Context, lock *sqllock.Lock) error, options ...sqllock.Option,
) error {
	return job{locker: locker, name: name, try: true}.do(ctx, tick, f, options)
}

// Acquire acquires the lock for a job that is not a function, as [sqllock.Locker.Acquire] does, unless the job of the tick was done.
// Call [Complete] when the job has succeeded, and release the lock. Errors are those of Locker.Acquire and [Do].
func Acquire(
	ctx context.Context, locker *sqllock.Locker, name string, tick time.Time, options ...sqllock.Option,
) (*sqllock.Lock, error) {
	return job{locker: locker, name: name}.acquire(ctx, tick, options)
}

// TryAcquire is [Acquire] with one attempt, as [sqllock.Locker.TryAcquire] makes.
func TryAcquire(
	ctx context.Context, locker *sqllock.Locker, name string, tick time.Time, options ...sqllock.Option,
) (*sqllock.Lock, error) {
	return job{locker: locker, name: name, try: true}.acquire(ctx, tick, options)
}

// Complete records that the job of a tick was done, under a lock of [Acquire]. Release the lock afterwards. If the database is away it
// tries for as long as the lock is held and ctx goes on, half a minute at most; once it tries also though ctx has ended. After [CompleteTx], which records the tick itself, it only looks whether the transaction has committed, and is an error
// if not.
//
// Call it after the end of a transaction that guards the lock ([sqllock.Lock.Guard]). On SQLite it cannot write beside one.
//
// Errors: a *[sqllock.LostError] if another has acquired the lock since, or it was taken away, so that the job may be done again; it
// may be one, too, if only the lease has ended. [sqllock.ErrReleased]; [sqllock.ErrNotAcquired] if the lock is nil;
// [sqllock.ErrInvalidOption] for a tick that [Do] would refuse; a *[CompleteError], after which the tick may be recorded or not, and
// Complete may be called again. The logger of the lock is told, too.
func Complete(ctx context.Context, lock *sqllock.Lock, tick time.Time) error {
	mark, err := markOf(lock.Name(), tick)
	if err != nil {
		return err
	}

	for began, failures := time.Now(), 1; ; failures++ {
		err = lock.Mark(ctx, mark)
		if err == nil || lock == nil || errors.Is(err, sqllock.ErrLost) || errors.Is(err, sqllock.ErrReleased) {
			return err
		}

		// What has the row locked may be the transaction of the caller.
		again := sqllock.Retryable(err) && !errors.Is(err, strategies.ErrBusy)
		if !again || ctx.Err() != nil || lock.Remaining() == 0 || time.Since(began) > completeTime {
			return &CompleteError{Name: lock.Name(), Tick: timeOf(mark), Err: err}
		}

		pause(ctx, failures)
	}
}

// CompleteTx releases the lock in the caller's transaction, as [sqllock.Lock.ReleaseTx] does, and records there that the job of the
// tick was done. So what the job wrote in the transaction and the record are committed together, or neither is. Make it the last
// statement of the transaction, before the function of [Do] commits. Errors are those of [sqllock.Lock.MarkTx], and
// [sqllock.ErrInvalidOption] for a tick that Do would refuse.
func CompleteTx(ctx context.Context, lock *sqllock.Lock, tx strategies.Tx, tick time.Time) error {
	mark, err := markOf(lock.Name(), tick)
	if err != nil {
		return err
	}

	return lock.MarkTx(ctx, tx, mark)
}

// mostAhead bounds how far in the future a tick may be.
const mostAhead = 366 * 24 * time.Hour

// markOf returns a tick in microseconds since 1970.
func markOf(name string, tick time.Time) (int64, error) {
	switch {
	case time.Until(tick) > mostAhead:
		return 0, refused(name, sqllock.ErrInvalidOption, tick.String(), "is more than 366 days from now")
	case !tick.After(time.UnixMicro(0)):
		return 0, refused(name, sqllock.ErrInvalidOption, tick.String(), "is not after 1970-01-01 00:00 UTC")
	default:
		return tick.UnixMicro(), nil
	}
}

// refused is the error about a tick that a call cannot have.
func refused(name string, err error, tick, reason string) error {
	return fmt.Errorf("lock %q: %w", name, &sqllock.OptionError{Option: "tick", Value: tick, Reason: reason, Err: err})
}

// timeOf is in UTC, where a day's tick has the date that it is the name of.
func timeOf(mark int64) time.Time { return time.UnixMicro(mark).UTC() }

// job is one call.
type job struct {
	locker *sqllock.Locker
	name   string
	mark   int64 // the tick
	try    bool
}

func (j job) do(
	ctx context.Context, tick time.Time, f func(context.Context, *sqllock.Lock) error, options []sqllock.Option,
) error {
	if f == nil {
		return fmt.Errorf("%w: the function is nil", sqllock.ErrInvalidOption)
	}

	j, err := j.at(ctx, tick)
	if err != nil {
		return err
	}

	do := j.locker.Do
	if j.try {
		do = j.locker.TryDo
	}

	return do(ctx, j.name, func(ctx context.Context, lock *sqllock.Lock) error {
		inside, err := j.inside(ctx, lock)
		if err != nil {
			return err
		}

		if err := j.check(ctx, lock); err != nil {
			return err
		}

		// A value leaves the context as it is: its Err goes on looking at the clocks.
		if err := f(context.WithValue(ctx, key{j.locker, j.name}, work{lock.Token(), j.mark}), lock); err != nil || inside {
			return err
		}

		return Complete(ctx, lock, tick)
	}, sqllock.LockOptions(options...)...)
}

func (j job) acquire(ctx context.Context, tick time.Time, options []sqllock.Option) (*sqllock.Lock, error) {
	j, err := j.at(ctx, tick)
	if err != nil {
		return nil, err
	}

	acquire := j.locker.Acquire
	if j.try {
		acquire = j.locker.TryAcquire
	}

	lock, err := acquire(ctx, j.name, sqllock.LockOptions(options...)...)
	if err != nil {
		return nil, err
	}

	if err := j.check(ctx, lock); err != nil {
		if released := lock.Release(ctx); !errors.Is(err, released) {
			err = errors.Join(err, released)
		}

		return nil, err
	}

	return lock, nil
}

// key is that of the job in the context of its function, and work which grant it is done under, and for which tick.
type (
	key struct {
		locker *sqllock.Locker
		name   string
	}
	work struct{ token, mark int64 }
)

// inside says whether this call is one inside the job of the same tick, with another handle of its lock.
func (j job) inside(ctx context.Context, lock *sqllock.Lock) (bool, error) {
	around, ok := ctx.Value(key{j.locker, j.name}).(work)

	switch {
	case !ok || around.token != lock.Token():
		return false, nil
	case around.mark != j.mark:
		return true, refused(j.name, sqllock.ErrInvalidOption, timeOf(j.mark).String(), "differs from that of the job around it")
	default:
		return true, nil
	}
}

const (
	// attemptTime is how long the database may take to tell the latest tick, and quickTime how long before a wait.
	attemptTime = 5 * time.Second
	quickTime   = time.Second
	// completeTime is how long it is tried to record the tick.
	completeTime = 30 * time.Second
	// tries is how often it is asked after an error that may be one for good, and in all without waiting.
	tries = 3

	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

var errNoAnswer = fmt.Errorf("%w: no answer within %s", sqllock.ErrUnreachable, attemptTime)

// at is the job of a tick. It looks whether that was done, so that nobody waits for its lock then. What cannot be told at once is
// told under the lock, unless the database is silent and this is a try, which has no more time.
func (j job) at(ctx context.Context, tick time.Time) (job, error) {
	mark, err := markOf(j.name, tick)
	features := j.locker.Features()
	j.mark = mark

	switch {
	case err != nil:
		return j, err
	case j.locker != nil && !features.Marks:
		reason := fmt.Sprintf("by strategy %s on %s; use strategy cas", features.Strategy, features.Database)

		return j, refused(j.name, sqllock.ErrUnsupported, "", reason)
	case ctx == nil: // which the locker refuses
		return j, nil
	}

	limit := quickTime
	if j.try {
		limit = attemptTime
	}

	if err := j.ask(ctx, limit); errors.Is(err, ErrDone) || j.try && errors.Is(err, errNoAnswer) {
		return j, err
	}

	return j, nil
}

// check returns a *DoneError if the job of the tick was done. It asks until it is told, as long as the lock is held.
func (j job) check(ctx context.Context, lock *sqllock.Lock) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)

	stop := context.AfterFunc(lock.Context(), func() { end(context.Cause(lock.Context())) }) //nolint:contextcheck // the end of the lock
	defer stop()

	if j.try {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeoutCause(ctx, attemptTime, errNoAnswer)
		defer cancel()
	}

	for failures := 1; ; failures++ {
		err := j.ask(ctx, attemptTime)

		switch {
		case errors.Is(err, ErrDone):
			return err
		case lock.Err() != nil: // nothing is done under a lock that was lost
			return lock.Err()
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("lock %q: check the tick: %w", j.name, ended(ctx))
		case failures >= tries && (j.try || !sqllock.Retryable(err)):
			return fmt.Errorf("check the tick: %w", err)
		}

		pause(ctx, failures)
	}
}

// ask asks once whether the job of the tick was done.
func (j job) ask(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()

	answer := make(chan error, 1)

	// Some drivers do not return from a connection that was cut off.
	go func() {
		status, err := j.locker.Inspect(ctx, j.name)
		if err == nil && status.Mark >= j.mark {
			err = &DoneError{Name: j.name, Tick: timeOf(j.mark), Done: timeOf(status.Mark)}
		}

		answer <- err
	}()

	select {
	case err := <-answer:
		if err == nil || errors.Is(err, ErrDone) || ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
	}

	return fmt.Errorf("lock %q: %w", j.name, ended(ctx))
}

// ended is why a context has ended. The time that this package gives a database is no deadline of the caller's.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) || errors.Is(cause, errNoAnswer) {
		return cause
	}

	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}

// pause waits before the next question, longer after failures, and at random, so that processes do not ask together.
func pause(ctx context.Context, failures int) {
	most := min(firstPause<<min(failures, 10), lastPause)

	select {
	case <-time.After(most/2 + rand.N(most/2)):
	case <-ctx.Done():
	}
}
