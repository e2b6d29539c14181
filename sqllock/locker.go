package sqllock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Locker acquires locks with one strategy in one database. A process needs one
// for each of those, made once. It is safe for concurrent use.
type Locker struct {
	strategy Strategy
	features Features
	defaults settings
	queue    queue
	keeper   keeper

	// Of a strategy that serves several calls with one statement.
	batcher  Batcher // or nil
	acquires lane[Request, Grant]
	releases lane[Grant, struct{}]

	ear ear

	life  context.Context //nolint:containedctx // ends with Close; waits and background work end with it
	close context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	pending int           // acquisitions under way, and what goes on in the background
	idle    chan struct{} // closed when pending falls to zero; nil if nobody waits for that
}

// New returns a locker. The options are the defaults of all its locks. It
// sends nothing to the database: whether the server fits and the tables are
// there shows at the first acquisition.
//
// Errors: ErrInvalidOption, ErrUnsupported for an option or a database that the
// strategy can not serve.
func New(strategy Strategy, options ...Option) (*Locker, error) {
	if strategy == nil {
		return nil, fmt.Errorf("sqllock: %w: the strategy is nil", ErrInvalidOption)
	}

	if v, ok := strategy.(Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, fmt.Errorf("sqllock: %w", err)
		}
	}

	features := strategy.Features()

	set, err := defaults().with(options, features)
	if err != nil {
		return nil, fmt.Errorf("sqllock: %w", err)
	}

	l := &Locker{
		strategy: strategy,
		features: features,
		defaults: set,
		queue:    queue{lines: make(map[string]*line)},
	}
	l.keeper = keeper{locker: l, wake: make(chan struct{}, 1)}

	l.acquires.alone = strategy.TryAcquire
	l.releases.alone = func(ctx context.Context, g Grant) (struct{}, error) { return struct{}{}, g.Release(ctx) }

	l.ear = ear{locker: l, bells: make(map[string]chan struct{})}
	l.ear.notifier, _ = strategy.(Notifier)

	if b, ok := strategy.(Batcher); ok {
		l.batcher = b
		l.acquires.together = b.TryAcquireAll
		l.releases.together = func(ctx context.Context, grants []Grant) ([]struct{}, []error) {
			return make([]struct{}, len(grants)), b.ReleaseAll(ctx, grants)
		}
	}

	l.life, l.close = context.WithCancelCause(context.Background()) //nolint:forbidigo // the locker's own life, which no call's context bounds

	return l, nil
}

// Features says what the locker's strategy can do on its database.
func (l *Locker) Features() Features {
	if l == nil {
		return Features{}
	}

	return l.features
}

// Acquire waits until it has the lock, ctx ends, or WithMaxWait has passed. ctx
// bounds this call only: the lock outlives it.
//
// Errors: ErrNotAcquired, joined with ctx's error if that ended the wait;
// ErrClosed, ErrInvalidName, ErrInvalidOption, ErrUnsupported, ErrNoSchema,
// ErrReadOnly; the database's. With ErrTooManyConnections it waits on.
func (l *Locker) Acquire(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return l.acquire(ctx, name, false, options)
}

// TryAcquire makes one attempt and does not wait for the holder. Errors are
// those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return l.acquire(ctx, name, true, options)
}

// Do acquires the lock as Acquire does, runs f, and releases the lock. The
// context of f ends when the lock is lost or when ctx does; context.Cause says
// which. Do returns the error of f joined with that of the release, so a loss
// during f is an error (ErrLost) even if f had none.
func (l *Locker) Do(
	ctx context.Context, name string, f func(ctx context.Context, lock *Lock) error, options ...Option,
) error {
	return l.do(ctx, name, f, false, options)
}

// TryDo is Do with one attempt, as TryAcquire makes: the way to run a job once
// in a cluster. ErrNotAcquired says that another process runs it.
func (l *Locker) TryDo(
	ctx context.Context, name string, f func(ctx context.Context, lock *Lock) error, options ...Option,
) error {
	return l.do(ctx, name, f, true, options)
}

func (l *Locker) do(
	ctx context.Context, name string, f func(context.Context, *Lock) error, try bool, options []Option,
) (err error) {
	if f == nil {
		return fmt.Errorf("%w: the function is nil", ErrInvalidOption)
	}

	lock, err := l.acquire(ctx, name, try, options)
	if err != nil {
		return err
	}

	work, cancel := context.WithCancelCause(context.WithValue(ctx, reentry{l, name}, lock.hold))
	defer cancel(nil)

	stop := context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	defer stop()

	// Also when f panics or calls runtime.Goexit.
	defer func() {
		if ended := lock.Err(); errors.Is(ended, ErrClosed) {
			err = errors.Join(err, fmt.Errorf("lock %q: %w", name, ended))
		}

		err = errors.Join(err, lock.Release(ctx))
	}()

	return f(work, lock)
}

// Close releases all locks that are held, ends all waits with ErrClosed, and
// waits for what goes on in the background, until ctx ends. It does not touch
// the database pool. A closed locker answers ErrClosed.
func (l *Locker) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}

	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.close(ErrClosed)

	var held []*hold

	// All work is told to stop, then others may have the locks. A lock that has
	// just been lost may still be there; whoever has it was told.
	for _, h := range l.keeper.all() {
		if state := h.end(errReleasedByClose); !errors.Is(state, ErrLost) {
			held = append(held, h)
		}
	}

	errs := l.releaseAll(ctx, held)

	select {
	case <-l.settled():
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("close locker: %w", context.Cause(ctx)))
	}

	return errors.Join(errs...)
}

// releaseAll releases some locks at a time while ctx lives, and leaves the rest
// to the background.
func (l *Locker) releaseAll(ctx context.Context, held []*hold) (errs []error) {
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		slots = make(chan struct{}, renewers)
	)

	if l.batcher != nil {
		slots = make(chan struct{}, maxBatch)
	}

	for _, h := range held {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			h.goOn(ctx)

			continue
		}

		// Close waits for it, also when it takes longer than ctx.
		l.count()

		group.Go(func() {
			defer l.finish()
			defer func() { <-slots }()

			if err := h.release(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()

				errs = append(errs, err)
			}
		})
	}

	done := make(chan struct{})

	go func() {
		group.Wait()
		close(done)
	}()

	select {
	case <-done:
	case <-ctx.Done():
	}

	mu.Lock()
	defer mu.Unlock()

	return append([]error(nil), errs...)
}

// settled returns a channel that is closed when nothing is pending.
func (l *Locker) settled() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.idle == nil {
		l.idle = make(chan struct{})
	}

	idle := l.idle

	if l.pending == 0 {
		close(l.idle)
		l.idle = nil
	}

	return idle
}

// reentry is the context key under which a lock's context carries its hold.
type reentry struct {
	locker *Locker
	name   string
}

// errReleasedByClose is the state of a lock that Close released.
var errReleasedByClose = fmt.Errorf("%w: %w", ErrReleased, ErrClosed)

var errMaxWait = errors.New("the longest wait allowed is over")

func (l *Locker) acquire(ctx context.Context, name string, try bool, options []Option) (*Lock, error) {
	if l == nil {
		return nil, fmt.Errorf("%w: the *Locker is nil", ErrClosed)
	}

	if err := checkName(name); err != nil {
		return nil, err
	}

	set := &l.defaults

	if len(options) > 0 {
		own, err := l.defaults.with(options, l.features)
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}

		set = &own
	}

	if l.life.Err() != nil {
		return nil, fmt.Errorf("lock %q: %w", name, ErrClosed)
	}

	if outer, ok := ctx.Value(reentry{l, name}).(*hold); ok && (set.reentrant || outer.err() == nil) {
		return l.reenter(outer, set)
	}

	started := now()
	a := &acquisition{locker: l, set: set, try: try || set.waits && set.maxWait == 0, request: Request{
		Name: name, Owner: newOwner(), Lease: set.lease, MinHold: set.minHold, LockDelay: set.lockDelay,
		DurableRelease: set.durable, Holder: set.holder,
	}}

	h, err := a.run(ctx)

	event := Event{Name: name, Attempts: a.attempts, Waited: now().since(started), Err: err}
	if err != nil {
		l.note(set, eventNotAcquired, event)

		return nil, err
	}

	event.Token, event.Remaining = h.grant.Token(), h.left(now())
	l.note(set, eventAcquired, event)

	return &Lock{hold: h}, nil
}

// reenter handles an Acquire under the lock that it asks for.
func (l *Locker) reenter(outer *hold, set *settings) (*Lock, error) {
	if !set.reentrant {
		// Waiting would be waiting for oneself.
		return nil, &HeldError{
			Name: outer.request.Name, Holder: outer.request.Holder, Token: outer.grant.Token(),
			Remaining: outer.left(now()), Detail: "by the very context that asks for it; WithReentrant allows that",
		}
	}

	return outer.share()
}

// acquisition is one call of Acquire or TryAcquire under way.
type acquisition struct {
	locker   *Locker
	set      *settings
	try      bool
	request  Request
	attempts int
	since    time.Time // when it began, was heard that the name may be free, or changed hands
	rung     int       // how often it was heard
	polite   time.Time // until when others go first, for whom this process had the name
	seen     int64     // the holder's token at the last attempt
	changes  int       // how often that was another
	rivals   float64   // how many others contend for the name, by earlier waits
	doubtful bool      // an attempt's outcome was unknown
	last     error     // of the last attempt that was answered; nil if none was
}

// run takes the turn in this process, then attempts until it has the lock.
func (a *acquisition) run(ctx context.Context) (*hold, error) {
	l, name := a.locker, a.request.Name

	// Close waits for what an attempt under way may leave.
	if !l.begin() {
		return nil, fmt.Errorf("lock %q: %w", name, ErrClosed)
	}

	defer l.finish()

	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	stop := context.AfterFunc(l.life, func() { cancel(ErrClosed) })
	defer stop()

	if a.set.waits && !a.try {
		bounded, free := context.WithTimeoutCause(wait, a.set.maxWait, errMaxWait)
		defer free()

		wait = bounded
	}

	if a.try {
		if holder, ok := l.queue.tryEnter(name); !ok {
			return nil, a.heldHere(holder)
		}
	} else {
		h, err := l.queue.enter(wait, name, &waiter{set: a.set, ctx: ctx})

		switch {
		case err != nil:
			return nil, a.ended(wait, ctx)
		case h != nil:
			return h, nil
		}
	}

	tokens, polite, rivals := l.queue.advise(name)
	a.rivals = rivals

	if a.set.handsOff {
		a.request.Tokens = tokens
	}

	if polite && !a.try && !endsWithin(wait, 2*politeness) {
		a.polite = time.Now().Add(rememberCrowd)

		if !sleep(wait, politeness) {
			l.queue.leave(name)

			return nil, a.ended(wait, ctx)
		}
	}

	h, err := a.contend(wait, ctx)
	if err != nil {
		// There are as many rivals at least.
		if float64(a.changes) > rivals {
			l.queue.learn(name, a.changes)
		}

		l.queue.leave(name)

		if a.doubtful {
			l.settle(ctx, a.request, nil)
		}

		return nil, err
	}

	return h, nil
}

// heldHere tells of the holder in this process.
func (a *acquisition) heldHere(holder *hold) error {
	held := &HeldError{Name: a.request.Name, Holder: a.request.Holder, Detail: "others of this process are waiting for it"}

	if holder != nil {
		held = &HeldError{
			Name: a.request.Name, Holder: holder.request.Holder, Token: holder.grant.Token(),
			Remaining: max(0, holder.left(now())), Detail: "in this process",
		}
	}

	return held
}

// ended is the error of a wait that was ended.
func (a *acquisition) ended(wait, ctx context.Context) error {
	cause := context.Cause(wait)

	// Not only the cause: the context may be that of another locker's lock.
	if a.locker.life.Err() != nil && errors.Is(cause, ErrClosed) {
		return fmt.Errorf("lock %q: %w", a.request.Name, ErrClosed)
	}

	// The caller's context may have ended with a cause of its own.
	if ended := ctx.Err(); ended != nil && !errors.Is(cause, ended) {
		cause = errors.Join(ended, cause)
	}

	return &waitError{name: a.request.Name, cause: cause, last: a.last}
}

const (
	// maxDoubts is how many attempts in a row may end with an unknown outcome.
	maxDoubts = 3
	// maxAttempt bounds one, so that long leases do not wait for as long on a
	// connection that was cut off.
	maxAttempt = 10 * time.Second
)

// contend makes attempts until one has the lock.
func (a *acquisition) contend(wait, ctx context.Context) (*hold, error) {
	var (
		doubts = 0
		bell   <-chan struct{}
		down   func()
	)

	a.since = time.Now()

	for ; ; a.attempts++ {
		if wait.Err() != nil {
			return nil, a.ended(wait, ctx)
		}

		h, err := a.attempt(wait, ctx)

		var held *HeldError

		switch {
		case err == nil:
			a.attempts++

			return h, nil
		case errors.Is(err, ErrTooManyConnections) && a.try:
			return nil, fmt.Errorf("lock %q: %w", a.request.Name, err)
		case errors.Is(err, ErrTooManyConnections):
			// Nothing was taken. The server takes them again when others end.
			a.last, doubts = err, 0
		case wait.Err() != nil && !final(err):
			a.doubtful = true

			if a.last == nil && !errors.As(err, &abandonedError{}) && err != wait.Err() { //nolint:errorlint // only if it says no more than that
				a.last = err
			}

			return nil, a.ended(wait, ctx)
		case errors.As(err, &held):
			a.last, doubts = held, 0
		case final(err):
			return nil, fmt.Errorf("lock %q: %w", a.request.Name, err)
		default:
			// It may have been granted. The same owner asks again, and is told.
			a.doubtful, a.last = true, err

			if doubts++; doubts == maxDoubts {
				return nil, fmt.Errorf("lock %q: %w", a.request.Name, err)
			}
		}

		if a.try && held != nil {
			return nil, err
		}

		if down == nil && held != nil && a.set.listens {
			bell, down = a.locker.ear.hang(a.request.Name)
			defer down()

			if a.locker.ear.mayHaveMissed(a.request.Name) {
				a.request.Waiting = true

				continue
			}
		}

		if !a.pause(wait, held, bell) {
			return nil, a.ended(wait, ctx)
		}
	}
}

// longest is how long the database has to answer: a grant that takes longer than its
// lease is worth nothing.
func (a *acquisition) longest() time.Duration { return min(a.set.trust(a.set.lease), maxAttempt) }

// attempt asks the strategy once.
func (a *acquisition) attempt(wait, ctx context.Context) (*hold, error) {
	l := a.locker

	bound, cancel := context.WithTimeout(wait, a.longest())
	defer cancel()

	start, request := now(), a.request

	grant, err := awaited(l, func(late func(Grant, error)) (Grant, error) {
		if l.batches(a.set) {
			return l.acquires.serve(bound, request, late)
		}

		return within(bound, func(ctx context.Context) (Grant, error) { return l.strategy.TryAcquire(ctx, request) }, late)
	}, func(late Grant, err error) {
		if err == nil || !final(err) {
			l.settle(ctx, request, late)
		}
	})

	if errors.As(err, &abandonedError{}) {
		// It may still be granted, and is given back then. So the next attempt
		// is not this owner's.
		l.settle(ctx, request, nil)
		a.request.Owner = newOwner()
	}

	if err != nil {
		return nil, err
	}

	if now().since(start) >= a.set.trust(a.set.lease) {
		l.settle(ctx, request, grant)
		a.request.Owner = newOwner()

		return nil, &HeldError{Name: a.request.Name, Detail: "it was granted, but its lease had ended before the answer came"}
	}

	// Close takes stock under the same mutex: a lock is either refused here or
	// found there.
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.closed {
		l.settleLocked(ctx, request, grant)

		return nil, ErrClosed
	}

	h := &hold{
		locker: l, settings: a.set, request: request, grant: grant, acquired: start, granted: start, first: grant.Token(), confirmed: start,
		lease: a.set.lease, extended: a.set.lease, handles: 1, schedule: schedule{index: -1},
	}
	h.open(ctx)

	if !a.try {
		l.queue.learn(a.request.Name, a.changes)
	}

	// From then on the lock can end, and the turn with it.
	l.queue.hold(a.request.Name, h)
	l.keeper.keep(h)

	return h, nil
}

// batches says whether calls about a lock may go together with others.
func (l *Locker) batches(set *settings) bool { return l.batcher != nil && !set.alone }

// settle ends, in the background, what an acquisition that nobody has may have
// left in the database: its grant, if there is one here, and whatever is its
// owner's.
func (l *Locker) settle(ctx context.Context, request Request, grant Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.settleLocked(ctx, request, grant)
}

func (l *Locker) settleLocked(ctx context.Context, request Request, grant Grant) {
	settler, ok := l.strategy.(Settler)

	switch {
	case grant != nil && l.features.ConnectionHeld:
		l.inBackgroundLocked(ctx, 0, grant.Release)
	case grant != nil && !ok:
		l.inBackgroundLocked(ctx, request.Lease, grant.Release)
	case ok:
		// Not by its grant, which would keep a minimum hold that nobody has.
		end := func(ctx context.Context) error { return settler.Settle(ctx, request) }
		l.inBackgroundLocked(ctx, request.Lease, end)

		if grant == nil {
			l.lookAgainLocked(ctx, end)
		}
	}
}

// lookAgainLocked ends once more what an attempt left whose answer is not known.
// It may have been on its way still, and overtaken by what ended it: on a server
// that has much to do. Close does not wait for these times, but looks at once.
func (l *Locker) lookAgainLocked(ctx context.Context, end func(context.Context) error) {
	ctx = context.WithoutCancel(ctx)
	l.pending++

	go func() {
		defer l.finish()

		for _, after := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
			open := sleep(l.life, after)

			// If it fails the lease ends what there is, as for one that comes later still.
			if _ = bounded(ctx, time.Second, end); !open {
				return
			}
		}
	}()
}

// inBackground ends something in the database. It tries until the database
// answers or the lease has ended by itself. Zero is no lease: what ends a
// connection-held grant also gives its connection back, which nothing else does.
func (l *Locker) inBackground(ctx context.Context, lease time.Duration, end func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.inBackgroundLocked(ctx, lease, end)
}

func (l *Locker) inBackgroundLocked(ctx context.Context, lease time.Duration, end func(context.Context) error) {
	ctx, cancel := context.WithoutCancel(ctx), context.CancelFunc(func() {})
	if lease > 0 {
		ctx, cancel = context.WithTimeout(ctx, max(lease, time.Second))
	}

	l.pending++

	go func() {
		defer l.finish()
		defer cancel()

		for try := 0; ; try++ {
			err := bounded(ctx, time.Second, end)
			if err == nil || errors.Is(err, ErrLost) || !sleep(ctx, backoff(try, defaultPollMin, defaultPollMax)) {
				return
			}
		}
	}()
}

// begin counts something that Close waits for; false if it is too late.
func (l *Locker) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.closed {
		l.pending++
	}

	return !l.closed
}

// awaited is a call, by within or the like, that Close waits for, also when it is
// abandoned, and then for what late makes of it.
func awaited[T any](l *Locker, call func(late func(T, error)) (T, error), late func(T, error)) (T, error) {
	l.count()

	value, err := call(func(value T, err error) {
		defer l.finish()

		late(value, err)
	})

	if !errors.As(err, &abandonedError{}) {
		l.finish()
	}

	return value, err
}

// count is begin for a part of what begin counted.
func (l *Locker) count() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.pending++
}

// finish ends what begin or count counted.
func (l *Locker) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.pending--; l.pending == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// newOwner returns 128 random bits as 32 hexadecimal digits.
func newOwner() string {
	var random [16]byte

	// Never fails: https://pkg.go.dev/crypto/rand#Read.
	_, _ = rand.Read(random[:])

	return hex.EncodeToString(random[:])
}
