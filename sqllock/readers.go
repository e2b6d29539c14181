package sqllock

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// The readers of a name in this process have one grant, which one hold keeps, and each has a handle of its own with a
// context of its own. So there is one row for all of them, and it is renewed once. Whoever comes while the hold is
// open gets a handle without asking the database. It is open for a while after the database has said that nobody
// waits for the name, so that readers who come all the time do not keep a writer waiting.

const (
	// openTime is how long readers may come without a look at the line.
	openTime = 20 * time.Millisecond
	// readersCome is for how long a reader tries again whose name nobody is known to have, before it goes into
	// the line.
	readersCome = 250 * time.Millisecond

	// The release by the last reader waits for the next one for as long as the acquisition took that began it, and
	// this at most, if others have come within crowdTime.
	mostLinger = 10 * time.Millisecond
	crowdTime  = 2 * mostLinger
)

// WithShared acquires the lock for reading: any number of readers hold a name at a time, and no writer, which is whoever
// acquires it without this option. Readers and writers wait in one line: a writer waits for the readers before it, and a
// reader for the writers before it. Readers of one process who wait come in together, and readers may still join others
// of their process for about 20 milliseconds after a writer has begun to wait. Readers of different strategies exclude
// each other.
//
// Readers of one locker that ask for the same options share one grant, its lease and its renewals; if it is lost they
// all lose it. All readers that hold a name at the same time have the same token. It is larger than that of every writer
// before them, and smaller than that of every writer after them. [Lock.Guard] keeps the next writer out until the
// transaction ends. [Lock.ReleaseTx] is [ErrUnsupported].
//
// A shared lock cannot become exclusive: two readers who both want that would wait for each other. Whoever asks the same
// locker for the name without this option under the context of its shared lock gets [ErrUnsupported]; release it first,
// and read again after the acquisition what you have read before. With [WithReentrant] the context of a reader or of a
// writer may ask for a shared lock again, and a writer gets another handle of its exclusive lock; without it that is
// [ErrNotAcquired], as for any lock.
//
// With [WithPermits], [WithMinHold] or [WithLockDelay] it is [ErrInvalidOption], with [WithNames] [ErrUnsupported]. Do not use a name both with permits and with
// readers: those have slot 0, and permits with a larger slot are granted beside them. Strategy advisory on MySQL
// and MariaDB has no shared locks: [ErrUnsupported].
func WithShared() LockOption {
	return lockOption(func(s *settings) error {
		s.shared = true

		return nil
	})
}

// readersQueue is where those of this process wait who want a name as readers: apart from those who want it as
// writers, because the one in front leaves it as soon as it has the lock.
func readersQueue(name string) string {
	queued, _ := strategies.SlotRange(name, MaxPermits)

	return queued + "shared"
}

// shares are the holds of readers, by name.
type shares struct {
	mu   sync.Mutex
	open map[string][]*hold
}

// add makes a hold one that others may join.
func (s *shares) add(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.open[h.request.Name] = append(s.open[h.request.Name], h)
}

// remove makes it one that nobody joins any more.
func (s *shares) remove(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()

	name := h.request.Name
	s.open[name] = slices.DeleteFunc(s.open[name], func(other *hold) bool { return other == h })

	if len(s.open[name]) == 0 {
		delete(s.open, name)
	}
}

// find returns a hold that a reader with these settings can join; nil if there is none.
func (s *shares) find(name string, set *settings) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, h := range s.open[name] {
		if h.settings.sharesWith(set) {
			return h
		}
	}

	return nil
}

// shared is what a hold has if it is that of readers, under its mutex.
type shared struct {
	until  time.Time     // when somebody has to look at the line before another reader comes
	joins  int           // how often one came
	linger time.Duration // how long to wait for the next one
	came   time.Time     // when the last of those did
	come   chan struct{} // closed when the next one comes; nil if nobody waits for that
	closed bool          // nobody comes any more
}

// admit adds a reader, if the hold is alive, and open or known to be free for readers.
func (h *hold) admit(free bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.readers.closed || h.errLocked(now()) != nil || !free && time.Until(h.readers.until) <= 0 {
		return false
	}

	h.handles++
	h.readers.joins++
	h.readers.came = time.Now()

	if h.readers.come != nil {
		close(h.readers.come)
		h.readers.come = nil
	}

	return true
}

// dropReader takes a reader away, and says whether the hold is to be released: it was the last, and no other came. Others
// that are about to come may do so before.
func (h *hold) dropReader() bool {
	h.mu.Lock()
	h.handles--
	left, joins := h.handles, h.readers.joins
	h.mu.Unlock()

	if left > 0 {
		return false
	}

	runtime.Gosched()
	h.linger(joins)

	h.mu.Lock()
	last := h.handles == 0 && h.readers.joins == joins
	h.readers.closed = h.readers.closed || last
	h.mu.Unlock()

	if last {
		h.locker.shares.remove(h)
	}

	return last
}

// linger waits for the next reader after so many, if one may be about to come. What its release and the next acquisition
// send to the database would take as long.
func (h *hold) linger(joins int) {
	others := h.locker.turns.busy(readersQueue(h.request.Name))

	h.mu.Lock()
	lingers := h.readers.joins == joins && (others || time.Since(h.readers.came) <= crowdTime) && h.errLocked(now()) == nil

	if lingers && h.readers.come == nil {
		h.readers.come = make(chan struct{})
	}

	come := h.readers.come
	h.mu.Unlock()

	if lingers {
		pause(h.ctx, h.readers.linger, come)
	}
}

// joinAsked joins readers of this process if the database says that they may; nil if it does not.
func (a *acquisition) joinAsked(wait context.Context) *hold {
	queuer, h := a.locker.waiters.queuer, a.locker.shares.find(a.request.Name, a.set)
	if h == nil {
		return nil
	}

	// Who is in line asks all the same: it leaves the line with that.
	if a.request.Wait == "" && h.admit(false) {
		return h
	}

	if queuer == nil {
		return nil
	}

	asked, request := time.Now(), a.request
	free, err := call.Limited(wait, longest(a.set), func(ctx context.Context) (bool, error) { return queuer.Join(ctx, h.grant, request) })
	if !free || err != nil {
		return nil
	}

	h.mu.Lock()
	h.readers.until = later(h.readers.until, asked.Add(openTime))
	h.mu.Unlock()

	if h.admit(true) {
		return h
	}

	return nil
}
