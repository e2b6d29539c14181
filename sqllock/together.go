package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Several names are one acquisition with a request for each. It holds nothing while it waits: it stands in
// the lines of all its names, and asks for all of them at once when it is the first in each and all
// are free. In each line it has the same ticket, so that of those who want the same names one
// is before the others everywhere. It waits apart from those of this process who want one of its names.

// joined makes one acquisition of several, which are for names that differ, in their order.
func joined(all []*acquisition) *acquisition {
	a := all[0]
	if len(all) == 1 {
		return a
	}

	for _, one := range all {
		a.requests = append(a.requests, one.request)
	}

	a.queued = "" // no name is

	return a
}

// together says whether the acquisition is for several names.
func (a *acquisition) together() bool { return len(a.requests) > 1 }

// asked is the request for a name.
func (a *acquisition) asked(name string) *strategies.Request {
	for i := range a.requests {
		if a.requests[i].Name == name {
			return &a.requests[i]
		}
	}

	return &a.request
}

// askAll asks for all the names, and returns the request that an error is about.
func (a *acquisition) askAll(ctx context.Context) ([]strategies.Grant, strategies.Request, error) {
	requests := slices.Clone(a.requests)
	for i := range requests {
		requests[i].First = requests[i].First || a.request.First
	}

	if a.oneByOne() {
		return a.askEach(ctx, requests)
	}

	if a.request.Wait != "" {
		a.line.stands(requests)
	}

	grants, err := within(ctx, func(ctx context.Context) ([]strategies.Grant, error) {
		return a.locker.grouper.TryAcquireGroup(ctx, requests)
	})

	return grants, a.request, err
}

// abandonAll gives back, when its outcome is known, what an attempt brings that was abandoned.
func (a *acquisition) abandonAll(ctx context.Context, attempt *outcome[[]strategies.Grant]) {
	l, requests := a.locker, slices.Clone(a.requests)
	endings := make([]*ending, len(requests))

	for i, r := range requests {
		endings[i] = l.settle(ctx, r, nil)
	}

	attempt.then(func(late []strategies.Grant, err error) {
		for i, grant := range late {
			l.settle(ctx, requests[i], grant)
		}

		for _, e := range endings {
			if !uncertain(err) {
				l.background.drop(e)
			}
		}
	})
	a.changeOwner()
}

// attempted are the requests of an attempt that failed with an error about request. Where several names are taken one after
// the other it was sent for one of them, and the others, if any, have been given back.
func (a *acquisition) attempted(request strategies.Request) []strategies.Request {
	if a.together() && !a.oneByOne() {
		return a.requests
	}

	return []strategies.Request{request}
}

// oneByOne says whether the strategy takes several names one after the other. Then the acquisition stays in their
// lines meanwhile.
func (a *acquisition) oneByOne() bool { return a.together() && a.locker.grouper == nil }

// askEach asks for one name after the other, and gives back what it has if one of them is not to be had. All
// ask in the order of the names, so that of those who want the same ones somebody gets them all.
func (a *acquisition) askEach(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, strategies.Request, error) {
	grants := make([]strategies.Grant, 0, len(requests))

	for _, r := range requests {
		grant, err := a.locker.acquires.serve(ctx, r, false)
		if err == nil {
			grants = append(grants, grant)

			continue
		}

		a.giveBack(ctx, requests, grants)

		return nil, r, err
	}

	return grants, a.request, nil
}

// giveBack releases some of the names, which nobody has.
func (a *acquisition) giveBack(ctx context.Context, requests []strategies.Request, grants []strategies.Grant) {
	if len(grants) == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()

	for i, grant := range slices.Backward(grants) {
		_, err := within(ctx, func(ctx context.Context) (struct{}, error) {
			// A release would leave a minimum hold, which is of those who have them all.
			if requests[i].MinHold > 0 {
				return struct{}{}, a.locker.strategy.Settle(ctx, requests[i])
			}

			return struct{}{}, grant.Release(ctx)
		})
		if err != nil {
			a.locker.settle(ctx, requests[i], grant)
		}
	}

	// What is settled later is not the next attempt's. Of the name that was not to be had, failed says so.
	for i := range grants {
		a.requests[i].Owner = newOwner()
	}
}

// grantedAll makes holds of what an attempt that was begun at start has brought, the last of them inside
// the others.
func (a *acquisition) grantedAll(ctx context.Context, start instant, grants []strategies.Grant) (*hold, error) {
	l := a.locker

	if now().since(start) >= a.set.trust(a.set.lease) {
		for i, grant := range grants {
			l.settle(ctx, a.requests[i], grant)
		}

		a.changeOwner()

		return nil, errTooLate
	}

	g := &group{holds: make([]*hold, len(grants))}

	for i, grant := range grants {
		a.key = reentry{l, a.requests[i].Name}
		h := newHold(ctx, a, a.requests[i], grant, start)
		h.group, g.holds[i], ctx = g, h, h.ctx
	}

	// As granted does.
	l.background.mu.Lock()
	defer l.background.mu.Unlock()

	if l.background.closed {
		for i, grant := range grants {
			l.settleLocked(ctx, a.requests[i], grant)
		}

		return nil, ErrClosed
	}

	for _, h := range g.holds {
		l.keeper.keep(h)
	}

	l.reached.Store(true)

	return g.holds[len(g.holds)-1], nil
}

// handleAll returns the handle of the innermost of several holds, as handle does, and keeps those of all.
func (a *acquisition) handleAll(ctx context.Context, g *group, event Event) *Lock {
	told := false

	for _, h := range g.holds {
		a.locks = append(a.locks, h.handle())
	}

	defer func() {
		if !told {
			_ = releaseEach(ctx, a.locks)
		}
	}()

	for _, h := range g.holds {
		a.tell(h, event)
	}

	told = true

	return a.locks[len(a.locks)-1]
}

// title is what messages call what is asked for.
func (a *acquisition) title() string {
	if !a.together() {
		return fmt.Sprintf("lock %q", a.request.Name)
	}

	return fmt.Sprintf("locks %s", quoted(a.requests))
}

// quoted are the names of some requests, or how many there are beside the first.
func quoted(requests []strategies.Request) string {
	const most = 3

	names := make([]string, 0, most)

	for _, r := range requests[:min(len(requests), most)] {
		names = append(names, fmt.Sprintf("%q", r.Name))
	}

	if more := len(requests) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}

	return strings.Join(names, ", ")
}

// group are holds that were acquired together: if one is lost all are.
type group struct {
	holds []*hold
	lost  atomic.Bool
}

// lose ends the others by the loss of one.
func (g *group) lose(lost *hold, state error) {
	if g.lost.Swap(true) {
		return
	}

	for _, h := range g.holds {
		if h != lost {
			_ = h.end(h.lostWith(lost, state))
		}
	}
}

// err is the loss of another one of h's group, which is h's too then; else nil. Of one that was released h is
// independent.
func (g *group) err(h *hold, n instant) error {
	for _, other := range g.holds {
		if other == h {
			continue
		}

		other.mu.Lock()
		state := other.errLocked(n)
		other.mu.Unlock()

		if state == nil || !errors.Is(state, ErrLost) {
			continue
		}

		h.mu.Lock()
		defer h.mu.Unlock()

		if h.ended == nil && h.over == nil {
			h.over = h.lostWith(other, state)
		}

		return h.errLocked(n)
	}

	return nil
}

// lostWith is the loss of h because of another one's.
func (h *hold) lostWith(other *hold, state error) *LostError {
	return h.lostError(ReasonTogether, other.name(), state)
}

// enterTogether puts those of one wait into their lines, with one ticket.
func (w *waiters) enterTogether(wait context.Context, all []*waiting) (entered bool, err error) {
	batcher, ok := w.queuer.(strategies.QueueBatcher)
	if !ok {
		return false, errNoTicket
	}

	w.mu.Lock()

	if w.silentLocked() > 0 {
		w.mu.Unlock()

		return false, errSilent
	}

	waiters := make([]strategies.Waiter, len(all))

	for i, one := range all {
		one.sent, one.stood, one.moved = true, time.Now(), time.Now()
		w.asking[one.ID] = one
		waiters[i] = one.Waiter
		waiters[i].Waited = time.Since(all[0].began)
	}

	w.mu.Unlock()

	ctx, cancel := context.WithTimeout(wait, tellTime)
	defer cancel()

	errs, err := within(ctx, func(ctx context.Context) ([]error, error) {
		_, errs := batcher.EnqueueAll(ctx, waiters, believed)

		return errs, nil
	})

	var abandoned abandonedError[[]error]
	if errors.As(err, &abandoned) {
		abandoned.outcome.then(func([]error, error) {
			for _, one := range all {
				w.removeLate(one, one.ID)
			}
		})
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	entered = err == nil

	for i, one := range all {
		switch {
		case err != nil:
		case errs[i] == nil:
			one.noted = true
		case !errors.Is(errs[i], strategies.ErrNotBatched):
			err = errs[i]
		}

		one.again = one.again || !one.noted // it may be in line, and is put there again
		entered = entered && one.noted
	}

	if wait.Err() == nil {
		w.answeredLocked(err)
	}

	for _, one := range all {
		w.addLocked(one)
	}

	w.next = time.Now() // some may have been released before

	return entered, err
}

// errNoTicket is that of a strategy without a QueueBatcher.
var errNoTicket = errors.New("the strategy puts nobody into several lines at once")

// firstInAll says whether one wait is the first in all its lines, where all the names are free, as far as is known.
func (one *waiting) firstInAll() bool {
	for _, of := range one.all {
		if s := of.standing; s.ID == "" || s.Ahead > 0 || s.Taken > 0 {
			return false
		}
	}

	return true
}

// toldOne takes in that one of several names is free, and that the wait is the first in its line.
func (one *waiting) toldOne(line int64) {
	one.standing = strategies.Standing{Name: one.Name, ID: one.ID, Alone: line != 0, Line: line}

	if one.lead.firstInAll() {
		one.lead.turn(0)
	}
}

// allFree says whether all names were free when that was last looked.
func (one *waiting) allFree() bool {
	for _, of := range one.all {
		if of.standing.ID == "" || of.standing.Taken > 0 {
			return false
		}
	}

	return len(one.all) > 0
}

// stands puts into the requests for several names what is known of their lines.
func (p *inLine) stands(requests []strategies.Request) {
	w := &p.locker.waiters

	w.mu.Lock()
	defer w.mu.Unlock()

	for i, of := range p.one.all {
		requests[i].Process, requests[i].Wait = of.Process, of.ID

		if of.standing.Alone {
			requests[i].Line = of.standing.Line
		}
	}
}
