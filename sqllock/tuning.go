package sqllock

import (
	"fmt"
	"time"
)

// The options below are for tuning. The package comment says who needs them.

// WithoutBatching sends each acquisition, renewal and release in a statement of
// its own. By default those of a locker that come at the same time share one,
// which is faster for many locks and makes no difference for one.
func WithoutBatching() Option {
	return option(func(s *settings) error {
		s.unbatched = true

		return nil
	})
}

// WithoutHandOff gives the lock back to the database at each release. By default
// a holder hands its grant on to the next waiter in this process, with
// a new token but without the database, for some milliseconds; then it goes back
// for the sake of other processes. It is not handed on to somebody who asked for
// other options. Once a lock of the locker was used in a transaction, by [Lock.Guard] or
// [Lock.ReleaseTx], the locker hands none on any more: a guard recognizes an older
// snapshot by what the database changed to grant its lock. Use another locker for
// names that you do not guard, if they are to be handed on.
func WithoutHandOff() Option {
	return option(func(s *settings) error {
		s.handsOff = false

		return nil
	})
}

// WithoutNotifications makes waiters poll. By default a locker uses one connection to hear
// of releases of all names: on PostgreSQL beside the pool, on MySQL one of the pool if its
// database was made with WakeWaiters. That is too many where very many processes each wait for one
// lock. On SQLite waiters no longer look for commits. [Locker.TryAcquire] and [Locker.TryDo]
// refuse it.
func WithoutNotifications() Option {
	return option(func(s *settings) error {
		s.listens = false

		return nil
	})
}

// WithDurableRelease lets a release wait until PostgreSQL has it on disk, and on
// its synchronous standbys. By default it does not wait, which is faster: a
// release that is lost in a crash of the server leaves the name taken until its
// lease ends. Acquisitions and renewals always wait, and on other databases
// releases do.
func WithDurableRelease() Option {
	return option(func(s *settings) error {
		s.durable = true

		return nil
	})
}

// WithoutReaping leaves the rows of names that are not in use to [Locker.Reap]. By default a locker that has released locks
// removes such rows in the background, of whatever name and process, from a minute after their last acquisition on: up to
// 2,000 at a time, with pauses of nine times as long as that took, until none are left. Names whose last lock was lost, or that
// have a mark of the last 366 days, stay. A process that ends sooner removes nothing.
func WithoutReaping() Option {
	return option(func(s *settings) error {
		s.reaps = false

		return nil
	})
}

// WithPoll sets how often a locker that is not notified asks how its waits stand, in one
// statement for all of them. The pause is random. It is about lowest at first, grows with the
// time since the line last moved, and is at most highest; if the line has not moved for a
// minute, up to a thousandth of that time or a second. The defaults are 1 ms and 50 ms; both must
// be between 1 ms and 366 days. With notifications a locker still asks every two to four seconds.
// For [Locker.TryAcquire] and [Locker.TryDo] it has no effect.
func WithPoll(lowest, highest time.Duration) Option {
	return option(func(s *settings) error {
		if lowest < time.Millisecond || highest < lowest || highest > maxLease {
			return againstRule("WithPoll", lowest.String()+", "+highest.String(),
				"the lowest is at least a millisecond and at most the highest, which is at most %s", days(maxLease))
		}

		s.pollMin, s.pollMax = lowest, highest

		return nil
	})
}

// WithClockMargin sets how much earlier than the lease a holder stops trusting
// it: the share of the lease by which this machine's clock and the database's
// may differ in speed, and a fixed margin. The defaults are 0.01 and 10 ms.
func WithClockMargin(drift float64, margin time.Duration) Option {
	return option(func(s *settings) error {
		if !(drift >= 0 && drift < 1) || margin < 0 {
			return againstRule("WithClockMargin", fmt.Sprintf("%g, %s", drift, margin), "drift is in [0, 1), the margin not negative")
		}

		s.drift, s.margin = drift, margin

		return nil
	})
}
