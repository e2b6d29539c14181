package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// What an acquisition makes of an answer that did not bring the lock: what has to be settled, whether it asks again,
// and what it tells at the end: who has the lock, or why nobody knows.

// recordAnswer notes what the database said: of the name, if somebody has it, and that
// it can be reached.
func (a *acquisition) recordAnswer(err error) *HeldError {
	held := new(HeldError)
	if !errors.As(err, &held) {
		return nil
	}

	a.locker.reached.Store(true)

	told := held
	if a.last = held; a.ours(held) {
		a.last, told = errHaunted, nil
	}

	a.locker.turns.recordAnswer(a.queued, told)

	return held
}

// recordFailure counts an attempt that failed, and says whether another one follows.
func (a *acquisition) recordFailure(err error) bool {
	reached := a.locker.reached.Load()
	a.last = err
	a.locker.turns.recordAnswer(a.queued, nil)

	switch {
	case errors.Is(err, ErrReadOnly):
		// The primary was demoted. The pool finds the next one.
		return reached && !a.try
	case isAnswer(err):
		return false
	case errors.Is(err, ErrTooManyConnections):
		// Nothing was taken. The server takes them again when others end.
		a.failures = 0

		return !a.try
	case errors.Is(err, ErrUnreachable) && (reached || errors.Is(err, strategies.ErrBusy)) && !a.try:
		return true
	default:
		// It may have been granted. The same owner asks again, and is told.
		a.failures++

		return a.failures < maxFailures
	}
}

// handleError has what a failed attempt may have left settled, and returns the error that the acquisition goes on with.
func (a *acquisition) handleError(ctx context.Context, request strategies.Request, err error) error {
	var abandoned call.AbandonedError[strategies.Grant]

	switch {
	case errors.As(err, &abandoned):
		// It may still be granted, and is given back then. So the next attempt
		// is not this owner's.
		ending, doubted := a.locker.settle(ctx, request), !a.doubt.IsZero()
		abandoned.Then(func(late strategies.Grant, err error) {
			if err == nil {
				a.locker.settleGrant(ctx, request, late)
			}

			// Unless an attempt before it, of the same owner, may still be on its way.
			if !doubted && !uncertain(err) {
				a.locker.background.drop(ending)
			}
		})
		a.changeOwner()
	case errors.Is(err, strategies.ErrUnsettled), uncertain(err) && a.set.many():
		// Also though somebody has the name: what is left of the attempt is nobody's. And the next one may be for another slot.
		a.locker.settle(ctx, request)
		a.changeOwner()
	case uncertain(err):
		a.doubt = time.Now()
	}

	if a.timedOut && !isAnswer(err) {
		return fmt.Errorf("no answer within %s: %w", longest(a.set), unanswered(err))
	}

	return asHeld(a.request.Name, err)
}

// changeOwner makes the next attempt another owner's. What the one before may have is
// settled meanwhile.
func (a *acquisition) changeOwner() {
	a.abandoned = append(a.abandoned, a.request.Owner)
	a.request.Owner = newOwner()

	a.doubt = time.Time{}
}

// queuedEndError is the error of a wait for the turn that was ended. If nobody is known
// to have the lock, the database has not answered others of this process.
func (a *acquisition) queuedEndError(wait, ctx context.Context, s known) error {
	if a.learn(s); a.last == nil && errors.Is(wait.Err(), context.DeadlineExceeded) {
		a.last = ErrUnreachable
	}

	return a.endError(wait, ctx)
}

// endError is the error of a wait that has ended. It may ask the database who has the name now.
func (a *acquisition) endError(wait, ctx context.Context) error {
	cause := context.Cause(wait)

	// Not only the cause: the context may be that of another locker's lock.
	if a.locker.life.Err() != nil && errors.Is(cause, ErrClosed) {
		return fmt.Errorf("lock %q: %w", a.request.Name, ErrClosed)
	}

	var deadlock *DeadlockError
	if errors.As(cause, &deadlock) && ctx.Err() == nil {
		return deadlock
	}

	place, silent := 0, a.last == nil && ctx.Err() == nil && errors.Is(wait.Err(), context.DeadlineExceeded)

	if one, w := a.line.one, &a.locker.waiters; one != nil {
		w.mu.Lock()

		if one.standing.ID != "" {
			place = one.standing.Ahead + 1
		}

		// The database has not said for a while how the acquisition stands.
		silent = silent || one.noted && w.failed.After(one.stood) && time.Since(one.stood) >= silence
		w.mu.Unlock()
	}

	if silent {
		a.last = ErrUnreachable
	}

	// Nobody may have it; but under a lock that has ended nothing is acquired.
	if errors.Is(cause, ErrLost) || errors.Is(cause, ErrReleased) {
		return endedContext(a.request.Name, cause)
	}

	// The caller's context may have ended with a cause of its own.
	if ended := ctx.Err(); ended != nil && !errors.Is(cause, ended) {
		cause = errors.Join(ended, cause)
	}

	if held := new(HeldError); errors.As(a.last, &held) && !unheld(held) {
		placed := *a.holderNow(wait, held)
		placed.Place = place
		a.last = &placed
	}

	return &waitError{name: a.request.Name, cause: cause, last: orUnheld(a.last)}
}

const (
	// fresh is how old the last answer of who has the lock may be at the end of a wait, and
	// freshTime how long it may take to ask again.
	fresh     = time.Second
	freshTime = 100 * time.Millisecond
)

// holderNow is who has the lock at the end of a wait, where held is what the last attempt was told:
// others may have had it since then.
func (a *acquisition) holderNow(wait context.Context, held *HeldError) *HeldError {
	// In a recovery pause nobody need have it, and it cannot be had all the same.
	stale := !held.Recovering && !held.At.IsZero() && time.Since(held.At) >= fresh
	if !stale || !errors.Is(wait.Err(), context.DeadlineExceeded) || a.locker.waiters.silent() {
		return held
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(wait), freshTime)
	defer cancel()

	taken, err := a.locker.taken(ctx, held.Name)
	if err != nil {
		return held
	}

	latest := allTaken(held.Name, a.set.permits, taken)
	latest.At = time.Now()

	return latest
}

// heldHere tells of the holder in this process, or of the one that others of this
// process wait for; nil if nobody is known to have the lock.
func (a *acquisition) heldHere(s known) *HeldError {
	switch {
	case s.holder != nil:
		held := &HeldError{
			Name: a.request.Name, Holder: s.holder.request.Holder, Token: s.holder.grant.Token, Shared: s.holder.readers != nil,
			Detail: "in this process",
		}

		if s.holder.err() == nil {
			held.Remaining = s.holder.left(now())
		}

		return held
	case s.held != nil:
		held := *s.held
		if held.Detail == "" {
			held.Detail = "others of this process are waiting for it"
		}

		return &held
	default:
		return nil
	}
}

// learn takes what others of this process know, if this one knows nothing.
func (a *acquisition) learn(s known) {
	switch held := a.heldHere(s); {
	case a.last != nil:
	case held != nil:
		a.last = held
	case s.noPlace != nil:
		a.last = s.noPlace
	case s.before != nil && time.Since(s.since) < silence:
		// It goes from hand to hand, and just now nobody knows in whose it is.
		a.last = &HeldError{
			Name: a.request.Name, Holder: s.before.request.Holder, Token: s.before.grant.Token, Detail: "in this process, a moment ago",
		}
	}
}

// cutShort notes that the wait ended during an attempt: without an answer, if there
// was time for one and it is not known what was in the way.
func (a *acquisition) cutShort(wait context.Context, started time.Time, err error) {
	a.learn(a.locker.turns.known(a.queued))

	if errors.Is(a.last, strategies.ErrBusy) {
		return
	}

	inTime := a.last == nil && errors.Is(wait.Err(), context.DeadlineExceeded)

	if inTime || time.Since(started) >= silence {
		a.last = unanswered(err)
	}
}

// unanswered is an error after which it is not known who has the lock.
func unanswered(err error) error {
	switch {
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrTooManyConnections):
		return err
	case errors.As(err, new(call.AbandonedError[strategies.Grant])):
		return ErrUnreachable
	default:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
}

// errHaunted is what is known of a name that is held by a grant of which this process has
// heard too late.
var errHaunted = fmt.Errorf("%w in time: an earlier attempt of this process may hold the lock, and is being ended", ErrUnreachable)

// ours says whether the holder that an answer tells of may be this call itself, by an
// attempt whose answer came too late. Nobody has that lock, so that a job must not be
// skipped because of it.
func (a *acquisition) ours(held *HeldError) bool {
	if len(a.abandoned) == 0 || held.Owner != "" {
		return a.own(held) || slices.Contains(a.abandoned, held.Owner)
	}

	mine := a.request.Holder

	return held.Holder.Host == mine.Host && held.Holder.PID == mine.PID && held.Holder.Label == mine.Label
}

// own says whether it is the owner of the next attempt, too: its row was locked for a moment, and it is granted again soon.
func (a *acquisition) own(held *HeldError) bool {
	return held.Owner != "" && held.Owner == a.request.Owner
}
