package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// mostAhead bounds how far in the future a tick may be: one by mistake would stop the job until then.
const mostAhead = 366 * 24 * time.Hour

// WithTick is for a job that belongs to a point in time, such as the moment of a cron schedule, and is to succeed once for
// it, however late a machine starts. The acquisition fails with [ErrTickDone] if the job of that tick, or of a later one,
// was done under the same name. [Locker.Do] and [Locker.TryDo] note the tick as done when their function returns nil;
// [Lock.Complete] does so for a lock of [Locker.Acquire]. A job that failed, or whose process died, is not done, and
// whoever acquires the lock next does it.
//
//	err := locker.TryDo(ctx, "report", report, sqllock.WithTick(fireTime))
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
// Ticks have microseconds. A tick is remembered for at least 366 days after it. The job may run twice if its process is gone
// between its end and the note, or lost the lock: what it does should bear that, or be guarded ([Lock.Guard]). A job that
// writes to the same database in one transaction, and ends it with [Lock.ReleaseTx], is done exactly once.
//
// The error of f may look like one of the call, as with [Locker.TryDo]: a job that returns an ErrTickDone of its own has run.
//
// A tick before 1970, or more than 366 days from now is [ErrInvalidOption], as is a tick together with [WithPermits] or
// [WithShared]; with [Locker.AcquireAll] it is [ErrUnsupported]. Give it with each call: [New] refuses it.
func WithTick(tick time.Time) Option {
	return func(s *settings) error {
		switch {
		case time.Until(tick) > mostAhead:
			return badOption("WithTick", tick.String(), "is more than %s from now", days(mostAhead))
		case !tick.After(time.UnixMicro(0)):
			return badOption("WithTick", tick.String(), "is not after 1970-01-01 00:00 UTC")
		}

		s.tick = tick.UnixMicro()

		return nil
	}
}

// TickError says that the job of a tick, or of a later one, was done. It matches [ErrTickDone].
type TickError struct {
	// Name of the lock.
	Name string
	// Tick that was asked for, and Done the latest one whose job was done, in UTC.
	Tick, Done time.Time
}

// Error is one line.
func (e *TickError) Error() string {
	if e.Tick.Equal(e.Done) {
		return fmt.Sprintf("lock %q: %s: %s", e.Name, ErrTickDone, e.Tick.UTC().Format(time.RFC3339Nano))
	}

	return fmt.Sprintf("lock %q: not run for %s: the job of a later tick was done, %s",
		e.Name, e.Tick.UTC().Format(time.RFC3339Nano), e.Done.UTC().Format(time.RFC3339Nano))
}

// Is reports whether target is ErrTickDone.
func (*TickError) Is(target error) bool { return target == ErrTickDone }

// lookForTick returns a *TickError if the job of the tick was done, if there is one, and nil if it was not. It asks until it is
// told, as long as the acquisition may take, and under a lock as long as that is held.
func (a *acquisition) lookForTick(wait, ctx context.Context, under *hold) error {
	if a.set.tick == 0 {
		return nil
	}

	if under != nil {
		held, end := context.WithCancelCause(wait)
		defer end(nil)

		stop := context.AfterFunc(under.ctx, func() { end(context.Cause(under.ctx)) })
		defer stop()

		wait = held
	}

	for try := 0; ; try++ {
		started := time.Now()
		err := a.locker.tickDone(wait, a.request.Name, a.set.tick)

		// Under a lock that was lost meanwhile nothing is done.
		if under != nil && under.err() != nil && !errors.Is(err, ErrTickDone) {
			return under.err()
		}

		switch {
		case err == nil, errors.Is(err, ErrTickDone):
			a.locker.reached.Store(true)
			a.failures, a.last = 0, nil

			return err
		case wait.Err() != nil && !isAnswer(err):
			a.cutShort(wait, started, err)

			return a.ended(wait, ctx)
		case !a.goesOn(err):
			return fmt.Errorf("lock %q: %w", a.request.Name, err)
		}

		// At its end the next look says why.
		sleep(wait, backoff(try, firstRetry, lastRetry))
	}
}

// tickDone asks once.
func (l *Locker) tickDone(ctx context.Context, name string, tick int64) error {
	noter, ok := l.strategy.(strategies.Noter)
	if !ok {
		return unsupportedOption("WithTick", l.features)
	}

	notes, err := limited(ctx, attemptTime, func(ctx context.Context) (strategies.Notes, error) { return noter.Notes(ctx, name) })

	switch {
	case err != nil:
		return fmt.Errorf("look for the tick: %w", err)
	case notes.Tick < tick:
		return nil
	default:
		return &TickError{Name: name, Tick: timeOfTick(tick), Done: timeOfTick(notes.Tick)}
	}
}

// CompleteError reports that a job was done, and that its tick could not be noted, so that it may be done again. As the work
// was done, it matches nothing that Err matches, with errors.Is or errors.As, as a [ReleaseError] does not.
type CompleteError struct {
	// Name of the lock.
	Name string
	// Tick is that of [WithTick].
	Tick time.Time
	// Err is why: the last error of the database, or that the transaction of [Lock.ReleaseTx] has not committed.
	Err error
}

// Error is one line.
func (e *CompleteError) Error() string { return fmt.Sprintf("complete lock %q: %s", e.Name, e.Err) }

// Complete notes that the job of the tick was done for which the lock was acquired ([WithTick]). Release the lock
// afterwards. An end of ctx does not stop it. After [Lock.ReleaseTx], which notes the tick itself, it only looks whether the
// transaction has committed, and is an error if not.
//
// Call it after the end of a transaction that guards the lock ([Lock.Guard]). On SQLite it cannot write beside one.
//
// Errors: a *[LostError] if another has acquired the lock since, or it was taken away, so that the job may be done again; it
// may be one, too, if only the lease has ended. [ErrReleased];
// [ErrInvalidOption] if the lock was acquired without a tick; a *[CompleteError], after which the tick may be noted or not,
// and Complete may be called again. They are logged, too.
func (l *Lock) Complete(ctx context.Context) error {
	const verb = "complete"

	if l == nil {
		return errNilLock
	}

	if err := checkContext(ctx, verb); err != nil {
		return err
	}

	if l.tick == 0 {
		return badOption("WithTick", "", "was not given to the acquisition of lock %q, which has no tick to complete", l.Name())
	}

	l.mu.Lock()
	released := l.released
	l.mu.Unlock()

	if released {
		return fmt.Errorf("%s lock %q: %w", verb, l.Name(), ErrReleased)
	}

	noter, err := l.hold.locker.noter(verb+" lock", l.Name())
	if err != nil {
		return err
	}

	inTx := l.hold.mayBeFreed()
	noted, err := l.noteTick(context.WithoutCancel(ctx), noter, inTx)

	message := "tick not noted"
	failed := func(err error) error { return &CompleteError{Name: l.Name(), Tick: l.Tick(), Err: outOfTime(err)} }

	switch {
	case errors.Is(err, strategies.ErrBusy):
		err = failed(fmt.Errorf("%w; if that is your own, call Complete after its commit, or ReleaseTx in it", err))
	case err != nil:
		err = failed(err)
	case noted:
		return nil
	case inTx:
		// It will be, if the transaction commits.
		message = "tick not noted yet"
		err = failed(errors.New("the transaction with its ReleaseTx, which notes the tick, has not committed"))
	default:
		err = &LostError{
			Name: l.Name(), Token: l.Token(), Reason: ReasonUnknown,
			Detail: "it is another's, or was released, before its tick was noted, and the job may be done again",
		}
	}

	// A scheduler may drop the error.
	l.hold.settings.logger.WarnContext(ctx, message, "name", l.Name(), "token", l.Token(), "tick", l.Tick(), "error", err)

	return err
}

// noteTick notes the tick, or looks whether a transaction did. What was sent may have been noted: it does no harm to do that
// again.
func (l *Lock) noteTick(ctx context.Context, noter strategies.Noter, inTx bool) (noted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()

	l.hold.mu.Lock()
	pinned := l.hold.pinned
	l.hold.mu.Unlock()

	for try := range releaseTries {
		attempt, end := context.WithTimeout(ctx, releaseTimeout/2)
		noted, err = within(attempt, func(ctx context.Context) (bool, error) {
			if !inTx {
				return noter.NoteTick(ctx, l.Name(), l.Owner(), l.tick)
			}

			notes, err := noter.Notes(ctx, l.Name())

			return notes.Tick >= l.tick, err
		})

		end()

		// What is in the way of a lock that was guarded may be the transaction of the caller, who cannot end it meanwhile.
		if err == nil || isAnswer(err) || pinned && errors.Is(err, strategies.ErrBusy) {
			break
		}

		sleep(ctx, backoff(try, firstRetry, lastRetry))
	}

	return noted, err
}

// Tick is that of [WithTick], in UTC, the zero time if the lock was acquired without one.
func (l *Lock) Tick() time.Time {
	if l == nil {
		return time.Time{}
	}

	return timeOfTick(l.tick)
}

// timeOfTick is in UTC, where a day's tick has the date that it is the name of.
func timeOfTick(tick int64) time.Time {
	if tick == 0 {
		return time.Time{}
	}

	return time.UnixMicro(tick).UTC()
}

// noter is the strategy, if it keeps notes.
func (l *Locker) noter(verb, name string) (strategies.Noter, error) {
	noter, ok := l.strategy.(strategies.Noter)
	if !ok {
		return nil, fmt.Errorf("%s %q: %w by strategy %s on %s; use strategy cas",
			verb, name, ErrUnsupported, l.features.Strategy, l.features.Database)
	}

	return noter, nil
}

// checkTick says why the settings do not go together with a tick; nil if they do.
func (s settings) checkTick() error {
	switch {
	case s.tick == 0:
		return nil
	case s.many():
		return badOption("WithTick", "", "does not go together with WithPermits")
	case s.shared:
		return badOption("WithTick", "", "does not go together with WithShared")
	default:
		return nil
	}
}
