package sqllock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatch is how many calls go to the database in one statement.
	maxBatch = 512
	// maxUnderWay is how many statements of one kind are under way at a time,
	// and patience how long one may take before what has gathered behind it
	// goes out beside it.
	maxUnderWay = 4
	patience    = 10 * time.Millisecond
	// hangs is how long so many statements may keep the next from going. Their
	// connections may have been cut off.
	hangs = time.Second
)

// lane sends calls of one kind: at once and alone if none is under way, and
// else together with those that gathered meanwhile, when an answer comes. So
// nothing waits on an idle database, and many share the commits of a busy one.
type lane[C, R any] struct {
	// alone serves one call, together several. What together answers with
	// ErrAlone is served alone.
	alone    func(ctx context.Context, call C) (R, error)
	together func(ctx context.Context, calls []C) ([]R, []error)

	mu       sync.Mutex
	waiting  []*passenger[C, R]
	underWay int
	left     time.Time // when the last one went
	alarm    bool      // patience is being watched
}

// passenger is a call that waits for its answer.
type passenger[C, R any] struct {
	ctx     context.Context //nolint:containedctx // of one call, which ends with it
	call    C
	answers chan answer[R]
}

// serve is alone, or takes part in together, and returns as within does. If ctx
// ends before the call was sent it never is.
func (l *lane[C, R]) serve(ctx context.Context, call C, late func(R, error)) (R, error) {
	r, err := l.ride(ctx, call, late)
	if errors.Is(err, ErrAlone) {
		return within(ctx, func(ctx context.Context) (R, error) { return l.alone(ctx, call) }, late)
	}

	return r, err
}

// ride is serve that may return ErrAlone.
func (l *lane[C, R]) ride(ctx context.Context, call C, late func(R, error)) (R, error) {
	l.mu.Lock()

	if l.underWay == 0 {
		l.departLocked()
		l.mu.Unlock()

		// Also when it is abandoned.
		defer l.arrive()

		return within(ctx, func(ctx context.Context) (R, error) { return l.alone(ctx, call) }, late)
	}

	p := &passenger[C, R]{ctx: ctx, call: call, answers: make(chan answer[R], 1)}
	l.waiting = append(l.waiting, p)
	l.watchLocked()
	l.mu.Unlock()

	select {
	case a := <-p.answers:
		return a.value, a.err
	case <-ctx.Done():
	}

	if l.withdraw(p) {
		var none R

		return none, ctx.Err()
	}

	return await(ctx, p.answers, late)
}

func (l *lane[C, R]) departLocked() {
	l.underWay++
	l.left = time.Now()
}

// withdraw takes a call back that was not sent, and says whether it could.
func (l *lane[C, R]) withdraw(p *passenger[C, R]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	i := slices.Index(l.waiting, p)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}

	return i >= 0
}

// arrive sends what gathered while a statement was under way.
func (l *lane[C, R]) arrive() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.underWay--
	l.goLocked()
}

func (l *lane[C, R]) goLocked() {
	if len(l.waiting) == 0 || l.underWay >= maxUnderWay && time.Since(l.left) < hangs {
		return
	}

	n := min(len(l.waiting), maxBatch)
	batch := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)

	l.departLocked()

	go l.send(batch)

	l.watchLocked()
}

// watchLocked sees to it that what waits does not wait for a statement that
// hangs: on a connection that was cut off, for example.
func (l *lane[C, R]) watchLocked() {
	if l.alarm || len(l.waiting) == 0 {
		return
	}

	l.alarm = true

	// It looks again soon: places become free meanwhile.
	time.AfterFunc(min(l.patienceLocked()-time.Since(l.left), patience), func() {
		l.mu.Lock()
		defer l.mu.Unlock()

		l.alarm = false

		if time.Since(l.left) >= l.patienceLocked() {
			l.goLocked()
		}

		l.watchLocked()
	})
}

// patienceLocked is how long after the last the next statement goes out at the
// latest.
func (l *lane[C, R]) patienceLocked() time.Duration {
	if l.underWay < maxUnderWay {
		return patience
	}

	return hangs
}

// send serves the calls of a batch. It returns, and others have its place, when it
// is done or given up.
func (l *lane[C, R]) send(batch []*passenger[C, R]) {
	defer l.arrive()

	ctx, cancel := whileAny(batch)
	defer cancel()

	_, _ = within(ctx, func(ctx context.Context) (struct{}, error) {
		l.answer(ctx, batch)

		return struct{}{}, nil
	}, nil)
}

// answer gives each call of a batch its answer.
func (l *lane[C, R]) answer(ctx context.Context, batch []*passenger[C, R]) {
	if len(batch) == 1 {
		r, err := l.alone(ctx, batch[0].call)
		batch[0].answers <- answer[R]{r, err}

		return
	}

	calls := make([]C, len(batch))
	for i, p := range batch {
		calls[i] = p.call
	}

	rs, errs := l.together(ctx, calls)

	for i, p := range batch {
		p.answers <- answer[R]{rs[i], errs[i]}
	}
}

// whileAny returns a context that ends when those of all calls have.
func whileAny[C, R any](batch []*passenger[C, R]) (context.Context, context.CancelFunc) {
	if len(batch) == 1 {
		return context.WithCancel(batch[0].ctx)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx))

	go func() {
		for _, p := range batch {
			select {
			case <-p.ctx.Done():
			case <-ctx.Done():
				return
			}
		}

		cancel()
	}()

	return ctx, cancel
}
