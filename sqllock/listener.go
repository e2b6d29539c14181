package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

const (
	// registration is how long the database keeps in mind that somebody waits.
	registration = 10 * time.Second
	// slowestPoll is the longest pause of a waiter that will hear of the release: a
	// notification can be lost, though that should never happen.
	slowestPoll = 5 * time.Second
	// linger is how long the connection is kept when nobody waits.
	linger = 10 * time.Second
	// listening is what Close calls the connection that listens. No lock has a name with a NUL.
	listening = "\x00the connection that listens"
	// pollingOnly is how long waiters only poll where notifications do not come.
	pollingOnly = time.Minute
)

// listener hears of releases while somebody of this locker waits. It has one
// connection, for all names.
type listener struct {
	locker   *Locker
	notifier strategies.Notifier // nil if the strategy is none

	mu        sync.Mutex
	calls     map[string]chan struct{} // wake-ups of those who wait, one for each name
	noted     recent[struct{}]         // the database has in mind that somebody here waits
	open      bool
	listening bool // no release is missed
	pollUntil time.Time
	stop      context.CancelFunc
	closing   *time.Timer // when nobody waits any more
}

// subscribe returns a channel on which something comes when the name may be free,
// until unsubscribe is called. A locker has one contender for a name.
func (n *listener) subscribe(name string) (calls <-chan struct{}, unsubscribe func()) {
	if n.notifier == nil {
		return nil, func() {}
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	wakeUps := make(chan struct{}, 1)
	n.calls[name] = wakeUps

	if n.closing != nil {
		n.closing.Stop()
		n.closing = nil
	}

	n.startLocked()

	return wakeUps, func() {
		n.mu.Lock()
		defer n.mu.Unlock()

		// Somebody else may have subscribed by now.
		if n.calls[name] == wakeUps {
			delete(n.calls, name)
		}

		if len(n.calls) == 0 && n.open {
			n.closing = time.AfterFunc(linger, n.shut)
		}
	}
}

// startLocked begins to listen, unless it does or has found that there is no use.
func (n *listener) startLocked() {
	if n.open || time.Now().Before(n.pollUntil) || !n.locker.background.begin(listening) {
		return
	}

	ctx, stop := context.WithCancel(n.locker.life)
	n.open, n.stop = true, stop

	go n.listen(ctx)
}

// shut ends the listening if nobody waits.
func (n *listener) shut() {
	n.mu.Lock()
	defer n.mu.Unlock()

	if len(n.calls) == 0 && n.open {
		n.stop()
	}
}

// listen listens until ctx ends, over broken connections.
func (n *listener) listen(ctx context.Context) {
	defer n.locker.background.finish(listening)

	for try := 0; ; try++ {
		err := n.notifier.Listen(ctx, func() {
			try = 0

			n.set(true)
		}, n.released)

		n.set(false)

		if ctx.Err() != nil || errors.Is(err, ErrUnsupported) || !sleep(ctx, backoff(try, defaultPollMin, slowestPoll)) {
			n.mu.Lock()
			defer n.mu.Unlock()

			n.open = false
			if ctx.Err() == nil {
				n.pollUntil = time.Now().Add(pollingOnly)
			}

			n.stop()

			// Somebody came when it was just being shut.
			if len(n.calls) > 0 {
				n.startLocked()
			}

			return
		}
	}
}

// set notes whether releases are heard of. Everybody looks then: for what may have
// been missed before.
func (n *listener) set(listening bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.listening == listening {
		return
	}

	n.listening = listening

	for _, call := range n.calls {
		wakeUp(call)
	}
}

// released wakes whoever waits for the name.
func (n *listener) released(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if call, ok := n.calls[name]; ok {
		wakeUp(call)
	}
}

func wakeUp(call chan<- struct{}) {
	select {
	case call <- struct{}{}:
	default:
	}
}

// hears reports whether releases are heard of at this moment.
func (n *listener) hears() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.listening
}

// mayHaveMissed says whether a release may have been told of before the
// subscription that was just made: the database knew that somebody waited.
func (n *listener) mayHaveMissed(name string) bool { return n.hears() && n.isNoted(name) }

// isNoted says whether the database knows for long enough that somebody waits.
func (n *listener) isNoted(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	_, left := n.noted.get(name)

	return left > registration/2
}

// note notes that the database knows until then.
func (n *listener) note(name string, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.noted.put(name, struct{}{}, until)
}
