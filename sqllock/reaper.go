package sqllock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
)

const (
	// idleTime is how long ago a name was acquired that is removed. It is longer than any call of the locker looks for
	// what became of an earlier one.
	idleTime = time.Minute
	// idlePage is how many names are removed at a time, and idleLimit how long that may take.
	idlePage  = 2000
	idleLimit = 5 * time.Second
	// idleShare is how much of the time a locker removes names: one part of so many.
	idleShare = 10
)

// reaper removes what the database keeps of names that are not in use, in the background. A locker that has released locks
// looks for some a while later, at a random moment, as others do the same: mostly it finds nothing, or goes on page by page with
// pauses. It looks once more if others were released meanwhile, which were not idle yet, and then no more. Between two pages there is a timer
// and no goroutine.
type reaper struct {
	locker *Locker

	used  atomic.Bool // a lock was released since the last look began
	awake atomic.Bool // a look is due or under way

	mu    sync.Mutex
	timer *time.Timer   // nil before the first look, and after Close
	busy  chan struct{} // closed when the page under way is done; nil if there is none
	shut  bool
}

// released lets a look follow.
func (r *reaper) released() {
	if !r.used.Load() {
		r.used.Store(true)
	}

	if !r.awake.Load() && r.awake.CompareAndSwap(false, true) {
		r.after(idleTime + jitter(idleTime))
	}
}

// after has a page removed after a pause.
func (r *reaper) after(pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()

	switch {
	case r.shut:
	case r.timer == nil:
		r.timer = time.AfterFunc(pause, r.look)
	default:
		r.timer.Reset(pause)
	}
}

// look removes a page.
func (r *reaper) look() {
	r.mu.Lock()

	if r.shut {
		r.mu.Unlock()

		return
	}

	busy := make(chan struct{})
	r.busy = busy
	r.mu.Unlock()

	pause := r.page()

	r.mu.Lock()
	r.busy = nil
	r.mu.Unlock()

	close(busy)

	if pause > 0 {
		r.after(pause)
	}
}

// page is how many names one look has removed, and whether there may be more.
type page struct {
	removed int
	more    bool
}

// page removes a page, and returns when the next one is due; zero: when another lock has been released.
func (r *reaper) page() time.Duration {
	started := time.Now()

	done, err := call.Limited(r.locker.life, idleLimit, func(ctx context.Context) (page, error) {
		removed, more, err := r.locker.strategy.ReapIdle(ctx, idleTime, idlePage)

		return page{removed, more}, err
	})

	logger, ctx := r.locker.logger, context.Background() //nolint:forbidigo // as for every event

	switch {
	case r.locker.life.Err() != nil:
		return 0
	case err != nil:
		logger.LogAttrs(ctx, slog.LevelDebug, "removal of idle names failed", slog.Any("error", err))
	case done.removed > 0:
		logger.LogAttrs(ctx, slog.LevelDebug, "idle names removed", slog.Int("removed", done.removed))
	}

	if done.more && err == nil {
		return max(time.Millisecond, (idleShare-1)*time.Since(started))
	}

	if r.used.Swap(false) && !lasting(err) {
		return idleTime + jitter(idleTime)
	}

	r.awake.Store(false)

	// Of one that was released just now, and found a look under way.
	if r.used.Load() && r.awake.CompareAndSwap(false, true) {
		return idleTime + jitter(idleTime)
	}

	return 0
}

// lasting says whether an error comes again: of a user who may not remove rows, for example.
func lasting(err error) bool {
	return errors.Is(err, ErrNotAllowed) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrNoSchema)
}

// close ends it, after the locker's life has ended, and waits for a page that is under way.
func (r *reaper) close(ctx context.Context) {
	r.mu.Lock()

	r.shut = true

	if r.timer != nil {
		r.timer.Stop()
	}

	busy := r.busy
	r.mu.Unlock()

	if busy == nil {
		return
	}

	select {
	case <-busy:
	case <-ctx.Done():
	}
}
