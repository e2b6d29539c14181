package sqllock

import (
	"context"
	"fmt"
	"iter"
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

// announce tells those who watch the name of a hold. If that fails they look by themselves.
func (h *hold) announce(ctx context.Context) {
	noter, ok := h.locker.strategy.(strategies.Noter)
	if !ok || !h.settings.announces {
		return
	}

	_ = call.Bounded(context.WithoutCancel(ctx), callTime, func(ctx context.Context) error { return noter.Announce(ctx, h.name) })
}

// Watch yields the status of a name at once, and then whenever somebody else holds it, nobody does any more, or its
// holder was asked to release it, until ctx ends, the locker is closed, or the loop is left. What came and went between
// two looks is not seen. A status of nobody has no Owner, and Held says false.
//
// It looks once a second, or once in five seconds where announcements of others are heard ([Tuning].Announce), and when the
// holder's lease ends. If the database does not answer, Watch yields the error, once, and goes on; the status follows when it
// answers again. [ErrInvalidName], [ErrUnsupported] and [ErrClosed] end it.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		w := &watch{locker: l, name: name, wake: make(chan struct{}, 1)}

		err := checkName(name)
		if err == nil {
			err = l.administer(ctx, fmt.Sprintf("watch lock %q", name), func() (err error) {
				w.noter, err = l.noter()

				return err
			})
		}

		if err != nil {
			yield(Status{}, err)

			return
		}

		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(l.life, stop)()

		l.watches.Store(w, nil)
		defer l.watches.Delete(w)

		w.run(ctx, yield)
	}
}

// lookAll has all who watch look now.
func (l *Locker) lookAll() {
	l.watches.Range(func(key, _ any) bool {
		w, _ := key.(*watch)
		wakeUp(w.wake)

		return true
	})
}

// watch is one call of Watch.
type watch struct {
	locker *Locker
	noter  strategies.Noter
	name   string
	wake   chan struct{}
}

// run looks until ctx ends or yield wants no more.
func (w *watch) run(ctx context.Context, yield func(Status, error) bool) {
	l := w.locker
	l.listener.use(&l.settings)
	defer l.listener.unuse(&l.settings)

	var (
		shown   *strategies.Notes // that were yielded last; nil if that was an error
		failing bool
	)

	for more := true; more; {
		seen, err := w.look(ctx, shown)
		next := time.Now().Add(w.interval(seen.notes))

		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			shown, failing = &seen.notes, false
			more = !seen.news || yield(seen.status, nil)
		case !failing:
			shown, failing = nil, true
			more = yield(Status{}, fmt.Errorf("watch lock %q: %w", w.name, ownTime(ctx, err)))
		}

		more = more && sleep(ctx, watchPause) && pause(ctx, time.Until(next), w.wake)
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

		seen, err = call.Limited(ctx, attemptTime, func(ctx context.Context) (seen sight, err error) {
			if seen.notes, err = w.noter.Notes(ctx, w.name); err != nil {
				return seen, err
			}

			seen.news = shown == nil || seen.notes.Owner != shown.Owner || seen.notes.Asked != shown.Asked
			if seen.news {
				seen.status, err = w.locker.Inspect(ctx, w.name)
			}

			return seen, err
		})
		if err == nil || time.Since(began) > failsSoon || !sleep(ctx, backoff(try, time.Millisecond, firstRetry)) {
			break
		}
	}

	return seen, err
}

// interval is how long after a look that found these notes the next one follows, if nothing is announced.
func (w *watch) interval(notes strategies.Notes) time.Duration {
	interval := watchPoll
	if w.locker.listener.hearing.Load() {
		interval = watchSlow
	}

	if notes.Owner != "" {
		interval = min(interval, notes.Left+time.Millisecond)
	}

	return interval
}
