package call

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

const (
	// MaxBatch is how many calls go to the database in one statement.
	MaxBatch = 512
	// maxBytes is of how many bytes, as size counts them. A server takes a statement of a megabyte or more by default
	// (max_allowed_packet), and has it with its quotes escaped, in arguments that may be there several times.
	maxBytes = 128 << 10
	// maxUnderWay is how many statements of one kind are under way at a time, and
	// how many calls go alone beside them because a statement could not serve them.
	maxUnderWay = 4
	// patience is how long a statement may take before what has gathered behind it goes
	// out beside it; slow times as long as one usually takes, if that is more, and four times
	// as long for each that is under way beside. More statements would not help a database
	// that has too much to do.
	patience = 10 * time.Millisecond
	slow     = 3
	// hangs is how long so many statements may keep the next from going. Their
	// connections may have been cut off, or somebody has rows locked.
	hangs = time.Second
)

// Batcher sends calls of one kind: at once and in a statement of its own if none is
// under way, and else together with those that gathered meanwhile, when an answer
// comes. So nothing waits on an idle database, and many share the commits of a busy one.
//
// The mutexes, in the order in which they are locked:
//
//	Batcher.mu → Workers.mu
type Batcher[C, R any] struct {
	// Send makes calls, several in one statement. It answers those that this cannot serve with strategies.ErrNotBatched.
	Send    func(ctx context.Context, calls []C) ([]R, []error)
	Size    func(call C) int // in bytes; nil if calls are small
	Workers *Workers         // make them

	mu       sync.Mutex
	waiting  list.List // of *waitingCall[C, R]
	underWay int
	sent     time.Time     // when the last statement was sent
	usual    time.Duration // how long a statement takes
	watched  bool          // that patience ends
	expected *int          // how many calls are to gather before the next statement; nil if none in particular
	alone    chan struct{} // has one for each call that goes alone because a statement could not serve it
}

// waitingCall is a call, which may wait for others' statement to come back.
type waitingCall[C, R any] struct {
	outcome[R]

	batcher *Batcher[C, R]
	ctx     context.Context //nolint:containedctx // of one call, which ends with it
	call    [1]C
	batch   *batch[C, R] // that it was sent with, under the batcher's mutex; nil if it was not sent
}

// newCall returns a call that is to be made.
func (b *Batcher[C, R]) newCall(ctx context.Context, call C) *waitingCall[C, R] {
	return &waitingCall[C, R]{outcome: outcome[R]{came: make(chan struct{})}, batcher: b, ctx: ctx, call: [1]C{call}}
}

// run makes the call in a statement of its own.
func (w *waitingCall[C, R]) run() {
	answers, errs := w.batcher.Send(w.ctx, w.call[:])
	w.put(answers[0], errs[0])
}

// batch is a statement that several calls share.
type batch[C, R any] struct {
	batcher *Batcher[C, R]
	calls   []*waitingCall[C, R]
	ctx     context.Context    //nolint:containedctx // of the statement: it ends when those of all calls have
	cancel  context.CancelFunc // ends it
	sent    time.Time
	wanted  int  // how many still wait for their answer, under the batcher's mutex
	ended   bool // it does not count as under way any more, likewise
}

// Serve makes one call, together with others if batched says so and it can be, and returns as Within
// does. A call whose ctx ends before it was sent is withdrawn.
func (b *Batcher[C, R]) Serve(ctx context.Context, call C, batched bool) (R, error) {
	if batched {
		w := b.gather(ctx, call)
		if w == nil {
			defer b.returned(time.Now()) // also when it is abandoned
		} else if answer, err := b.await(ctx, w); !errors.Is(err, strategies.ErrNotBatched) {
			return answer, err
		} else if b.queue(ctx) {
			defer func() { <-b.alone }()
		}
	}

	w := b.newCall(ctx, call)
	b.Workers.run(w)

	return w.wait(ctx)
}

// gather lets a call wait for others' statement, or returns nil if none is under way:
// the caller has to say then when its own has returned.
func (b *Batcher[C, R]) gather(ctx context.Context, call C) *list.Element {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.alone == nil {
		b.alone = make(chan struct{}, maxUnderWay)
	}

	if b.underWay == 0 {
		b.sendLocked()

		return nil
	}

	place := b.waiting.PushBack(b.newCall(ctx, call))
	b.watchLocked()

	b.arrivedLocked()

	return place
}

// Expect has the next n calls go in one statement, if they come soon. What it returns is called with the end of each of them, also of
// those that did not come.
func (b *Batcher[C, R]) Expect(n int) (ended func()) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if n < 2 || b.underWay > 0 {
		return func() {}
	}

	b.expected = &n
	b.sendLocked() // as if a statement were under way

	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()

		if n--; b.expected == &n {
			b.arrivedLocked()
		}
	}
}

// arrivedLocked sends the calls that were expected, if they are there.
func (b *Batcher[C, R]) arrivedLocked() {
	if b.expected != nil && b.waiting.Len() >= *b.expected {
		b.expected = nil
		b.underWay--
		b.nextLocked()
	}
}

// await returns the answer to a call that waits.
func (b *Batcher[C, R]) await(ctx context.Context, place *list.Element) (R, error) {
	w, _ := place.Value.(*waitingCall[C, R])

	select {
	case <-w.came:
		return w.value, w.err
	case <-ctx.Done():
	}

	if b.withdraw(place) {
		var none R

		return none, withdrawnError{ctx.Err()}
	}

	return w.wait(ctx)
}

// queue has a call wait until it may go alone, and says whether it counts among those that do: not one that has waited for too long.
// As many as want would take all connections of the pool, and wait for each other's row locks.
func (b *Batcher[C, R]) queue(ctx context.Context) bool {
	timer := time.NewTimer(hangs)
	defer timer.Stop()

	select {
	case b.alone <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}

	return false
}

// withdrawnError is the error of a call that was not sent before its context ended.
type withdrawnError struct{ error }

func (e withdrawnError) Unwrap() error { return e.error }

// Is reports whether target is strategies.ErrNotSent.
func (withdrawnError) Is(target error) bool { return target == strategies.ErrNotSent }

// withdraw takes a call back that was not sent, and says whether it could. A statement that nobody waits for any more is
// ended, and counts as under way for a moment yet.
func (b *Batcher[C, R]) withdraw(place *list.Element) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	w, _ := place.Value.(*waitingCall[C, R])
	if w.batch == nil {
		b.waiting.Remove(place)

		return true
	}

	if w.batch.wanted--; w.batch.wanted == 0 && !w.batch.ended {
		w.batch.cancel()
		time.AfterFunc(grace, w.batch.end)
	}

	return false
}

func (b *Batcher[C, R]) sendLocked() {
	b.underWay++
	b.sent = time.Now()
}

// returned sends what gathered while a statement was under way.
func (b *Batcher[C, R]) returned(sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.returnedLocked(sent)
}

func (b *Batcher[C, R]) returnedLocked(sent time.Time) {
	// One that hangs says little of the others.
	b.usual += (min(time.Since(sent), 2*b.usual+time.Millisecond) - b.usual) / 8

	b.underWay--
	b.nextLocked()
}

func (b *Batcher[C, R]) nextLocked() {
	if b.waiting.Len() == 0 || b.underWay >= maxUnderWay && time.Since(b.sent) < hangs {
		return
	}

	n := b.fitLocked()
	s := &batch[C, R]{batcher: b, calls: make([]*waitingCall[C, R], n), wanted: n, sent: time.Now()}

	for i := range s.calls {
		w, _ := b.waiting.Remove(b.waiting.Front()).(*waitingCall[C, R])
		w.batch, s.calls[i] = s, w
	}

	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(s.calls[0].ctx)) //nolint:gosec // end does

	b.sendLocked()
	b.Workers.run(s)
	b.watchLocked()
}

// fitLocked is how many of the calls that wait fit in one statement: one at least.
func (b *Batcher[C, R]) fitLocked() int {
	most := min(b.waiting.Len(), MaxBatch)
	if b.Size == nil {
		return most
	}

	n, bytes := 0, 0

	for place := b.waiting.Front(); n < most; place = place.Next() {
		w, _ := place.Value.(*waitingCall[C, R])
		if bytes += b.Size(w.call[0]); bytes > maxBytes && n > 0 {
			break
		}

		n++
	}

	return n
}

// watchLocked sees to it that calls do not wait for a statement that hangs: on a
// connection that was cut off, for example.
func (b *Batcher[C, R]) watchLocked() {
	if b.watched || b.waiting.Len() == 0 {
		return
	}

	b.watched = true

	// It looks again soon: others return meanwhile.
	time.AfterFunc(min(b.patienceLocked()-time.Since(b.sent), patience), func() {
		b.mu.Lock()
		defer b.mu.Unlock()

		b.watched = false

		if time.Since(b.sent) >= b.patienceLocked() {
			b.nextLocked()
		}

		b.watchLocked()
	})
}

// patienceLocked is how long after the last the next statement is sent at the latest.
func (b *Batcher[C, R]) patienceLocked() time.Duration {
	if b.underWay < maxUnderWay {
		return min(max(patience, slow*b.usual<<(2*max(0, b.underWay-1))), hangs)
	}

	return hangs
}

// run gives each call its answer.
func (s *batch[C, R]) run() {
	defer s.end()

	if len(s.calls) == 1 {
		s.calls[0].run()

		return
	}

	calls := make([]C, len(s.calls))
	for i, w := range s.calls {
		calls[i] = w.call[0]
	}

	rs, errs := s.batcher.Send(s.ctx, calls)

	for i, w := range s.calls {
		w.put(rs[i], errs[i])
	}
}

// end lets others be sent, when it is done or was abandoned.
func (s *batch[C, R]) end() {
	b := s.batcher

	b.mu.Lock()
	defer b.mu.Unlock()

	s.cancel()

	if !s.ended {
		s.ended = true
		b.returnedLocked(s.sent)
	}
}
