package sqllock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

const (
	// watchPoll is how often a name that is watched is looked at, and watchSlow where everybody who announces is heard.
	watchPoll = time.Second
	watchSlow = 5 * time.Second
	// watchPause is the shortest pause between two looks, however much is announced.
	watchPause = 5 * time.Millisecond
)

// WithAnnouncements tells those who watch the name ([Locker.Watch]) at once that the lock was acquired or released, where
// the database has notifications. It costs PostgreSQL a statement each time, and nothing on SQLite, where each commit is
// noticed. Without it they see it within five seconds.
func WithAnnouncements() Option {
	return func(s *settings) error {
		s.announces = true

		return nil
	}
}

// announce tells those who watch the name of a hold. If that fails they look by themselves.
func (h *hold) announce(ctx context.Context) {
	noter, ok := h.locker.strategy.(strategies.Noter)
	if !ok || !h.settings.announces {
		return
	}

	_ = call.Bounded(context.WithoutCancel(ctx), callTime, func(ctx context.Context) error { return noter.Announce(ctx, h.name()) })
}

// RequestRelease asks whoever holds a name to release it, and says why. Nobody is forced: a holder that looks at
// [Status.ReleaseRequested], as a leader of package election does, sees it. The request is about the holder of this
// moment; its successor does not see it. The reason is treated as that of [Locker.ForceRelease].
//
// Errors: [ErrNotHeld]; [ErrInvalidOption], the reason is empty; [ErrInvalidName], [ErrUnsupported], [ErrClosed]; the
// database's.
func (l *Locker) RequestRelease(ctx context.Context, name, reason string) error {
	const verb = "request release of lock"

	if err := checkName(name); err != nil {
		return err
	}

	if err := l.administers(ctx, verb); err != nil {
		return err
	}

	noter, err := l.noter(verb, name)
	if err != nil {
		return err
	}

	reason, err = cleanReason(reason)
	if err != nil {
		return fmt.Errorf("%s %q: %w", verb, name, err)
	}

	asked, err := noter.Ask(ctx, name, reason)
	if err == nil && !asked {
		err = ErrNotHeld
	}

	if err != nil {
		return fmt.Errorf("%s %q: %w", verb, name, ownTime(ctx, err))
	}

	return nil
}

// Watch yields the status of a name at once, and then whenever somebody else holds it, nobody does any more, or its
// holder was asked to release it, until ctx ends, the locker is closed, or the loop is left. What came and went between
// two looks is not seen. A status of nobody has no Owner, and Held says false.
//
// All who watch a name with this locker share its looks: one a second, or one in five seconds where announcements of
// others are heard ([WithAnnouncements]), and one when the holder's lease ends. If the database does not answer, Watch yields the
// error, once, and goes on; the status follows when it answers again. [ErrInvalidName], [ErrUnsupported] and [ErrClosed] end it.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := errors.Join(checkName(name), l.administers(ctx, "watch")); err != nil {
			yield(Status{}, err)

			return
		}

		noter, err := l.noter("watch lock", name)
		if err != nil {
			yield(Status{}, err)

			return
		}

		w, ok := l.watches.join(l, noter, name)
		if !ok {
			yield(Status{}, fmt.Errorf("watch lock %q: %w", name, ErrClosed))

			return
		}

		defer l.watches.leave(w)

		for seen := 0; ; {
			view, more := w.next(ctx, l.life, seen)
			if !more || !yield(view.status, view.err) {
				return
			}

			seen = view.version
		}
	}
}

// watches are the names that are watched.
type watches struct {
	mu   sync.Mutex
	open map[string]*watch
}

// watch looks at a name for all who watch it.
type watch struct {
	locker *Locker
	noter  strategies.Noter
	name   string
	users  int // under the mutex of watches
	stop   context.CancelFunc
	wake   chan struct{}

	mu      sync.Mutex
	view    view
	changed chan struct{} // closed when the view has changed
}

// view is what was seen last, and the how manieth change that is.
type view struct {
	version int
	status  Status
	err     error
}

// join has a name watched, if the locker is not closed.
func (ws *watches) join(l *Locker, noter strategies.Noter, name string) (*watch, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()

	w := ws.open[name]
	if w == nil {
		if !l.background.begin(name) {
			return nil, false
		}

		ctx, stop := context.WithCancel(l.life)
		w = &watch{locker: l, noter: noter, name: name, stop: stop, wake: make(chan struct{}, 1), changed: make(chan struct{})}
		ws.open[name] = w

		go w.run(ctx)
	}

	w.users++

	return w, true
}

// leave ends it with the last of those who watch.
func (ws *watches) leave(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()

	if w.users--; w.users == 0 {
		w.stop()

		if ws.open[w.name] == w {
			delete(ws.open, w.name)
		}
	}
}

// look has all of them looked at now.
func (ws *watches) look() {
	ws.mu.Lock()
	defer ws.mu.Unlock()

	for _, w := range ws.open {
		wakeUp(w.wake)
	}
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	l := w.locker
	defer l.background.finish(w.name)

	if l.defaults.listens {
		l.listener.use()
		defer l.listener.unuse()
	}

	var (
		shown   *strategies.Notes // that the view shows; nil if it shows none
		failing bool              // the view shows an error
	)

	for {
		seen, err := w.look(ctx, shown)

		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if seen.news {
				w.show(seen.status, nil)
			}

			shown, failing = &seen.notes, false
		case !failing:
			shown, failing = nil, true
			w.show(Status{}, fmt.Errorf("watch lock %q: %w", w.name, ownTime(ctx, err)))
		}

		if !w.pause(ctx, seen.notes) {
			return
		}
	}
}

// sight is what a look finds: the notes, and the status if they are news.
type sight struct {
	notes  strategies.Notes
	news   bool
	status Status
}

const (
	// lookTries is how often a look is made that failed soon: at SERIALIZABLE another's statement is enough.
	lookTries = 5
	failsSoon = 100 * time.Millisecond
)

// look reads the notes, and the status if they differ from those shown.
func (w *watch) look(ctx context.Context, shown *strategies.Notes) (seen sight, err error) {
	for try := range lookTries {
		began := time.Now()

		seen, err = call.Limited(ctx, attemptTime, func(ctx context.Context) (sight, error) { return w.lookOnce(ctx, shown) })
		if err == nil || time.Since(began) > failsSoon || !sleep(ctx, backoff(try, time.Millisecond, firstRetry)) {
			break
		}
	}

	return seen, err
}

func (w *watch) lookOnce(ctx context.Context, shown *strategies.Notes) (seen sight, err error) {
	seen.notes, err = w.noter.Notes(ctx, w.name)
	if err != nil {
		return seen, err
	}

	seen.news = shown == nil || seen.notes.Owner != shown.Owner || seen.notes.Asked != shown.Asked
	if seen.news {
		seen.status, err = w.locker.Inspect(ctx, w.name)
	}

	return seen, err
}

// pause waits until it makes sense to look again.
func (w *watch) pause(ctx context.Context, notes strategies.Notes) bool {
	pause := watchPoll
	if w.locker.listener.hears() {
		pause = watchSlow
	}

	if notes.Owner != "" {
		pause = min(pause, notes.Left+time.Millisecond)
	}

	if !sleep(ctx, watchPause) {
		return false
	}

	timer := time.NewTimer(pause)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-w.wake:
	case <-ctx.Done():
	}

	return ctx.Err() == nil
}

// show tells those who watch.
func (w *watch) show(status Status, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.view = view{w.view.version + 1, status, err}
	close(w.changed)
	w.changed = make(chan struct{})
}

// next waits for a view after one that was seen; false if ctx or life ends before.
func (w *watch) next(ctx, life context.Context, seen int) (view, bool) {
	for {
		w.mu.Lock()
		now, changed := w.view, w.changed
		w.mu.Unlock()

		if ctx.Err() != nil || life.Err() != nil {
			return view{}, false
		}

		if now.version > seen {
			return now, true
		}

		select {
		case <-changed:
		case <-ctx.Done():
		case <-life.Done():
		}
	}
}
