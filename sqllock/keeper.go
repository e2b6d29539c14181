package sqllock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

const (
	// maxRenewal bounds one try to renew.
	maxRenewal = 5 * time.Second
	// renewers is how many renewals of a locker run at a time.
	renewers = 8
	// lookout is how often the keeper looks at the clocks at least. While a
	// machine sleeps its timers stand still with the monotonic clock; this is
	// how soon after it woke a lease that ended meanwhile is noticed.
	lookout = time.Second
)

// keeper renews the leases of a locker's locks at a third of their lease, and
// ends their contexts when the trust window does. It is one goroutine, however
// many locks there are, and none soon after the last has ended; renewals run on a few
// more, so that a database that does not answer delays nobody's end.
type keeper struct {
	locker *Locker

	mu      sync.Mutex
	holds   map[*hold]struct{}
	ready   []*hold // to be renewed
	busy    int     // renewers at work on those
	running bool
	closed  bool // no hold comes any more
	wake    chan struct{}
	next    time.Duration // monotonic time of the next look at the latest
	offset  time.Duration // of the wall clock to the monotonic one, last seen

	all atomic.Bool // the next look is at all holds, and not only at those that are due
}

// schedule is the keeper's part of a hold.
type schedule struct {
	due      time.Duration // monotonic time of the next look
	renewAt  time.Duration // monotonic time of the next renewal
	renewing bool          // it is under way, or ready
	alone    bool          // ready, in a statement of its own
}

// keep takes a new hold over; false if the locker is closed.
func (k *keeper) keep(h *hold) bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.closed {
		return false
	}

	h.schedule.renewAt = h.acquired.mono + h.renewAfter()
	k.holds[h] = struct{}{}
	k.fix(h)

	if !k.running {
		k.running, k.next = true, 0 // it looks at once
		k.offset = h.acquired.wall - h.acquired.mono

		go k.run()
	}

	return true
}

// lookAtAll has the keeper look at all holds soon: one was seen to be over, before it was due or with a clock that may be set back
// meanwhile. The caller has that hold's mutex.
func (k *keeper) lookAtAll() {
	k.all.Store(true)
	wakeUp(k.wake)
}

// forget lets go of a hold that has ended.
func (k *keeper) forget(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()

	delete(k.holds, h)
}

// replaceLocked keeps another hold in the place of h, whose grant it has.
func (k *keeper) replaceLocked(h, next *hold) {
	delete(k.holds, h)
	k.holds[next] = struct{}{}
	next.schedule = schedule{renewAt: h.schedule.renewAt}
	k.fix(next)
}

// hurry has all holds renewed at once.
func (k *keeper) hurry() {
	k.mu.Lock()
	defer k.mu.Unlock()

	n := now()

	for h := range k.holds {
		h.schedule.renewAt = min(h.schedule.renewAt, n.mono)
		k.fix(h)
	}
}

// resume takes a hold up that was not to be renewed for a while.
func (k *keeper) resume(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.fix(h)
}

// reschedule sets the next renewal after one that was begun at start.
func (k *keeper) reschedule(h *hold, start instant) {
	k.mu.Lock()
	defer k.mu.Unlock()

	h.schedule.renewAt = start.mono + h.renewAfter()
	k.fix(h)
}

// fix has a hold looked at in time after its times changed.
func (k *keeper) fix(h *hold) {
	if _, kept := k.holds[h]; !kept {
		return
	}

	if h.schedule.due = h.due(now()); h.schedule.due < k.next {
		wakeUp(k.wake)
	}
}

// close takes no more holds over, and returns those there are.
func (k *keeper) close() []*hold {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.closed = true

	return slices.Collect(maps.Keys(k.holds))
}

// renewAfter is a third of the lease, a little less at random so that many
// locks acquired together are not renewed together for ever, if they cannot be
// in one statement.
func (h *hold) renewAfter() time.Duration {
	third := h.view().extended / 3

	return third - third/10 + jitter(third/10)
}

// renews says whether the keeper is to renew the hold.
func (h *hold) renews() bool {
	v := h.view()

	return (h.settings.renew || v.kept) && !v.releasing
}

// due is when the keeper has to look at the hold next, as seen from n. A hold
// that has time left at n is due after n.
func (h *hold) due(n instant) time.Duration {
	due := n.mono + h.left(n)

	if h.renews() && !h.schedule.renewing {
		due = min(due, h.schedule.renewAt)
	}

	return due
}

func (k *keeper) run() {
	for {
		wait, ended, more := k.look()

		// Not under the mutex, which the end of a hold takes.
		for _, h := range ended {
			if state := h.err(); state != nil {
				_ = h.end(state)
			}
		}

		if !more {
			return
		}

		pause(context.WithoutCancel(k.locker.life), wait, k.wake) // holds may be left when that has ended
	}
}

// look starts the renewals that are due and returns the holds that have ended,
// how long to pause, and whether there is more to keep.
func (k *keeper) look() (pause time.Duration, ended []*hold, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()

	n := now()

	// The wall clock ran ahead of the monotonic one: the machine slept, or its
	// clock was set. Every hold may have ended, not only those that are due.
	all := k.all.Swap(false) || n.wall-n.mono > k.offset+time.Millisecond
	k.offset = n.wall - n.mono
	renews := false

	for h := range k.holds {
		if !all && h.schedule.due > n.mono {
			continue
		}

		if h.schedule.due = h.due(n); h.left(n) <= 0 {
			ended = append(ended, h)
		}

		renews = renews || h.renewsBy(n.mono)
	}

	k.next = n.mono + lookout

	for h := range k.holds {
		// If one is renewed others go with it that would be soon.
		if renews && (h.renewsBy(n.mono) || h.batched() && h.renewsBy(n.mono+h.view().extended/30)) { // a tenth of its third
			h.schedule.renewing = true
			h.schedule.due = h.due(n)
			k.ready = append(k.ready, h)
		}

		k.next = min(k.next, h.schedule.due)
	}

	k.startLocked()

	if len(ended) > 0 {
		k.next = n.mono
	}

	k.running = len(k.holds) > 0

	return max(0, k.next-n.mono), ended, k.running
}

// renewsBy says whether a renewal of the hold is to begin at some time or before.
func (h *hold) renewsBy(at time.Duration) bool {
	return !h.schedule.renewing && h.schedule.renewAt <= at && h.renews()
}

// renew makes one try for each renewal that is ready, and notes when the next is due.
func (k *keeper) renew() {
	k.mu.Lock()
	defer k.mu.Unlock()

	for len(k.ready) > 0 {
		holds, lease := k.nextLocked()
		k.startLocked()
		k.mu.Unlock()

		next := sendRenewals(holds, lease)

		k.mu.Lock()

		for i, h := range holds {
			if h.schedule.alone = next[i] == unbatched; h.schedule.alone {
				k.ready = append(k.ready, h)
			} else {
				h.schedule.renewing, h.schedule.renewAt = false, next[i]
				k.fix(h)
			}
		}
	}

	k.busy--
}

// startLocked has another one renew what is ready, if there may be one.
func (k *keeper) startLocked() {
	if len(k.ready) > 0 && k.busy < renewers {
		k.busy++

		go k.renew()
	}
}

// nextLocked takes holds to renew in one statement: those of the same lease, if they can be.
func (k *keeper) nextLocked() (holds []*hold, lease time.Duration) {
	first := k.ready[0]
	holds, k.ready, lease = k.ready[:1:1], k.ready[1:], first.view().extended

	if first.batched() && !first.schedule.alone {
		k.ready = slices.DeleteFunc(k.ready, func(h *hold) bool {
			fits := len(holds) < call.MaxBatch && h.batched() && !h.schedule.alone && h.view().extended == lease
			if fits {
				holds = append(holds, h)
			}

			return fits
		})
	}

	return holds, lease
}

// unbatched is no time: the hold has to be renewed in a statement of its own, at once.
const unbatched = time.Duration(-1)

// sendRenewals makes one try to renew holds of the same lease and returns the
// monotonic times of the next, or unbatched.
func sendRenewals(holds []*hold, lease time.Duration) []time.Duration {
	var (
		first  = holds[0]
		next   = make([]time.Duration, len(holds))
		asked  []int // which of the holds
		grants []strategies.Grant
	)

	for i, h := range holds {
		// Neither beside a transaction that releases it, whose end it would wait for.
		if h.err() == nil && h.renews() {
			asked, grants = append(asked, i), append(grants, h.grant)
		}
	}

	if len(asked) == 0 {
		return next
	}

	start := now()

	// A fifth of the lease for each try and up to a twentieth between: three
	// fit into the two thirds that are left when the first begins. No more than
	// some seconds, so that long leases that hang do not take the renewers from
	// short ones. The locks' contexts are not used: a release meanwhile must
	// not break the connection that renews.
	//
	// One that has got no connection waits twice as long the next time: whoever serves those who wait in their order would else
	// send it to their end again and again.
	bound := min(lease/5, maxRenewal) << min(first.view().connectionless, 2)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(first.ctx), bound)
	defer cancel()

	for _, i := range asked {
		holds[i].renewing(bound)
	}

	answers, err := call.Within(ctx, func(ctx context.Context) ([]error, error) {
		return first.locker.strategy.Renew(ctx, grants, lease), nil
	})

	for n, i := range asked {
		answer := err
		if err == nil {
			answer = answers[n]
		}

		missing, failed := holds[i].renewalEnded(answer)

		if errors.Is(failed, strategies.ErrNotBatched) {
			next[i] = unbatched
		} else {
			next[i] = holds[i].renewed(start, lease, missing, failed)
		}
	}

	return next
}

// renewed takes the answer to a try to renew that was begun at start, and
// returns the monotonic time of the next. missing says where one that counts was not confirmed.
func (h *hold) renewed(start instant, lease time.Duration, missing, err error) time.Duration {
	if loss := lossIn(err); loss != nil && h.err() == nil {
		_ = h.loseBy(loss)
	}

	event := Event{
		Kind: Renewed, Name: h.name, Slot: h.slot, Token: h.grant.Token, HeldFor: start.since(h.acquired), Remaining: h.left(now()), Err: missing,
	}
	err = outOfTime(err)
	next := start.mono + h.renewAfter()

	if err != nil {
		event.Kind, event.Err = RenewalFailed, err
		next = now().mono + jitter(max(lease/20, time.Millisecond))
	} else {
		h.confirm(start, lease)
	}

	if h.err() != nil {
		return 0 // the keeper ends the hold
	}

	h.locker.events.add(h.ctx, h.repeated(event))

	return next
}

// repeatEvery is after how long the log warns again of what goes on.
const repeatEvery = time.Minute

// warning is what was told last of the renewals of a lock that is not well.
type warning struct {
	said    string // empty if all is well
	at      time.Time
	repeats int // events since that told the same
}

// repeated notes an event about a renewal, which knows then what of it the log has told. Numbers make no difference: those of ports and
// times in the driver's errors change with each try.
func (h *hold) repeated(e Event) Event {
	h.mu.Lock()
	defer h.mu.Unlock()

	switch {
	case e.Kind != RenewalFailed:
	case errors.Is(e.Err, strategies.ErrNotSent), errors.Is(e.Err, ErrTooManyConnections):
		h.failure = e.Err
		h.connectionless++
	default:
		h.failure, h.connectionless = e.Err, 0
	}

	said := ""
	if e.Err != nil {
		said = strings.Join(strings.FieldsFunc(e.Err.Error(), unicode.IsDigit), "#")
	}

	if e.repeats = said != "" && said == h.warned.said && time.Since(h.warned.at) < repeatEvery; e.repeats {
		h.warned.repeats++

		return e
	}

	e.repeated = h.warned.repeats
	h.warned = warning{said: said, at: time.Now()}

	return e
}
