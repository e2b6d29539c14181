package sqllock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// background is what Close waits for: calls of others that are under way, and
// grants that nobody has any more and that are to be ended in the database.
type background struct {
	mu       sync.Mutex
	closed   bool
	underWay map[string]int          // by the lock's name
	idle     chan struct{}           // closed when nothing is under way; nil if nobody waits for that
	ends     map[*acquisition]func() // what ends the acquisitions under way

	endings map[*ending]struct{}
	due     []*ending // of them those that are to be tried now
	workers int       // at work on others
}

// begin counts a call that Close waits for; false if it is too late.
func (b *background) begin(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.closed {
		return false
	}

	b.underWay[name]++

	return true
}

// count is begin for what goes on although the locker is closed.
func (b *background) count(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.underWay[name]++
}

// finish ends what begin or count counted.
func (b *background) finish(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.finishLocked(name)
}

func (b *background) finishLocked(name string) {
	if b.underWay[name]--; b.underWay[name] == 0 {
		delete(b.underWay, name)
	}

	if len(b.underWay) == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// endsBy says what ends an acquisition when the locker is closed, at once if it is; nil: nothing.
func (b *background) endsBy(a *acquisition, end func()) {
	b.mu.Lock()

	closed := b.closed
	if end == nil {
		delete(b.ends, a)
	} else {
		b.ends[a] = end
	}

	b.mu.Unlock()

	if closed && end != nil {
		end()
	}
}

// close lets no acquisition begin any more, has what waits for the end of a lease ended now, and returns what ends the
// acquisitions under way.
func (b *background) close() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.closed = true

	for e := range b.endings {
		if e.overdue && len(e.looks) > 0 {
			e.looks[0] = later(time.Now(), e.soonest)

			if e.timer.Stop() {
				e.timer.Reset(time.Until(e.looks[0]))
			}
		}
	}

	return slices.Collect(maps.Values(b.ends))
}

// settled returns a channel that is closed when nothing is under way.
func (b *background) settled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.idle == nil {
		b.idle = make(chan struct{})
	}

	idle := b.idle

	if len(b.underWay) == 0 {
		close(b.idle)
		b.idle = nil
	}

	return idle
}

// unfinished says of which locks something may be left in the database.
func (b *background) unfinished() error {
	const most = 5

	b.mu.Lock()
	defer b.mu.Unlock()

	names := slices.Sorted(maps.Keys(b.underWay))
	if len(names) == 0 {
		return nil
	}

	var quoted []string

	for _, name := range names[:min(len(names), most)] {
		quoted = append(quoted, fmt.Sprintf("%q", strings.TrimPrefix(name, "\x00")))
	}

	if more := len(names) - len(quoted); more > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", more))
	}

	failed := error(nil)

	for e := range b.endings {
		if e.failed != nil {
			failed = e.failed
		}
	}

	text := "the database has not confirmed that it is free of " + strings.Join(quoted, ", ") +
		"; what may be left ends with its lease, at the latest"
	if failed != nil {
		return fmt.Errorf("%s: %w", text, failed)
	}

	return errors.New(text)
}

// ending is a grant, or an attempt that may have brought one, that nobody has any
// more. It is to be ended in the database.
type ending struct {
	name  string
	ctx   context.Context //nolint:containedctx // the values of the call that it comes from, without its end
	end   func(ctx context.Context) error
	looks []time.Time // when to end it, the next first; more than one if it may still be on its way
	until time.Time   // when its lease has ended it; zero: never
	tries int         // in vain, since the last look that was answered
	stuck sync.Mutex  // one try at a time, also of those that do not return

	overdue bool      // it waits for the end of a lease, which ends it, or for Close, which does not wait for that
	soonest time.Time // before which not even Close has it ended: it may still be on its way

	failed error       // of the last try
	timer  *time.Timer // until the next
}

const (
	// enders is how many endings of a locker are tried at a time, and endTime how
	// long one try may take.
	enders  = 8
	endTime = time.Second
)

// lookTimes are when to look for such an attempt.
func lookTimes(lost time.Time) []time.Time {
	return []time.Time{lost, lost.Add(100 * time.Millisecond), lost.Add(time.Second), lost.Add(lastLook)}
}

// newEnding returns an ending that is tried at once, until its lease has ended it.
func newEnding(ctx context.Context, name string, lease time.Duration, end func(context.Context) error) *ending {
	now := time.Now()
	name, _ = strategies.SplitSlot(name)

	return &ending{
		name: name, ctx: context.WithoutCancel(ctx), end: end, looks: []time.Time{now}, until: now.Add(max(lease, time.Second)),
	}
}

// start has the ending tried until the database has answered as often as there
// are looks.
func (b *background) start(e *ending) *ending {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.closed && e.overdue {
		e.looks[0] = later(time.Now(), e.soonest)
	}

	b.underWay[e.name]++
	b.endings[e] = struct{}{}
	e.timer = time.AfterFunc(time.Until(e.looks[0]), func() { b.work(e) })

	return e
}

// drop ends an ending that there is no need for any more.
func (b *background) drop(e *ending) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if e == nil {
		return
	}

	e.looks = nil

	// Otherwise whoever is at work on it finds that, or it is done.
	if e.timer.Stop() {
		b.nextLocked(e)
	}
}

// nextLocked has an ending tried again that has more looks, or finishes it.
func (b *background) nextLocked(e *ending) {
	if len(e.looks) > 0 {
		e.timer.Reset(time.Until(e.looks[0]))
	} else {
		delete(b.endings, e)
		b.finishLocked(e.name)
	}
}

var errStuck = errors.New("the try before has not returned")

// work tries an ending, and what is due by then, unless others are at work on that.
func (b *background) work(e *ending) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.due = append(b.due, e)

	if b.workers == enders {
		return
	}

	for b.workers++; len(b.due) > 0; {
		e, b.due = b.due[0], b.due[1:]
		b.mu.Unlock()

		started := time.Now()
		err := e.try(started)

		b.mu.Lock()

		switch {
		case err == nil, errors.Is(err, ErrLost):
			e.failed, e.tries = nil, 0
			e.looks = slices.DeleteFunc(e.looks, func(at time.Time) bool { return !at.After(started) })
		case !e.until.IsZero() && time.Now().After(e.until):
			e.looks = nil
		case len(e.looks) > 0:
			e.failed = outOfTime(err)
			e.looks[0] = time.Now().Add(backoff(e.tries, firstRetry, lastRetry))
			e.tries++
		}

		b.nextLocked(e)
	}

	b.workers--
}

// try makes one, unless the lease has ended meanwhile that is to end it.
func (e *ending) try(started time.Time) error {
	if e.overdue && !started.Before(e.until) {
		return nil
	}

	return call.Bounded(e.ctx, endTime, func(ctx context.Context) error {
		if !e.stuck.TryLock() {
			return errStuck
		}

		defer e.stuck.Unlock()

		return e.end(ctx)
	})
}
