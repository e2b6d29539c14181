package sqllock

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"
)

// Defaults and limits.
const (
	// DefaultLease is the lease without WithLease.
	DefaultLease = 30 * time.Second
	// MaxNameLength is the most bytes a name may have.
	MaxNameLength = 255
	// MaxLabelLength and MaxMetadataLength bound, in bytes, what WithLabel and
	// the JSON of WithMetadata take up in the lock's row.
	MaxLabelLength    = 255
	MaxMetadataLength = 4096

	defaultMargin    = 10 * time.Millisecond
	defaultDrift     = 0.01
	defaultPoll      = time.Millisecond
	defaultPollMin   = 20 * time.Millisecond
	defaultPollMax   = time.Second
	defaultRetention = 7 * 24 * time.Hour
	defaultReapEvery = time.Minute
	maxLease         = 366 * 24 * time.Hour
)

// Option sets one thing, for all locks when given to New and for one lock when
// given to Acquire, TryAcquire, Do or TryDo.
type Option func(*settings) error

// settings is what options build.
type settings struct {
	lease     time.Duration
	maxWait   time.Duration
	waits     bool
	renew     bool
	maxHold   time.Duration
	minHold   time.Duration
	lockDelay time.Duration
	reentrant bool
	alone     bool // not batched
	handsOff  bool // to the next who waits in this process
	listens   bool // for releases while waiting
	durable   bool // so are releases
	holder    Holder
	pollMin   time.Duration
	pollMax   time.Duration
	drift     float64
	margin    time.Duration
	retention time.Duration
	reapEvery time.Duration
	logger    *slog.Logger
	hooks     Hooks
}

func defaults() settings {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}

	return settings{
		lease:     DefaultLease,
		renew:     true,
		handsOff:  true,
		listens:   true,
		holder:    Holder{Host: cut(host, MaxLabelLength), PID: os.Getpid()},
		pollMin:   defaultPoll,
		pollMax:   defaultPollMax,
		drift:     defaultDrift,
		margin:    defaultMargin,
		retention: defaultRetention,
		reapEvery: defaultReapEvery,
		logger:    slog.New(slog.DiscardHandler),
	}
}

// with returns a copy of s with the options applied and checked as a whole.
func (s settings) with(options []Option, features Features) (settings, error) {
	for _, option := range options {
		if option == nil {
			return s, fmt.Errorf("%w: a nil Option", ErrInvalidOption)
		}

		if err := option(&s); err != nil {
			return s, err
		}
	}

	return s, s.check(features)
}

func (s settings) check(features Features) error {
	unsupported := func(option string) error {
		return fmt.Errorf("%s: %w by strategy %s on %s; use strategy cas",
			option, ErrUnsupported, features.Strategy, features.Database)
	}

	switch {
	case s.minHold > 0 && !features.MinHold:
		return unsupported("WithMinHold")
	case s.lockDelay > 0 && !features.LockDelay:
		return unsupported("WithLockDelay")
	case s.renew && s.trust(s.lease) <= s.lease*2/3:
		// After two renewals that failed, one at a third and one at two thirds
		// of the lease, there must be time left for the third.
		return fmt.Errorf("%w: WithLease(%s) is too short for three renewals: at a clock drift of %g %% and a margin "+
			"of %s the lock would be given up before the third; use a longer lease or WithoutRenewal",
			ErrInvalidOption, s.lease, s.drift*100, s.margin)
	case s.trust(s.lease) <= 0:
		return fmt.Errorf("%w: WithLease(%s) leaves nothing after the clock drift margin of %s",
			ErrInvalidOption, s.lease, s.margin)
	default:
		return nil
	}
}

// trust is how long after the start of an attempt or a renewal its lease is
// relied on.
func (s settings) trust(lease time.Duration) time.Duration {
	return lease - time.Duration(float64(lease)*s.drift) - s.margin
}

// WithLease sets how long the database keeps the lock without a renewal. It is
// renewed at a third of that. The default is DefaultLease. A short lease frees
// the lock of a crashed holder early and tolerates only short outages of the
// database. At least a millisecond, and long enough for three renewals.
func WithLease(d time.Duration) Option {
	return func(s *settings) error {
		switch {
		case d < time.Millisecond:
			return fmt.Errorf("%w: WithLease(%s): a lease lasts at least a millisecond", ErrInvalidOption, d)
		case d > maxLease:
			return fmt.Errorf("%w: WithLease(%s): a lease lasts at most %s; renewal makes a short one do",
				ErrInvalidOption, d, maxLease)
		}

		s.lease = d

		return nil
	}
}

// WithMaxWait bounds how long Acquire and Do wait for the lock, whatever their
// context allows. Zero is one attempt. The default is no bound but the
// context's.
func WithMaxWait(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("%w: WithMaxWait(%s) is negative", ErrInvalidOption, d)
		}

		s.maxWait, s.waits = d, true

		return nil
	}
}

// WithoutRenewal leaves the lease to run out: the lock ends after one lease
// unless Extend is called.
func WithoutRenewal() Option {
	return func(s *settings) error {
		s.renew = false

		return nil
	}
}

// WithMaxHold ends the lock's context after so long, and its renewal with it,
// so that work that hangs does not hold the lock for ever. Zero, the default,
// is no limit.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("%w: WithMaxHold(%s) is negative", ErrInvalidOption, d)
		}

		s.maxHold = d

		return nil
	}
}

// WithMinHold keeps the name taken for at least so long after the acquisition,
// also when it is released sooner: a short job that every machine starts at
// about the same time runs once. Zero, the default, frees it at once.
func WithMinHold(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 || d > maxLease {
			return fmt.Errorf("%w: WithMinHold(%s) must be between 0 and %s", ErrInvalidOption, d, maxLease)
		}

		s.minHold = d

		return nil
	}
}

// WithLockDelay keeps the name taken for so long after the lease ran out, as
// Chubby and Consul do: time for a holder that was only slow to notice and
// stop, and cover for a database clock that jumps forward by less. A lock that
// is released has no delay. The default is zero.
func WithLockDelay(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 || d > maxLease {
			return fmt.Errorf("%w: WithLockDelay(%s) must be between 0 and %s", ErrInvalidOption, d, maxLease)
		}

		s.lockDelay = d

		return nil
	}
}

// WithReentrant lets an Acquire whose context comes from a lock of the same
// name and locker return that lock again, with the same token. It is freed
// when every handle has been released.
func WithReentrant() Option {
	return func(s *settings) error {
		s.reentrant = true

		return nil
	}
}

// WithoutBatching sends each acquisition, renewal and release in a statement of
// its own. By default those of a locker that come at the same time share one,
// which is faster for many locks and makes no difference for one.
func WithoutBatching() Option {
	return func(s *settings) error {
		s.alone = true

		return nil
	}
}

// WithoutHandOff gives the lock back to the database at each release. By default
// a holder hands its grant on to the next who waits for it in this process, with
// a new token but without the database, for some milliseconds; then it goes back
// for the sake of other processes. A lock whose holder used Guard is not handed
// on, as its transaction may still be open, nor one to somebody who asked for
// other options.
func WithoutHandOff() Option {
	return func(s *settings) error {
		s.handsOff = false

		return nil
	}
}

// WithoutNotifications opens no connection to hear of releases while waiting, and
// asks again and again instead. By default a locker has one such connection on
// PostgreSQL, for all names that are waited for: for very many processes of which
// each waits for one lock that is one too many.
func WithoutNotifications() Option {
	return func(s *settings) error {
		s.listens = false

		return nil
	}
}

// WithDurableRelease lets a release wait until PostgreSQL has it on disk, and on
// its synchronous standbys. By default it does not wait, which is faster: a
// release that is lost in a crash of the server leaves the name taken until its
// lease ends. Acquisitions and renewals always wait, and on other databases
// releases do.
func WithDurableRelease() Option {
	return func(s *settings) error {
		s.durable = true

		return nil
	}
}

// WithLabel says in the database and in HeldError what the holder is, beside
// its host and process: "invoice worker 3". At most MaxLabelLength bytes.
func WithLabel(label string) Option {
	return func(s *settings) error {
		if len(label) > MaxLabelLength || !printable(label) {
			return fmt.Errorf("%w: WithLabel: a label is UTF-8 without NUL, at most %d bytes", ErrInvalidOption, MaxLabelLength)
		}

		s.holder.Label = label

		return nil
	}
}

// WithMetadata keeps more about the holder in the lock's row, as JSON of at
// most MaxMetadataLength bytes.
func WithMetadata(metadata map[string]string) Option {
	return func(s *settings) error {
		text, err := json.Marshal(metadata)

		switch {
		case err != nil:
			return fmt.Errorf("%w: WithMetadata: %w", ErrInvalidOption, err)
		case len(text) > MaxMetadataLength:
			return fmt.Errorf("%w: WithMetadata: %d bytes as JSON, at most %d", ErrInvalidOption, len(text), MaxMetadataLength)
		}

		s.holder.Metadata = string(text)

		return nil
	}
}

// WithPoll bounds the random pause between two attempts of a waiting Acquire:
// it starts about at lowest and grows towards an eighth of the time since the lock
// was last seen to change hands, up to highest. The defaults are 1 ms and 1 s, the
// bounds a millisecond and 366 days. Where the database tells of releases it is
// asked less often.
func WithPoll(lowest, highest time.Duration) Option {
	return func(s *settings) error {
		if lowest < time.Millisecond || highest < lowest || highest > maxLease {
			return fmt.Errorf("%w: WithPoll(%s, %s): the lowest is at least a millisecond and at most the highest, which is at most %s",
				ErrInvalidOption, lowest, highest, maxLease)
		}

		s.pollMin, s.pollMax = lowest, highest

		return nil
	}
}

// WithClockMargin sets how much earlier than the lease a holder stops to trust
// it: the share of the lease by which this machine's clock and the database's
// may differ in speed, and a fixed margin. The defaults are 0.01 and 10 ms.
func WithClockMargin(drift float64, margin time.Duration) Option {
	return func(s *settings) error {
		if !(drift >= 0 && drift < 1) || margin < 0 {
			return fmt.Errorf("%w: WithClockMargin(%g, %s): drift is in [0, 1), the margin not negative",
				ErrInvalidOption, drift, margin)
		}

		s.drift, s.margin = drift, margin

		return nil
	}
}

// WithReaper sets, for New, how often RunReaper reaps and how long a name must
// have been idle before its row is removed. The defaults are a minute and
// seven days. A name's token grows even over the removal of its row, as long
// as the database's clock was not set back by more than the retention.
func WithReaper(every, retention time.Duration) Option {
	return func(s *settings) error {
		if every < time.Millisecond || every > maxLease || retention < time.Minute {
			return fmt.Errorf("%w: WithReaper(%s, %s): between every millisecond and every %s, and a retention of at least a minute",
				ErrInvalidOption, every, retention, maxLease)
		}

		s.reapEvery, s.retention = every, retention

		return nil
	}
}

// WithLogger gives the logger: losses, failed renewals and releases at Warn,
// the rest at Debug. The default logs nothing.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return fmt.Errorf("%w: WithLogger(nil)", ErrInvalidOption)
		}

		s.logger = logger

		return nil
	}
}

// WithHooks calls functions when something happens to a lock, for metrics.
func WithHooks(hooks Hooks) Option {
	return func(s *settings) error {
		s.hooks = hooks

		return nil
	}
}

// checkName says whether a name can be a lock's.
func checkName(name string) error {
	switch {
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
	for i := range len(text) {
		if text[i] == 0 {
			return false
		}
	}

	return utf8.ValidString(text)
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
