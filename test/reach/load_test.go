package reach_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// load acquires a few names, and notes each grant and what those are told who get none.
type load struct {
	mutex  sync.Mutex
	struck time.Time
	held   map[string]int64 // the token of the name's holder, zero if there is none
	last   map[string]int64 // the largest that was seen
	grants int
	latest time.Time
	gap    time.Duration // the longest time without a grant
	wrong  []string
	told   map[string]*answers
}

// answers are those of one kind, with the times of the first and the last one since the fault.
type answers struct {
	number      int
	first, last time.Duration
}

func newLoad() *load {
	return &load{held: make(map[string]int64), last: make(map[string]int64), told: make(map[string]*answers)}
}

// strike begins what is noted of answers.
func (l *load) strike(at time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	l.struck = at
}

func (l *load) granted(lock *sqllock.Lock) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	name := lock.Name()

	if other := l.held[name]; other != 0 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s was granted as %d while %d held it", name, lock.Token(), other))
	}

	if last := l.last[name]; lock.Token() <= last {
		l.wrong = append(l.wrong, fmt.Sprintf("%s was granted as %d after %d", name, lock.Token(), last))
	}

	l.held[name], l.last[name] = lock.Token(), lock.Token()
	l.grants++
	l.pause(time.Now())
}

// pause ends the time without a grant.
func (l *load) pause(now time.Time) {
	if !l.latest.IsZero() {
		l.gap = max(l.gap, now.Sub(l.latest))
	}

	l.latest = now
}

// ended is told when a lock may not be trusted any more.
func (l *load) ended(lock *sqllock.Lock) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if l.held[lock.Name()] == lock.Token() {
		l.held[lock.Name()] = 0
	}
}

// hears notes what somebody is told who wanted a lock, or had one.
func (l *load) hears(who string, err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if l.struck.IsZero() {
		return
	}

	what, after := who+": "+kind(err), time.Since(l.struck)

	a := l.told[what]
	if a == nil {
		a = &answers{first: after}
		l.told[what] = a
	}

	a.number++
	a.last = after
}

// kind names what a caller can tell an error by.
func kind(err error) string {
	if lost := (*sqllock.LostError)(nil); errors.As(err, &lost) {
		return fmt.Sprintf("ErrLost (%s)", lost.Reason)
	}

	for _, known := range []struct {
		name string
		err  error
	}{
		{"ErrReadOnly", sqllock.ErrReadOnly},
		{"ErrTooManyConnections", sqllock.ErrTooManyConnections},
		{"ErrUnreachable", sqllock.ErrUnreachable},
		{"ErrNotAcquired", sqllock.ErrNotAcquired},
		{"ErrUnsupported", sqllock.ErrUnsupported},
		{"ErrNoSchema", sqllock.ErrNoSchema},
		{"the end of its context", context.DeadlineExceeded},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}

	return err.Error()
}

// work acquires one of the names, holds it for a moment, and begins again.
func (l *load) work(ctx context.Context, locker *sqllock.Locker) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, lease)
		lock, err := locker.Acquire(limited, "load-"+strconv.Itoa(rand.IntN(3)), sqllock.WithLease(lease))

		cancel()

		switch {
		case ctx.Err() != nil && err != nil:
			return
		case err != nil:
			l.hears("waiters", err)

			continue
		}

		l.granted(lock)

		select {
		case <-lock.Done():
			l.hears("holders", lock.Err())
		case <-time.After(rand.N(20 * time.Millisecond)):
		}

		l.ended(lock)

		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
		_ = lock.Release(brief)

		cancel()
	}
}

// try asks for a name of its own all the time, and does not wait.
func (l *load) try(ctx context.Context, locker *sqllock.Locker) {
	for ctx.Err() == nil {
		lock, err := locker.TryAcquire(ctx, "tried", sqllock.WithLease(lease))

		switch {
		case err == nil:
			_ = lock.Release(ctx)
		case ctx.Err() == nil:
			l.hears("tries", err)
		}

		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// end returns what there is to say, after all have stopped.
func (l *load) end() string {
	l.pause(time.Now())

	var lines []string
	for what, a := range l.told {
		lines = append(lines, fmt.Sprintf("%s, %d times, from %s to %s after the fault",
			what, a.number, a.first.Round(time.Millisecond), a.last.Round(time.Millisecond)))
	}

	slices.Sort(lines)

	return fmt.Sprintf("%d grants; %s without a grant at most\n%s", l.grants, l.gap.Round(time.Millisecond), strings.Join(lines, "\n"))
}
