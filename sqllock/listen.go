package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// registration is how long the database keeps in mind that somebody waits.
	registration = 10 * time.Second
	// listenedPoll is the longest pause of a waiter who will be told of the
	// release: a notification can be lost, though that should never happen.
	listenedPoll = 5 * time.Second
	// linger is how long the ear stays open when nobody waits.
	linger = 10 * time.Second
	// deaf is how long it is left at polling where notifications do not come.
	deaf = time.Minute
)

// ear listens for releases while somebody of this locker waits. It has one
// connection, for all names.
type ear struct {
	locker   *Locker
	notifier Notifier // nil if the strategy is none

	mu        sync.Mutex
	bells     map[string]chan struct{} // of those who wait, one for each name
	noted     recent[struct{}]         // the database has in mind that somebody here waits
	open      bool
	listening bool // no release is missed
	deafUntil time.Time
	stop      context.CancelFunc
	closing   *time.Timer // when nobody waits any more
}

// hang puts up a bell that rings when the name may be free, until the function
// it returns takes it down. A locker has one contender for a name.
func (e *ear) hang(name string) (bell <-chan struct{}, down func()) {
	if e.notifier == nil {
		return nil, func() {}
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	rings := make(chan struct{}, 1)
	e.bells[name] = rings

	if e.closing != nil {
		e.closing.Stop()
		e.closing = nil
	}

	e.startLocked()

	return rings, func() {
		e.mu.Lock()
		defer e.mu.Unlock()

		// Somebody else's may hang there by now.
		if e.bells[name] == rings {
			delete(e.bells, name)
		}

		if len(e.bells) == 0 && e.open {
			e.closing = time.AfterFunc(linger, e.shut)
		}
	}
}

// startLocked begins to listen, unless it does or has found that there is no use.
func (e *ear) startLocked() {
	if e.open || time.Now().Before(e.deafUntil) || !e.locker.begin() {
		return
	}

	ctx, stop := context.WithCancel(e.locker.life)
	e.open, e.stop = true, stop

	go e.listen(ctx)
}

// shut ends the listening if nobody waits.
func (e *ear) shut() {
	e.mu.Lock()
	defer e.mu.Unlock()

	if len(e.bells) == 0 && e.open {
		e.stop()
	}
}

// listen listens until ctx ends, over broken connections.
func (e *ear) listen(ctx context.Context) {
	defer e.locker.finish()

	for try := 0; ; try++ {
		err := e.notifier.Listen(ctx, func() {
			try = 0

			e.set(true)
		}, e.ring)

		e.set(false)

		if ctx.Err() != nil || errors.Is(err, ErrUnsupported) || !sleep(ctx, backoff(try, defaultPollMin, listenedPoll)) {
			e.mu.Lock()
			defer e.mu.Unlock()

			e.open = false
			if ctx.Err() == nil {
				e.deafUntil = time.Now().Add(deaf)
			}

			e.stop()

			// Somebody came when it was just being shut.
			if len(e.bells) > 0 {
				e.startLocked()
			}

			return
		}
	}
}

// set notes whether releases are heard of. Everybody looks then: for what may have
// been missed before.
func (e *ear) set(listening bool) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.listening == listening {
		return
	}

	e.listening = listening

	for _, bell := range e.bells {
		ring(bell)
	}
}

// ring wakes who waits for the name.
func (e *ear) ring(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if bell, ok := e.bells[name]; ok {
		ring(bell)
	}
}

func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// hears says whether releases are heard of at this moment.
func (e *ear) hears() bool {
	e.mu.Lock()
	defer e.mu.Unlock()

	return e.listening
}

// mayHaveMissed says whether a release may have been told of before the bell hung
// that was just put up: the database knew that somebody waited.
func (e *ear) mayHaveMissed(name string) bool { return e.hears() && e.isNoted(name) }

// isNoted says whether the database knows for long enough that somebody waits.
func (e *ear) isNoted(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()

	_, left := e.noted.get(name)

	return left > registration/2
}

// note notes that the database knows until then.
func (e *ear) note(name string, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.noted.put(name, struct{}{}, until)
}
