package sqllock

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/wallclock"
	"github.com/sqllock/sqllock/strategies"
)

const (
	// attemptTime bounds one attempt, and with TryAcquire all of it: a database that
	// takes longer is told of as one that does not answer.
	attemptTime = strategies.AttemptTime

	// What failed is tried again between these.
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second

	// A release takes so long at most, in so many tries.
	releaseTimeout = 5 * time.Second
	releaseTries   = 3
)

// instant is a point in time on two clocks of this machine. The monotonic
// clock stands still while the machine sleeps and the wall clock can be set,
// so elapsed time is the larger of the two: a lock may be given up too early,
// never too late.
type instant struct {
	mono time.Duration
	wall time.Duration
}

// epoch is where this process's monotonic readings start.
var epoch = time.Now() //nolint:gochecknoglobals // the monotonic clock has no absolute reading

func now() instant {
	t := time.Now()

	return instant{mono: t.Sub(epoch), wall: wallclock.Of(t)}
}

// since returns the time from earlier to i.
func (i instant) since(earlier instant) time.Duration {
	return max(i.mono-earlier.mono, i.wall-earlier.wall)
}

// jitter returns a random duration between d/2 and d.
func jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}

	return d/2 + rand.N(d/2)
}

// backoff returns how long to wait after the given attempt (the first is 0):
// a random time between half of a bound and the bound, which doubles from lowest to highest.
func backoff(attempt int, lowest, highest time.Duration) time.Duration {
	bound := highest
	if attempt < 30 && lowest<<attempt > 0 {
		bound = min(lowest<<attempt, highest)
	}

	return jitter(bound)
}

// sleep waits for d or until ctx ends, and says whether it was d.
func sleep(ctx context.Context, d time.Duration) bool { return pause(ctx, d, nil) }

// pause is sleep that something else may end sooner.
func pause(ctx context.Context, d time.Duration, sooner <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-sooner:
		return true
	case <-ctx.Done():
		return false
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// lastLook is how long after its answer was lost an attempt is looked for. It may
// still be on its way, and be executed after it was ended: on a server that has much
// to do. One that comes later is ended by its lease.
const lastLook = attemptTime + time.Second

// recent keeps something in mind about names for a while.
type recent[V any] struct {
	mu      sync.Mutex
	entries map[string]remembered[V]
	sweep   int // from how many entries on those that are over are looked for
}

type remembered[V any] struct {
	value V
	until time.Time
}

// fewEntries need no sweep.
const fewEntries = 256

func (r *recent[V]) put(name string, value V, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.entries) >= max(r.sweep, fewEntries) {
		n := time.Now()

		maps.DeleteFunc(r.entries, func(_ string, e remembered[V]) bool { return !n.Before(e.until) })

		r.sweep = 2 * len(r.entries)
	}

	if r.entries == nil {
		r.entries = make(map[string]remembered[V])
	}

	r.entries[name] = remembered[V]{value, until}
}

// get returns what is known, and for how long still: zero or less if it is not.
func (r *recent[V]) get(name string) (V, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()

	e, ok := r.entries[name]
	if !ok {
		return e.value, 0
	}

	return e.value, time.Until(e.until)
}

func wakeUp(call chan<- struct{}) {
	select {
	case call <- struct{}{}:
	default:
	}
}
