package call

import (
	"slices"
	"sync"
	"time"
)

// Workers are goroutines that make calls to the database, so that whoever waits for one can give it up. One that is
// done waits a while for the next call. A new goroutine begins with a small stack and copies it several times on its
// way into a driver, which takes longer than all else that the client does for a call.
type Workers struct {
	mu     sync.Mutex
	idle   []chan job // of those that wait, the last to have begun at the end
	spare  int        // how many of them nobody has needed since the last sweep
	sweeps bool       // another one will come
	closed bool       // none waits any more
}

// job is a call to be made.
type job interface{ run() }

const (
	// restTime is how often workers are sent away that nobody has needed since the last time, and mostIdle how many
	// wait at most.
	restTime = time.Second
	mostIdle = 64
)

// run has a call made.
func (w *Workers) run(j job) {
	w.mu.Lock()
	defer w.mu.Unlock()

	last := len(w.idle) - 1
	if last < 0 {
		go w.work(j)

		return
	}

	w.idle[last] <- j // has room for one

	w.idle = w.idle[:last]
	w.spare = min(w.spare, last)
}

func (w *Workers) work(j job) {
	next := make(chan job, 1)

	for ok := true; ok; {
		j.run()

		if !w.rest(next) {
			return
		}

		j, ok = <-next
	}
}

// rest lets a worker wait for its next call, if it may.
func (w *Workers) rest(next chan job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.closed || len(w.idle) == mostIdle {
		return false
	}

	w.idle = append(w.idle, next)

	if !w.sweeps {
		w.sweeps, w.spare = true, 0
		time.AfterFunc(restTime, w.sweep)
	}

	return true
}

// sweep sends away those that were not needed.
func (w *Workers) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, next := range w.idle[:w.spare] {
		close(next)
	}

	w.idle = slices.Delete(w.idle, 0, w.spare)
	w.spare = len(w.idle)

	if w.sweeps = w.spare > 0; w.sweeps {
		time.AfterFunc(restTime, w.sweep)
	}
}

// Close sends all away that wait, and others when they are done.
func (w *Workers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, next := range w.idle {
		close(next)
	}

	w.idle, w.spare, w.closed = nil, 0, true
}
