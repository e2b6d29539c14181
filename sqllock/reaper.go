package sqllock

import (
	"context"
	"log/slog"
	"sync"
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
	// reaping is what Close calls it. No lock has a name with a NUL.
	reaping = "\x00the removal of idle names"
	// idleShare is how much of the time a locker removes names: one part of so many.
	idleShare = 10
)

// reaper removes what the database keeps of names that are not in use, in the background. A locker that has released locks
// looks for some a while later, at a random moment, as others do the same: mostly it finds nothing, or goes on page by page with
// pauses. It looks once more if others were released meanwhile, which were not idle yet, and then no more. Between two pages there is a timer
// and no goroutine.
type reaper struct {
	locker *Locker

	mu    sync.Mutex
	used  bool        // a lock was released since the last look
	awake bool        // a look is due or under way
	timer *time.Timer // nil before the first look
}

// page is how many names one look has removed, and whether there may be more.
type page struct {
	removed int
	more    bool
}

// released lets a look follow.
func (r *reaper) released() {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.used = true; !r.awake && r.locker.life.Err() == nil {
		r.awake = true
		r.afterLocked(idleTime + jitter(idleTime))
	}
}

// afterLocked has a page removed after a pause.
func (r *reaper) afterLocked(pause time.Duration) {
	if r.timer == nil {
		r.timer = time.AfterFunc(pause, r.removePage)
	} else {
		r.timer.Reset(pause)
	}
}

// removePage removes a page.
func (r *reaper) removePage() {
	if !r.locker.background.begin(reaping) {
		return
	}

	defer r.locker.background.finish(reaping)

	started := time.Now()
	done, err := call.Limited(r.locker.life, idleLimit, func(ctx context.Context) (done page, err error) {
		done.removed, done.more, err = r.locker.strategy.ReapIdle(ctx, idleTime, idlePage)

		return done, err
	})
	pause := idleTime + jitter(idleTime)

	logger, ctx := r.locker.logger, context.Background() //nolint:forbidigo // as for every event

	switch {
	case r.locker.life.Err() != nil:
		return
	case err != nil:
		logger.LogAttrs(ctx, slog.LevelDebug, "removal of idle names failed", slog.Any("error", err))
	case done.removed > 0:
		logger.LogAttrs(ctx, slog.LevelDebug, "idle names removed", slog.Int("removed", done.removed))
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	switch {
	case r.locker.life.Err() != nil:
		return
	case done.more && err == nil:
		pause = max(time.Millisecond, (idleShare-1)*time.Since(started))
	default:
		// Some errors come again: of a user who may not remove rows, for example.
		r.awake = r.used && !isAny(err, ErrNotAllowed, ErrUnsupported, ErrNoSchema)
		r.used = false
	}

	if r.awake {
		r.afterLocked(pause)
	}
}

// stop ends it, after the locker's life has ended. Close waits for a page that is under way.
func (r *reaper) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.timer != nil {
		r.timer.Stop()
	}
}
