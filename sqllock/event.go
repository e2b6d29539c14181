package sqllock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// EventKind is what an [Event] is about.
type EventKind int

// The kinds.
const (
	// Acquired: a lock was acquired, after Waited and Attempts.
	Acquired EventKind = iota
	// NotAcquired: a call ended without the lock; Err says why.
	NotAcquired
	// Renewed: a renewal was confirmed. Remaining is what was left of the
	// trust window when it was: the closest call is its smallest value. Of a lock on several servers
	// Err says which of them did not confirm it.
	Renewed
	// RenewalFailed: a renewal had an error that leaves the lock in doubt, which is tried again. The log warns of what is the
	// same at several renewals in a row once a minute, and says how often it was "repeated" meanwhile.
	RenewalFailed
	// Lost: a lock was lost; Err is a *[LostError].
	Lost
	// Released: a lock was released, after HeldFor. Err is nil if all is well. It is a *[LostError] if the lock turned out to
	// be lost, and otherwise why the release failed, which goes on in the background.
	Released
	// Detached: a lock was detached ([Lock.Detach]), after HeldFor. It comes as Released does.
	Detached
	// Waiting: a call waits in line for a lock, and its Place is known for the first time, or has changed. Held says who had
	// the lock when it was last asked for, and Waited for how long the call has waited. Nothing is sent to find that out: it comes when the locker looks how
	// its waits stand. That is a quarter of a second at most after the call has entered the line, and then every two to four seconds
	// if it is notified of releases, or as [Tuning] says if it polls. A short wait may have none, and a place that is passed between
	// two looks is not told. Of the calls of a locker for the same lock one stands in line, and the others have none. With
	// strategy quorum there is no line.
	Waiting
	// Recovering: a call that waits has met a recovery pause, in which nothing is granted ([ErrRecovering]). Held says why, and for how
	// long from when it was asked. It comes once in a pause for each call, and like Waiting to one of those of a locker for the same lock.
	Recovering
)

// String is the kind in words: "lost".
func (k EventKind) String() string {
	kinds := []string{"acquired", "not acquired", "renewed", "renewal failed", "lost", "released", "detached", "waiting", "recovering"}
	if k < 0 || int(k) >= len(kinds) {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}

	return kinds[k]
}

// Event says what happened to which lock. Fields that do not apply are zero.
type Event struct {
	// Kind is what happened.
	Kind EventKind
	// Name of the lock, and Token of its grant. Slot is which of the permits of [WithPermits]
	// it is.
	Name  string
	Slot  int
	Token int64
	// Strategy is the name of the locker's strategy.
	Strategy string
	// Place is where in the line of the name the process stands, from 1.
	Place int
	// Held is who had the lock when it was last asked for, or that nothing is granted, and when that was; nil if that is not known.
	Held *HeldError
	// Attempts is how often the acquisition asked the database, and Waited how long it
	// took.
	Attempts int
	Waited   time.Duration
	// HeldFor is how long the lock was held.
	HeldFor time.Duration
	// Remaining is what was left of the trust window.
	Remaining time.Duration
	// Err is why it failed, or why the lock was lost; nil if all is well.
	Err error

	repeats  bool // the log has told the same a moment ago, and need not again
	repeated int  // how many events that the log did not tell were the same as the one before
}

// Observer is called when something happens to a lock, for metrics. Its context has the values of the context that the lock was
// asked for with, and not its end. It must be quick and must not call the locker. If it panics on a goroutine of the locker, the
// process ends.
//
// One that blocks, or a log that does, holds up nobody's lock: no context, no
// renewal and no turn waits for it. Acquired, NotAcquired and Released come on the
// goroutine of the call that they tell of, when all else of it is done. Waiting, Recovering,
// Renewed, RenewalFailed and Lost, and Released by Close, come one after the other on a
// goroutine that the locker has while there is something to tell, so a Released
// may overtake a Renewed, and an Acquired a Waiting. If the observer does not keep up, the oldest beyond 1024 are
// dropped, which the log says, but never a loss. Close waits for what is left to
// tell, a second at most.
type Observer func(ctx context.Context, e Event)

// WithObserver has an observer called. If it is given several times all are, in the order given. By default there is
// none. Errors: [ErrInvalidOption], it is nil.
func WithObserver(o Observer) LockerOption {
	return lockerOption(func(c *config) error {
		if o == nil {
			return againstRule("WithObserver", "", "the observer is nil")
		}

		c.observers = append(c.observers, o)

		return nil
	})
}

// WithLogger gives the logger: what failed, was lost, forced or dropped, and waits in a recovery pause at Warn,
// the rest at Debug. The default logs nothing. Errors: [ErrInvalidOption], it is nil.
func WithLogger(logger *slog.Logger) LockerOption {
	return lockerOption(func(c *config) error {
		if logger == nil {
			return againstRule("WithLogger", "", "the logger is nil")
		}

		c.logger = logger

		return nil
	})
}

// tell calls the observers with an event and logs it. Both may block: where others wait,
// it is added to the events instead.
func (l *Locker) tell(ctx context.Context, e Event) {
	level, message := e.said()
	if !l.tells(ctx, level) {
		return
	}

	ctx = context.WithoutCancel(ctx)
	e.Strategy = l.features.Strategy

	for _, observe := range l.observers {
		observe(ctx, e)
	}

	if l.logger.Enabled(ctx, level) {
		l.logger.LogAttrs(ctx, level, message, e.attrs()...)
	}
}

// tells says whether an event that is logged at a level is told to anybody.
func (l *Locker) tells(ctx context.Context, level slog.Level) bool {
	return len(l.observers) > 0 || l.logger.Enabled(ctx, level)
}

// said is what the log says of an event.
func (e Event) said() (slog.Level, string) {
	switch {
	case e.Kind == Acquired:
		return slog.LevelDebug, "lock acquired"
	case e.Kind == NotAcquired:
		return slog.LevelDebug, "lock not acquired"
	case e.Kind == Waiting:
		return slog.LevelDebug, "waiting for lock"
	case e.Kind == Detached:
		return slog.LevelDebug, "lock detached"
	case e.Kind == Recovering:
		return slog.LevelWarn, "nothing is granted in a recovery pause, waiting for lock"
	case e.Kind == Renewed && (e.Err == nil || e.repeats):
		return slog.LevelDebug, "lock renewed"
	case e.Kind == Renewed:
		return slog.LevelWarn, "lock renewed, but not on all servers"
	case e.Kind == RenewalFailed && e.repeats:
		return slog.LevelDebug, "lock not renewed, trying again"
	case e.Kind == RenewalFailed:
		return slog.LevelWarn, "lock not renewed, trying again"
	case e.Kind == Lost:
		return slog.LevelWarn, "lock lost"
	case e.Err == nil:
		return slog.LevelDebug, "lock released"
	case errors.Is(e.Err, ErrLost):
		return slog.LevelWarn, "lock lost before its release"
	default:
		return slog.LevelWarn, "lock not released, trying again"
	}
}

// attrs are what applies of an event, for the log.
func (e Event) attrs() []slog.Attr {
	holder, until, why := "", "", ""
	if e.Held != nil {
		holder = e.Held.Holder.String()
	}

	if e.Kind == Recovering {
		until, why = e.Held.At.Add(e.Held.Remaining).Format(time.RFC3339), e.Held.Detail
	}

	all := []slog.Attr{
		slog.String("name", e.Name), slog.String("strategy", e.Strategy), slog.Int64("token", e.Token), slog.Int("slot", e.Slot),
		slog.Int("place", e.Place), slog.Int("attempts", e.Attempts), slog.Duration("waited", e.Waited), slog.String("holder", holder),
		slog.String("until", until), slog.String("reason", why),
		slog.Duration("held_for", e.HeldFor), slog.Duration("remaining", e.Remaining.Round(time.Millisecond)), slog.Any("error", e.Err),
		slog.Int("repeated", e.repeated),
	}

	return slices.DeleteFunc(all, func(a slog.Attr) bool {
		if a.Key == "waited" {
			return e.Place+e.Attempts == 0
		}

		switch a.Value.Any() {
		case nil, "", int64(0), time.Duration(0):
			return true
		default:
			return false
		}
	})
}

// events tell observers and the log of what happened where others must not wait for
// them: a log that blocks, as a full pipe does, would keep the contexts of other
// locks alive beyond their trust windows. One goroutine tells it, in order, and
// there is none while there is nothing to tell.
type events struct {
	locker *Locker

	mu      sync.Mutex
	items   []item // losses, of which there is at most one for each lock, and maxNews others at most
	others  int
	dropped int
	told    chan struct{} // closed when there is nothing left to tell; nil if there is nothing
}

// item is an event to be told of.
type item struct {
	ctx   context.Context //nolint:containedctx // its values, for the observers
	event Event
}

const (
	// maxNews is how many events other than losses are kept for a log or an observer
	// that blocks. Then the oldest go.
	maxNews = 1024
	// lastNews is how long Close waits for them.
	lastNews = time.Second
)

// add lets an event be told of soon.
func (n *events) add(ctx context.Context, e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.items = append(n.items, item{ctx, e})

	if e.Kind != Lost {
		n.others++
	}

	if n.others > maxNews {
		oldest := slices.IndexFunc(n.items, func(i item) bool { return i.event.Kind != Lost })
		n.items = slices.Delete(n.items, oldest, oldest+1)
		n.others--
		n.dropped++
	}

	if n.told == nil {
		n.told = make(chan struct{})

		go n.tell()
	}
}

// tell tells what there is until nothing is left.
func (n *events) tell() {
	n.mu.Lock()

	for len(n.items) > 0 {
		i, dropped := n.items[0], n.dropped
		n.items, n.dropped = n.items[1:], 0

		if i.event.Kind != Lost {
			n.others--
		}

		n.mu.Unlock()

		if dropped > 0 {
			n.locker.logger.LogAttrs(context.WithoutCancel(i.ctx), slog.LevelWarn,
				"events of locks dropped, because the log or an observer took too long", slog.Int("events", dropped))
		}

		n.locker.tell(i.ctx, i.event)
		n.mu.Lock()
	}

	close(n.told)
	n.items, n.told = nil, nil
	n.mu.Unlock()
}

// last waits a moment, so that what is told last is not lost with the process.
func (n *events) last(ctx context.Context) {
	n.mu.Lock()
	told := n.told
	n.mu.Unlock()

	if told == nil {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, lastNews)
	defer cancel()

	select {
	case <-told:
	case <-ctx.Done():
	}
}
