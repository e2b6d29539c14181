package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// hold is one grant and what is known of it here. The handles of a reentrant
// lock share one. Its states:
//
//	held ──▶ releasing ──▶ ended: ErrReleased, or a *LostError
//	  │          ▲  │
//	  └──────────┼──┴────▶ (the same, without ReleaseTx)
//	             └ ReleaseTx put the release into a transaction
//
// It leaves held once. endCounted ends it: for Release and Close, when the strategy reports that the grant is gone
// (loseBy), and when the trust window or the longest hold is over (for the keeper). Until the
// keeper gets to that, err says so all the same, and once it did it is so. Beside that, next ends a hold whose grant goes to
// the next holder in this process.
type hold struct {
	locker    *Locker
	settings  *settings
	name      string // the lock's, and its slot: the request has both in one
	slot      int
	request   strategies.Request
	grant     strategies.Grant
	acquired  instant
	grantedAt instant      // when the attempt was begun that brought the grant, which may have had holders before
	first     int64        // the grant's first token
	ctx       *heldContext // it is what Lock.Context returns: its end is the news of a loss
	held      heldContext  // that
	self      [1]*hold     // what that has
	cancel    context.CancelCauseFunc
	readers   *shared // nil if it is not that of readers

	mu sync.Mutex
	state

	leaving  sync.Once              // gives the turn in this process to the next
	overdue  atomic.Pointer[ending] // releases a lock that was held for too long
	releaser sync.Once
	released error

	schedule schedule // of the keeper, under its mutex
}

// state is what changes of a hold.
type state struct {
	handles int

	// What the trust window and the lease in the database go by. A renewal that got no answer may have been confirmed, so
	// the lease may run for longer than the window.
	confirmed instant       // when the last renewal that was confirmed was begun: the window begins
	lease     time.Duration // of that renewal: how long the window is, less the margin
	extended  time.Duration // lease of renewals to come
	asked     time.Duration // longest lease that an Extend asked for; whether it runs is not known
	renewals  int           // renewals under way
	overBy    time.Time     // when those are given up, at the latest
	unheard   time.Time     // when one was given up whose outcome is unknown; zero if there is none
	doubt     time.Time     // when an attempt of the same owner, or another call for the grant, was given up that may bring something yet; zero if there is none

	// What the last try to renew came to, since that renewal.
	failure        error // why it failed
	warned         warning
	connectionless int // tries in a row that got no connection

	// What has been begun with the lock.
	releasing bool    // ReleaseTx put the release into a transaction, or is at it
	freed     bool    // it did, so that the lock may be somebody else's at any moment
	pinned    bool    // it is not handed on
	kept      bool    // others are waited for before it is its caller's
	from      instant // when its longest hold begins
	over      error   // what Err has said once, when the trust window was over; it stays so
	ended     error   // nil while held; else an ErrReleased or a *LostError
}

// view is the state at this moment.
func (h *hold) view() state {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.state
}

// newHold makes a hold of what an attempt that was begun at start has brought.
func newHold(ctx context.Context, a *acquisition, request strategies.Request, grant strategies.Grant, start instant) *hold {
	set := a.set
	h := &hold{
		locker: a.locker, settings: set, request: request, grant: grant, acquired: start, grantedAt: start, first: grant.Token,
		state: state{handles: 1, confirmed: start, lease: set.lease, extended: set.lease, from: start, doubt: a.doubt},
	}

	if grant.Unsettled {
		h.doubt = time.Now()
	}

	if set.shared {
		h.readers = &shared{until: time.Now().Add(openTime), linger: min(now().since(start), mostLinger)}
	}

	h.open(ctx)

	return h
}

// open names the hold, and makes the lock's context.
func (h *hold) open(ctx context.Context) {
	h.name, h.slot = strategies.SplitSlot(h.request.Name)
	h.self[0] = h

	outside := context.WithoutCancel(ctx)
	ctx, h.cancel = context.WithCancelCause(outside)
	h.held = heldContext{ctx, h.self[:], h.cancel, outside, h}
	h.ctx = &h.held
}

// left is how long the lock can be trusted from the instant n on.
func (h *hold) left(n instant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.leftLocked(n)
}

// trustedLocked is what is left of the trust window.
func (h *hold) trustedLocked(n instant) time.Duration {
	return h.settings.trust(h.lease) - n.since(h.confirmed)
}

func (h *hold) leftLocked(n instant) time.Duration {
	if h.over != nil {
		return 0
	}

	left := h.trustedLocked(n)

	if h.settings.maxHold > 0 && !h.kept {
		left = min(left, h.settings.maxHold-n.since(h.from))
	}

	return left
}

// err is nil while the lock is held and trusted; else an ErrReleased or a *LostError,
// and the same from then on. It ends nothing: that is for the keeper.
func (h *hold) err() error {
	n := now()

	h.mu.Lock()
	defer h.mu.Unlock()

	return h.errLocked(n)
}

func (h *hold) errLocked(n instant) error {
	switch {
	case h.ended != nil:
		return h.ended
	case h.over != nil:
		return h.over
	case h.leftLocked(n) > 0:
		return nil
	case h.freed:
		// Most likely the transaction that released it has committed.
		h.over = ErrReleased
	case h.settings.maxHold > 0 && !h.kept && n.since(h.from) >= h.settings.maxHold:
		h.over = h.lostError(ReasonMaxHold, h.settings.maxHold.String(), nil)
	default:
		h.over = h.lostError(ReasonExpired, fmt.Sprintf("no renewal was confirmed within the lease of %s", h.lease), h.failure)
	}

	h.locker.keeper.lookAtAll()

	return h.over
}

// confirm notes a renewal that was begun at start. A late answer never takes
// back what a later one gave, nor revives a hold whose window is over: the name
// may have been somebody else's meanwhile, and this owner's again since, by an
// attempt to acquire that was held up on its way.
func (h *hold) confirm(start instant, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.errLocked(now()) != nil {
		return // the keeper ends the hold
	}

	// Both instants are read on both clocks, so the later window is compared
	// on the monotonic one only, where order is certain.
	if start.mono+lease >= h.confirmed.mono+h.lease {
		h.confirmed, h.lease, h.failure, h.connectionless = start, lease, nil, 0
	}
}

// lossIn returns the strategy's report that a grant is gone; nil if err is none.
// The *LostError of a context that ended with another lock has the name of that.
func lossIn(err error) *LostError {
	if err == nil {
		return nil
	}

	if loss := new(LostError); errors.As(err, &loss) && loss.Name == "" {
		return loss
	}

	return nil
}

// lossOf is what users see of the strategy's report that the grant is gone.
func (h *hold) lossOf(report *LostError) *LostError {
	loss := *report
	loss.Name, loss.Token, loss.Unsettled = h.name, h.grant.Token, false

	return &loss
}

// loseBy ends the hold because of what the strategy reported.
func (h *hold) loseBy(loss *LostError) error {
	if h.view().freed && followsRelease(loss) {
		// The transaction that released it has committed.
		return h.end(ErrReleased)
	}

	return h.end(h.lossOf(loss))
}

// followsRelease says whether a loss is what is found after a release: somebody else's
// grant, or nothing.
func followsRelease(loss *LostError) bool {
	return loss != nil && (loss.Reason == strategies.TakenOver || loss.Reason == strategies.Unknown)
}

func (h *hold) lostError(reason Reason, detail string, cause error) *LostError {
	return &LostError{Name: h.name, Token: h.grant.Token, Reason: reason, Detail: detail, Err: cause}
}

// end is endCounted for a caller that Close does not wait for yet.
func (h *hold) end(state error) error {
	h.locker.background.count(h.name)
	defer h.locker.background.finish(h.name)

	return h.endCounted(state)
}

// endCounted moves the hold to its last state, once, and returns that state. What Err has
// said of a trust window that is over stays so. Whoever releases the hold in the database
// gives the turn to the next then; otherwise it is given here.
//
// Close must be waiting for the caller: it does not find the hold any more, and what
// follows may be left to the background.
func (h *hold) endCounted(state error) error {
	h.mu.Lock()

	if h.ended != nil {
		defer h.mu.Unlock()

		return h.ended
	}

	if over := h.errLocked(now()); over != nil && errors.Is(over, ErrLost) {
		state = over
	}

	h.ended = state
	freed := h.freed
	h.mu.Unlock()

	lost := errors.Is(state, ErrLost)
	overdue := lost && h.letExpire(state) // before anybody is told, who may release it

	h.cancel(state)
	h.locker.keeper.forget(h)

	if lost || freed {
		h.passTurn()
	}

	if lost && !overdue {
		h.settleDoubt(h.ctx)
	}

	if lost && h.locker.features.ConnectionHeld {
		h.releaseLater(h.ctx) // its connection goes back, also if nobody calls Release
	}

	if lost {
		// Never here: whoever finds the loss may have others' to find.
		h.locker.events.add(h.ctx, h.event(Lost, state))
	}

	return state
}

// letExpire leaves a lock that is overdue to its lease, which is the time that work
// has to stop: the window is over early where this machine's clock was set. Release frees
// the lock before, and so does Close, which leaves nothing. It says whether the lock is overdue: its trust window or its
// longest hold is over, and the database has a lease that may run.
func (h *hold) letExpire(state error) (overdue bool) {
	loss := new(LostError)
	if h.locker.features.ConnectionHeld || !errors.As(state, &loss) || loss.Reason != ReasonMaxHold && loss.Reason != ReasonExpired {
		return false
	}

	lease := h.longestLease()

	e := newEnding(h.ctx, h.name, lease, h.free)
	e.looks, e.overdue = []time.Time{e.until}, true

	h.overdue.Store(h.locker.background.start(e))

	v := h.view()
	if !v.doubted() {
		return true
	}

	// What the attempt brings has the same owner: ended sooner, it would end the lock.
	doubt := newEnding(h.ctx, h.name, lease, h.settle)
	doubt.overdue, doubt.soonest = true, v.doubt.Add(lastLook)
	doubt.looks = []time.Time{later(e.until, doubt.soonest)}
	doubt.until = doubt.looks[0].Add(lease)
	h.locker.background.start(doubt)

	return true
}

// settle ends whatever attempts of the hold's owner left.
func (h *hold) settle(ctx context.Context) error { return h.locker.strategy.Settle(ctx, h.request) }

// passTurn lets those who wait in this process go and ask the database.
func (h *hold) passTurn() {
	h.leaving.Do(func() {
		if h.readers != nil {
			h.locker.shares.remove(h)
		} else {
			h.locker.turns.leave(h.settings.turnOf(h.request.Name), nil)
		}
	})
}

// release ends the hold and frees the lock in the database, once. The call that did sets what there is to tell of it, outside
// the Once; an event without a name is nothing.
func (h *hold) release(ctx context.Context, event *Event) error {
	h.releaser.Do(func() { h.released = h.releaseNow(ctx, event) })

	return h.released
}

// event tells of the end of the hold.
func (h *hold) event(kind EventKind, err error) Event {
	return Event{Kind: kind, Name: h.name, Slot: h.slot, Token: h.grant.Token, HeldFor: now().since(h.acquired), Err: err}
}

func (h *hold) releaseNow(ctx context.Context, event *Event) error {
	// Close waits for it.
	h.locker.background.count(h.name)
	defer h.locker.background.finish(h.name)

	releasing := h.view().releasing

	if h.handOff() {
		*event = h.event(Released, nil)

		return nil
	}

	// First the work is told to stop, then others may have the lock.
	if state := h.endCounted(ErrReleased); errors.Is(state, ErrLost) {
		h.releaseLater(ctx)

		return state
	}

	defer h.passTurn()

	h.locker.turns.learnTokens(h)

	contended, err := h.releaseGrant(ctx)

	loss := lossIn(err)
	if loss != nil {
		err = h.lossOf(loss)
	}

	h.settleDoubt(ctx)

	if err == nil {
		h.locker.turns.with(h.name, func(n *turn) { n.contended = contended })

		if contended {
			h.locker.listener.call(ctx, h.name)
		}
	}

	if releasing && followsRelease(loss) {
		// The transaction that released it has committed.
		err = nil

		h.locker.listener.call(ctx, h.name)
	}

	h.announce(ctx)

	err = outOfTime(err)
	*event = h.event(Released, err)

	if err == nil || errors.Is(err, ErrLost) {
		return err
	}

	lease := h.releaseLater(ctx)
	taken := max(lease, h.settings.minHold-now().since(h.grantedAt)) + h.settings.lockDelay

	return &ReleaseError{Name: h.name, FreeAfter: taken, Err: err}
}

// settleDoubt ends what an attempt may bring that this owner's next one has
// overtaken: nobody would have it.
func (h *hold) settleDoubt(ctx context.Context) {
	if h.view().doubted() {
		r := h.request
		r.Lease = h.longestLease()

		h.locker.settle(ctx, r)
	}
}

// doubted says whether an attempt that was given up, or a call for the grant that was not needed for it, may still be on its way.
func (s state) doubted() bool { return !s.doubt.IsZero() && time.Since(s.doubt) < lastLook }

// answered takes what the strategy says of a renewal or a release: where it was not confirmed though it counts, or why it failed.
func (h *hold) answered(err error) (missing, failed error) {
	if err == nil {
		return nil, nil
	}

	if errors.Is(err, strategies.ErrUnsettled) {
		h.mu.Lock()
		h.doubt = time.Now()
		h.mu.Unlock()
	}

	if partial := new(strategies.PartialError); errors.As(err, &partial) {
		return partial.Err, nil
	}

	return nil, err
}

// free ends the grant in the database, and has what that does not end settled.
func (h *hold) free(ctx context.Context) error {
	_, err := strategies.ReleaseOne(ctx, h.locker.strategy, h.grant)
	unsettled := errors.Is(err, strategies.ErrUnsettled)

	if _, err = h.answered(err); unsettled && (err == nil || lossIn(err) != nil) {
		h.settleDoubt(ctx)
	}

	return err
}

// releaseLater goes on with the release in the background, for as long as the lease
// that it returns may run, or a connection is held.
func (h *hold) releaseLater(ctx context.Context) time.Duration {
	lease := h.longestLease()

	e := newEnding(ctx, h.name, lease, h.free)
	if h.locker.features.ConnectionHeld {
		e.until = time.Time{}
	}

	h.locker.background.drop(h.overdue.Load())
	h.locker.background.start(e)

	return lease
}

// releaseGrant releases the grant, also though ctx has ended, and repeats it while
// its outcome is unknown.
func (h *hold) releaseGrant(ctx context.Context) (contended bool, err error) {
	// Others may wait for a name that is waited for here, which not every batch
	// can tell.
	together := h.batched() && !h.locker.turns.hasWaiters(h.name)

	unheard := false // a try before may have released it

	began := time.Now()

	for try, busy := 0, 0; try < releaseTries; {
		if unheard {
			sleep(context.WithoutCancel(ctx), backoff(try, firstRetry, lastRetry))
		}

		contended, err = h.releaseOnce(ctx, together && busy == 0)
		loss := lossIn(err)

		switch {
		case unheard && loss != nil && loss.Reason == strategies.TakenOver && !h.locker.features.ConnectionHeld && h.left(now()) > 0:
			// An earlier try released it though its answer was lost: somebody has been granted it since, which the lease would
			// not have let happen yet. It may have been taken away by force, too; what has followed hides that.
			return contended, nil
		case err == nil, loss != nil, errors.Is(err, strategies.ErrBusy) && time.Since(began) >= releaseTimeout:
			return contended, err
		case errors.Is(err, strategies.ErrBusy):
			// Nothing was done. At SERIALIZABLE that can be so many times in a row.
			sleep(context.WithoutCancel(ctx), backoff(busy, time.Millisecond, firstRetry))

			busy++
		default:
			unheard = true
			try++
		}
	}

	return contended, err
}

// releaseOnce makes one try to release the grant, together with others or not, also though ctx has ended.
func (h *hold) releaseOnce(ctx context.Context, together bool) (contended bool, err error) {
	ctx = h.locker.releaseLimit.Of(ctx)

	if h.settings.minHold > 0 && h.view().kept {
		// Its caller did not get it, and leaves no minimum hold.
		_, err = call.Within(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, h.settle(ctx) })
		h.locker.listener.call(ctx, h.name)

		return false, err
	}

	contended, err = h.locker.releases.Serve(ctx, h.grant, together)
	if _, err = h.answered(err); err == nil && h.settings.reaps {
		h.locker.reaper.released()
	}

	return contended, err
}

// batched says whether calls about the hold may go together with others.
func (h *hold) batched() bool { return h.locker.batches(h.settings) }

// reenter answers an Acquire under the lock that it asks for.
func (h *hold) reenter(set *settings) error {
	h.mu.Lock()
	defer h.mu.Unlock()

	n := now()

	switch ended := h.errLocked(n); {
	case ended != nil:
		return endedContext(h.name, ended)
	case h.readers != nil && !set.shared:
		return fmt.Errorf("lock %q: %w: this context holds it shared, and a shared lock cannot become exclusive; release it first",
			h.name, ErrUnsupported)
	case !set.reentrant:
		// Waiting would be waiting for oneself.
		return &HeldError{
			Name: h.name, Holder: h.request.Holder, Token: h.grant.Token, Shared: h.readers != nil,
			Remaining: h.leftLocked(n), Detail: "this context already holds it; see WithReentrant",
		}
	case h.releasing, h.handles == 0:
		return endedContext(h.name, ErrReleased)
	}

	h.handles++

	if h.readers != nil {
		h.readers.joins++
	}

	return nil
}

// handle is one, with the hold's context.
func (h *hold) handle() *Lock { return &Lock{hold: h, ctx: h.ctx} }

var errOtherHandles = fmt.Errorf("%w while other handles of it are open", ErrUnsupported)

// beginReleaseTx notes that a transaction has the release in it, or may have. It
// refuses when the hold has ended, whose grant somebody else in this process may
// have, and while there are other handles.
func (h *hold) beginReleaseTx() error {
	h.mu.Lock()
	defer h.mu.Unlock()

	switch err := h.errLocked(now()); {
	case err != nil:
		return err
	case h.handles > 1:
		return errOtherHandles
	}

	h.releasing, h.pinned = true, true

	return nil
}

// endReleaseTx notes whether the transaction has the release in it. If not it is
// held as before, unless an earlier transaction has one: whether that was rolled back
// is not known. If the hold has ended meanwhile, that is returned.
func (h *hold) endReleaseTx(done bool) (ended error) {
	h.mu.Lock()

	if done {
		ended = h.errLocked(now())
	}

	h.freed = h.freed || done && ended == nil
	h.releasing = h.freed
	h.mu.Unlock()

	// The renewal may have been due meanwhile.
	h.locker.keeper.resume(h)

	return ended
}

// drop takes a handle away and says whether it was the last.
func (h *hold) drop() bool {
	if h.readers != nil {
		return h.dropReader()
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	h.handles--

	return h.handles == 0
}

// announce tells those who watch the name of a hold, beside what its caller does next. If that fails they look by themselves.
func (h *hold) announce(ctx context.Context) {
	noter, ok := h.locker.strategy.(strategies.Noter)
	if !ok || !h.settings.announces {
		return
	}

	tell := func() {
		_ = call.Bounded(context.WithoutCancel(ctx), callTime, func(ctx context.Context) error { return noter.Announce(ctx, h.name) })
	}

	if !h.locker.background.begin(h.name) {
		tell() // Close waits for it

		return
	}

	go func() {
		defer h.locker.background.finish(h.name)

		tell()
	}()
}

// owner is what those who wait for the hold's name are told of as its owner.
func (h *hold) owner() string { return cmp.Or(h.grant.Phase, h.request.Owner) }

// pin keeps the lock from being handed on: a transaction may guard it from now on,
// so that it has to be released where that transaction is known of, or its lease
// becomes one of its own. It refuses when the lock has ended.
func (h *hold) pin() error {
	h.mu.Lock()
	defer h.mu.Unlock()

	err := h.errLocked(now())
	h.pinned = h.pinned || err == nil

	return err
}

// renewing notes that a renewal is sent, which is given up after bound, and renewalEnded
// what came of it, which it returns as answered does.
func (h *hold) renewing(bound time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.renewals++
	h.overBy = later(h.overBy, time.Now().Add(bound))
}

func (h *hold) renewalEnded(err error) (missing, failed error) {
	missing, failed = h.answered(err)

	h.mu.Lock()
	defer h.mu.Unlock()

	h.renewals--

	if uncertain(failed) && lossIn(failed) == nil {
		h.unheard = time.Now()
	}

	return missing, failed
}

// longestLease is how long the lease may run from now on. If a renewal may still be on
// its way, the lease begins when it arrives.
func (h *hold) longestLease() time.Duration {
	v := h.view()

	sent := v.unheard
	if v.renewals > 0 {
		sent = later(sent, v.overBy)
	}

	return max(v.lease, v.extended, v.asked) + max(0, time.Until(sent.Add(lastLook)))
}

// handleOf returns the handle of a hold that somebody was given with ctx: of readers each has a context of its own.
func (h *hold) handleOf(ctx context.Context) *Lock {
	if h.readers == nil {
		return h.handle()
	}

	lock := &Lock{hold: h, since: now()}
	lock.ctx, lock.end = heldUnder(context.WithoutCancel(ctx), []*hold{h})
	lock.ctx.under = lock

	return lock
}

// holdOf returns the hold whose context asks for the same name again, and why it has ended if it has; nil if the context
// is not that of a lock. One of several readers may have left.
func holdOf(ctx context.Context, key *reentry) (h *hold, ended error) {
	switch under := ctx.Value(key).(type) {
	case *hold:
		return under, under.ctx.Err()
	case *Lock:
		return under.hold, under.open()
	default:
		return nil, nil //nolint:nilnil // no lock, and no error
	}
}
