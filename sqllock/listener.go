package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

const (
	// linger is how long the connection is kept when nobody waits.
	linger = 10 * time.Second
	// listening is what Close calls the connection that listens. No lock has a name with a NUL.
	listening = "\x00the connection that listens"
	// relisten is the longest pause before another try to listen, and pollingOnly how long none is
	// made where notifications do not come.
	relisten    = 5 * time.Second
	pollingOnly = time.Minute
)

// listener hears whose turn it is while somebody of this locker waits. It has one
// connection, for all names.
type listener struct {
	locker   *Locker
	notifier strategies.Notifier // nil if the strategy is none

	mu        sync.Mutex
	users     int // who wait
	open      bool
	hearing   bool // nothing is missed
	pollUntil time.Time
	stop      context.CancelFunc
	closing   *time.Timer // when nobody waits any more
}

// use listens until unuse.
func (n *listener) use() {
	if n.notifier == nil {
		return
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	n.users++

	if n.closing != nil {
		n.closing.Stop()
		n.closing = nil
	}

	n.startLocked()
}

func (n *listener) unuse() {
	if n.notifier == nil {
		return
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	if n.users--; n.users == 0 && n.open {
		n.closing = time.AfterFunc(linger, n.shut)
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

	if n.users == 0 && n.open {
		n.stop()
	}
}

// listen listens until ctx ends, over broken connections.
func (n *listener) listen(ctx context.Context) {
	defer n.locker.background.finish(listening)

	w := &n.locker.waiters

	for try := 0; ; try++ {
		err := n.notifier.Listen(ctx, w.process, func() {
			try = 0

			n.set(true)
		}, w.turn, w.lookNow)

		n.set(false)

		if ctx.Err() != nil || errors.Is(err, ErrUnsupported) || !sleep(ctx, backoff(try, firstRetry, relisten)) {
			n.mu.Lock()
			defer n.mu.Unlock()

			n.open = false
			if ctx.Err() == nil {
				n.pollUntil = time.Now().Add(pollingOnly)
			}

			n.stop()

			// Somebody came when it was just being shut.
			if n.users > 0 {
				n.startLocked()
			}

			return
		}
	}
}

// set notes whether nothing is missed. Everybody looks then: for what may have been before.
func (n *listener) set(hearing bool) {
	n.mu.Lock()
	changed := n.hearing != hearing
	n.hearing = hearing
	n.mu.Unlock()

	if changed {
		n.locker.waiters.lookNow()
	}
}

// hears reports whether nothing is missed at this moment.
func (n *listener) hears() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.hearing
}

func wakeUp(call chan<- struct{}) {
	select {
	case call <- struct{}{}:
	default:
	}
}
