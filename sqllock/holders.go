package sqllock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// A name with permits has slots, each of which is a lock of its own for the strategy:
// strategies.SlotName. Here one of them is chosen that seems to be free. Whoever finds all taken
// waits in the line of the name as for any other lock, and gives the turn in this process to the
// next as soon as it has a slot.

// maxPermitsName is how long a name with permits may be, so that those of its slots are not longer
// than a name may be.
const maxPermitsName = MaxNameLength - strategies.SlotNameLength

// WithPermits lets up to n hold the name at a time. Each of them has a lock as any other, with a
// token, a lease and a guard of its own, and [Lock.Slot] is its number from 0 to n-1, which no other
// holder has. Those who wait get theirs in the order of arrival. The default is 1, at most it is
// [MaxPermits]; names may then have [MaxNameLength] - 5 bytes.
//
// Callers that differ in n, while a new version is rolled out, exclude each other in the slots that
// both know: the larger n bounds how many there are in all. A lock without permits is one with a
// single permit, in slot 0. Tokens grow within a slot, and two slots may have the same token: to
// refuse late writers, remember the largest token of each slot. A lock with permits is not handed on within a
// process, and no deadlock is found over it. Errors: [ErrInvalidOption]; [ErrUnsupported] by the strategy; the call is [ErrInvalidName] if
// the name is too long.
func WithPermits(n int) LockOption {
	return lockOption(func(s *settings) error {
		if n < 1 || n > MaxPermits {
			return badOption("WithPermits", fmt.Sprint(n), "must be between 1 and %d", MaxPermits)
		}

		s.permits = n

		return nil
	})
}

// SlotName names one of the permits of [WithPermits] for [Locker.Inspect]: slot is its number, from 0 to [MaxPermits] - 1. The first one
// has the name itself. The others have it with U+001F and the number behind it. No lock can have such a name: a call
// that acquires it is [ErrInvalidName], so that a slot is never taken for another lock. With any other slot Inspect is ErrInvalidName, too.
func SlotName(name string, slot int) string { return strategies.SlotName(name, slot) }

// splitSlotName returns the name and the slot that SlotName made one of, or says why it is neither that nor a lock's.
func splitSlotName(slotName string) (name string, slot int, err error) {
	name, slot = strategies.SplitSlot(slotName)
	if slot < 0 || slot >= MaxPermits || strategies.SlotName(name, slot) != slotName {
		return "", 0, fmt.Errorf("%w: %q is not that of a slot: those are from 0 to %d", ErrInvalidName, slotName, MaxPermits-1)
	}

	return name, slot, checkName(name)
}

// anySlot is none in particular.
const anySlot = -1

// takeSlot takes the turn of a slot that nobody here deals with, and that is not among those taken: of the one that is wished for, if
// it can be; false if there is none.
func (a *acquisition) takeSlot(taken map[int]strategies.Status) (slotName string, ok bool) {
	first := a.wish
	if first == anySlot {
		first = rand.IntN(a.set.permits)
	}

	for i := range a.set.permits {
		slot := (first + i) % a.set.permits
		slotName = strategies.SlotName(a.request.Name, slot)

		if _, others := taken[slot]; !others {
			if _, ok = a.locker.turns.tryEnter(a.set.turnOf(slotName)); ok {
				return slotName, true
			}
		}
	}

	return "", false
}

// slotTries is how many slots an attempt asks for before it goes into line. A try asks for all that are free.
const slotTries = 3

// askNameOrSlot asks for the name, or for one of its slots, and says when it began. The request is returned as it was made, with the
// name of the slot. An error comes with a slot that is not used.
func (a *acquisition) askNameOrSlot(wait context.Context) (grant strategies.Grant, request strategies.Request, start instant, err error) {
	if !a.set.many() {
		return a.askFor(wait, a.request.Name)
	}

	var (
		taken   map[int]strategies.Status
		refused []int // a transaction may have the row of one that is free locked
	)

	for try := 1; ; try++ {
		// Its turn says that some slot is free, and not which.
		if try > 1 || a.request.First && a.wish == anySlot {
			ctx, cancel := context.WithTimeout(wait, longest(a.set))
			taken, err = a.locker.taken(ctx, a.request.Name)
			a.timedOut = ctx.Err() != nil && wait.Err() == nil

			cancel()

			if err != nil {
				return grant, a.request, now(), fmt.Errorf("%w: %w", strategies.ErrNotSent, err)
			}

			for _, slot := range refused {
				if _, known := taken[slot]; !known {
					taken[slot] = strategies.Status{}
				}
			}
		}

		slotName, ok := a.takeSlot(taken)
		if !ok && taken == nil {
			continue // all are this locker's, and who exactly has them is told by the database
		}

		if !ok {
			return grant, a.request, now(), a.noSlot(taken)
		}

		grant, request, start, err = a.askFor(wait, slotName)
		if err == nil {
			return grant, request, start, nil
		}

		a.locker.turns.leave(a.set.turnOf(slotName), nil)

		held := new(strategies.HeldError)
		if !errors.As(err, &held) || held.Recovering {
			return grant, request, start, err
		}

		_, slot := strategies.SplitSlot(slotName)
		held.Name, a.wish = a.request.Name, anySlot
		refused = append(refused, slot)

		switch {
		case held.Line != 0:
			a.wish = slot // what is found out about the line is about this one

			return grant, request, start, held
		case try >= slotTries && !a.try:
			return grant, request, start, held
		}
	}
}

// noSlot is the answer if there is no slot to ask for. A try that is not refused by holders of all slots asks again for a while.
func (a *acquisition) noSlot(taken map[int]strategies.Status) error {
	held := allTaken(a.request.Name, a.set.permits, taken)

	switch asked := held.Line != 0; {
	case a.try && (asked || slices.Contains(slices.Collect(maps.Values(taken)), strategies.Status{})):
		return &HeldError{Name: a.request.Name, Detail: "a permit is free, and others ask for it"}
	case asked:
		// What the database has free is asked for, or was just released, by others of this process.
		held.Line, held.Holder, held.Detail = 0, a.request.Holder, "all permits are this process's, or taken"
	}

	return held
}

// taken returns who has the slots of a name.
func (l *Locker) taken(ctx context.Context, name string) (map[int]strategies.Status, error) {
	listed, err := call.Within(ctx, func(ctx context.Context) ([]strategies.Status, error) {
		return l.strategy.List(ctx, strategies.Filter{Name: name})
	})
	if err != nil {
		return nil, err
	}

	taken := make(map[int]strategies.Status, len(listed))

	for _, status := range listed {
		_, slot := strategies.SplitSlot(status.Name)
		taken[slot] = status
	}

	return taken, nil
}

// allTaken is the answer to who cannot have one of n slots. It names the holder whose lease ends first. If
// some are free, others in line come first.
func allTaken(name string, n int, taken map[int]strategies.Status) *HeldError {
	held := &HeldError{Name: name}
	count := 0

	for slot, status := range taken {
		if slot >= max(1, n) {
			continue
		}

		// Of some nothing is known but that they could not be had.
		left := status.Remaining + status.Taken
		if count++; held.Remaining == 0 || left > 0 && left < held.Remaining {
			held.Token, held.Remaining, held.Holder = status.Token, left, strategies.Holder{}

			if status.Remaining > 0 {
				held.Holder = status.Holder
			}
		}
	}

	switch {
	case count < max(1, n):
		return &HeldError{Name: name, Line: 1}
	case n == 2:
		held.Detail = "both permits are taken"
	case n > 2:
		held.Detail = fmt.Sprintf("all %d permits are taken", n)
	}

	return held
}

// The readers of a name in this process have one grant, which one hold keeps, and each has a handle of its own with a
// context of its own. So there is one row for all of them, and it is renewed once. Whoever comes while the hold is
// open gets a handle without asking the database. It is open for a while after the database has said that nobody
// waits for the name, so that readers who come all the time do not keep a writer waiting.

const (
	// openTime is how long readers may come without a look at the line.
	openTime = 20 * time.Millisecond
	// readersCome is for how long a reader tries again whose name nobody is known to have, before it goes into
	// the line.
	readersCome = 250 * time.Millisecond

	// The release by the last reader waits for the next one for as long as the acquisition took that began it, and
	// this at most, if others have come within crowdTime.
	mostLinger = 10 * time.Millisecond
	crowdTime  = 2 * mostLinger
)

// WithShared acquires the lock for reading: any number of readers hold a name at a time, and no writer, which is whoever
// acquires it without this option. Readers and writers wait in one line: a writer waits for the readers before it, and a
// reader for the writers before it. Readers of one process who wait come in together, and readers may still join others
// of their process for about 20 milliseconds after a writer has begun to wait. Readers of different strategies exclude
// each other.
//
// Readers of one locker that ask for the same options share one grant, its lease and its renewals; if it is lost they
// all lose it. All readers that hold a name at the same time have the same token. It is larger than that of every writer
// before them, and smaller than that of every writer after them. [Lock.Guard] keeps the next writer out until the
// transaction ends. [Lock.ReleaseTx] is [ErrUnsupported].
//
// A shared lock cannot become exclusive: two readers who both want that would wait for each other. Whoever asks the same
// locker for the name without this option under the context of its shared lock gets [ErrUnsupported]; release it first,
// and read again after the acquisition what you have read before. With [WithReentrant] the context of a reader or of a
// writer may ask for a shared lock again, and a writer gets another handle of its exclusive lock; without it that is
// [ErrNotAcquired], as for any lock.
//
// With [WithPermits], [WithMinHold] or [WithLockDelay] it is [ErrInvalidOption], with [WithNames] [ErrUnsupported]. Do not use a name both with permits and with
// readers: those have slot 0, and permits with a larger slot are granted beside them. Strategy advisory on MySQL
// and MariaDB has no shared locks: [ErrUnsupported].
func WithShared() LockOption {
	return lockOption(func(s *settings) error {
		s.shared = true

		return nil
	})
}

// readersQueue is where those of this process wait who want a name as readers: apart from those who want it as
// writers, because the one in front leaves it as soon as it has the lock.
func readersQueue(name string) string {
	queued, _ := strategies.SlotRange(name, MaxPermits)

	return queued + "shared"
}

// shares are the holds of readers, by name.
type shares struct {
	mu   sync.Mutex
	open map[string][]*hold
}

// add makes a hold one that others may join.
func (s *shares) add(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.open[h.request.Name] = append(s.open[h.request.Name], h)
}

// remove makes it one that nobody joins any more.
func (s *shares) remove(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()

	name := h.request.Name
	s.open[name] = slices.DeleteFunc(s.open[name], func(other *hold) bool { return other == h })

	if len(s.open[name]) == 0 {
		delete(s.open, name)
	}
}

// find returns a hold that a reader with these settings can join; nil if there is none.
func (s *shares) find(name string, set *settings) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, h := range s.open[name] {
		if h.settings.sharesWith(set) {
			return h
		}
	}

	return nil
}

// shared is what a hold has if it is that of readers, under its mutex.
type shared struct {
	until  time.Time     // when somebody has to look at the line before another reader comes
	joins  int           // how often one came
	linger time.Duration // how long to wait for the next one
	came   time.Time     // when the last of those did
	come   chan struct{} // closed when the next one comes; nil if nobody waits for that
	closed bool          // nobody comes any more
}

// admit adds a reader, if the hold is alive, and open or known to be free for readers.
func (h *hold) admit(free bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.readers.closed || h.errLocked(now()) != nil || !free && time.Until(h.readers.until) <= 0 {
		return false
	}

	h.handles++
	h.readers.joins++
	h.readers.came = time.Now()

	if h.readers.come != nil {
		close(h.readers.come)
		h.readers.come = nil
	}

	return true
}

// dropReader takes a reader away, and says whether the hold is to be released: it was the last, and no other came. Others
// that are about to come may do so before.
func (h *hold) dropReader() bool {
	h.mu.Lock()
	h.handles--
	left, joins := h.handles, h.readers.joins
	h.mu.Unlock()

	if left > 0 {
		return false
	}

	runtime.Gosched()
	h.linger(joins)

	h.mu.Lock()
	last := h.handles == 0 && h.readers.joins == joins
	h.readers.closed = h.readers.closed || last
	h.mu.Unlock()

	if last {
		h.locker.shares.remove(h)
	}

	return last
}

// linger waits for the next reader after so many, if one may be about to come. What its release and the next acquisition
// send to the database would take as long.
func (h *hold) linger(joins int) {
	others := h.locker.turns.busy(readersQueue(h.request.Name))

	h.mu.Lock()
	lingers := h.readers.joins == joins && (others || time.Since(h.readers.came) <= crowdTime) && h.errLocked(now()) == nil

	if lingers && h.readers.come == nil {
		h.readers.come = make(chan struct{})
	}

	come := h.readers.come
	h.mu.Unlock()

	if lingers {
		pause(h.ctx, h.readers.linger, come)
	}
}

// joinAsked joins readers of this process if the database says that they may; nil if it does not.
func (a *acquisition) joinAsked(wait context.Context) *hold {
	queuer, h := a.locker.waiters.queuer, a.locker.shares.find(a.request.Name, a.set)
	if h == nil {
		return nil
	}

	// Who is in line asks all the same: it leaves the line with that.
	if a.request.Wait == "" && h.admit(false) {
		return h
	}

	if queuer == nil {
		return nil
	}

	asked, request := time.Now(), a.request
	free, err := call.Limited(wait, longest(a.set), func(ctx context.Context) (bool, error) { return queuer.Join(ctx, h.grant, request) })
	if !free || err != nil {
		return nil
	}

	h.mu.Lock()
	h.readers.until = later(h.readers.until, asked.Add(openTime))
	h.mu.Unlock()

	if h.admit(true) {
		return h
	}

	return nil
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
