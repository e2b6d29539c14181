package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// Lock is a lock that was acquired: the handle to work under it and to release
// it. It is safe for concurrent use. The methods of a nil *Lock return
// [ErrNotAcquired], so that a deferred Release does no harm.
//
// With [WithNames] it has several names, and is held while all of them are: what is done with it is done with each, in their order.
type Lock struct {
	hold  *hold        // of the name that was given first
	ctx   *heldContext // it is what Context returns, and has the holds of all names
	end   func()       // ends the context of a reader, or of several names; nil if it is the hold's
	since instant      // when a reader came
	again bool         // by WithReentrant: nobody was told of it

	release sync.Once
	result  error

	released atomic.Bool
}

var errNilLock = fmt.Errorf("%w: the *Lock is nil", ErrNotAcquired)

// each does something with the hold of each name, in the order of those, until the first error.
func (l *Lock) each(do func(*hold) error) error {
	if l == nil {
		return errNilLock
	}

	for _, h := range l.ctx.holds {
		if err := do(h); err != nil {
			return err
		}
	}

	return nil
}

// holds are those of all names; none if there is no lock.
func (l *Lock) holds() []*hold {
	if l == nil {
		return nil
	}

	return l.ctx.holds
}

// first returns the hold of the name that was given; none if there is no lock.
func (l *Lock) first() *hold {
	if l == nil {
		return new(hold)
	}

	return l.hold
}

// Name returns the lock's name: the one that the call was given, if [WithNames] added others.
func (l *Lock) Name() string { return l.first().name }

// Names returns all names of the lock, sorted: one without [WithNames].
func (l *Lock) Names() (names []string) {
	for _, h := range l.holds() {
		names = append(names, h.name)
	}

	return names
}

// Slot is which of the permits of [WithPermits] the lock has: a number from 0 on that no other
// holder of the name has at the same time. It is 0 without permits.
func (l *Lock) Slot() int { return l.first().slot }

// Token returns the fencing token: larger than that of any earlier grant of
// the name, by whatever process. Give it to whatever the lock protects and
// have it refuse a token smaller than one it has seen; or use [Lock.Guard] where that
// is the same database. Handles of one reentrant lock have the same token. With [WithPermits]
// tokens grow within a slot: keep the largest of each; two slots may have the same one. With [WithShared] all readers who
// hold the name at the same time have the same one.
func (l *Lock) Token() int64 { return l.first().grant.Token }

// TokenOf returns the fencing token of one of the names ([WithNames]); 0 if the lock has no such name.
func (l *Lock) TokenOf(name string) int64 { return l.holdOf(name).grant.Token }

// Owner returns the random name of this acquisition in the database; with [WithShared] that of all readers who have
// the name.
func (l *Lock) Owner() string { return l.first().owner() }

// OwnerOf is Owner for one of the names ([WithNames]); empty if the lock has no such name.
func (l *Lock) OwnerOf(name string) string { return l.holdOf(name).owner() }

// holdOf returns the hold of a name; none if the lock has no such name.
func (l *Lock) holdOf(name string) *hold {
	for _, h := range l.holds() {
		if h.name == name {
			return h
		}
	}

	return new(hold)
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
	if err := l.open(); err != nil {
		return err
	}

	for _, h := range l.holds() {
		if h.view().freed {
			return ErrReleased
		}
	}

	return nil
}

// open is Err, but for a ReleaseTx: a transaction that was rolled back may be
// repeated.
func (l *Lock) open() error {
	if l == nil {
		return errNilLock
	}

	err := l.ctx.ended()
	if l.released.Load() && !errors.Is(err, ErrLost) {
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

	n, least := now(), time.Duration(math.MaxInt64)

	for _, h := range l.holds() {
		least = min(least, h.left(n))
	}

	return max(0, least)
}

// Check asks the database whether the lock is still ours. nil: it is. A
// *[LostError]: it is not, and the lock's context ends. [ErrReleased]: the handle was
// released. Any other error: the database did not say.
func (l *Lock) Check(ctx context.Context) error {
	return l.each(func(h *hold) error {
		const verb = "check"

		if err := l.begin(ctx, verb); err != nil {
			return err
		}

		err := call.Bounded(ctx, h.settings.lease, func(ctx context.Context) error {
			_, err := h.answered(strategies.RenewOne(ctx, h.locker.strategy, h.grant, 0))

			return err
		})
		err = h.conclude(ctx, verb, err)

		// It may have ended while the database was asked, and then it does not matter what that said.
		if state := l.open(); state != nil && lossIn(err) == nil {
			return state
		}

		return err
	})
}

// begin reports why a lock cannot be asked about: it is not held, or the context is nil.
func (l *Lock) begin(ctx context.Context, verb string) error {
	if err := l.open(); err != nil {
		return err
	}

	return checkContext(ctx, verb)
}

// Extend renews now, so that the lease runs for at least d from now on, and
// renewals to come use d. It never shortens a lease that runs already, nor, of a shared
// lock, those that other readers of the locker go by, which is the same one. Errors
// are those of [Lock.Check] ([ErrReleased] after [Lock.ReleaseTx], too), and
// [ErrInvalidOption] or [ErrUnsupported] for a d that [WithLease] would refuse.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	return l.each(func(h *hold) error {
		if err := l.Err(); err != nil {
			return err
		}

		if err := checkContext(ctx, "extend"); err != nil {
			return err
		}

		// The new lease must make sense with the lock's other settings.
		if _, err := h.settings.with([]LockOption{WithLease(d)}, h.locker.features); err != nil {
			return fmt.Errorf("extend lock %q: %w", h.name, ofExtend(err))
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
		_, err = h.renewalEnded(err)

		if err := h.conclude(ctx, "extend", err); err != nil {
			return err
		}

		h.confirm(start, d)

		if err := l.Err(); err != nil {
			return err
		}

		h.mu.Lock()

		if h.readers == nil || d > h.extended { // another reader may have asked for more meanwhile
			h.extended = d
		}

		h.mu.Unlock()
		h.locker.keeper.reschedule(h, start)

		return nil
	})
}

// conclude is what the caller gets for the database's answer. A loss ends the lock.
func (h *hold) conclude(ctx context.Context, verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case lossIn(err) != nil:
		return h.loseBy(lossIn(err))
	default:
		return fmt.Errorf("%s lock %q: %w", verb, h.name, ownTime(ctx, err))
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
	return l.each(func(h *hold) error {
		guarder, err := l.inTx(ctx, h, tx, "guard", "Guard")
		if err != nil {
			return err
		}

		if err := h.pin(); err != nil {
			return err
		}

		err = guarder.Guard(ctx, tx, h.grant)
		h.locker.usedInTx(err)

		return h.conclude(ctx, "guard", err)
	})
}

// ReleaseTx releases the lock as part of the caller's transaction: the next
// holder sees what the transaction wrote. Until it commits the lock is held,
// but not renewed any more. ReleaseTx cannot know when tx commits, so from now on the
// handle no longer speaks for the lock: [Lock.Err] is [ErrReleased] and [Lock.Remaining]
// zero; [Lock.Check] asks the database. [Lock.Guard] and ReleaseTx work in a transaction
// that repeats one which was rolled back. Call [Lock.Release] afterwards all the same; it
// finds the lock freed, or frees it, and tells those who wait, which ReleaseTx does not. Only the last handle of a reentrant lock can be
// released this way. If ReleaseTx fails the lock is held as before; roll tx back then,
// which the database may have done already. It is lost if its trust window ends before ReleaseTx has the answer. After a rollback the lock ends with its lease, and whether it was released or
// lost cannot be told any more: Release then returns nil, and Guard ErrReleased. Without Release, this process has the name for
// taken until the lease ends. On PostgreSQL at REPEATABLE READ and above it
// fails if the lock was renewed since the snapshot of tx, so use READ COMMITTED for a
// transaction that takes longer than a third of the lease.
//
// Errors: a *[LostError]; [ErrReleased]; [ErrUnsupported] if the strategy cannot do it, if the lock
// is shared, if there are other handles, or if tx is of another database; [ErrInvalidOption] if tx is
// nil; the database's.
func (l *Lock) ReleaseTx(ctx context.Context, tx strategies.Tx) error {
	return l.releaseAllTx(ctx, tx, "ReleaseTx", 0)
}

// releaseAllTx has all names released in a transaction, or none. It records the mark, too, unless that is zero.
func (l *Lock) releaseAllTx(ctx context.Context, tx strategies.Tx, method string, mark int64) error {
	var begun []*hold

	err := l.each(func(h *hold) error {
		err := l.releaseTx(ctx, h, tx, method, mark)
		if err == nil {
			begun = append(begun, h)
		}

		return err
	})

	// Not before: until the last name is released, the end of the first one's window is a loss.
	for _, h := range begun {
		if err == nil {
			err = h.err()
		}
	}

	for _, h := range begun {
		if ended := h.endReleaseTx(err == nil); err == nil {
			err = ended
		}
	}

	return err
}

func (l *Lock) releaseTx(ctx context.Context, h *hold, tx strategies.Tx, method string, mark int64) error {
	verb := "release"
	if mark != 0 {
		verb = "mark and release"
	}

	guarder, err := l.inTx(ctx, h, tx, verb, method)
	if err != nil {
		return err
	}

	if h.readers != nil {
		return fmt.Errorf("lock %q: %s is %w for shared locks; use Release", h.name, method, ErrUnsupported)
	}

	// Before it is sent: a renewal that comes just after the commit must not
	// take the release for a loss.
	if err := h.beginReleaseTx(); errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("lock %q: %s is %w", h.name, method, err)
	} else if err != nil {
		return err
	}

	err = guarder.ReleaseTx(ctx, tx, h.grant, mark)
	h.locker.usedInTx(err)

	if err != nil {
		_ = h.endReleaseTx(false)
	}

	return h.conclude(ctx, verb, err)
}

// inTx returns the strategy, or why a lock can do nothing in a transaction: it is not held, the
// transaction does not fit, or the strategy has no locks that can.
func (l *Lock) inTx(ctx context.Context, h *hold, tx strategies.Tx, verb, method string) (strategies.Guarder, error) {
	if err := l.begin(ctx, verb); err != nil {
		return nil, err
	}

	guarder, features := h.locker.guarder, h.locker.features

	switch {
	case none(tx):
		return nil, fmt.Errorf("%s lock %q: %w: the transaction is nil", verb, h.name, ErrInvalidOption)
	case guarder == nil:
		return nil, fmt.Errorf("lock %q: %s is %w by strategy %s on %s; let what you write to compare the lock's token, or use strategy cas",
			h.name, method, ErrUnsupported, features.Strategy, features.Database)
	case tx.Database() != features.Database:
		return nil, fmt.Errorf("%s lock %q: %w: the transaction is in %s, but the lock is in %s",
			verb, h.name, ErrUnsupported, tx.Database(), features.Database)
	}

	return guarder, nil
}

// usedInTx takes in that a transaction uses the lock. From now on a grant is the database's: a guard
// tells a snapshot that is older than its lock by what the database changed when it granted that.
func (l *Locker) usedInTx(err error) {
	if err == nil {
		l.inTxs.Store(true)
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

	if err := checkContext(ctx, "release"); err != nil {
		// All the same: nobody looks at the error of a call that was deferred.
		return errors.Join(err, l.Release(l.hold.ctx))
	}

	var one [1]Event

	news := one[:]

	l.release.Do(func() {
		l.endHandle()

		if len(l.ctx.holds) == 1 {
			l.result = l.releaseHold(ctx, l.hold, &one[0])
		} else {
			news, l.result = l.releaseHolds(ctx, l.ctx.holds)
		}
	})

	l.tell(news)

	return l.result
}

// endHandle ends the handle, before its locks.
func (l *Lock) endHandle() {
	l.released.Store(true)

	if l.end != nil {
		l.end()
	}
}

// tell tells what the end of the locks has to tell, after that: others may wait for it, and not for a log.
func (l *Lock) tell(news []Event) {
	for _, event := range news {
		if event.Name != "" {
			l.hold.locker.tell(l.ctx, event)
		}
	}
}

// releaseHold takes the handle from a hold, which ends with its last one, and sets what there is to tell.
func (l *Lock) releaseHold(ctx context.Context, h *hold, event *Event) (err error) {
	reads, last := h.readers != nil, h.drop()

	switch {
	case last:
		err = h.release(ctx, event)
	case reads:
		*event = Event{Kind: Released, Name: h.name, Token: h.grant.Token}
	}

	if ended := h.err(); !last && errors.Is(ended, ErrLost) {
		err = ended
	}

	switch {
	case reads && l.again && event.Err == nil:
		*event = Event{} // nobody was told of it
	case reads:
		event.HeldFor = now().since(l.since)
	}

	return err
}

// heldContext is a context that ends with a hold, or with the first of several. The goroutine that ends it when
// the trust window does comes too late in a process that was stopped for a while, so
// its Err looks at the clocks itself. Value and Done are those of a context of the
// standard library, which finds itself through them: what is derived from this one
// needs no goroutine of its own. Beside that, Value has the context itself.
type heldContext struct {
	context.Context //nolint:containedctx // it is one

	holds   []*hold                 // in the order of the names
	cancel  context.CancelCauseFunc // of Context
	outside context.Context         //nolint:containedctx // what it was made of, which has the lock around this one
	under   any                     // what it is the context of: the first hold, or the lock of a reader
}

// reentry is the context key under which a lock's context has what it is the context of. A *reentry is asked for, which
// takes no memory of its own.
type reentry struct {
	locker *Locker
	name   string
}

// heldUnder returns a context of ctx that ends with the first of some holds, which are sorted by name, and what ends that.
func heldUnder(ctx context.Context, holds []*hold) (*heldContext, func()) {
	c := &heldContext{holds: holds, outside: ctx, under: holds[0]}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	stops := make([]func() bool, len(holds))

	for i, h := range holds {
		stops[i] = context.AfterFunc(h.ctx, func() { c.cancel(context.Cause(h.ctx)) })
	}

	return c, func() {
		for _, stop := range stops {
			stop()
		}

		if c.Err() == nil { // or else it is that one was lost
			c.cancel(ErrReleased)
		}
	}
}

// over returns a context of ctx that ends with this one, too, and under which the same is held; and what ends that.
func (c *heldContext) over(ctx context.Context) (*heldContext, func()) {
	work, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c, func() { cancel(context.Cause(c)) })

	return &heldContext{work, c.holds, cancel, ctx, c.under}, func() {
		stop()
		cancel(nil)
	}
}

// ended is nil while all are held; else a *LostError if one was lost, or an ErrReleased.
func (c *heldContext) ended() (ended error) {
	for _, h := range c.holds {
		if err := h.err(); err != nil && !errors.Is(ended, ErrLost) {
			ended = err
		}
	}

	return ended
}

// Value is that of a context of the standard library, but for the context itself and its lock.
func (c *heldContext) Value(key any) any {
	switch k := key.(type) {
	case innermost:
		return c
	case *reentry:
		for i, h := range c.holds {
			switch {
			case *k != reentry{h.locker, h.name}:
			case i == 0:
				return c.under
			default:
				return h
			}
		}
	}

	return c.Context.Value(key)
}

// Err is nil while the holds are, as long as nothing else ended the context.
func (c *heldContext) Err() error {
	if ended := c.ended(); ended != nil {
		c.cancel(ended)
	}

	return c.Context.Err()
}

// Mark records a number with the name, for those who have the lock later: [Locker.Inspect] tells it as Status.Mark. It only grows:
// a number that is smaller than the recorded one changes nothing, and is no error. It must be larger than zero. Package once uses it
// for the time of the latest job that was done.
//
// The mark stays when the lock is released or lost. It goes with the row of an idle name ([Locker.Reap], [Tuning]), but no
// row is removed before 366 days after the time that its mark is, in microseconds since 1970. With [WithPermits] each slot has a mark
// of its own: see [SlotName].
//
// Call Mark before [Lock.Release], and after the end of a transaction that guards the lock ([Lock.Guard]): on SQLite it cannot write
// beside one. It works though ctx has ended, and takes at most some seconds. After [Lock.MarkTx] it only looks whether the
// transaction has committed, and is an error if not.
//
// Errors: a *[LostError] if another has acquired the lock since, or it was taken away: then the mark is not recorded. It may be one,
// too, if only the lease has ended. [ErrReleased]; [ErrInvalidOption] if the mark is not larger than zero; [ErrUnsupported] if the
// strategy keeps no marks, or the lock is shared. After any other error the mark may be recorded or not, and Mark may be called
// again. A mark that was not recorded is logged, too.
func (l *Lock) Mark(ctx context.Context, mark int64) error {
	return l.each(func(h *hold) error {
		const verb = "mark"

		if err := checkContext(ctx, verb); err != nil {
			return err
		}

		if l.released.Load() {
			return fmt.Errorf("%s lock %q: %w", verb, h.name, ErrReleased)
		}

		noter, err := h.marks(mark)
		if err != nil {
			return err
		}

		inTx := h.view().freed
		recorded, err := h.record(context.WithoutCancel(ctx), noter, mark, inTx)

		message := "mark not recorded"
		failed := func(err error) error { return fmt.Errorf("%s lock %q: %w", verb, h.name, outOfTime(err)) }

		switch {
		case errors.Is(err, strategies.ErrBusy):
			err = failed(fmt.Errorf("%w; if that is your own, call Mark after its commit, or MarkTx in it", err))
		case err != nil:
			err = failed(err)
		case recorded:
			return nil
		case inTx:
			// It will be, if that was MarkTx and the transaction commits.
			message = "mark not recorded yet"
			err = failed(errors.New("the transaction that releases it has not committed, or records no mark; use MarkTx in it"))
		default:
			err = &LostError{
				Name: h.name, Token: h.grant.Token, Reason: ReasonUnknown,
				Detail: "it is another's, or was released, before its mark was recorded",
			}
		}

		// A scheduler may drop the error.
		h.locker.logger.WarnContext(ctx, message, "name", h.name, "token", h.grant.Token, "mark", mark, "error", err)

		return err
	})
}

// MarkTx is [Lock.ReleaseTx], and records a mark as [Lock.Mark] does, in the same transaction: what that wrote, the mark and the
// release are committed together, or none of them is. Make it the last statement of the transaction. Errors are those of ReleaseTx,
// and [ErrInvalidOption] if the mark is not larger than zero.
func (l *Lock) MarkTx(ctx context.Context, tx strategies.Tx, mark int64) error {
	if l == nil {
		return errNilLock
	}

	if _, err := l.hold.marks(mark); err != nil {
		return err
	}

	return l.releaseAllTx(ctx, tx, "MarkTx", mark)
}

// marks returns the strategy, if the lock can have the mark.
func (h *hold) marks(mark int64) (noter strategies.Noter, err error) {
	switch {
	case mark <= 0:
		err = fmt.Errorf("%w: the mark %d is not larger than zero", ErrInvalidOption, mark)
	case h.readers != nil:
		err = fmt.Errorf("%w for shared locks", ErrUnsupported)
	default:
		noter, err = h.locker.noter()
	}

	if err != nil {
		return nil, fmt.Errorf("mark lock %q: %w", h.name, err)
	}

	return noter, nil
}

// record records the mark, or looks whether a transaction did. If an answer is lost it does so again, which does no harm.
func (h *hold) record(ctx context.Context, noter strategies.Noter, mark int64, inTx bool) (recorded bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()

	pinned, name := h.view().pinned, h.request.Name // that of the slot, if it has permits

	for try := 0; try < releaseTries && ctx.Err() == nil; {
		recorded, err = call.Limited(ctx, releaseTimeout/2, func(ctx context.Context) (bool, error) {
			if !inTx {
				return noter.Mark(ctx, name, h.owner(), mark)
			}

			notes, err := noter.Notes(ctx, name)

			return notes.Mark >= mark, err
		})

		// What is in the way of a lock that was guarded may be the transaction of the caller, who cannot end it meanwhile.
		if err == nil || isAnswer(err) || pinned && errors.Is(err, strategies.ErrBusy) {
			break
		}

		sleep(ctx, backoff(try, firstRetry, lastRetry))

		if !errors.Is(err, strategies.ErrBusy) { // or else nothing was done
			try++
		}
	}

	return recorded, err
}

// releaseHolds takes the handle from each of some holds, and returns what there is to tell of each.
func (l *Lock) releaseHolds(ctx context.Context, holds []*hold) (news []Event, err error) {
	news = make([]Event, len(holds))

	return news, together(holds, func(i int) error { return l.releaseHold(ctx, holds[i], &news[i]) })
}

// together ends holds by end, with one statement if it can be, and joins the errors.
func together(holds []*hold, end func(i int) error) error {
	ended := func() {}
	if len(holds) > 1 && holds[0].batched() {
		ended = holds[0].locker.releases.Expect(len(holds))
	}

	var (
		errs  = make([]error, len(holds))
		group sync.WaitGroup
	)

	for i := range holds {
		group.Go(func() {
			defer ended()

			errs[i] = end(i)
		})
	}

	group.Wait()

	return errors.Join(errs...)
}

// innermost is the context key under which the context of a lock has itself, whatever
// the locker and the name. The context below has that of the lock around it.
type innermost struct{}
