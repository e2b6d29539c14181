package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

const (
	// noticed is how long an acquisition waits before the database is told of it: most
	// waits are over before, and cost nothing.
	noticed = 250 * time.Millisecond
	// believed is how long the database believes that somebody waits who does not say so
	// again, and keepEvery how often that is said, for all in one statement.
	believed  = 6 * time.Second
	keepEvery = believed / 3
	// lookEvery is how often those who wait while they hold other locks look for a
	// deadlock.
	lookEvery = time.Second
	// tellTime bounds each of the statements, and silentFor is how long none is sent after
	// one that failed: they must not keep a connection of a small pool from renewals. The
	// last, when the locker is closed, may take lastTell.
	tellTime  = 500 * time.Millisecond
	silentFor = 10 * tellTime
	lastTell  = 2 * time.Second
	// telling is what Close calls them. No lock has a name with a NUL.
	telling = "\x00the list of those who wait"
)

// waiters tells the database who of this process waits: for each name the one that asks
// for it, and of the others those who hold other locks meanwhile. It is for people, and
// for finding deadlocks: nothing fails if it cannot be told. One goroutine does so, one
// statement after the other, while there is anybody.
type waiters struct {
	locker  *Locker
	queuer  strategies.Queuer // nil if the strategy is none
	process string
	wake    chan struct{}

	mu      sync.Mutex
	present map[*waiting]struct{}
	gone    []*waiting // whom the database may have been told of
	telling bool

	failed time.Time // when a statement did, as the goroutine knows
}

// waiting is one who waits.
type waiting struct {
	strategies.Waiter

	began time.Time
	stop  context.CancelCauseFunc // ends the wait
	timer *time.Timer             // until the database is told
	over  time.Time               // under the mutex of waiters; zero while it waits
	sent  bool                    // so is this: the database may have been told

	// These are the goroutine's.
	noted bool
	cycle string // the deadlock that it was seen in; empty if it was not
}

// add begins a wait of ctx, which stop ends. remove has to follow.
func (w *waiters) add(ctx context.Context, request strategies.Request, stop context.CancelCauseFunc) *waiting {
	if w.queuer == nil {
		return nil
	}

	one := &waiting{began: time.Now(), stop: stop, Waiter: strategies.Waiter{
		Name: request.Name, Process: w.process, ID: newOwner(), Holder: request.Holder, Holding: owners(ctx),
	}}

	w.mu.Lock()
	defer w.mu.Unlock()

	one.timer = time.AfterFunc(noticed, func() { w.notice(one) })

	return one
}

// notice has the database told of a wait that lasts.
func (w *waiters) notice(one *waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !one.over.IsZero() || !w.telling && !w.locker.background.begin(telling) {
		return
	}

	w.present[one] = struct{}{}

	if !w.telling {
		w.telling = true

		go w.tell()
	}

	wakeUp(w.wake)
}

// remove ends a wait; nil is none.
func (w *waiters) remove(one *waiting) {
	if one == nil {
		return
	}

	one.timer.Stop()

	w.mu.Lock()
	defer w.mu.Unlock()

	one.over = time.Now()
	delete(w.present, one)

	if one.sent {
		w.gone = append(w.gone, one)
		wakeUp(w.wake)
	}
}

// tell is the goroutine.
func (w *waiters) tell() {
	defer w.locker.background.finish(telling)

	tick := time.NewTicker(lookEvery)
	defer tick.Stop()

	kept, looked := time.Now(), time.Time{}

	for {
		w.leave()

		known := w.enter()

		if time.Since(kept) >= keepEvery {
			kept = time.Now()
			w.keep(known)
		}

		if time.Since(looked) >= lookEvery*9/10 { // the ticks of a busy machine come unevenly
			looked = time.Now()
			w.look(known)
		}

		if w.idle() {
			return
		}

		select {
		case <-w.wake:
		case <-tick.C:
		}
	}
}

// idle says whether there is nothing left to tell, and no goroutine then.
func (w *waiters) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.telling = len(w.present)+len(w.gone) > 0

	return !w.telling
}

// leave tells the database who waits no more. What it does not take is told again, for as
// long as it believes otherwise.
func (w *waiters) leave() {
	w.mu.Lock()
	gone, all := w.gone, len(w.present) == 0
	w.gone = nil
	w.mu.Unlock()

	var left error

	if all && len(gone) > 1 {
		left = w.ask(func(ctx context.Context) error { return w.queuer.Leave(ctx, strategies.Waiter{Process: w.process}) })
		if left == nil {
			return
		}
	}

	for i, one := range gone {
		if left == nil {
			left = w.ask(func(ctx context.Context) error { return w.queuer.Leave(ctx, one.Waiter) })
		}

		if left != nil {
			w.leaveLater(gone[i:])

			return
		}
	}
}

// leaveLater keeps those of whom the database was not told that they have left.
func (w *waiters) leaveLater(gone []*waiting) {
	if w.locker.life.Err() != nil {
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	for _, one := range gone {
		if time.Since(one.over) < believed {
			w.gone = append(w.gone, one)
		}
	}
}

// enter tells the database of those whom it was not told of, and returns all whom it knows.
func (w *waiters) enter() (known []*waiting) {
	answers := true

	for _, one := range w.all() {
		if !one.noted && answers {
			waiter := one.Waiter
			waiter.Waited = time.Since(one.began)
			answers = w.ask(func(ctx context.Context) error { return w.queuer.Enqueue(ctx, waiter, believed) }) == nil
			one.noted = answers
		}

		if one.noted {
			known = append(known, one)
		}
	}

	return known
}

// all returns those who wait, of whom the database may know from now on.
func (w *waiters) all() []*waiting {
	w.mu.Lock()
	defer w.mu.Unlock()

	all := make([]*waiting, 0, len(w.present))

	for one := range w.present {
		one.sent = true
		all = append(all, one)
	}

	return all
}

// keep says again that they wait. If the database has forgotten some, it is told anew.
func (w *waiters) keep(known []*waiting) {
	if len(known) == 0 {
		return
	}

	kept := 0
	err := w.ask(func(ctx context.Context) (err error) {
		kept, err = w.queuer.Keep(ctx, w.process, believed)

		return err
	})

	if err != nil || kept >= len(known) {
		return
	}

	for _, one := range known {
		one.noted = false
	}
}

var errSilent = errors.New("nothing is sent for a while")

// ask sends a statement. A driver that does not return when it is to is asked for nothing
// more until it does.
func (w *waiters) ask(statement func(context.Context) error) error {
	bound := tellTime

	switch {
	case w.locker.life.Err() != nil:
		bound = lastTell
	case time.Since(w.failed) < silentFor:
		return errSilent
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.locker.life), bound)
	defer cancel()

	_, err := within(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, statement(ctx) })
	if err != nil {
		w.failed = time.Now()
	}

	var abandoned abandonedError[struct{}]
	if errors.As(err, &abandoned) {
		returned := make(chan struct{})
		abandoned.outcome.then(func(struct{}, error) { close(returned) })

		select {
		case <-returned:
		case <-w.locker.life.Done():
		}
	}

	return err
}
