package sqllock

import (
	"context"
	"log/slog"
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
	// mostLooks is how many of a process look at a time whether a name is kept for nobody.
	mostLooks = 4
)

// newWaiting is a wait of ctx, which stop ends.
func (w *waiters) newWaiting(ctx context.Context, a *acquisition) *waiting {
	holding := owners(ctx)
	if len(a.set.names) > 0 {
		holding = signed(holding, passing)
	}

	id := newOwner()
	id = a.call + id[len(a.call):]

	one := &waiting{set: a.set, began: time.Now(), stop: a.stop, turns: make(chan int64, 1), asked: a.began, Waiter: strategies.Waiter{
		Name: a.request.Name, Process: w.process, ID: id, Holder: a.request.Holder, Holding: holding,
		Slots: a.set.permits, Shared: a.set.shared,
	}}

	if w.locker.tells(ctx, slog.LevelDebug) {
		one.told = ctx
	}

	return one
}

// freed says whether the name was released since it was looked how the first in line stands.
func (one *waiting) freed(s strategies.Standing, asked time.Time) bool {
	before := one.standing

	return before.ID != "" && before.Ahead == 0 && s.Ahead == 0 && s.Taken == 0 && one.stood.Add(before.Taken).After(asked)
}

// saw takes in how one stands, and returns when to look again.
func (w *waiters) saw(one *waiting, s strategies.Standing, asked time.Time) time.Time {
	pause, rested := w.pause(one), one.rest(asked) > 0

	if s.Ahead < one.standing.Ahead {
		one.moved = asked
	}

	one.standing, one.stood = s, asked
	rest := one.rest(asked)

	if rested {
		pause = w.pause(one) // it may be the next
	}

	switch {
	case one.set.many():
		if s.Free > 0 {
			one.turn(0)
		}
	case rest > 0:
		pause = rest - jitter(rest/8) // not all at once
	case s.Ahead > 0:
		pause = min(pause, s.Life+time.Millisecond)
	case s.Taken > 0:
		pause = min(pause, s.Taken+time.Millisecond)
	case s.Alone:
		one.turn(s.Line)
	default:
		one.turn(0)
	}

	// It could be overtaken.
	if s.Line == 0 {
		one.noted = false
	}

	return asked.Add(pause)
}

func (one *waiting) turn(line int64) {
	select {
	case one.turns <- line:
	default:
	}
}

const (
	// stillFor is how long a line has not moved of which those behind the first two listen no more. PostgreSQL up to 18 wakes every
	// session of a database that listens, at each notification.
	stillFor = 5 * time.Second
	// longestRest is the longest time between two looks of one of those.
	longestRest = time.Minute
)

// rest is how long it need not be looked how one stands who is not soon to be served: a quarter of the time for which the line has
// stood still, but no more seconds than there are others ahead. It is zero for the first two, and for all while the line moves.
// Readers and those who want a permit are served several at a time, and do not rest.
func (one *waiting) rest(now time.Time) time.Duration {
	ahead, still := one.standing.Ahead, now.Sub(one.moved)
	if ahead < 2 || still <= stillFor || one.set.manyHolders() {
		return 0
	}

	return min(max(still/4, standEvery), time.Duration(ahead)*time.Second, longestRest)
}

// counts is how long it may count in its line after its last word.
func (one *waiting) counts() time.Duration { return believed + one.rest(one.stood) }

// pause is how long one stands in line before it is looked how.
func (w *waiters) pause(one *waiting) time.Duration {
	if one.set.listens && w.locker.listener.hearing.Load() {
		return standEvery
	}

	stood := time.Since(one.moved)
	longest := min(stood/1000, lastRetry)

	if one.set.listens && w.heard {
		longest = min(stood/10, 2*standEvery)
	}

	pause := pollPause(stood, one.set.pollMin, max(one.set.pollMax, longest))

	if ahead := one.standing.Ahead; ahead > 0 {
		pause = max(2*pause, min(jitter(time.Duration(ahead-1)*oneTurn), lastRetry))
	}

	return pause
}

// oneTurn is how long each of those ahead is taken to need: who is not next looks when it may
// be. leastTurn is the least that one needs: that much passes before a change is seen and the lock is asked for.
const (
	oneTurn   = 10 * time.Millisecond
	leastTurn = 2 * time.Millisecond
)

// pollPause returns how long to wait before the next question, for who has waited
// for so long: from half of a bound up to it, which is an eighth of that time when it has
// been long, and a smaller part when it has not. Most locks are held for a moment,
// and what is asked then is over soon.
func pollPause(waited, lowest, highest time.Duration) time.Duration {
	const long = 500 * time.Millisecond

	part := float64(waited) / float64(waited+long) / 8
	bound := float64(lowest) + part*float64(waited)

	return jitter(time.Duration(min(bound, float64(highest))))
}

// inLine is how an acquisition waits in the line of its name.
type inLine struct {
	one *waiting // nil before it waits

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
		a.locker.listener.use(a.set, 1, 0)
	}
}

// leaveLine ends the wait, as far as the database was told of it. granted says that it has
// the lock, in its turn.
func (a *acquisition) leaveLine(granted bool) {
	if a.line.one == nil {
		return
	}

	a.locker.waiters.remove(a.line.one, granted)
	a.locker.listener.use(a.set, -1, 0)
}

// withdraw leaves the line for as long as the acquisition could not use its turn. Then it
// asks, whoever is in line: those may have no place when it is their turn, and nobody would
// have the lock.
func (a *acquisition) withdraw() {
	a.leaveLine(false)
	a.line = inLine{}
	a.request.Line, a.request.Process, a.request.Wait = 0, "", ""
}

// checkQueue looks whether a name that is kept for those who wait is kept for nobody: they
// have gone, or ended. Then the request may have it. One that may go into the line itself does
// not look again soon after others were found there, nor while many look: each needs a connection.
func (a *acquisition) checkQueue(wait context.Context, held *HeldError) bool {
	w := &a.locker.waiters

	defer w.looks.Add(-1)

	queuer, looks := w.queuer, w.looks.Add(1)
	if _, others := w.others.get(held.Name); queuer == nil || !a.try && (others > 0 || looks > mostLooks) {
		return false
	}

	ctx, cancel := context.WithTimeout(wait, longest(a.set))
	defer cancel()

	filter := strategies.WaiterFilter{Name: held.Name, Limit: 10}

	if a.set.manyHolders() {
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
		if wants(other) {
			continue // it is in another line
		}

		if a.set.many() && other.Slots <= a.wish {
			continue // it does not know this slot
		}

		if a.set.shared && other.Shared {
			readers = true

			continue
		}

		// One of this process that has ended may not have left the line yet.
		if _, over := w.ended.get(other.ID); over <= 0 && (a.line.one == nil || other.ID != a.line.one.ID) {
			w.others.put(held.Name, struct{}{}, time.Now().Add(believed))

			return false
		}
	}

	a.request.First, a.request.Line = true, held.Line

	if readers {
		a.request.Line = 0 // it is not to forget them
	}

	return true
}

// pause waits until it makes sense to ask for the lock again, or wait ends. held is what the last attempt was told.
func (a *acquisition) pause(wait context.Context, held *HeldError) {
	p, w := &a.line, &a.locker.waiters

	p.learn(held, a.request.First)

	if p.one.told != nil {
		w.mu.Lock()

		if p.one.held = held; held.Token == 0 {
			p.one.held = nil // others in line were in the way
		}

		w.mu.Unlock()
	}

	a.request.First, a.request.Line = true, 0

	if w.queuer == nil {
		sleep(wait, max(p.poll(), p.retryPause(held)))

		return
	}

	if p.vain > 0 && (!sleep(wait, p.disbelief(held)) || unheld(held)) {
		return
	}

	if !p.told {
		taken, err := w.enter(wait, p.one)

		switch {
		case err == nil:
			a.request.Process, a.request.Wait = p.one.Process, p.one.ID
			p.told = taken
		case wait.Err() == nil:
			// Others may be in line: for a while it is tried as somebody who has just come.
			a.request.First = time.Since(p.one.began) > unseen
			a.turnIn(wait, max(p.poll(), jitter(firstRetry)))

			return
		}
	}

	a.awaitLine(wait)
}

// turnIn waits for d, and says whether the turn came before.
func (a *acquisition) turnIn(wait context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case a.request.Line = <-a.line.one.turns:
		a.request.First = true
		a.request.Process, a.request.Wait = a.line.one.Process, a.line.one.ID

		return true
	case <-timer.C:
	case <-wait.Done():
	}

	return false
}

// awaitLine waits for the turn, or until it makes sense to ask without it.
func (a *acquisition) awaitLine(wait context.Context) {
	a.locker.waiters.asks(a.line.one, false)
	defer a.locker.waiters.asks(a.line.one, true)

	for a.line.asked = false; wait.Err() == nil && !a.line.asked; a.line.asked = a.mayAsk() {
		patience := unseen
		if a.locker.features.ConnectionHeld {
			patience = jitter(sessionLook)
		}

		if a.turnIn(wait, patience) {
			return
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

// recoveryLook is how often it is looked whether a recovery pause has been ended.
const recoveryLook = 5 * time.Second

// disbelief is how long to wait after a turn that was none. The name's row was locked for a
// moment, or is guarded. Or the holder was the same: anybody may say falsely that it is a turn
// who can connect to the database. In the end it is as if nobody did.
func (p *inLine) disbelief(held *HeldError) time.Duration {
	if held.Recovering {
		return min(held.Remaining, recoveryLook) + jitter(lastRetry/10)
	}

	d := min(time.Millisecond<<min(p.vain-1, 10), lastRetry)
	if unheld(held) {
		d = min(d, p.poll())
	}

	return d
}

// mayAsk says whether to ask for the lock though it was not said whose turn it is.
func (a *acquisition) mayAsk() bool {
	p, w := a.line, &a.locker.waiters

	w.mu.Lock()
	defer w.mu.Unlock()

	known := time.Since(p.one.stood) - p.one.rest(p.one.stood)
	nobodySays := known > unseen && w.failed.After(p.one.stood) || known > 2*unseen
	first := p.one.standing.ID != "" && p.one.standing.Ahead == 0

	return nobodySays || first && a.locker.features.ConnectionHeld
}
