package sqllock

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

const (
	// unseen is how long somebody stands in line without being told how, before asking for
	// the lock all the same.
	unseen = 3 * time.Second
	// sessionLook is how often the first in line asks for a lock that may be free without a
	// release: its session may have ended.
	sessionLook = time.Second
)

// inLine is how an acquisition waits in the line of its name.
type inLine struct {
	locker *Locker
	one    *waiting // nil before it waits

	told  bool      // its turn will be told
	asked bool      // the last attempt was made because of the time that has passed, not of a turn
	began time.Time // when the holder that it waits for was seen first
	seen  int64     // the token of that
	vain  int       // how often in a row it was its turn, and the same held the name
}

// startWaiting makes what the database is told of the wait.
func (a *acquisition) startWaiting(ctx context.Context) {
	if a.line.one == nil && !a.try {
		a.line.one = a.locker.waiters.newWaiting(ctx, a)

		if a.set.listens {
			a.locker.listener.use()
		}
	}
}

// leaveLine ends the wait, as far as the database was told of it. granted says that it has
// the lock, in its turn.
func (a *acquisition) leaveLine(granted bool) {
	if a.line.one == nil {
		return
	}

	a.locker.waiters.remove(a.line.one, granted)
	a.unuse()
}

func (a *acquisition) unuse() {
	if a.set.listens {
		a.locker.listener.unuse()
	}
}

// leaveTurn gives the turn to the next of this process, and with it the place in line: who gives
// up does not send those behind it to the end.
func (a *acquisition) leaveTurn() {
	var place *waiting
	if a.line.told {
		place = a.line.one
	}

	if a.locker.turns.leave(a.queued, place) && place != nil {
		a.unuse()
		a.line = inLine{locker: a.locker}
	}
}

// inherit takes the place in line of who gave up. One who waits for other reasons too stands for
// itself.
func (a *acquisition) inherit(ctx context.Context, place *waiting) {
	if a.startWaiting(ctx); !a.locker.waiters.inherit(a.line.one, place) {
		return
	}

	a.line.told = true
	a.request.Process, a.request.Wait = a.line.one.Process, a.line.one.ID
}

// withdraw leaves the line for as long as the acquisition could not use its turn. Then it
// asks, whoever is in line: those may have no place when it is their turn, and nobody would
// have the lock.
func (a *acquisition) withdraw() {
	a.leaveLine(false)
	a.line = inLine{locker: a.locker}
	a.request.Line, a.request.Process, a.request.Wait = 0, "", ""
}

// checkQueue looks whether a name that is kept for those who wait is kept for nobody: they
// have gone, or ended. Then the request may have it. One that may go into the line itself does
// not look again soon after others were found there.
func (a *acquisition) checkQueue(wait context.Context, held *HeldError) bool {
	w := &a.locker.waiters

	queuer := w.queuer
	if queuer == nil || !a.try && w.contended(held.Name) {
		return false
	}

	ctx, cancel := context.WithTimeout(wait, longest(a.set))
	defer cancel()

	filter := strategies.WaiterFilter{Name: held.Name, Limit: 10}

	if a.set.many() || a.set.shared {
		filter.Limit = 0
	}

	waiters, err := call.Within(ctx, func(ctx context.Context) ([]strategies.Waiter, error) {
		return queuer.Waiters(ctx, filter)
	})
	if err != nil {
		return false
	}

	readers := false

	for _, other := range waiters {
		if a.set.many() && other.Slots <= a.wish {
			continue // it does not know this slot
		}

		if a.set.shared && other.Shared {
			readers = true

			continue
		}

		if !w.over(other.ID) && (a.line.one == nil || other.ID != a.line.one.ID) {
			w.setContended(held.Name)

			return false
		}
	}

	a.request.First, a.request.Line = true, held.Line

	if readers {
		a.request.Line = 0 // it is not to forget them
	}

	return true
}

// pause waits until it makes sense to ask for the lock again, and says whether wait allows
// that. held is what the last attempt of the request was told.
func (p *inLine) pause(wait context.Context, held *HeldError, request *strategies.Request) bool {
	p.learn(held, request.First)
	request.First, request.Line = true, 0

	if p.locker.waiters.queuer == nil {
		return sleep(wait, max(p.poll(), p.retryPause(held)))
	}

	if p.vain > 0 {
		switch {
		case !sleep(wait, p.disbelief(held)):
			return false
		case unheld(held):
			return true
		}
	}

	if !p.told {
		taken, err := p.locker.waiters.enter(wait, p.one)

		switch {
		case err == nil:
			request.Process, request.Wait = p.one.Process, p.one.ID
			p.told = taken
		case wait.Err() != nil:
			return false
		default:
			// Others may be in line: for a while it is tried as somebody who has just come.
			request.First = time.Since(p.one.began) > unseen

			return p.turnIn(wait, max(p.poll(), jitter(firstRetry)), request)
		}
	}

	return p.wait(wait, request)
}

// turnIn waits for d, or for the turn if it comes before.
func (p *inLine) turnIn(wait context.Context, d time.Duration, request *strategies.Request) bool {
	ctx, cancel := context.WithTimeout(wait, d)
	defer cancel()

	select {
	case request.Line = <-p.one.turns:
		request.First = true
		request.Process, request.Wait = p.one.Process, p.one.ID
	case <-ctx.Done():
	}

	return wait.Err() == nil
}

// wait waits for the turn.
func (p *inLine) wait(wait context.Context, request *strategies.Request) bool {
	for {
		timer := time.NewTimer(p.patience())
		p.asked = false

		select {
		case request.Line = <-p.one.turns:
			timer.Stop()

			return true
		case <-wait.Done():
			timer.Stop()

			return false
		case <-timer.C:
			if p.asked = p.mayAsk(); p.asked {
				return true
			}
		}
	}
}

// learn takes in who holds the name.
func (p *inLine) learn(held *HeldError, first bool) {
	switch {
	case p.began.IsZero():
		p.began, p.seen = time.Now(), held.Token
	case p.asked:
	case first && unheld(held):
		p.vain++
	case held.Token != p.seen:
		p.began, p.seen, p.vain = time.Now(), held.Token, 0
	case first:
		p.vain++
	}
}

// silent says whether the database has not said for a while how the acquisition stands.
func (p *inLine) silent() bool {
	if p.one == nil {
		return false
	}

	w := &p.locker.waiters

	w.mu.Lock()
	defer w.mu.Unlock()

	return p.one.noted && w.failed.After(p.one.stood) && time.Since(p.one.stood) >= silence
}

// place in the line when that was last looked, from 1; zero if it is not known.
func (p *inLine) place() int {
	if p.one == nil {
		return 0
	}

	w := &p.locker.waiters

	w.mu.Lock()
	defer w.mu.Unlock()

	if p.one.standing.ID == "" {
		return 0
	}

	return p.one.standing.Ahead + 1
}

// poll is the pause before a question without a line.
func (p *inLine) poll() time.Duration {
	return pollPause(time.Since(p.began), p.one.set.pollMin, lastRetry)
}

// retryPause is how long to wait for a name without a line of which nobody is known to have it: several may have asked for it at
// once, each of whom kept it from the others. It is random, and longer each time.
func (p *inLine) retryPause(held *HeldError) time.Duration {
	if !unheld(held) || p.vain == 0 {
		return 0
	}

	return backoff(p.vain-1, lookPause, lastRetry/2)
}

// disbelief is how long to wait after a turn that was none. The name's row was locked for a
// moment, or is guarded. Or the holder was the same: anybody may say falsely that it is a turn
// who can connect to the database. In the end it is as if nobody did.
func (p *inLine) disbelief(held *HeldError) time.Duration {
	d := min(time.Millisecond<<min(p.vain-1, 10), lastRetry)
	if unheld(held) {
		d = min(d, p.poll())
	}

	return d
}

// patience is how long to wait for the turn before looking whether to ask without.
func (p *inLine) patience() time.Duration {
	if p.locker.features.ConnectionHeld {
		return jitter(sessionLook)
	}

	return unseen
}

// mayAsk says whether to ask for the lock though it was not said whose turn it is.
func (p *inLine) mayAsk() bool {
	w := &p.locker.waiters

	w.mu.Lock()
	defer w.mu.Unlock()

	known := time.Since(p.one.stood)
	nobodySays := known > unseen && w.failed.After(p.one.stood) || known > 2*unseen
	first := p.one.standing.ID != "" && p.one.standing.Ahead == 0

	return nobodySays || first && p.locker.features.ConnectionHeld
}
