package sqllock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// The database has a line for each name. Of a process stands in it the one that asks for
// the name, on behalf of all who want the same of it here: to write, to read, or one of its slots. Whoever is first asks for the lock when it
// is released; whoever has not been in line is granted a name only if nobody is. That is
// for order and for promptness: a lock is exclusive whatever anybody believes of the line,
// and if the line cannot be had, those who wait ask now and then.

const (
	// believed is how long the database believes that somebody waits who does not say so
	// again, and keepEvery how often that is said, for all in one statement.
	believed  = 3 * time.Second
	keepEvery = believed / 3
	// standEvery is how often it is looked how those in line stand who are notified: a
	// notification can be lost, though that should never happen.
	standEvery = 2 * time.Second
	// noticed is how long somebody waits behind another one of this process before the
	// database is told of it, and at most in line before it is looked how many are ahead.
	noticed = 250 * time.Millisecond
	// tellTogether is how many the database is told of in one statement, whose metadata may be long.
	tellTogether = 32
	// lookEvery is how often those who wait while they hold other locks look for a
	// deadlock.
	lookEvery = time.Second
	// tellTime bounds each of the statements. None is sent for a while after one that failed,
	// from leastSilence on and twice as long after each, up to mostSilence: they must not keep a
	// connection of a small pool from renewals. The last, when the locker is closed, may
	// take lastTell.
	tellTime     = time.Second
	leastSilence = 250 * time.Millisecond
	mostSilence  = 5 * time.Second
	lastTell     = 2 * time.Second
	// telling is what Close calls them. No lock has a name with a NUL.
	telling = "\x00the list of those who wait"
)

// waiters are those of this process who wait, as the database is told: for each name the ones
// that ask for it, and of those behind it the ones that hold other locks meanwhile, which is
// for finding deadlocks. One goroutine keeps them in line and looks how they stand, one
// statement after the other, while there is anybody.
type waiters struct {
	locker  *Locker
	queuer  strategies.Queuer // nil if the strategy is none
	entries call.Batcher[strategies.Waiter, bool]
	process string
	wake    chan struct{}
	looks   atomic.Int64 // how many look whether a name is kept for nobody

	mu      sync.Mutex
	present map[*waiting]struct{}
	asking  map[string]*waiting // of them those in line, by ID
	gone    []*waiting          // whom the database may have been told of
	ended   recent[endedWait]   // by id
	others  recent[struct{}]    // names that others were seen to wait for
	telling bool
	failed  time.Time // when a statement did
	vain    int       // how many did in a row
	until   time.Time // how long the database believes that all of them wait
	next    time.Time // when to look how they stand, at the latest
	soonest time.Time // before which it is not, so that looks take a part of the time only
	call    bool      // they were called since they were looked at
	heard   bool      // when a name was released the last time, they were called
}

// endedWait is one that is over.
type endedWait struct {
	over  time.Time
	slots int
}

// behind tells the database of a wait for another one of this process, if it lasts. remove
// has to follow.
func (w *waiters) behind(one *waiting) {
	one.Behind = true

	w.mu.Lock()
	defer w.mu.Unlock()

	one.timer = time.AfterFunc(noticed, func() {
		w.mu.Lock()
		defer w.mu.Unlock()

		if one.Behind && one.over.IsZero() {
			w.addLocked(one)
		}
	})
}

// addLocked has the goroutine take care of one.
func (w *waiters) addLocked(one *waiting) {
	if w.startLocked(false) {
		w.present[one] = struct{}{}

		wakeUp(w.wake)
	}
}

// startLocked starts the goroutine, which Close waits for, if there is none. It returns false if it is too late and may not be.
func (w *waiters) startLocked(late bool) bool {
	if w.telling {
		return true
	}

	if w.telling = w.locker.background.begin(telling); !w.telling && late {
		w.locker.background.count(telling)
		w.telling = true
	}

	if w.telling {
		go w.run()
	}

	return w.telling
}

// enter puts one at the end of the line for its name. It says whether the name is taken, so
// that its release will be told. remove has to follow.
func (w *waiters) enter(wait context.Context, one *waiting) (taken bool, err error) {
	w.mu.Lock()

	if w.silentLocked() > 0 {
		w.mu.Unlock()

		return false, errSilent
	}

	began := time.Now()
	one.Behind, one.sent, one.asks, one.stood, one.moved = false, true, false, began, began
	w.asking[one.ID] = one // its turn may come before the answer
	waiter := one.Waiter
	w.mu.Unlock()

	ctx, cancel := context.WithTimeout(wait, tellTime)
	defer cancel()

	taken, err = w.entries.Serve(ctx, waiter, one.batched())
	var abandoned call.AbandonedError[bool]
	if errors.As(err, &abandoned) {
		abandoned.Then(func(bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()

			// The entry may have been made when the wait was over.
			if !one.over.IsZero() && w.startLocked(false) {
				w.removeLocked(one.Name, waiter.ID, one.Slots, true)
			}
		})
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if wait.Err() == nil {
		w.answeredLocked(began, err)
	}

	w.addLocked(one)

	if err != nil {
		one.again = true // it may be in line, and is put there again

		return false, err
	}

	one.noted, one.taken = true, taken
	w.untilLocked(began.Add(believed))

	if taken {
		w.nextLocked(one.stood.Add(min(w.pause(one), noticed)))
	} else {
		w.nextLocked(one.stood) // it may have been released before
	}

	return taken, nil
}

func (w *waiters) enqueue(ctx context.Context, all []strategies.Waiter) (taken []bool, errs []error) {
	return w.queuer.Enqueue(ctx, all, believed)
}

// untilLocked notes that the database believes of some no longer than until some time that they wait.
func (w *waiters) untilLocked(at time.Time) {
	if at.Before(w.until) {
		w.until = at
	}
}

// answeredLocked notes whether a statement failed that was asked for at some time: those that were when another failed are one failure
// with that. That a row was locked is an answer.
func (w *waiters) answeredLocked(asked time.Time, err error) {
	if err == nil || errors.Is(err, strategies.ErrBusy) {
		w.vain = 0

		return
	}

	if w.vain == 0 || asked.After(w.failed) {
		w.vain++
	}

	w.failed = time.Now()
}

// silent says whether no statement is sent.
func (w *waiters) silent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.silentLocked() > 0
}

// silentLocked is how long no statement is sent.
func (w *waiters) silentLocked() time.Duration {
	if w.vain == 0 {
		return 0
	}

	return time.Until(w.failed.Add(min(leastSilence<<min(w.vain-1, 10), mostSilence)))
}

// nextLocked has it looked how all stand at some time or before, and no sooner than soonest: whatever has changed, the server has more
// to do than to say how they stand.
func (w *waiters) nextLocked(at time.Time) {
	at = later(at, w.soonest)

	if w.next.IsZero() || at.Before(w.next) {
		w.next = at

		wakeUp(w.wake)
	}
}

// called has it looked, because something has changed of a name, or of an unknown one, and nobody says what: at once for those who
// may be next, and for each of the others when the ones ahead may have had their turns. If all looked at every change, a line of
// many processes would keep the database from its own hand-overs.
func (w *waiters) called(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	now := time.Now()

	for _, one := range w.asking {
		if name != "" && name != one.Name {
			continue
		}

		w.call = true

		at := now
		if !one.set.manyHolders() {
			at = later(now, one.stood.Add(time.Duration(one.standing.Ahead-1)*leastTurn))
		}

		w.nextLocked(at)
	}
}

// hearing notes whether there is a connection to be called on. A new one shows that the
// database answers again.
func (w *waiters) hearing(connected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.heard = false; connected {
		w.vain = 0
	}
}

// turn tells the one that waits for a name that it is its turn. One that does not wait any
// more leaves the line, and passes it on.
func (w *waiters) turn(name, id string, line int64) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if one := w.asking[id]; one != nil {
		one.turn(line)

		return
	}

	if ended, left := w.ended.get(id); left > 0 && w.startLocked(false) {
		w.removeLocked(name, id, ended.slots, true)
	}
}

// inherit has heir stand where place does, whose wait has ended. If one of them holds other locks, or
// they say different things of themselves, place leaves the line. told says that its turn will be.
func (w *waiters) inherit(heir, place *waiting) (told, in bool) {
	if heir.Behind || len(heir.Holding)+len(place.Holding) > 0 || heir.Holder != place.Holder || heir.Slots != place.Slots {
		w.remove(place, false)

		return false, false
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	heir.ID, heir.began = place.ID, place.began
	heir.entry = place.entry

	delete(w.present, place)
	w.present[heir] = struct{}{}

	if w.asking[heir.ID] == place {
		w.asking[heir.ID] = heir
	}

	// It may have been told that it was its turn.
	w.nextLocked(time.Now())

	return heir.taken, true
}

// asks notes whether one asks for the lock, in its turn.
func (w *waiters) asks(one *waiting, does bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if one.asks = does; !does && !one.noted {
		wakeUp(w.wake)
	}
}

// stands says whether one may be in line.
func (w *waiters) stands(one *waiting) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return one != nil && one.sent && !one.Behind
}

// remove ends a wait, of an acquisition that Close waits for. granted says that it has the lock, in
// its turn.
func (w *waiters) remove(one *waiting, granted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if one.timer != nil {
		one.timer.Stop()
	}

	one.over = time.Now()
	more := one.set.manyHolders() // another slot may be free, or another reader be next
	one.passes = (!granted || more) && !one.Behind
	delete(w.present, one)

	if w.asking[one.ID] == one {
		delete(w.asking, one.ID)
	}

	if one.sent && (!granted || more || one.again || !w.locker.features.LeavesLine) {
		w.gone = append(w.gone, one)

		w.startLocked(true) // also when the locker is being closed: that came between the entry and its answer
	}

	if one.sent {
		w.ended.put(one.ID, endedWait{one.over, one.Slots}, one.over.Add(one.counts()))
	}

	wakeUp(w.wake)
}

// run is the goroutine.
func (w *waiters) run() {
	defer w.locker.background.finish(telling)

	looked := time.Time{}
	unended := context.WithoutCancel(w.locker.life)

	w.mu.Lock()
	w.until = time.Now().Add(believed)
	w.mu.Unlock()

	for {
		w.dequeue()

		known := w.note()

		w.poll()
		w.keep(known)

		if time.Since(looked) >= lookEvery*9/10 { // the ticks of a busy machine come unevenly
			looked = time.Now()
			w.endDeadlocks(known)
		}

		w.locker.listener.keepOff(w.rests())

		wait, idle := w.idle()
		if idle {
			return
		}

		pause(unended, wait, w.wake)
	}
}

// idle says whether there is nothing left to tell, and no goroutine then; or else how long
// there is nothing to do.
func (w *waiters) idle() (pause time.Duration, idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.telling = len(w.present)+len(w.gone) > 0
	pause = lookEvery

	if w.locker.life.Err() != nil {
		pause = leastSilence // Close waits
	}

	if !w.next.IsZero() {
		pause = min(pause, time.Until(w.next))
	}

	return pause, !w.telling
}

// poll asks how those in line stand, if it is time, and tells those whose turn it is.
func (w *waiters) poll() {
	asked, ttl := time.Now(), time.Duration(0)

	w.mu.Lock()
	due := !w.next.IsZero() && !asked.Before(w.next)
	called, until := due && w.call, w.until

	if due {
		w.next, w.call = time.Time{}, false

		if rest := w.restLocked(asked); rest > 0 {
			ttl = rest + believed - keepEvery // nothing else is sent until the next look
			w.until = asked.Add(ttl)
		}
	}

	w.mu.Unlock()

	if !due {
		return
	}

	all, err := ask(w, func(ctx context.Context) ([]strategies.Standing, error) { return w.queuer.Stand(ctx, w.process, ttl) })

	w.mu.Lock()
	defer w.mu.Unlock()

	if err != nil {
		w.untilLocked(until)
		w.nextLocked(time.Now().Add(max(w.silentLocked(), leastSilence)))

		return
	}

	seldom := 4
	if w.locker.listener.hearing.Load() {
		seldom = 9 // most are told
	}

	w.soonest = time.Now().Add(time.Duration(seldom) * time.Since(asked))

	for _, s := range all {
		one := w.asking[s.ID]
		if one == nil {
			w.strayLocked(s, asked)

			continue
		}

		if place := s.Ahead + 1; one.told != nil && one.place != place {
			one.place = place
			w.locker.events.add(one.told, Event{
				Kind: Waiting, Name: one.Name, Place: place, Held: one.held, Waited: now().since(one.asked),
			})
		}

		if one.freed(s, asked) {
			w.heard = called
		}

		w.nextLocked(w.saw(one, s, asked))
	}

	for _, one := range w.asking {
		one.noted = one.noted && !one.stood.Before(asked) // or else it was forgotten
	}
}

// rests says whether nobody in line is soon to be served.
func (w *waiters) rests() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.restLocked(time.Now()) > 0
}

// restLocked is how long it need not be looked how those in line stand; zero if somebody is soon to be served.
func (w *waiters) restLocked(now time.Time) time.Duration {
	shortest := time.Duration(0)

	for _, one := range w.asking {
		rest := one.rest(now)
		if rest == 0 {
			return 0
		}

		if shortest == 0 || rest < shortest {
			shortest = rest
		}
	}

	return shortest
}

// strayLocked has an entry removed that nobody of this process stood for when it was asked how all
// stand: it was not known that it was made, or removing it failed.
func (w *waiters) strayLocked(s strategies.Standing, asked time.Time) {
	for one := range w.present {
		if one.ID == s.ID {
			return // it is just entering
		}
	}

	if ended, left := w.ended.get(s.ID); left > 0 && !asked.After(ended.over) {
		return
	}

	w.removeLocked(s.Name, s.ID, 1, false)
}

// removeLocked has an entry removed. passes says that it was its turn.
func (w *waiters) removeLocked(name, id string, slots int, passes bool) {
	w.gone = append(w.gone, &waiting{Waiter: strategies.Waiter{Name: name, ID: id, Slots: slots}, over: time.Now(), passes: passes})

	wakeUp(w.wake)
}

// dequeue tells the database who waits no more. What it does not take is told again, for as
// long as it believes otherwise.
func (w *waiters) dequeue() {
	w.mu.Lock()
	gone := w.gone
	w.gone = nil
	w.mu.Unlock()

	var names []string

	for some := range slices.Chunk(gone, call.MaxBatch) {
		ids := make([]string, len(some))
		for i, one := range some {
			ids[i] = one.ID
		}

		err := w.tell(func(ctx context.Context) error { return w.queuer.Leave(ctx, w.process, ids) })

		w.mu.Lock()

		for _, one := range some {
			switch {
			case err != nil && (time.Since(one.over) < believed || time.Since(one.over) < one.counts() && w.locker.life.Err() == nil):
				w.gone = append(w.gone, one)
			case err == nil && one.passes:
				names = append(names, strategies.SlotNames(one.Name, one.Slots)...)
			}
		}

		w.mu.Unlock()
	}

	// Those who are the first in these lines now.
	if len(names) > 0 {
		_ = w.tell(func(ctx context.Context) error { return w.queuer.Call(ctx, names) })
	}
}

// note tells the database of those whom it was not told of, and returns all whom it knows.
func (w *waiters) note() (known []*waiting) {
	together, alone := w.untold()
	answers := true

	for some := range slices.Chunk(together, tellTogether) {
		if answers = answers && w.noteAll(some); answers && len(some) > 1 {
			alone = append(alone, some...) // those that one statement could not serve
		}
	}

	for one := range slices.Chunk(alone, 1) {
		answers = answers && w.noteAll(one)
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	for one := range w.present {
		if one.noted {
			known = append(known, one)
		}
	}

	return known
}

// untold are those whom the database was not told of: whom one statement may tell of, and the others. Those who ask for the lock just
// now may have been granted it, which has taken them out of the line.
func (w *waiters) untold() (together, alone []*waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for one := range w.present {
		switch {
		case one.noted || one.asks:
			continue
		case one.batched():
			together = append(together, one)
		default:
			alone = append(alone, one)
		}

		one.again = true
	}

	return together, alone
}

// noteAll tells the database of some, in one statement, and says whether it has answered.
func (w *waiters) noteAll(some []*waiting) (answered bool) {
	type answers struct {
		taken []bool
		errs  []error
	}

	began := time.Now()

	w.mu.Lock()

	some = slices.DeleteFunc(slices.Clone(some), func(one *waiting) bool { return one.noted || !one.over.IsZero() })
	all := make([]strategies.Waiter, len(some))

	for i, one := range some {
		one.sent = true
		all[i] = one.Waiter
		all[i].Waited = began.Sub(one.began)
	}

	w.mu.Unlock()

	if len(all) == 0 {
		return true
	}

	made, err := ask(w, func(ctx context.Context) (answers, error) {
		taken, errs := w.enqueue(ctx, all)
		failed := slices.IndexFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, strategies.ErrNotBatched) })
		if failed >= 0 {
			return answers{}, errs[failed] // it came for all
		}

		return answers{taken, errs}, nil
	})
	if err != nil {
		return false
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	for i, one := range some {
		if one.noted = made.errs[i] == nil; one.noted && !made.taken[i] && !all[i].Behind {
			w.nextLocked(time.Now()) // nobody was told of it until now
		}
	}

	w.untilLocked(began.Add(believed))

	return true
}

// keep says again that they wait, if it is time. If the database has forgotten some, it is told anew.
func (w *waiters) keep(known []*waiting) {
	began := time.Now()

	w.mu.Lock()

	due := w.until.Sub(began) <= believed-keepEvery
	if due {
		w.until = began.Add(believed)
	}

	w.mu.Unlock()

	if !due || len(known) == 0 {
		return
	}

	kept, err := ask(w, func(ctx context.Context) (int, error) { return w.queuer.Keep(ctx, w.process, believed) })
	if err != nil || kept == len(known) {
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	// Some were forgotten, or had their turn meanwhile, or are not anybody's: Stand says of those
	// in line.
	w.nextLocked(time.Now())

	for _, one := range known {
		one.noted = one.noted && (!one.Behind || kept > len(known))
	}
}

var errSilent = errors.New("nothing is sent for a while")

// ask sends a statement. A driver that does not return when it is to is asked for nothing
// more until it does.
func ask[T any](w *waiters, statement func(context.Context) (T, error)) (answer T, err error) {
	bound := tellTime

	switch {
	case w.locker.life.Err() != nil:
		bound = lastTell
	case w.silent():
		return answer, errSilent
	}

	asked := time.Now()
	answer, err = call.Limited(context.WithoutCancel(w.locker.life), bound, statement)

	w.mu.Lock()
	w.answeredLocked(asked, err)
	w.mu.Unlock()

	var abandoned call.AbandonedError[T]
	if errors.As(err, &abandoned) {
		returned := make(chan struct{})
		abandoned.Then(func(T, error) { close(returned) })

		select {
		case <-returned:
		case <-w.locker.life.Done():
		}
	}

	return answer, err
}

// tell is ask for a statement that only has an error.
func (w *waiters) tell(statement func(context.Context) error) error {
	_, err := ask(w, func(ctx context.Context) (struct{}, error) { return struct{}{}, statement(ctx) })

	return err
}

// waiting is one who waits.
type waiting struct {
	strategies.Waiter

	set   *settings
	began time.Time
	stop  context.CancelCauseFunc // ends the wait
	timer *time.Timer             // until the database is told of one that is behind
	turns chan int64              // that it is its turn, and what Request.Line says

	asked instant         // when its call began
	told  context.Context //nolint:containedctx // its values, for the observers; nil if there are none

	// These are under the mutex of waiters.
	entry
	place  int        // that the observers were told last; zero if they were told none
	held   *HeldError // who had the name when it was asked for last; nil if that is not known
	over   time.Time  // zero while it waits
	passes bool       // it has not got the lock: if it was its turn, the next has to know

	cycle string // the goroutine's: the deadlock that it was seen in; empty if it was not
}

// batched says whether one statement may put it into its line together with others.
func (one *waiting) batched() bool { return !one.Behind && !one.set.unbatched && !one.set.many() }

// entry is what the database was told of one in line, and has said of it.
type entry struct {
	sent     bool                // it may have been told
	noted    bool                // it was
	taken    bool                // the name was when it entered, so that its turn will be told
	again    bool                // it may be told once more after a grant has taken it out of the line
	standing strategies.Standing // how it stood
	stood    time.Time           // when that was asked, or it entered the line
	moved    time.Time           // when others ahead were seen to be fewer
	asks     bool                // for the lock, in its turn
}
