package sqllock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
)

const (
	// linger is how long the connection is kept when nobody needs it.
	linger = 10 * time.Second
	// listening is what Close calls the connection that listens. No lock has a name with a NUL.
	listening = "\x00the connection that listens"
	// relisten is the longest pause before another try to listen, and pollingOnly how long none is
	// made where notifications do not come.
	relisten    = 5 * time.Second
	pollingOnly = time.Minute
	// callTime bounds a call, for which a release waits.
	callTime = 250 * time.Millisecond
)

// listener hears whose turn it is while somebody of this locker waits who may be next. It has one
// connection, for all names. And it calls others, where releases do not tell them.
type listener struct {
	locker  *Locker
	calls   call.Batcher[string, struct{}]
	hearing atomic.Bool // nothing is missed at this moment

	mu        sync.Mutex
	waits     int
	watches   int
	far       bool // none of the waits need be called
	open      bool
	pollUntil time.Time
	stop      context.CancelFunc
	closing   *time.Timer // when nobody needs it any more; nil while somebody does
}

// use counts a wait or a watch with these settings: one, or minus one that has ended. It listens while there are some.
func (n *listener) use(set *settings, waits, watches int) {
	if !set.listens || n.locker.waiters.queuer == nil {
		return
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	n.waits += waits
	n.watches += watches
	n.far = n.far && waits <= 0
	n.adjustLocked()
}

// keepOff says whether those who wait need not be called.
func (n *listener) keepOff(far bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.far != far {
		n.far = far
		n.adjustLocked()
	}
}

func (n *listener) neededLocked() bool { return n.watches > 0 || n.waits > 0 && !n.far }

// adjustLocked begins to listen, or ends it in a while.
func (n *listener) adjustLocked() {
	switch {
	case n.neededLocked():
		if n.closing != nil {
			n.closing.Stop()
			n.closing = nil
		}

		n.startLocked()
	case n.open && n.closing == nil:
		n.closing = time.AfterFunc(linger, func() {
			n.mu.Lock()
			defer n.mu.Unlock()

			if n.open && !n.neededLocked() {
				n.stop()
			}
		})
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

// listen listens until ctx ends, over broken connections.
func (n *listener) listen(ctx context.Context) {
	defer n.locker.background.finish(listening)

	w := &n.locker.waiters

	for try := 0; ; try++ {
		began, connected := time.Now(), new(sync.Once)
		err := n.locker.waiters.queuer.Listen(ctx, w.process, func() {
			try = 0

			connected.Do(func() { w.hearing(true) })
			n.set(true)
		}, w.turn, func(name string, released bool) {
			connected.Do(func() { w.hearing(true) })

			if released {
				w.called(name)
			}

			n.locker.wakeWatches(name)
		})

		w.hearing(false)
		n.set(false)

		if time.Since(began) > relisten {
			try = 0
		}

		if ctx.Err() != nil || errors.Is(err, ErrUnsupported) || !sleep(ctx, backoff(try, firstRetry, relisten)) {
			n.mu.Lock()
			defer n.mu.Unlock()

			n.open = false
			if ctx.Err() == nil {
				n.pollUntil = time.Now().Add(pollingOnly)
			}

			n.stop()

			// Somebody came when it was just being shut.
			n.closing = nil
			n.adjustLocked()

			return
		}
	}
}

// call calls the first in line for a name that was released. If that fails it polls.
func (n *listener) call(ctx context.Context, name string) {
	if n.locker.waiters.queuer == nil || !n.locker.features.Calls || n.locker.waiters.silent() {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()

	_, _ = n.calls.Serve(ctx, name, true)
}

// set notes whether nothing is missed. Everybody looks then: for what may have been before.
func (n *listener) set(hearing bool) {
	if n.hearing.Swap(hearing) == hearing {
		return
	}

	w := &n.locker.waiters

	w.mu.Lock()

	if len(w.asking) > 0 {
		w.nextLocked(time.Now())
	}

	w.mu.Unlock()
	n.locker.wakeWatches("")
}
