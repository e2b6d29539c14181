package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// The mutexes of the core, in the order in which they are locked, if several are:
//
//	waiters.mu, listener.mu → background.mu
//	turns.mu → keeper.mu → hold.mu
//	waiters.mu, turns.mu → recent.mu
//	waiters.mu → events.mu
//
// All others are locked with no other one inside. No code of a strategy, of an observer or of a log runs under any of them, but under
// that of an ending, which is outside of all these, and for which nobody waits. TestMutexes reads the package for both.

// Locker acquires locks with one strategy in one database. A process needs one
// for each of those, made once. It is safe for concurrent use.
type Locker struct {
	strategy strategies.Strategy
	features strategies.Features
	config   // of all locks, if their options do not say otherwise
	turns    turns
	shares   shares
	keeper   keeper
	events   events

	placer   strategies.Placer  // nil if the strategy is none
	guarder  strategies.Guarder // likewise
	acquires call.Batcher[strategies.Request, strategies.Grant]
	releases call.Batcher[strategies.Grant, bool]
	workers  call.Workers

	releaseLimit call.Deadline // of a try to release

	listener listener
	waiters  waiters
	watches  sync.Map // of those under way: *watch

	life  context.Context //nolint:containedctx // ends with Close; waits and background work end with it
	close context.CancelCauseFunc

	background background
	reaper     reaper
	reached    atomic.Bool // the database has answered
	inTxs      atomic.Bool // locks are used in transactions: none is handed on any more
}

// New returns a locker. The options are the defaults of all its locks. It
// sends nothing to the database: whether the server fits and the tables are
// there shows at the first acquisition.
//
// Errors: [ErrInvalidOption]; [ErrUnsupported] for an option or a database that the strategy cannot serve.
func New(strategy strategies.Strategy, options ...LockerOption) (*Locker, error) {
	if strategy == nil {
		return nil, fmt.Errorf("sqllock: %w: the strategy is nil", ErrInvalidOption)
	}

	if err := strategy.Validate(); err != nil {
		return nil, fmt.Errorf("sqllock: %w", err)
	}

	features := strategy.Features()
	_, features.Marks = strategy.(strategies.Noter)

	configured, err := configure(options, features)
	if err != nil {
		return nil, fmt.Errorf("sqllock: %w", err)
	}

	l := &Locker{
		strategy: strategy,
		features: features,
		config:   configured,
		turns:    turns{names: make(map[string]*turn)},
		shares:   shares{open: make(map[string][]*hold)},

		background: background{
			underWay: make(map[string]int), ends: make(map[*acquisition]func()),
			endings: make(map[*ending]struct{}),
		},
	}
	l.keeper = keeper{locker: l, wake: make(chan struct{}, 1), holds: make(map[*hold]struct{})}
	l.events = events{locker: l}
	l.reaper = reaper{locker: l}

	l.releaseLimit.After = releaseTimeout / releaseTries
	l.acquires.Workers, l.releases.Workers, l.listener.calls.Workers, l.waiters.entries.Workers = &l.workers, &l.workers, &l.workers, &l.workers

	if l.acquires.Send = strategy.Acquire; features.ConnectionHeld {
		l.acquires.Send = l.attempt
	}

	l.acquires.Size = func(r strategies.Request) int {
		return len(r.Name) + len(r.Owner) + len(r.Holder.Host) + len(r.Holder.Label) + len(r.Holder.Metadata)
	}
	l.releases.Send = strategy.Release

	l.listener.locker = l
	l.listener.calls.Send = func(ctx context.Context, names []string) ([]struct{}, []error) {
		return make([]struct{}, len(names)), slices.Repeat([]error{l.waiters.queuer.Call(ctx, names)}, len(names))
	}

	l.waiters.locker, l.waiters.process, l.waiters.wake = l, newOwner(), make(chan struct{}, 1)
	l.waiters.present, l.waiters.asking = make(map[*waiting]struct{}), make(map[string]*waiting)
	l.waiters.queuer, _ = strategy.(strategies.Queuer)
	l.waiters.entries.Send = l.waiters.enqueue
	l.placer, _ = strategy.(strategies.Placer)
	l.guarder, _ = strategy.(strategies.Guarder)

	l.life, l.close = context.WithCancelCause(context.Background()) //nolint:forbidigo // the locker's own life, which no call's context bounds

	return l, nil
}

// Features says what the locker's strategy can do on its database.
func (l *Locker) Features() strategies.Features {
	if l == nil {
		return strategies.Features{}
	}

	return l.features
}

// Acquire waits until it has the lock, ctx ends, or [WithMaxWait] has passed. ctx
// bounds this call only: the lock outlives it. Who waits for a lock while it holds another
// passes the context of that: only then is a deadlock found.
//
// Errors: [ErrNotAcquired] if somebody has the lock, [ErrRecovering] if nothing is granted after a fail-over, [ErrUnreachable] or
// [ErrTooManyConnections] if the database did not say so, each joined with ctx's error if
// that ended the wait, or ctx's error alone if ctx had ended before the call, or ended
// before much was known; [ErrDeadlock]; [ErrClosed], [ErrInvalidName],
// [ErrInvalidOption], [ErrUnsupported], [ErrNoSchema], [ErrReadOnly], [ErrNotAllowed]; the database's.
//
// A locker that has reached the database before waits for one that cannot be
// reached, that takes no more connections, or that has become read-only, as for
// the lock: it restarts, or fails over. One that has not waits for one that takes no more
// connections, too, and otherwise makes three attempts, of 5 seconds at most.
func (l *Locker) Acquire(ctx context.Context, name string, options ...LockOption) (*Lock, error) {
	return l.acquire(ctx, name, false, options)
}

// TryAcquire makes one attempt and does not wait for a holder. If nobody is known to
// hold the name, and a transaction has its row locked, it asks again for a second; then
// that is [ErrUnreachable], and not [ErrNotAcquired]. It takes 5 seconds at most. Errors are
// those of [Locker.Acquire].
func (l *Locker) TryAcquire(ctx context.Context, name string, options ...LockOption) (*Lock, error) {
	return l.acquire(ctx, name, true, options)
}

func (l *Locker) acquire(ctx context.Context, name string, try bool, options []LockOption) (*Lock, error) {
	set, err := l.settingsOf(ctx, name, options)
	if err != nil {
		return nil, err
	}

	if len(set.names) > 0 {
		return l.acquireSeveral(ctx, name, try, set)
	}

	a, err := l.newAcquisition(ctx, name, try, set)
	if err != nil {
		return nil, err
	}

	return a.run(ctx)
}

// attempt makes attempts where sessions hold the locks. One that fails may have lost that of others.
func (l *Locker) attempt(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := l.strategy.Acquire(ctx, requests)

	if slices.ContainsFunc(errs, suspect) {
		l.keeper.hurry()
	}

	return grants, errs
}

// suspect says whether what ended an attempt may have ended the session that holds locks, so that others may have them by now. The
// end of the caller's context breaks nothing, nor does a full pool; a deadline is often met because the database is slow, which more renewals would
// only make slower.
func suspect(err error) bool {
	return err != nil && !isAny(err, context.Canceled, context.DeadlineExceeded, ErrTooManyConnections, strategies.ErrNotAcquired, strategies.ErrRecovering, strategies.ErrNotBatched)
}

// batches says whether calls about a lock may go together with others.
func (l *Locker) batches(set *settings) bool {
	return !l.features.Unbatched && !set.unbatched && !set.shared
}

// settle ends, in the background, whatever attempts for a request may have left in the database that nobody has. They may still be
// on their way, and it is looked several times.
func (l *Locker) settle(ctx context.Context, request strategies.Request) *ending {
	return l.settleGrant(ctx, request, strategies.Grant{})
}

// settleGrant ends a grant that nobody has. It is there, and is ended once.
func (l *Locker) settleGrant(ctx context.Context, request strategies.Request, grant strategies.Grant) *ending {
	// Not by the grant, which would keep a minimum hold that nobody has.
	e := newEnding(ctx, request.Name, request.Lease, func(ctx context.Context) error { return l.strategy.Settle(ctx, request) })

	switch {
	case grant.None() || grant.Unsettled && !l.features.ConnectionHeld:
		e.looks = lookTimes(e.looks[0])
		e.until = e.until.Add(lastLook) // the lease begins when it arrives
	case l.features.ConnectionHeld:
		// That gives its connection back, too, which nothing else does.
		e.end = func(ctx context.Context) error {
			_, err := strategies.ReleaseOne(ctx, l.strategy, grant)

			return err
		}
		e.until = time.Time{}
	}

	return l.background.start(e)
}

// Do acquires the lock as [Locker.Acquire] does, runs f, and releases the lock. The
// context of f ends when the lock is lost or when ctx does; [context.Cause] says
// which. Its Err checks the clocks, as that of [Lock.Context] does. Do returns the error
// of f joined with that of the release, so a loss during f is an error ([ErrLost]) even
// if f had none. A *[ReleaseError] says that f ran and the release failed, a *[LostError] that the lock was
// lost meanwhile. Neither matches an error of an acquisition, or of the driver: f has run, and what it committed stands.
func (l *Locker) Do(
	ctx context.Context, name string, f func(ctx context.Context, lock *Lock) error, options ...LockOption,
) error {
	return l.do(ctx, name, false, f, options)
}

// TryDo is [Locker.Do] with one attempt, as [Locker.TryAcquire] makes: the way to run a
// job once in a cluster. [ErrNotAcquired] says that another process runs it. The error of f
// is returned too, so an ErrNotAcquired of an inner call looks like one of this call. Do not
// mix it with Do on one name: if a process dies while it waits in Do, TryDo is told for three
// seconds, or up to 22 if it was far back in a long line, that this one comes first.
func (l *Locker) TryDo(
	ctx context.Context, name string, f func(ctx context.Context, lock *Lock) error, options ...LockOption,
) error {
	return l.do(ctx, name, true, f, options)
}

func (l *Locker) do(
	ctx context.Context, name string, try bool, f func(context.Context, *Lock) error, options []LockOption,
) (err error) {
	if f == nil {
		return fmt.Errorf("%w: the function is nil", ErrInvalidOption)
	}

	lock, err := l.acquire(ctx, name, try, options)
	if err != nil {
		return err
	}

	work, stop := lock.ctx.over(ctx)
	defer stop()

	// Also when f panics or calls runtime.Goexit.
	defer func() {
		if ended := lock.Err(); errors.Is(ended, ErrClosed) {
			err = errors.Join(err, fmt.Errorf("lock %q: %w", lock.Name(), ended))
		}

		err = withRelease(err, lock.Release(ctx))
	}()

	return f(work, lock)
}

// withRelease joins the error of a function with that of the release after it. A loss
// that the function returned, as it was or as a part of its own error, is not told twice.
func withRelease(err, released error) error {
	if released != nil && errors.Is(err, released) {
		return err
	}

	return errors.Join(err, released)
}

// noter is the strategy, if it keeps notes.
func (l *Locker) noter() (strategies.Noter, error) {
	noter, ok := l.strategy.(strategies.Noter)
	if !ok {
		return nil, fmt.Errorf("%w by strategy %s on %s; use strategy cas", ErrUnsupported, l.features.Strategy, l.features.Database)
	}

	return noter, nil
}

// wakeWatches has all who watch a name, or any if it is empty, look now.
func (l *Locker) wakeWatches(name string) {
	l.watches.Range(func(key, _ any) bool {
		if w, _ := key.(*watch); name == "" || name == w.name {
			wakeUp(w.wake)
		}

		return true
	})
}
