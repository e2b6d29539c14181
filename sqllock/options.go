package sqllock

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sqllock/sqllock/strategies"
)

// Defaults and limits.
const (
	// DefaultLease is the lease without [WithLease].
	DefaultLease = 30 * time.Second
	// MaxNameLength is the most bytes a name may have.
	MaxNameLength = 255
	// MaxLabelLength and MaxMetadataLength bound, in bytes, what [WithLabel] and
	// the JSON of [WithMetadata] take up in the lock's row.
	MaxLabelLength    = 255
	MaxMetadataLength = 4096

	defaultMargin  = 10 * time.Millisecond
	defaultDrift   = 0.01
	defaultPoll    = time.Millisecond
	defaultPollMax = 50 * time.Millisecond
	minLease       = 100 * time.Millisecond
	maxLease       = 366 * 24 * time.Hour
)

// LockerOption sets something for all locks of a locker: see [New].
type LockerOption interface {
	forLocker(c *config) error
}

// LockOption sets something for one lock: see [Locker.Acquire].
type LockOption interface {
	forLock(s *settings) error
}

// Option is both: for all locks when given to [New], and for one lock when given to the call that acquires it.
type Option interface {
	LockerOption
	LockOption
}

// LockOptions are options as an acquisition takes them: for a function that takes an [Option], and so none of [WithShared],
// [WithPermits] and [WithNames], because its lock has one name and one holder.
func LockOptions(options ...Option) []LockOption {
	all := make([]LockOption, len(options))
	for i, one := range options {
		all[i] = one
	}

	return all
}

// option is an Option.
type option func(*settings) error

func (o option) forLocker(c *config) error { return o(&c.settings) }
func (o option) forLock(s *settings) error { return o(s) }

// period is an Option that sets a time, which is at most so long; zero: as long as anybody wants.
func period(name string, d, most time.Duration, set func(*settings)) Option {
	return option(func(s *settings) error {
		switch {
		case most > 0 && (d < 0 || d > most):
			return badOption(name, d.String(), "must be between 0 and %s", days(most))
		case d < 0:
			return badOption(name, d.String(), "is negative")
		}

		set(s)

		return nil
	})
}

// lockOption is a LockOption: with it a lock does not have its name alone, which nobody would see in the calls of a locker.
type lockOption func(*settings) error

func (o lockOption) forLock(s *settings) error { return o(s) }

// lockerOption is a LockerOption.
type lockerOption func(*config) error

func (o lockerOption) forLocker(c *config) error { return o(c) }

// config is what the options of a locker build.
type config struct {
	settings

	logger    *slog.Logger
	observers []Observer
}

// settings is what the options of a lock build.
type settings struct {
	lease     time.Duration
	maxWait   time.Duration
	waits     bool
	renew     bool
	maxHold   time.Duration
	minHold   time.Duration
	lockDelay time.Duration
	permits   int      // zero is one
	names     []string // beside the one that the call is given
	shared    bool
	reentrant bool
	unbatched bool
	handsOff  bool // to the next waiter in this process
	listens   bool // for releases while waiting
	commits   commits
	announces bool // to those who watch
	reaps     bool // what is left of idle names
	holder    Holder
	pollMin   time.Duration
	pollMax   time.Duration
	drift     float64
	margin    time.Duration
}

func defaults() settings {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}

	return settings{
		lease:    DefaultLease,
		renew:    true,
		handsOff: true,
		reaps:    true,
		listens:  true,
		holder:   Holder{Host: cut(host, MaxLabelLength), PID: os.Getpid()},
		pollMin:  defaultPoll,
		pollMax:  defaultPollMax,
		drift:    defaultDrift,
		margin:   defaultMargin,
	}
}

// with returns a copy of s with the options applied and checked as a whole.
func (s settings) with(options []LockOption, features strategies.Features) (settings, error) {
	if err := apply(options, func(o LockOption) error { return o.forLock(&s) }); err != nil {
		return s, err
	}

	return s, s.check(features)
}

// apply applies options until one cannot be.
func apply[O any](options []O, do func(O) error) error {
	for _, option := range options {
		if any(option) == nil {
			return errNilOption
		}

		if err := do(option); err != nil {
			return err
		}
	}

	return nil
}

var errNilOption = fmt.Errorf("%w: a nil option", ErrInvalidOption)

// configure returns what the options of a locker say.
func configure(options []LockerOption, features strategies.Features) (config, error) {
	c := config{settings: defaults(), logger: slog.New(slog.DiscardHandler)}

	if err := apply(options, func(o LockerOption) error { return o.forLocker(&c) }); err != nil {
		return c, err
	}

	return c, c.check(features)
}

func (s settings) check(features strategies.Features) error {
	for _, one := range []struct {
		option       string
		wanted, able bool
	}{
		{"WithMinHold", s.minHold > 0, features.MinHold},
		{"WithLockDelay", s.lockDelay > 0, features.LockDelay},
		{"WithPermits", s.many(), features.Slots},
		{"WithShared", s.shared, features.Shared},
		{"Tuning.AsynchronousCommit", s.commits.asynchronous, features.AsynchronousCommit},
	} {
		if one.wanted && !one.able {
			return unsupportedOption(one.option, features)
		}
	}

	const one = "with WithNames, for one name at a time"

	switch {
	case s.shared && s.many():
		return badOption("WithShared", "", "does not go together with WithPermits")
	case s.shared && s.minHold > 0:
		return badOption("WithShared", "", "does not go together with WithMinHold")
	case s.shared && s.lockDelay > 0:
		return badOption("WithShared", "", "does not go together with WithLockDelay")
	case len(s.names) > 0 && s.many():
		return &OptionError{Option: "WithPermits", Err: ErrUnsupported, Reason: one}
	case len(s.names) > 0 && s.shared:
		return &OptionError{Option: "WithShared", Err: ErrUnsupported, Reason: one + "; take the names one after the other, sorted"}
	case s.maxHold > 0 && s.minHold > s.maxHold:
		return badOption("WithMinHold", s.minHold.String(), "is longer than WithMaxHold(%s)", s.maxHold)
	case features.MaxLease > 0 && s.lease > features.MaxLease:
		return &OptionError{
			Option: "WithLease", Value: s.lease.String(), Err: ErrUnsupported,
			Reason: fmt.Sprintf("by strategy %s on %s, whose server carries at most %s; a shorter lease is enough, if it is renewed",
				features.Strategy, features.Database, days(features.MaxLease)),
		}
	case s.renew && s.trust(s.lease) <= s.lease*2/3:
		// After two renewals that failed, one at a third and one at two thirds
		// of the lease, there must be time left for the third.
		short := badOption("WithLease", s.lease.String(), "is too short for three renewals: at a clock drift of %g %% and a margin "+
			"of %s the lock would be given up before the third; use a longer lease", s.drift*100, s.margin)
		short.Instead = "WithoutRenewal"

		return short
	case s.trust(s.lease) <= 0:
		return badOption("WithLease", s.lease.String(), "leaves nothing after the clock drift margin of %s", s.margin)
	default:
		return nil
	}
}

// days is a limit as people say it: 366 days, 24 days 20 h. A part of an hour is left
// away, and short ones are as they are.
func days(limit time.Duration) string {
	const day = 24 * time.Hour

	if limit < 2*day {
		return limit.String()
	}

	said := fmt.Sprintf("%d days", limit/day)
	if hours := limit % day / time.Hour; hours > 0 {
		said += fmt.Sprintf(" %d h", hours)
	}

	return said
}

// trust is how long after the start of an attempt or a renewal its lease is
// relied on.
func (s settings) trust(lease time.Duration) time.Duration {
	return lease - time.Duration(float64(lease)*s.drift) - s.margin
}

// How long a lock lasts.

// WithLease sets how long the database keeps the lock without a renewal, which comes at a third of that. A short lease frees
// the lock of a crashed holder early and tolerates only short outages of the database. The default is [DefaultLease], 30 s. The minimum
// is 100 ms: each renewal then has 20 ms for the round trip and the commit. The maximum is 366 days, or what the server
// carries. Errors: [ErrInvalidOption], also if there is no time for three renewals; [ErrUnsupported], it is more than the server carries.
func WithLease(d time.Duration) Option {
	return option(func(s *settings) error {
		switch {
		case d < minLease:
			return againstRule("WithLease", d.String(), "a lease lasts at least %s, so that a server has time to renew it", minLease)
		case d > maxLease:
			return againstRule("WithLease", d.String(), "a lease lasts at most %s; a shorter lease is enough, if it is renewed",
				days(maxLease))
		}

		s.lease = d

		return nil
	})
}

// WithoutRenewal leaves the lease to run out: the lock ends after one lease unless [Lock.Extend] is called. By default it is
// renewed for as long as it is held.
func WithoutRenewal() Option {
	return option(func(s *settings) error {
		s.renew = false

		return nil
	})
}

// WithMaxHold ends the lock's context after so long, and its renewal with it, so that work that hangs does not hold the lock for
// ever. What is left of the lease is the time that the work has to stop: the name is free after that, or when [Lock.Release] is
// called. With strategies forupdate and advisory it is free at once. Zero, the default, is no limit. Errors: [ErrInvalidOption], it
// is negative, or shorter than the minimum hold.
func WithMaxHold(d time.Duration) Option {
	return period("WithMaxHold", d, 0, func(s *settings) { s.maxHold = d })
}

// WithMinHold keeps the name taken for at least so long after the acquisition, also when it is released sooner: a short job that
// every machine starts at about the same time runs once. A job that fails keeps it as one that succeeds does;
// [Locker.ForceRelease] ends that. After a crash the lease alone keeps the name. Zero, the default, frees it at once; 366 days are
// the maximum. Errors: [ErrInvalidOption]; [ErrUnsupported] by the strategy.
func WithMinHold(d time.Duration) Option {
	return period("WithMinHold", d, maxLease, func(s *settings) { s.minHold = d })
}

// WithLockDelay keeps the name taken for so long after the lease expired, as Chubby and Consul do: time for a holder that was only
// slow to notice and stop, and cover for a database clock that jumps forward by less. A lock that is released has no delay. Zero is
// the default, 366 days are the maximum. Errors: [ErrInvalidOption]; [ErrUnsupported] by the strategy.
func WithLockDelay(d time.Duration) Option {
	return period("WithLockDelay", d, maxLease, func(s *settings) { s.lockDelay = d })
}

// How it is asked for. WithPermits, WithShared and WithNames are beside what they do.

// WithMaxWait bounds how long [Locker.Acquire] and [Locker.Do] wait for the lock, whatever their context allows. Zero is one
// attempt. By default only the context bounds it. If others wait, a limit of a few round trips to the database is usually over
// before it is this call's turn. When the limit is over, the error is no context.DeadlineExceeded. It is
// [ErrNotAcquired] if somebody holds the lock or comes first, [ErrRecovering] in a pause after a fail-over, and [ErrUnreachable] if no holder is known: the database did not
// answer, or the lease has ended and a transaction still locks the name, such as the open guard of a process that was stopped. It
// has no effect on [Locker.TryAcquire] and [Locker.TryDo], which do not wait. Errors: [ErrInvalidOption], it is negative.
func WithMaxWait(d time.Duration) Option {
	return period("WithMaxWait", d, 0, func(s *settings) { s.maxWait, s.waits = d, true })
}

// WithReentrant lets an Acquire whose context comes from a lock of the same name and locker return that lock again, with the same
// token. It is freed when every handle has been released. The other options of that call have no effect: the lock has its own
// already. By default such a call is [ErrNotAcquired].
func WithReentrant() Option {
	return option(func(s *settings) error {
		s.reentrant = true

		return nil
	})
}

// Who holds it.

// WithLabel says in the database and in [HeldError] what the holder is, beside its host and process: "invoice worker 3". By default
// there is none. Errors: [ErrInvalidOption], it is not UTF-8, has a NUL, or more than [MaxLabelLength] bytes.
func WithLabel(label string) Option {
	return option(func(s *settings) error {
		if len(label) > MaxLabelLength || !printable(label) {
			return againstRule("WithLabel", "", "a label is UTF-8 without NUL, at most %d bytes", MaxLabelLength)
		}

		s.holder.Label = label

		return nil
	})
}

// WithMetadata keeps more about the holder in the lock's row, as JSON. By default there is none. Errors: [ErrInvalidOption], a key or a
// value is not UTF-8, or it is more than [MaxMetadataLength] bytes of JSON.
func WithMetadata(metadata map[string]string) Option {
	metadata = maps.Clone(metadata) // the caller may change it

	return option(func(s *settings) error {
		// JSON has another character in the place of what is none, so that two keys may become one.
		for key, value := range metadata {
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				return againstRule("WithMetadata", "", "%q: %q is not UTF-8", key, value)
			}
		}

		text, err := json.Marshal(metadata)

		switch {
		case err != nil:
			return fmt.Errorf("%w: WithMetadata: %w", ErrInvalidOption, err)
		case len(text) > MaxMetadataLength:
			return againstRule("WithMetadata", "", "%d bytes as JSON, at most %d", len(text), MaxMetadataLength)
		}

		s.holder.Metadata = string(text)

		return nil
	})
}

// checkContext reports a context that is nil.
func checkContext(ctx context.Context, verb string) error {
	if ctx == nil {
		return fmt.Errorf("%s: %w: the context is nil", verb, ErrInvalidOption)
	}

	return nil
}

// checkName says whether a name can be a lock's.
func checkName(name string) error {
	switch {
	case strategies.HasSlotMark(name):
		return fmt.Errorf("%w: %q has the character U+001F, which is kept for permits", ErrInvalidName, name)
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(name) > MaxNameLength:
		return fmt.Errorf("%w: %q… has %d bytes, at most %d", ErrInvalidName, cut(name, 32), len(name), MaxNameLength)
	case !printable(name):
		return fmt.Errorf("%w: %q is not UTF-8 or has a NUL byte", ErrInvalidName, name)
	default:
		return nil
	}
}

// printable says whether every database can store the text as it is:
// PostgreSQL's text takes neither NUL nor broken UTF-8.
func printable(text string) bool {
	return !strings.Contains(text, "\x00") && utf8.ValidString(text)
}

// cut shortens text to at most n bytes, between characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}

	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}

	return text[:n]
}

// Tuning changes what is fast and what is sent, never what is promised. The zero value is the default, which suits most programs.
type Tuning struct {
	// PollMin and PollMax are for a locker that is not notified of releases: how often it asks how its waits stand, in one
	// statement for all of them. The pause is random. It is about PollMin at first, grows with the time since the line last
	// moved, and is PollMax at most for the first in line; if the line has not moved for a minute, up to a thousandth of that time or a second. Behind the
	// first two of a line that has not moved for five seconds it is two to twenty seconds. Zero is 1 ms and 50 ms, or PollMin if that is
	// longer. PollMin is at least 1 ms, PollMax at most 366 days. With notifications a locker asks every two to four seconds. They
	// have no effect on [Locker.TryAcquire] and [Locker.TryDo].
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
	// or that have a mark, stay. A process that ends sooner removes nothing. It is for [New] only: for one lock it
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
	s.pollMin, s.pollMax = cmp.Or(t.PollMin, s.pollMin), cmp.Or(t.PollMax, s.pollMax)
	s.drift, s.margin = cmp.Or(t.ClockDrift, s.drift), cmp.Or(t.ClockMargin, s.margin)

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

// What strategies and users both see is one type, of package strategies: "go doc strategies.Status" shows its fields.
type (
	// Holder says who holds a lock, or asks for it. Its String is "label (host, pid N)", as far as it is known, fit for a terminal.
	// Fields: [strategies.Holder].
	Holder = strategies.Holder
	// Status is what the database knows of a name. Fields: [strategies.Status].
	Status = strategies.Status
	// Filter narrows [Locker.Holders]. The zero value matches all locks. Fields: [strategies.Filter].
	Filter = strategies.Filter
	// Waiter is one who waits for a lock. Fields: [strategies.Waiter].
	Waiter = strategies.Waiter
	// WaiterFilter narrows [Locker.Waiters]. The zero value matches all who wait. Fields: [strategies.WaiterFilter].
	WaiterFilter = strategies.WaiterFilter
	// Reaped counts what [Locker.Reap] did. Fields: [strategies.Reaped].
	Reaped = strategies.Reaped
)

// MaxPermits is the most that [WithPermits] allows: 1000.
const MaxPermits = strategies.MaxSlots

// many says whether the name has several slots.
func (s *settings) many() bool { return s.permits > 1 }

// turnOf is whose turn goes with a grant: that of the name, or of the slot. The first slot has the same name as a lock without permits,
// which waits in line with the others and must not keep it from those who come first.
func (s *settings) turnOf(name string) string {
	if s.many() {
		_, name = strategies.SlotRange(name, MaxPermits)
	}

	return name
}

// manyHolders says whether a name can have several holders at a time, so that the next of this process may ask when one has got it.
func (s *settings) manyHolders() bool { return s.many() || s.shared }

// sharesWith says whether a reader with these settings can use the grant of one with the others.
func (s *settings) sharesWith(other *settings) bool {
	return s.renew && other.renew && s.maxHold == 0 && other.maxHold == 0 && s.lease == other.lease && s.drift == other.drift &&
		s.margin == other.margin && s.commits == other.commits && s.holder == other.holder
}

// mode is how the lock is asked for.
func (s *settings) mode() strategies.Mode {
	if s.shared {
		return strategies.Shared
	}

	return strategies.Exclusive
}

// handsOn says whether a lock with these settings may go to the next waiter in this process.
func (s *settings) handsOn() bool { return s.handsOff && s.renew && s.minHold == 0 && !s.manyHolders() }

// like says whether a lock with these settings can be that of somebody who asked
// for the others, as far as the database knows of them.
func (s *settings) like(other *settings) bool {
	return s == other || other.handsOn() && s.lease == other.lease && s.lockDelay == other.lockDelay &&
		s.unbatched == other.unbatched && s.commits == other.commits && s.holder == other.holder
}

// MaxNames is how many names a lock can have: 200.
const MaxNames = 200
