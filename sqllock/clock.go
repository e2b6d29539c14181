package sqllock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/internal/wallclock"
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
