package sqllock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lock is a lock that was acquired: the handle to work under it and to release
// it. It is safe for concurrent use. The methods of a nil *Lock return
// ErrNotAcquired, so that a deferred Release does no harm.
type Lock struct {
	hold *hold

	release sync.Once
	result  error

	mu       sync.Mutex
	released bool
}

var errNilLock = fmt.Errorf("%w: the *Lock is nil", ErrNotAcquired)

// Name returns the lock's name.
func (l *Lock) Name() string {
	if l == nil {
		return ""
	}

	return l.hold.request.Name
}

// Token returns the fencing token: larger than that of any earlier grant of
// the name, by whatever process. Give it to whatever the lock protects and
// have it refuse a token smaller than one it has seen; or use Guard where that
// is the same database. Handles of one reentrant lock have the same token.
func (l *Lock) Token() int64 {
	if l == nil {
		return 0
	}

	return l.hold.grant.Token()
}

// Owner returns the random name of this acquisition in the database.
func (l *Lock) Owner() string {
	if l == nil {
		return ""
	}

	return l.hold.request.Owner
}

// Context returns a context that ends when the lock is lost or released. Its
// cause is a *LostError or ErrReleased. It carries the values of the context
// that the lock was acquired with, and not its end.
func (l *Lock) Context() context.Context {
	if l == nil {
		ctx, cancel := context.WithCancelCause(context.Background()) //nolint:forbidigo // a nil handle has no context to derive from
		cancel(errNilLock)

		return ctx
	}

	return l.hold.ctx
}

// Done is closed when the lock is lost or released.
func (l *Lock) Done() <-chan struct{} { return l.Context().Done() }

// Err is nil while the lock is held. After that it is a *LostError, or
// ErrReleased, with ErrClosed if it was Close that released it. It asks the
// clocks, not the database.
func (l *Lock) Err() error {
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
// renewal; zero once it is lost or released. It asks the clocks, not the
// database.
func (l *Lock) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}

	return max(0, l.hold.left(now()))
}

// Check asks the database whether the lock is still ours. nil: it is. A
// *LostError: it is not, and the lock's context ends. Any other error: the
// database did not say.
func (l *Lock) Check(ctx context.Context) error {
	return l.ask(ctx, "check", func(ctx context.Context) error { return l.hold.grant.Check(ctx) })
}

// Extend renews now, so that the lease runs for at least d from now on, and
// renewals to come use d. It never shortens a lease that runs already. Errors
// are those of Check, and ErrInvalidOption for a d that WithLease would refuse.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}

	h := l.hold

	// The new lease must make sense with the lock's other settings.
	if _, err := h.settings.with([]Option{WithLease(d)}, h.locker.features); err != nil {
		return err
	}

	// Who has it next in this process asked for a lease of its own.
	if err := h.pin(); err != nil {
		return err
	}

	// Its answer may be lost.
	h.mu.Lock()
	h.asked = max(h.asked, d)
	h.mu.Unlock()

	start := now()

	if err := l.ask(ctx, "extend", func(ctx context.Context) error { return h.grant.Renew(ctx, d) }); err != nil {
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
	if err := l.Err(); err != nil {
		return err
	}

	return l.told(verb, bounded(ctx, l.hold.settings.lease, f))
}

// told is what the caller gets for the database's answer. A loss ends the lock.
func (l *Lock) told(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case l.hold.isLoss(err):
		return l.hold.lost(err)
	default:
		return fmt.Errorf("%s lock %q: %w", verb, l.Name(), err)
	}
}

// Guard checks, inside the caller's own transaction, that this is the latest
// grant of the name, and pins that until the transaction ends: nobody else
// gets the lock before its COMMIT or ROLLBACK. So with the data in the same
// database a holder that was paused, cut off or overtaken can not commit what
// it began. Renewals go on beside it, except on SQLite, which has one writer.
//
// Give it the transaction as postgres.Tx(tx), mysql.Tx(tx) or sqlite.Tx(tx)
// wrap it. A *LostError means: roll back. Any other error leaves it open; roll
// back too.
func (l *Lock) Guard(ctx context.Context, tx Tx) error {
	guarder, err := l.guarder(tx, "guard", l.features().Guard)
	if err != nil {
		return err
	}

	if err := l.hold.pin(); err != nil {
		return err
	}

	return l.told("guard", guarder.Guard(ctx, tx))
}

// ReleaseTx releases the lock as part of the caller's transaction: the next
// holder sees what the transaction wrote. Until it commits the lock is held,
// but not renewed any more. Call Release afterwards all the same; it finds the
// lock freed, or frees it if the transaction was rolled back. A reentrant lock
// can be released so by its last handle only.
func (l *Lock) ReleaseTx(ctx context.Context, tx Tx) error {
	const verb = "release in a transaction"

	guarder, err := l.guarder(tx, verb, l.features().ReleaseTx)
	if err != nil {
		return err
	}

	// Before it is sent: a renewal that comes just after the commit must not
	// take the release for a loss.
	if err := l.hold.beginReleaseTx(); errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("%s lock %q: %w", verb, l.Name(), err)
	} else if err != nil {
		return err
	}

	if err := guarder.ReleaseTx(ctx, tx); err != nil {
		l.hold.endReleaseTx()

		return l.told(verb, err)
	}

	return nil
}

func (l *Lock) features() Features {
	if l == nil {
		return Features{}
	}

	return l.hold.locker.features
}

// guarder returns the grant's Guarder, if the lock is held and the transaction
// fits.
func (l *Lock) guarder(tx Tx, verb string, supported bool) (Guarder, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}

	features := l.features()
	guarder, ok := l.hold.grant.(Guarder)

	switch {
	case !ok || !supported:
		return nil, fmt.Errorf("%s lock %q: %w by strategy %s on %s",
			verb, l.Name(), ErrUnsupported, features.Strategy, features.Database)
	case tx == nil:
		return nil, fmt.Errorf("%s lock %q: %w: the transaction is nil", verb, l.Name(), ErrInvalidOption)
	case tx.Database() != features.Database:
		return nil, fmt.Errorf("%s lock %q: %w: the transaction is of %s, the lock of %s",
			verb, l.Name(), ErrUnsupported, tx.Database(), features.Database)
	default:
		return guarder, nil
	}
}

// Release frees the lock. It works though ctx has ended, takes at most some
// seconds, and may be called more than once: later calls return what the first
// did. A *LostError says that the lock had been lost before, so that the work
// under it is suspect. After any other error the release goes on in the
// background, and the lease ends the lock at the latest.
//
// The lock's context ends before the lock is free for others.
func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return errNilLock
	}

	l.release.Do(func() {
		l.mu.Lock()
		l.released = true
		l.mu.Unlock()

		if l.hold.drop() {
			l.result = l.hold.release(ctx)

			return
		}

		if err := l.hold.err(); errors.Is(err, ErrLost) {
			l.result = err
		}
	})

	return l.result
}
