package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// Lock is a lock that was acquired: the handle to work under it and to release
// it. It is safe for concurrent use. The methods of a nil *Lock return
// [ErrNotAcquired], so that a deferred Release does no harm.
//
// That of [Locker.AcquireAll] has several names, and is held while all of them are: what is done with it is done with each, in
// their order. What a lock has one of, as a token, it has of the first name; [Lock.Of] returns the lock of another.
type Lock struct {
	all  []*Lock // of several names, sorted by those, and then hold is the innermost; nil for one name
	stop func()  // ends what watches over those

	hold  *hold
	ctx   context.Context //nolint:containedctx // it is what Context returns: the hold's, or that of a reader
	end   func()          // ends a reader's context; nil if it has none
	since instant         // when a reader came
	again bool            // by WithReentrant: nobody was told of it

	release sync.Once
	result  error

	mu       sync.Mutex
	released bool
}

var errNilLock = fmt.Errorf("%w: the *Lock is nil", ErrNotAcquired)

// first is the hold of the first name.
func (l *Lock) first() *hold {
	if l.all != nil {
		return l.all[0].hold
	}

	return l.hold
}

// Name returns the lock's name, the first of several.
func (l *Lock) Name() string {
	if l == nil {
		return ""
	}

	return l.first().name()
}

// Slot is which of the permits of [WithPermits] the lock has: a number from 0 on that no other
// holder of the name has at the same time. It is 0 without permits.
func (l *Lock) Slot() int {
	if l == nil {
		return 0
	}

	return l.first().slot()
}

// Token returns the fencing token: larger than that of any earlier grant of
// the name, by whatever process. Give it to whatever the lock protects and
// have it refuse a token smaller than one it has seen; or use [Lock.Guard] where that
// is the same database. Handles of one reentrant lock have the same token. With [WithPermits]
// tokens grow within a slot: keep the largest of each; two slots may have the same one. With [WithShared] all readers who
// hold the name at the same time have the same one.
func (l *Lock) Token() int64 {
	if l == nil {
		return 0
	}

	return l.first().grant.Token
}

// Owner returns the random name of this acquisition in the database; with [WithShared] that of all readers who have
// the name.
func (l *Lock) Owner() string {
	if l == nil {
		return ""
	}

	return l.first().owner()
}

// Context returns a context that ends when the lock is lost or released. Its
// cause is a *[LostError] or [ErrReleased]. It carries the values of the context
// that the lock was acquired with, and not its end.
//
// Its Err looks at the clocks, as that of the lock does, and is never nil after the
// trust window. Its Done and what is derived from it end a moment later in a process
// that was stopped and goes on. After [Lock.ReleaseTx] it goes on until [Lock.Release] or
// the end of the trust window, because the transaction may run under it. The handles of
// a reentrant lock share it: it goes on until the last is released.
func (l *Lock) Context() context.Context {
	if l == nil {
		ctx, cancel := context.WithCancelCause(context.Background()) //nolint:forbidigo // a nil handle has no context to derive from
		cancel(errNilLock)

		return ctx
	}

	return l.ctx
}

// Done is closed when the lock is lost or released.
func (l *Lock) Done() <-chan struct{} { return l.Context().Done() }

// Err is nil while the lock is held. After that it is a *[LostError], or
// [ErrReleased], with [ErrClosed] if it was [Locker.Close] that released it. It asks the
// clocks, not the database. After [Lock.ReleaseTx] it is ErrReleased.
func (l *Lock) Err() error {
	if l != nil && l.all != nil {
		return l.errAll()
	}

	err := l.open()
	if err == nil && l.hold.mayBeFreed() {
		return ErrReleased
	}

	return err
}

// open is Err, but for a ReleaseTx: a transaction that was rolled back may be
// repeated.
func (l *Lock) open() error {
	if l == nil {
		return errNilLock
	}

	l.mu.Lock()
	released := l.released
	l.mu.Unlock()

	err := l.hold.err()
	if released && !errors.Is(err, ErrLost) {
		return ErrReleased
	}

	return err
}

// Remaining is how long the lock can be trusted from now on without a further
// renewal; zero once it is lost or released, and after [Lock.ReleaseTx]. It asks the
// clocks, not the database.
func (l *Lock) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}

	least := time.Duration(math.MaxInt64)

	_ = l.each(func(lock *Lock) error {
		least = min(least, lock.hold.left(now()))

		return nil
	})

	return max(0, least)
}

// Check asks the database whether the lock is still ours. nil: it is. A
// *[LostError]: it is not, and the lock's context ends. [ErrReleased]: the handle was
// released. Any other error: the database did not say.
func (l *Lock) Check(ctx context.Context) error {
	return l.each(func(lock *Lock) error {
		return lock.ask(ctx, "check", func(ctx context.Context) error {
			_, err := lock.hold.answered(strategies.RenewOne(ctx, lock.hold.locker.strategy, lock.hold.grant, 0))

			return err
		})
	})
}

// Extend renews now, so that the lease runs for at least d from now on, and
// renewals to come use d. It never shortens a lease that runs already, nor, of a shared
// lock, those that other readers of the locker go by, which is the same one. Errors
// are those of [Lock.Check] ([ErrReleased] after [Lock.ReleaseTx], too), and
// [ErrInvalidOption] or [ErrUnsupported] for a d that [WithLease] would refuse.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	return l.each(func(lock *Lock) error { return lock.extend(ctx, d) })
}

func (l *Lock) extend(ctx context.Context, d time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}

	if err := checkContext(ctx, "extend"); err != nil {
		return err
	}

	h := l.hold

	// The new lease must make sense with the lock's other settings.
	if _, err := h.settings.with([]LockOption{WithLease(d)}, h.locker.features); err != nil {
		return fmt.Errorf("extend lock %q: %w", l.Name(), ofExtend(err))
	}

	// Who has it next in this process asked for a lease of its own.
	if err := h.pin(); err != nil {
		return err
	}

	h.mu.Lock()

	if h.readers != nil {
		d = max(d, h.extended)
	}

	h.asked = max(h.asked, d) // its answer may be lost
	h.mu.Unlock()

	start := now()

	h.renewing(h.settings.lease)
	err := call.Bounded(ctx, h.settings.lease, func(ctx context.Context) error {
		return strategies.RenewOne(ctx, h.locker.strategy, h.grant, d)
	})
	_, err = h.answered(err)
	h.renewalEnded(err)

	if err := l.conclude(ctx, "extend", err); err != nil {
		return err
	}

	h.confirm(start, d)

	if err := l.Err(); err != nil {
		return err
	}

	h.mu.Lock()
	h.extended = d
	h.mu.Unlock()
	h.locker.keeper.reschedule(h, start)

	return nil
}

// ask runs a question to the database about a lock that is held.
func (l *Lock) ask(ctx context.Context, verb string, f func(context.Context) error) error {
	if err := l.open(); err != nil {
		return err
	}

	if err := checkContext(ctx, verb); err != nil {
		return err
	}

	err := l.conclude(ctx, verb, call.Bounded(ctx, l.hold.settings.lease, f))

	// It may have ended while the database was asked, and then it does not matter what that said.
	if state := l.open(); state != nil && lossIn(err) == nil {
		return state
	}

	return err
}

// conclude is what the caller gets for the database's answer. A loss ends the lock.
func (l *Lock) conclude(ctx context.Context, verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case lossIn(err) != nil:
		return l.hold.loseBy(lossIn(err))
	default:
		return fmt.Errorf("%s lock %q: %w", verb, l.Name(), ownTime(ctx, err))
	}
}

// Guard checks, inside the caller's own transaction, that this is the latest
// grant of the name, and pins that until the transaction ends: nobody else
// gets the lock before its COMMIT or ROLLBACK. So with the data in the same
// database a holder that was paused, cut off or overtaken cannot commit what
// it began. Renewals go on beside it, except on SQLite, which has one writer.
//
// Give it the transaction as postgres.Tx(tx), mysql.Tx(tx) or sqlite.Tx(tx)
// wrap it. A *[LostError] means: roll back. Any other error leaves it open; roll
// back too. A transaction with a snapshot that is older than the lock is such an
// error: begin it after the lock is acquired. What is guarded inside a savepoint is
// so only until that is rolled back. Other errors: [ErrReleased] if the handle was
// released; [ErrInvalidOption] if tx is nil; [ErrUnsupported] if tx is of another database.
func (l *Lock) Guard(ctx context.Context, tx strategies.Tx) error {
	return l.each(func(lock *Lock) error { return lock.guard(ctx, tx) })
}

func (l *Lock) guard(ctx context.Context, tx strategies.Tx) error {
	if err := l.inTx(ctx, tx, "guard"); err != nil {
		return err
	}

	guarder, err := l.guarder("Guard")
	if err != nil {
		return err
	}

	if err := l.hold.pin(); err != nil {
		return err
	}

	err = guarder.Guard(ctx, tx, l.hold.grant)
	l.usedInTx(err)

	return l.conclude(ctx, "guard", err)
}

// ReleaseTx releases the lock as part of the caller's transaction: the next
// holder sees what the transaction wrote. Until it commits the lock is held,
// but not renewed any more. ReleaseTx cannot know when tx commits, so from now on the
// handle no longer speaks for the lock: [Lock.Err] is [ErrReleased] and [Lock.Remaining]
// zero; [Lock.Check] asks the database. [Lock.Guard] and ReleaseTx work in a transaction
// that repeats one which was rolled back. Call [Lock.Release] afterwards all the same; it
// finds the lock freed, or frees it, and tells those who wait, which ReleaseTx does not. Only the last handle of a reentrant lock can be
// released this way. If ReleaseTx fails the lock is held as before; roll tx back then,
// which the database may have done already. After a rollback the lock ends with its lease, and whether it was released or
// lost cannot be told any more: Release then returns nil, and Guard ErrReleased. Without Release, this process has the name for
// taken until the lease ends. On PostgreSQL at REPEATABLE READ and above it
// fails if the lock was renewed since the snapshot of tx, so use READ COMMITTED for a
// transaction that takes longer than a third of the lease.
//
// Errors: a *[LostError]; [ErrReleased]; [ErrUnsupported] if the strategy cannot do it, if the lock
// is shared, if there are other handles, or if tx is of another database; [ErrInvalidOption] if tx is
// nil; the database's.
func (l *Lock) ReleaseTx(ctx context.Context, tx strategies.Tx) error {
	return l.releaseAllTx(func(lock *Lock) error { return lock.releaseTx(ctx, tx, "ReleaseTx", 0) })
}

// releaseTx is the method of that name. It records the mark, too, unless that is zero.
func (l *Lock) releaseTx(ctx context.Context, tx strategies.Tx, method string, mark int64) error {
	verb := "release in a transaction"
	if mark != 0 {
		verb = "mark and release in a transaction"
	}

	if err := l.inTx(ctx, tx, verb); err != nil {
		return err
	}

	if l.hold.readers != nil {
		return fmt.Errorf("lock %q: %s is %w for shared locks; use Release", l.Name(), method, ErrUnsupported)
	}

	guarder, err := l.guarder(method)
	if err != nil {
		return err
	}

	// Before it is sent: a renewal that comes just after the commit must not
	// take the release for a loss.
	if err := l.hold.beginReleaseTx(); errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("lock %q: %s is %w", l.Name(), method, err)
	} else if err != nil {
		return err
	}

	err = guarder.ReleaseTx(ctx, tx, l.hold.grant, mark)
	l.hold.endReleaseTx(err == nil)
	l.usedInTx(err)

	return l.conclude(ctx, verb, err)
}

// inTx reports why a lock can do nothing in a transaction: it is not held, or the
// transaction does not fit.
func (l *Lock) inTx(ctx context.Context, tx strategies.Tx, verb string) error {
	if err := l.open(); err != nil {
		return err
	}

	if err := checkContext(ctx, verb); err != nil {
		return err
	}

	database := l.hold.locker.features.Database

	switch {
	case none(tx):
		return fmt.Errorf("%s lock %q: %w: the transaction is nil", verb, l.Name(), ErrInvalidOption)
	case tx.Database() != database && l.hold.locker.guarder != nil:
		return fmt.Errorf("%s lock %q: %w: the transaction is in %s, but the lock is in %s",
			verb, l.Name(), ErrUnsupported, tx.Database(), database)
	}

	return nil
}

// guarder is the strategy, if its locks can be used in transactions.
func (l *Lock) guarder(method string) (strategies.Guarder, error) {
	locker := l.hold.locker
	if locker.guarder == nil {
		return nil, fmt.Errorf("lock %q: %s is %w by strategy %s on %s; let what you write to compare the lock's token, or use strategy cas",
			l.Name(), method, ErrUnsupported, locker.features.Strategy, locker.features.Database)
	}

	return locker.guarder, nil
}

// usedInTx takes in that a transaction uses the lock. From now on a grant is the database's: a guard
// tells a snapshot that is older than its lock by what the database changed when it granted that.
func (l *Lock) usedInTx(err error) {
	if err == nil {
		l.hold.locker.inTxs.Store(true)
	}
}

// none says whether there is no transaction: a nil Tx, or a nil pointer in one.
func none(tx strategies.Tx) bool {
	if tx == nil {
		return true
	}

	v := reflect.ValueOf(tx)

	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Release frees the lock. It works though ctx has ended, takes at most some
// seconds, and may be called more than once: later calls return what the first
// did. A *[LostError] says that the lock had been lost before, so that the work
// under it is suspect. A *[ReleaseError] says that the release failed; it goes on in the
// background, and the lease ends the lock at the latest.
//
// The lock's context ends before the lock is free for others.
func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return errNilLock
	}

	if l.all != nil {
		defer l.stop()

		return releaseEach(ctx, l.all)
	}

	if err := checkContext(ctx, "release"); err != nil {
		// All the same: nobody looks at the error of a call that was deferred.
		return errors.Join(err, l.Release(l.hold.ctx))
	}

	var (
		event Event
		news  bool
	)

	l.release.Do(func() {
		l.mu.Lock()
		l.released = true
		l.mu.Unlock()

		if l.end != nil {
			l.end()
		}

		if l.hold.drop() {
			l.result = l.hold.release(ctx)

			if event, news = l.hold.releaseNews(); news && l.end != nil {
				event.HeldFor = now().since(l.since)
				news = !l.again || event.Err != nil
			}

			return
		}

		if l.end != nil && !l.again {
			event, news = Event{Kind: Released, Name: l.Name(), Token: l.hold.grant.Token, HeldFor: now().since(l.since)}, true
		}

		if err := l.hold.err(); errors.Is(err, ErrLost) {
			l.result = err
		}
	})

	// Others may wait for the call above, and not for a log.
	if news {
		l.hold.locker.tell(l.ctx, event)
	}

	return l.result
}
