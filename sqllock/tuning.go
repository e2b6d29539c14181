package sqllock

import (
	"fmt"
	"time"
)

// Tuning changes what is fast and what is sent, never what is promised. The zero value is the default, which suits most programs.
type Tuning struct {
	// PollMin and PollMax are for a locker that is not notified of releases: how often it asks how its waits stand, in one
	// statement for all of them. The pause is random. It is about PollMin at first, grows with the time since the line last
	// moved, and is PollMax at most; if the line has not moved for a minute, up to a thousandth of that time or a second. Zero is
	// 1 ms and 50 ms, or PollMin if that is longer. PollMin is at least 1 ms, PollMax at most 366 days. With notifications a locker
	// asks every two to four seconds. They have no effect on [Locker.TryAcquire] and [Locker.TryDo].
	PollMin, PollMax time.Duration

	// NoNotifications makes waiters poll, where a connection for each process is one too many. By default a locker uses one
	// connection to hear of releases of all names: on PostgreSQL beside the pool, on MySQL one of the pool if its database was made
	// with WakeWaiters. On SQLite waiters no longer look for commits. It has no effect on [Locker.TryAcquire] and [Locker.TryDo]. Given to one
	// lock, it has that poll and opens no connection for it; the one that the locker has already stays, and still calls its waits.
	NoNotifications bool

	// NoBatching sends each acquisition, renewal and release in a statement of its own, so that each is seen in the server's log. By
	// default those of a locker that come at the same time share one, which is faster for many locks and makes no difference for one.
	NoBatching bool

	// NoHandOff gives the lock back to the database at each release, where other processes must have their turn at once. By default a
	// holder hands its grant on to the next waiter in this process, with a new token but without the database, for some
	// milliseconds; then it goes back for the sake of other processes. It is not handed on to somebody who asked for other options.
	// Once a lock of the locker was used in a transaction, by [Lock.Guard] or [Lock.ReleaseTx], the locker hands none on any more: a
	// guard recognizes an older snapshot by what the database changed to grant its lock. Use another locker for names that you do
	// not guard, if they are to be handed on.
	NoHandOff bool

	// DurableRelease lets a release wait until PostgreSQL has it on disk, and on its synchronous standbys. By default it does not
	// wait, which is faster: a release that is lost in a crash of the server leaves the name taken until its lease ends.
	// On other databases releases wait.
	DurableRelease bool

	// AsynchronousCommit lets acquisitions and renewals not wait for that, either: so a lock costs less than half as much where
	// the disk is slow. The price is a recovery pause ([ErrRecovering]) after each crash of the server, in which all who use the
	// database are granted nothing for as long as the longest lease. A restart without a crash has none. What must not be lost
	// waits for the disk nevertheless: a minimum hold, a mark of package once, a release by force. With `sqllock recovery
	// --lossless` it is not lossless: a fail-over has its pause, too. It is for strategies cas and insert on PostgreSQL, and
	// [ErrUnsupported] elsewhere, also where there is no timeline (Aurora).
	AsynchronousCommit bool

	// Announce tells those who watch the name ([Locker.Watch]) at once that the lock was acquired or released, where the database has
	// notifications. It costs PostgreSQL a statement each time, and nothing on SQLite, where each commit is noticed. By default they
	// see it within five seconds.
	Announce bool

	// NoReaping leaves the rows of names that are not in use to [Locker.Reap] and [Locker.RunReaper]. By default a locker that has
	// released locks removes such rows in the background, of whatever name and process, from a minute after their last acquisition
	// on: up to 2,000 at a time, with pauses of nine times as long as that took, until none are left. Names whose last lock was lost,
	// or that have a mark of the last 366 days, stay. A process that ends sooner removes nothing. It is for [New] only: for one lock it
	// is [ErrInvalidOption].
	NoReaping bool

	// ClockDrift and ClockMargin are how much earlier than its lease a lock is given up: the share of the lease by which this
	// machine's clock and the database's may differ in speed, and a fixed time. Zero is 0.01 and 10 ms. ClockDrift is less than 1.
	// They are for a machine or a database whose clock is known to be bad.
	ClockDrift  float64
	ClockMargin time.Duration
}

// WithTuning sets the fields of t that are not zero. Given to one lock, or more than once, they add to those that are set already:
// what [New] has set stays. Errors: [ErrInvalidOption], a field has a value that it cannot have, or is not for one lock.
func WithTuning(t Tuning) Option { return tuning(t) }

// tuning is the option: so a Tuning itself is none.
type tuning Tuning

func (t tuning) forLocker(c *config) error {
	c.reaps = c.reaps && !t.NoReaping

	return t.set(&c.settings)
}

func (t tuning) forLock(s *settings) error {
	if t.NoReaping {
		return badOption("WithTuning", "NoReaping", "is for all locks of a locker: give it to New")
	}

	return t.set(s)
}

// set sets the fields that a lock has, too.
func (t tuning) set(s *settings) error {
	override(&s.pollMin, t.PollMin)
	override(&s.pollMax, t.PollMax)
	override(&s.drift, t.ClockDrift)
	override(&s.margin, t.ClockMargin)

	if t.PollMax == 0 {
		s.pollMax = max(s.pollMax, s.pollMin)
	}

	s.listens = s.listens && !t.NoNotifications
	s.unbatched = s.unbatched || t.NoBatching
	s.handsOff = s.handsOff && !t.NoHandOff
	s.commits.durableRelease = s.commits.durableRelease || t.DurableRelease
	s.commits.asynchronous = s.commits.asynchronous || t.AsynchronousCommit
	s.announces = s.announces || t.Announce

	switch {
	case s.pollMin < time.Millisecond || s.pollMax < s.pollMin || s.pollMax > maxLease:
		return againstRule("WithTuning", fmt.Sprintf("PollMin %s, PollMax %s", s.pollMin, s.pollMax),
			"PollMin is at least a millisecond and at most PollMax, which is at most %s", days(maxLease))
	case !(s.drift >= 0 && s.drift < 1) || s.margin < 0:
		return againstRule("WithTuning", fmt.Sprintf("ClockDrift %g, ClockMargin %s", s.drift, s.margin),
			"ClockDrift is less than 1, and neither is negative")
	default:
		return nil
	}
}

// commits say what waits for the disk.
type commits struct{ durableRelease, asynchronous bool }

// override sets what is not zero.
func override[T comparable](field *T, to T) {
	var zero T
	if to != zero {
		*field = to
	}
}
