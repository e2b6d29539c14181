package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sqllock/sqllock/strategies"
)

// several takes several names. All are asked for at once, which is one statement where the strategy has batches. If one
// is refused, those before it in the order of the names are kept, those behind it are given back, and it and the
// rest are taken one after the other. Whoever waits holds smaller names only, so that two of these never wait
// for each other. Together with other locks that their callers hold they can; then all are given back, and it
// begins again.
type several struct {
	locker   *Locker
	all      []*acquisition // sorted by name
	attempts int
}

// run returns locks of all names, each under the context of the one before. Close waits for what attempts under way may leave.
func (s *several) run(ctx context.Context) ([]*Lock, error) {
	l, first := s.locker, s.all[0]

	if !l.background.begin(first.request.Name) {
		return nil, fmt.Errorf("lock %q: %w", first.request.Name, ErrClosed)
	}

	began := now()
	for _, a := range s.all {
		a.began = began
	}

	holds, err := s.take(ctx)
	event := Event{Kind: NotAcquired, Name: first.request.Name, Attempts: s.attempts, Waited: now().since(began), Err: err}

	// Before the observers and the log, which may block.
	l.background.finish(first.request.Name)

	if err != nil {
		l.tell(ctx, event)

		return nil, err
	}

	return s.handles(ctx, holds, event), nil
}

// handles returns the handles of the holds after it told of each. If that panics nobody gets them, and the locks are released.
func (s *several) handles(ctx context.Context, holds []*hold, event Event) []*Lock {
	locks, told := handles(holds), false

	defer func() {
		if !told {
			_ = releaseEach(ctx, locks)
		}
	}()

	for i, h := range holds {
		h.announce(ctx)
		s.all[i].emit(ctx, h, event)
	}

	told = true

	return locks
}

// take returns the holds of all names, or none and why.
func (s *several) take(ctx context.Context) ([]*hold, error) {
	for {
		holds, err := s.takeOnce(ctx)
		if err == nil {
			return holds, nil
		}

		again := !s.all[0].try && ctx.Err() == nil && gaveWay(holds, err)
		giveBack(ctx, holds)

		if !again {
			return nil, err
		}

		for i := range s.all {
			s.all[i] = s.all[i].anew()
		}
	}
}

// takeOnce is take until it is in the way of others, or one of its locks is lost before it has the last. With an error it returns
// the holds that it has all the same.
func (s *several) takeOnce(ctx context.Context) ([]*hold, error) {
	holds, refused := s.fastPath(ctx)
	if len(holds) == len(s.all) {
		return holds, nil
	}

	under, end := s.keep(ctx, holds)
	defer end()

	for i, a := range s.all[len(holds):] {
		var h *hold
		if i > 0 {
			h, refused = a.fastPath(under, now())
		}

		h, err := a.finish(under, h, refused)
		s.attempts += a.attempts

		if err != nil {
			return holds, err
		}

		holds = append(holds, h)

		under, end = s.keep(under, holds[len(holds)-1:]) //nolint:fatcontext // locks lie one inside the other
		defer end()
	}

	for _, h := range holds {
		if err := h.begin(ctx); err != nil {
			return holds, err
		}
	}

	return holds, nil
}

// fastPath asks for all names at once and returns the holds up to the first that was refused, with the error of that; nil if it
// could not be asked yet. Of those behind it nothing is left.
func (s *several) fastPath(ctx context.Context) (holds []*hold, refused error) {
	asked := s.all

	for i, a := range s.all {
		if i > 0 && !s.locker.batches(a.set) || !a.takeFreeTurn(ctx) {
			asked = s.all[:i]

			break
		}
	}

	start := now()
	grants, errs := s.ask(ctx, start, asked)
	under := ctx

	var spare []*hold

	for i, a := range s.all {
		first := len(holds) == i // of those before none was refused

		var h *hold

		switch {
		case i >= len(asked):
		case errs[i] != nil:
			errs[i] = a.handleError(ctx, a.request, errs[i])
		default:
			h, errs[i] = a.firstGranted(under, start, grants[i])
		}

		switch {
		case h != nil && first:
			holds, under = append(holds, h), h.ctx
		case h != nil:
			spare = append(spare, h)
		case first:
			if i < len(asked) {
				refused = errs[i]
			}

			continue
		}

		if h == nil && a.hasTurn {
			a.giveUp(ctx)
		}

		s.attempts += a.attempts

		if !first {
			s.all[i] = a.anew()
		}
	}

	giveBack(ctx, spare)

	return holds, refused
}

// ask asks for some names in one statement.
func (s *several) ask(ctx context.Context, start instant, some []*acquisition) ([]strategies.Grant, []error) {
	grants, errs := make([]strategies.Grant, len(some)), make([]error, len(some))

	defer s.locker.acquires.Expect(len(some))()

	var group sync.WaitGroup

	for i, a := range some {
		group.Go(func() { grants[i], errs[i] = a.ask(ctx, start) })
	}

	group.Wait()

	return grants, errs
}

// keep has some locks kept while others are waited for, and returns a context of ctx under which they are held, and that ends with
// them, too; and what ends that.
func (s *several) keep(ctx context.Context, holds []*hold) (under context.Context, end func()) {
	if len(holds) == 0 {
		return ctx, func() {}
	}

	for _, h := range holds {
		h.keep(true)
		s.locker.keeper.resume(h)
	}

	locks := &Lock{all: handles(holds), hold: holds[len(holds)-1]}

	return locks.workUnder(ctx)
}

func handles(holds []*hold) []*Lock {
	locks := make([]*Lock, len(holds))
	for i, h := range holds {
		locks[i] = h.handle()
	}

	return locks
}

// gaveWay says whether a wait under some locks has ended because of them: one was lost, or somebody waits for
// one of them who has what was waited for.
func gaveWay(holds []*hold, err error) bool {
	deadlock := new(DeadlockError)
	isDeadlock := errors.As(err, &deadlock)

	return slices.ContainsFunc(holds, func(h *hold) bool {
		return isDeadlock && h.owner() == deadlock.owner || !isDeadlock && h.err() != nil
	})
}

// giveBack frees locks of who did not get all. Nobody is told that they were had, and no minimum hold is left.
func giveBack(ctx context.Context, holds []*hold) {
	for _, h := range holds {
		h.keep(true)
	}

	endEach(holds, func(i int) { _ = holds[i].release(ctx) })
}

// keep says whether others are waited for before the lock is its caller's. Until then it is renewed, whatever the options say, and
// not held for too long.
func (h *hold) keep(kept bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.kept, h.from = kept, now()
}

func (h *hold) isKept() bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.kept
}

// begin makes a lock that was kept its caller's.
func (h *hold) begin(ctx context.Context) error {
	h.keep(false)

	if !h.settings.renew {
		return h.handle().Extend(ctx, h.settings.lease) // it begins now
	}

	h.locker.keeper.resume(h)

	return nil
}

// anew is an acquisition of the same name that has not asked. What the one before may have left is nobody else's.
func (a *acquisition) anew() *acquisition {
	return &acquisition{
		locker: a.locker, key: a.key, set: a.set, try: a.try, line: inLine{locker: a.locker}, queued: a.queued, wish: a.wish,
		request: newRequest(a.request.Name, a.set), abandoned: append(a.abandoned, a.request.Owner), began: a.began,
	}
}
