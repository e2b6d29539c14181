package sqllock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// acquisition is one call of Acquire or TryAcquire under way. run takes it from state
// to state:
//
//	turn ──▶ attempt ──▶ held: a hold, and its handle
//	 │         │  ▲
//	 │         ▼  │
//	 │        pause          only if it waits
//	 ▼         ▼
//	an error that ends it
//
// In turn it waits for others of this process, of whom one at a time asks the
// database; the lock may come with the turn. In attempt it asks the strategy once. In
// pause it waits until asking again makes sense, which its place in line says.
//
// The answer to an attempt may be lost. Then the same owner asks again, and is told of its
// grant. If the attempt is still under way when its time is over, what it may bring is
// settled in the background, and the next attempt is another owner's.
//
// Most acquisitions need none of this: fastPath asks at once if nobody here is ahead.
//
// The turn is this process's own. Once others are in line for the name, the strategy is asked when it is this process's turn among
// them, too: see inLine.
//
// Two contexts go along: wait ends the wait, by the caller, a limit or Close; ctx is the
// caller's, whose values the lock's context and the background work carry.
type acquisition struct {
	locker    *Locker
	key       reentry // of the hold in the context of its lock
	outer     *hold   // whose context asks for the same name again; nil if it is not one
	set       *settings
	try       bool
	call      string // what the IDs of all waits of one call for several names begin with
	request   strategies.Request
	queued    string // the name in turns: those who want a permit, or to read, wait apart
	hasTurn   bool   // among them
	contended bool   // others are known to be in line, to whose end it goes before it asks
	wish      int    // the slot to ask for, of several
	attempts  int
	line      inLine
	failures  int                     // attempts in a row without an answer
	timedOut  bool                    // the last attempt got none in its time
	stop      context.CancelCauseFunc // ends the wait
	entered   time.Time               // when its turn in this process came
	abandoned []string                // owners before, whose attempts may have the lock, and are settled
	doubt     time.Time               // of the last attempt of this owner whose outcome was unknown
	began     instant
	paused    bool  // by a recovery pause, of which it was told
	last      error // to tell at the end: of the last attempt, or what others of this process were told
}

// settingsOf checks what is asked for.
func (l *Locker) settingsOf(ctx context.Context, name string, options []LockOption) (*settings, error) {
	if l == nil {
		return nil, fmt.Errorf("%w: the *Locker is nil", ErrClosed)
	}

	if err := checkContext(ctx, "acquire"); err != nil {
		return nil, err
	}

	if err := checkName(name); err != nil {
		return nil, err
	}

	set := &l.settings

	if len(options) > 0 {
		own, err := l.with(options, l.features)
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}

		set = &own
	}

	if l.life.Err() != nil {
		return nil, fmt.Errorf("lock %q: %w", name, ErrClosed)
	}

	return set, nil
}

// newAcquisition looks under which lock it is asked for, and where in this process it waits.
func (l *Locker) newAcquisition(ctx context.Context, name string, try bool, set *settings) (*acquisition, error) {
	a := &acquisition{locker: l, key: reentry{l, name}}

	outer, ended := holdOf(ctx, &a.key)
	if outer != nil && ended != nil && ctx.Err() == nil {
		outer = nil // the context is not that of the lock any more, by context.WithoutCancel
	}

	if outer != nil && outer.readers != nil && ended != nil {
		return nil, endedContext(name, ended)
	}

	queued := name

	if set.shared {
		queued = readersQueue(name)
	}

	if set.many() {
		if len(name) > maxPermitsName {
			return nil, fmt.Errorf("%w: %q… has %d bytes, at most %d with permits", ErrInvalidName, cut(name, 32), len(name), maxPermitsName)
		}

		queued, _ = strategies.SlotRange(name, MaxPermits)
	}

	a.outer, a.set, a.try = outer, set, try || set.waits && set.maxWait == 0
	a.queued, a.wish = queued, anySlot
	a.request = newRequest(name, set)

	return a, nil
}

func newRequest(name string, set *settings) strategies.Request {
	return strategies.Request{
		Name: name, Owner: newOwner(), Mode: set.mode(), Lease: set.lease, MinHold: set.minHold, LockDelay: set.lockDelay,
		DurableRelease: set.commits.durableRelease, AsynchronousCommit: set.commits.asynchronous, Holder: set.holder,
	}
}

// newOwner returns 128 random bits as 32 hexadecimal digits.
func newOwner() string {
	var random [16]byte

	// Never fails: https://pkg.go.dev/crypto/rand#Read.
	_, _ = rand.Read(random[:])

	return hex.EncodeToString(random[:])
}

const (
	// maxFailures is how many attempts in a row may end without an answer.
	maxFailures = 3
	// silence is how long an attempt that was cut short by the end of the wait may
	// have been without an answer before that counts as none.
	silence = time.Second
)

var errNoAnswer = fmt.Errorf("no answer within %s", attemptTime)

// run goes through the states. Close waits for what an attempt under way may leave.
func (a *acquisition) run(ctx context.Context) (*Lock, error) {
	l, name := a.locker, a.request.Name

	if a.outer != nil {
		if err := a.outer.reenter(a.set); err != nil {
			return nil, ownTime(ctx, err)
		}

		lock := a.outer.handleOf(ctx)
		lock.again = true

		return lock, nil
	}

	if a.set.shared && ctx.Err() == nil {
		// Readers of this process may be joined without asking the database.
		if h := l.shares.find(name, a.set); h != nil && h.admit(false) {
			return a.handle(ctx, h, Event{}), nil
		}
	}

	if !l.background.begin(name) {
		return nil, fmt.Errorf("lock %q: %w", name, ErrClosed)
	}

	a.began = now()

	h, failed := a.fastPath(ctx, a.began)
	h, err := a.finish(ctx, h, failed)

	event := Event{Kind: NotAcquired, Name: name, Attempts: a.attempts, Waited: now().since(a.began), Err: err}

	// Before the observers and the log, which may block.
	l.background.finish(name)

	if err != nil {
		l.tell(ctx, event)

		return nil, err
	}

	return a.handle(ctx, h, event), nil
}

// finish goes on to the end after a first attempt: it brought a hold, or failed, or was not made.
func (a *acquisition) finish(ctx context.Context, h *hold, failed error) (_ *hold, err error) {
	if h == nil {
		h, err = a.slowPath(ctx, failed)
	}

	if err != nil && a.hasTurn {
		a.giveUp(ctx)
	}

	err = ownTime(ctx, err)

	a.leaveLine(err == nil && a.request.Wait != "")

	return h, err
}

// fastPath makes the first attempt, begun at start, if there is nothing to wait for, and has the turn then. Most acquisitions end with
// it. So it has one context, for what takes two of those that wait. It returns neither a hold nor an error if it was not made.
func (a *acquisition) fastPath(ctx context.Context, start instant) (*hold, error) {
	if !a.takeFreeTurn(ctx) {
		return nil, nil //nolint:nilnil // there is something to wait for
	}

	grant, err := a.ask(ctx, start)

	return a.answered(ctx, start, a.request, grant, err)
}

// takeFreeTurn takes the turn, if there is nothing to wait for, and says whether that is so.
func (a *acquisition) takeFreeTurn(ctx context.Context) bool {
	l := a.locker

	if a.set.manyHolders() || l.placer != nil || ctx.Err() != nil {
		return false
	}

	if _, taken := l.turns.tryEnter(a.queued); !taken {
		return false // somebody has it
	}

	a.recordTurn()

	return !a.contended // or else it goes into line before
}

// ask is the first attempt.
func (a *acquisition) ask(ctx context.Context, start instant) (strategies.Grant, error) {
	l := a.locker

	bound, limited := longest(a.set), false
	if limit, why := a.limit(); why != nil && limit-start.since(a.began) <= bound {
		bound, limited = limit-start.since(a.began), true
	}

	first, cancel := context.WithTimeoutCause(ctx, bound, errNoAnswer)
	defer cancel()

	l.background.endsBy(a, cancel)
	defer l.background.endsBy(a, nil)

	grant, err := l.acquires.Serve(first, a.request, l.batches(a.set))
	a.timedOut = err != nil && !limited && errors.Is(first.Err(), context.DeadlineExceeded) && ctx.Err() == nil

	return grant, err
}

// slowPath waits for its turn and makes attempts until one brings a hold. failed is the error of a first attempt; nil if none was made.
func (a *acquisition) slowPath(ctx context.Context, failed error) (h *hold, err error) {
	wait, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	if limit, why := a.limit(); why != nil {
		var end context.CancelFunc

		wait, end = context.WithTimeoutCause(wait, limit-now().since(a.began), why)
		defer end()
	}

	a.stop = stop
	a.locker.background.endsBy(a, func() { stop(ErrClosed) })
	defer a.locker.background.endsBy(a, nil)

	if failed != nil {
		err = a.retry(wait, ctx, a.entered, failed)
	} else {
		h, err = a.awaitTurn(wait, ctx)
	}

	for h == nil && err == nil {
		h, err = a.attempt(wait, ctx)
	}

	return h, err
}

// handle returns the handle of a hold after it told of it. If that panics nobody gets the
// handle, and the lock is released.
func (a *acquisition) handle(ctx context.Context, h *hold, event Event) *Lock {
	lock, told := h.handleOf(ctx), false

	defer func() {
		if !told {
			_ = lock.Release(ctx)
		}
	}()

	h.announce(ctx)
	a.emit(ctx, h, event)

	told = true

	return lock
}

// emit tells of a hold.
func (a *acquisition) emit(ctx context.Context, h *hold, event Event) {
	event.Kind, event.Name, event.Slot, event.Token, event.Remaining = Acquired, h.name, h.slot, h.grant.Token, h.left(now())
	a.locker.tell(ctx, event)
}

// limit is how long the acquisition may take, and what to say when that is over; nil if
// there is no limit.
func (a *acquisition) limit() (time.Duration, error) {
	switch {
	case a.try:
		return attemptTime, errNoAnswer
	case a.set.waits:
		return a.set.maxWait, fmt.Errorf("gave up after %s", a.set.maxWait)
	default:
		return 0, nil
	}
}

// giveUp gives the turn to the next of this process, and with it the place in line: who gives up does not send those behind it to the
// end. It ends what an attempt may have left.
func (a *acquisition) giveUp(ctx context.Context) {
	place := a.line.one
	if !a.locker.waiters.stands(place) {
		place = nil
	}

	if a.locker.turns.leave(a.queued, place) && place != nil {
		a.locker.listener.use(a.set, -1, 0)
		a.line = inLine{}
	}

	if !a.doubt.IsZero() {
		a.locker.settle(ctx, a.request)
	}
}

// awaitTurn waits for the turn in this process, until this is the one that asks the
// database. The lock may come with it. Who wants one of several slots asks for one without
// the turn, unless others already wait for that.
func (a *acquisition) awaitTurn(wait, ctx context.Context) (*hold, error) {
	if a.hasTurn {
		a.queueBehind(wait, ctx)

		return nil, nil //nolint:nilnil // no lock yet
	}

	if a.set.many() && (a.try || !a.locker.turns.busy(a.queued)) {
		a.entered = time.Now()

		return nil, nil //nolint:nilnil // no lock yet
	}

	return a.queueForTurn(wait, ctx)
}

// queueForTurn is awaitTurn for who cannot do without it.
func (a *acquisition) queueForTurn(wait, ctx context.Context) (*hold, error) {
	l, name := a.locker, a.queued

	if a.try {
		if err := a.tryTurn(wait, ctx); err != nil {
			return nil, err
		}
	} else {
		// Whoever holds nothing is behind the one of this process who asks.
		if holdsOthers(ctx) {
			a.startWaiting(ctx)
			l.waiters.behind(a.line.one)
		}

		w, err := l.turns.enter(wait, ctx, name, a.set)

		switch {
		case err != nil:
			if w.left != nil {
				l.waiters.remove(w.left, false)
			}

			return nil, a.queuedEndError(wait, ctx, w.last)
		case w.hold != nil:
			return w.hold, nil
		case w.left != nil:
			// One who waits for other reasons too stands for itself.
			a.startWaiting(ctx)

			if told, in := l.waiters.inherit(a.line.one, w.left); in {
				a.line.told = told
				a.request.Process, a.request.Wait = a.line.one.Process, a.line.one.ID
			}
		}

		// If there is no time for an attempt, this is who was waited for.
		a.learn(w.last)
	}

	a.recordTurn()

	a.queueBehind(wait, ctx)

	return nil, nil //nolint:nilnil // no lock yet
}

// recordTurn notes what is to be known of the turn.
func (a *acquisition) recordTurn() {
	l := a.locker

	a.entered, a.hasTurn = time.Now(), true

	tokens, crowded := l.turns.advise(a.queued)
	if a.set.handsOn() && !l.inTxs.Load() {
		a.request.Tokens = tokens
	}

	// Where those who have left are not forgotten (LeavesLine), others may seem to wait who do not: only an attempt tells.
	a.contended = crowded && !a.try && l.features.LeavesLine && l.waiters.queuer != nil
}

// queueBehind goes to the end of the line if others wait: it would be refused.
func (a *acquisition) queueBehind(wait, ctx context.Context) {
	if !a.contended {
		return
	}

	held := &HeldError{Name: a.request.Name, Detail: "others were in line for it", Line: 1, At: time.Now()}
	a.startWaiting(ctx)
	a.locker.turns.recordAnswer(a.queued, held)
	a.learn(known{held: held})
	a.pause(wait, held)
}

// tryTurn takes the turn if nobody has it. If somebody of this process is asking
// the database for the first time, it waits for the answer and not for the lock; and a
// little if that was that nobody is known to hold it.
func (a *acquisition) tryTurn(wait, ctx context.Context) error {
	line, taken := a.locker.turns.tryEnter(a.queued)
	if taken {
		return nil
	}

	looked := time.NewTimer(looksFor)
	defer looked.Stop()

	for over := false; ; {
		if held := a.heldHere(line); held != nil && (over || !unheld(held)) {
			return orUnheld(held)
		}

		if line.noPlace != nil {
			return fmt.Errorf("lock %q: %w", a.request.Name, line.noPlace)
		}

		select {
		case <-line.changed:
		case <-looked.C:
			over = true
		case <-wait.Done():
			return a.queuedEndError(wait, ctx, line)
		}

		if line, taken = a.locker.turns.tryEnter(a.queued); taken {
			return nil
		}
	}
}

// attempt asks the strategy once, and if the acquisition goes on after its answer,
// pauses. It returns neither a hold nor an error then.
func (a *acquisition) attempt(wait, ctx context.Context) (*hold, error) {
	if wait.Err() != nil {
		a.learn(a.locker.turns.known(a.queued))

		return nil, a.endError(wait, ctx)
	}

	started := time.Now()
	a.timedOut = false

	if a.set.shared {
		if h := a.joinAsked(wait); h != nil {
			a.attempts++
			a.passTurn()

			if !a.doubt.IsZero() {
				a.locker.settle(ctx, a.request) // what an attempt of its own may have brought
			}

			return h, nil
		}
	}

	grant, request, start, err := a.askNameOrSlot(wait)

	h, err := a.answered(ctx, start, request, grant, err)
	if err != nil {
		return nil, a.retry(wait, ctx, started, err)
	}

	return h, nil
}

// askFor asks for a name, together with others if it can be, and returns the request and when it began. What the strategy may
// need to hold the lock with is taken for each request.
func (a *acquisition) askFor(wait context.Context, name string) (grant strategies.Grant, request strategies.Request, start instant, err error) {
	place, err := a.place(wait)
	start, request = now(), a.request
	request.Name, request.Place = name, place

	if err != nil {
		return grant, request, start, err
	}

	bound, cancel := context.WithTimeout(wait, longest(a.set))
	defer cancel()

	grant, err = a.locker.acquires.Serve(bound, request, a.locker.batches(a.set))
	a.timedOut = bound.Err() != nil && wait.Err() == nil

	return grant, request, start, err
}

// retry counts an attempt that failed, and pauses before the next one, which finds whether the wait has ended meanwhile. With an error
// the acquisition ends.
func (a *acquisition) retry(wait, ctx context.Context, started time.Time, failed error) error {
	a.attempts++

	held := a.recordAnswer(failed)

	switch {
	case held != nil && held.Line != 0 && !a.request.First && a.checkQueue(wait, held):
		return nil
	case held != nil && a.own(held):
		sleep(wait, backoff(a.attempts-1, lookPause, lastRetry))

		return nil
	case held != nil && a.try:
		ours := a.ours(held)

		// Its row was locked, which may be for a moment, by somebody who looks whether a transaction guards it, for example. Or it
		// met a grant of its own.
		switch asks := ours || unheld(held) && time.Since(a.entered) < looksFor; {
		case asks && sleep(wait, lookPause/2+jitter(lookPause)):
			return nil
		case ours:
			return a.endError(wait, ctx)
		default:
			return orUnheld(failed)
		}
	case held != nil && a.set.shared && unheld(held) && time.Since(a.entered) < readersCome:
		// Readers come and go, and none of them needs a line. a.entered is when its turn came.
		sleep(wait, jitter(firstRetry/4))

		return nil
	case held != nil:
		a.failures = 0
	case wait.Err() != nil && !isAnswer(failed):
		a.cutShort(wait, started, failed)

		return a.endError(wait, ctx)
	case !a.recordFailure(failed):
		return fmt.Errorf("lock %q: %w", a.request.Name, failed)
	}

	if a.set.many() && !a.try && !a.hasTurn {
		_, err := a.queueForTurn(wait, ctx) // no hold comes with it: locks of names with slots are not handed on

		return err
	}

	if a.startWaiting(ctx); held != nil {
		a.tellRecovery(ctx, held)
		a.pause(wait, held)
	} else {
		// Few attempts without an answer are made, so that they are not all over
		// before a connection can be had again.
		if a.locker.features.ConnectionHeld && errors.Is(failed, ErrTooManyConnections) {
			a.withdraw() // others in line may have the connection that it lacks
		}

		sleep(wait, backoff(a.attempts-1, max(a.set.pollMin, firstRetry), max(a.set.pollMax, lastRetry)))
	}

	return nil
}

// tellRecovery tells of a recovery pause that the wait has met.
func (a *acquisition) tellRecovery(ctx context.Context, held *HeldError) {
	if held.Recovering && !a.paused && a.locker.tells(ctx, slog.LevelWarn) {
		a.locker.events.add(ctx, Event{
			Kind: Recovering, Name: a.request.Name, Held: held, Attempts: a.attempts, Waited: now().since(a.began),
		})
	}

	a.paused = held.Recovering
}

// A try asks again, about so far apart, for as long as looksFor at a name that nobody is
// known to hold.
const (
	looksFor  = time.Second
	lookPause = 10 * time.Millisecond
)

// longest is how long the database has to answer: a grant that takes longer than its
// lease is worth nothing.
func longest(set *settings) time.Duration { return min(set.trust(set.lease), attemptTime) }

var errTooLate = fmt.Errorf("%w in time: it granted the lock, whose lease had ended before the answer came", ErrUnreachable)

// answered takes the answer to an attempt that was begun at start: the hold that it has brought, or the error to go on with.
func (a *acquisition) answered(
	ctx context.Context, start instant, request strategies.Request, grant strategies.Grant, err error,
) (*hold, error) {
	if err != nil {
		return nil, a.handleError(ctx, request, err)
	}

	h, err := a.granted(ctx, start, request, grant)
	if err == nil {
		a.attempts++
	}

	return h, err
}

// granted makes a hold of what an attempt has brought.
func (a *acquisition) granted(ctx context.Context, start instant, request strategies.Request, grant strategies.Grant) (*hold, error) {
	l := a.locker

	if now().since(start) >= a.set.trust(a.set.lease) {
		if a.set.many() {
			l.turns.leave(a.set.turnOf(request.Name), nil)
		}

		l.settleGrant(ctx, request, grant)

		if !a.doubt.IsZero() {
			l.settle(ctx, request)
		}

		a.changeOwner()

		return nil, errTooLate
	}

	h := newHold(ctx, a, request, grant, start)

	// The next one of this process may ask for another slot at once.
	if a.set.shared {
		l.shares.add(h)
	} else {
		l.turns.hold(a.set.turnOf(request.Name), h)
	}

	if a.set.manyHolders() {
		a.passTurn()
	}

	a.hasTurn = false

	// From then on the lock can end, and the turn with it. Close takes stock there: a lock is either refused or found.
	if !l.keeper.keep(h) {
		_ = h.endCounted(errReleasedByClose) // readers may have joined it by now
		h.passTurn()
		h.settleDoubt(ctx)
		l.settleGrant(ctx, request, grant)

		return nil, ErrClosed
	}

	l.reached.Store(true)

	return h, nil
}

// passTurn gives the turn to the next of this process who has a share of the name, too, or another slot.
func (a *acquisition) passTurn() {
	if a.hasTurn {
		a.locker.turns.leave(a.queued, nil)
		a.hasTurn = false
	}
}

// place waits for what the strategy may need to hold the lock with. The lease does
// not run meanwhile.
func (a *acquisition) place(wait context.Context) (any, error) {
	placer := a.locker.placer
	if placer == nil || a.try {
		return nil, nil //nolint:nilnil // none is needed, or taken by the attempt itself
	}

	name := a.queued
	defer a.locker.turns.noPlace(name, nil)

	// Locks that can be given back are no reason to wait for ever.
	holding := slices.DeleteFunc(owners(wait), func(owner string) bool { return strings.HasPrefix(owner, yielding) })

	return placer.Place(wait, holding, func(err error) {
		a.locker.turns.noPlace(name, err)
		a.withdraw()
	})
}
