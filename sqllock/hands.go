package sqllock

import (
	"slices"
	"sync"
	"time"
)

// hands are goroutines that make calls to the database, so that whoever waits for one can give it up. One that is
// done waits a while for the next call. A new goroutine begins with a small stack and copies it several times on its
// way into a driver, which takes longer than all else that the client does for a call.
type hands struct {
	mu     sync.Mutex
	idle   []chan job // of those that wait, the last to have begun at the end
	spare  int        // how many of them nobody has needed since the last sweep
	sweeps bool       // another one will come
	closed bool       // none waits any more
}

// job is a call to be made.
type job interface{ run() }

const (
	// handsRest is how often hands are sent away that nobody has needed since the last time, and mostIdle how many
	// wait at most.
	handsRest = time.Second
	mostIdle  = 64
)

// take has a call made.
func (h *hands) take(j job) {
	h.mu.Lock()
	defer h.mu.Unlock()

	last := len(h.idle) - 1
	if last < 0 {
		go h.work(j)

		return
	}

	h.idle[last] <- j // has room for one

	h.idle = h.idle[:last]
	h.spare = min(h.spare, last)
}

func (h *hands) work(j job) {
	next := make(chan job, 1)

	for ok := true; ok; {
		j.run()

		if !h.rest(next) {
			return
		}

		j, ok = <-next
	}
}

// rest lets a hand wait for its next call, if it may.
func (h *hands) rest(next chan job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.closed || len(h.idle) == mostIdle {
		return false
	}

	h.idle = append(h.idle, next)

	if !h.sweeps {
		h.sweeps, h.spare = true, 0
		time.AfterFunc(handsRest, h.sweep)
	}

	return true
}

// sweep sends away those that were not needed.
func (h *hands) sweep() {
	h.mu.Lock()
	defer h.mu.Unlock()

	for _, next := range h.idle[:h.spare] {
		close(next)
	}

	h.idle = slices.Delete(h.idle, 0, h.spare)
	h.spare = len(h.idle)

	if h.sweeps = h.spare > 0; h.sweeps {
		time.AfterFunc(handsRest, h.sweep)
	}
}

// close sends all away that wait, and others when they are done.
func (h *hands) close() {
	h.mu.Lock()
	defer h.mu.Unlock()

	for _, next := range h.idle {
		close(next)
	}

	h.idle, h.spare, h.closed = nil, 0, true
}
