package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sqllock/sqllock/strategies"
)

// WithNames has the lock of further names beside the one that the call is given: of all of them or of none. They may be given in any
// order, and callers that want some of the same ones do not deadlock. A name that is given twice counts once. A lock has [MaxNames] at
// most.
//
// All are asked for at once. If one is not free, the call waits for that in line as for any lock, while it holds those that sort before
// it, and then takes those that sort after it one by one. What [WithMaxHold] and [WithoutRenewal] limit begins when it has all.
//
// Each name has a token, a lease and a guard, and the [Lock] is held while all of them are. If one is lost its context ends, and the
// others are held until it is released. The other options are for each name. [WithPermits] and [WithShared] are [ErrUnsupported] with it.
// Errors of the call tell of the name that was not to be had.
//
// A deadlock with somebody who has one of the names and waits for another of them is none: the call gives all back, and begins again.
// It is [ErrDeadlock] only over locks that were held before the calls: if the caller has one that somebody waits for, or wants with
// several names, who has one of these names.
//
// Errors: [ErrInvalidName]; [ErrInvalidOption], they are too many; [ErrUnsupported] with strategies forupdate, of which each lock holds a connection, and quorum.
func WithNames(more ...string) LockOption {
	more = slices.Clone(more) // the caller may fill its slice again

	return lockOption(func(s *settings) error {
		for _, name := range more {
			if err := checkName(name); err != nil {
				return fmt.Errorf("WithNames: %w", err)
			}
		}

		s.names = slices.Concat(s.names, more)

		return nil
	})
}

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

// acquireSeveral acquires a name and those of the settings.
func (l *Locker) acquireSeveral(ctx context.Context, name string, try bool, set *settings) (lock *Lock, err error) {
	names := slices.Concat([]string{name}, set.names)
	slices.Sort(names)
	names = slices.Compact(names)

	switch {
	case len(names) > MaxNames:
		err := againstRule("WithNames", "", "%d names, at most %d", len(names), MaxNames)

		return nil, fmt.Errorf("lock %q: %w", name, err)
	case len(names) > 1 && !l.features.Several:
		return nil, fmt.Errorf("lock %q: %w: strategy %s cannot acquire several names at once; use cas, or acquire them one after the other, sorted",
			name, ErrUnsupported, l.features.Strategy)
	}

	var (
		s     = &several{locker: l}
		holds []*hold // that ctx has already
	)

	defer func() {
		if lock == nil { // or it panics
			err = withRelease(err, together(holds, func(i int) error { return holds[i].handle().Release(ctx) }))
		}
	}()

	call := newOwner()[:callDigits]

	for _, each := range names {
		a, err := l.newAcquisition(ctx, each, try, set)

		switch {
		case err != nil:
			return nil, err
		case a.outer == nil:
			a.call = call
			s.all = append(s.all, a)
		default:
			if err := a.outer.reenter(set); err != nil {
				return nil, ownTime(ctx, err)
			}

			holds = append(holds, a.outer)
		}
	}

	taken, event, err := s.run(ctx)
	if err != nil {
		return nil, err
	}

	holds = append(holds, taken...)
	slices.SortFunc(holds, func(a, b *hold) int { return cmp.Compare(a.name, b.name) })

	for i, h := range taken {
		h.announce(ctx)
		s.all[i].emit(ctx, h, event)
	}

	given := slices.IndexFunc(holds, func(h *hold) bool { return h.name == name })
	lock = &Lock{hold: holds[given]}
	lock.ctx, lock.end = heldUnder(context.WithoutCancel(ctx), holds)

	return lock, nil
}

// run returns the holds of all names, and what to tell of each.
func (s *several) run(ctx context.Context) ([]*hold, Event, error) {
	if len(s.all) == 0 {
		return nil, Event{}, nil
	}

	l, name := s.locker, s.all[0].request.Name

	// Close waits for what attempts under way may leave.
	if !l.background.begin(name) {
		return nil, Event{}, fmt.Errorf("lock %q: %w", name, ErrClosed)
	}

	began := now()
	for _, a := range s.all {
		a.began = began
	}

	holds, err := s.take(ctx)
	event := Event{Kind: NotAcquired, Name: name, Attempts: s.attempts, Waited: now().since(began), Err: err}

	// Before the observers and the log, which may block.
	l.background.finish(name)

	if err != nil {
		l.tell(ctx, event)
	}

	return holds, event, err
}

// take returns the holds of all names, or none and why.
func (s *several) take(ctx context.Context) ([]*hold, error) {
	wait, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	around := signed(owners(ctx), wanting)
	if len(around) > 0 {
		defer s.want(ctx, around, stop)()
	}

	for told := len(around) > 0; ; {
		holds, err := s.takeOnce(wait)
		if err == nil {
			return holds, nil
		}

		deadlock := new(DeadlockError)
		isDeadlock := errors.As(err, &deadlock)
		// It has ended because of one of its own locks: that was lost, or somebody waits for it who has what was waited for.
		again := !s.all[0].try && wait.Err() == nil && slices.ContainsFunc(holds, func(h *hold) bool {
			return isDeadlock && h.owner() == deadlock.owner || !isDeadlock && h.err() != nil
		})
		s.giveBack(wait, holds)

		if !again && ctx.Err() == nil && errors.As(context.Cause(wait), &deadlock) {
			return nil, deadlock
		}

		if !again {
			return nil, err
		}

		for i := range s.all {
			s.all[i] = s.all[i].anew()
		}

		if !told {
			told = true
			defer s.want(ctx, []string{wanting}, stop)()
		}
	}
}

// want tells the database of all names that are wanted, and under which locks, for finding deadlocks: one of those is ended by stop.
func (s *several) want(ctx context.Context, around []string, stop context.CancelCauseFunc) (end func()) {
	w := &s.locker.waiters
	if s.all[0].try || w.queuer == nil {
		return func() {}
	}

	all := make([]*waiting, len(s.all))

	for i, a := range s.all {
		all[i] = w.newWaiting(ctx, a)
		all[i].Holding, all[i].stop, all[i].told = around, stop, nil

		w.behind(all[i])
	}

	return func() {
		for _, one := range all {
			w.remove(one, false)
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

	under, first := ctx, len(holds)

	for i, a := range s.all {
		if i >= first {
			var h *hold
			if i > first {
				h, refused = a.fastPath(under, now())
			}

			h, err := a.finish(under, h, refused)
			s.attempts += a.attempts

			if err != nil {
				return holds, err
			}

			h.keep(true)

			holds = append(holds, h)
		}

		var end func()

		under, end = holds[i].ctx.over(under) //nolint:fatcontext // locks lie one inside the other
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
	holds = make([]*hold, len(s.all))

	for i, a := range asked {
		holds[i], errs[i] = a.answered(ctx, start, a.request, grants[i], errs[i])
		s.attempts += a.attempts
	}

	first := slices.Index(holds, nil)
	if first < 0 {
		return holds, nil
	}

	if first < len(asked) {
		refused = errs[first]
	}

	for _, h := range holds[:first] {
		h.keep(true)
	}

	for i := first + 1; i < len(s.all); i++ {
		if a := s.all[i]; holds[i] == nil && a.hasTurn {
			a.giveUp(ctx)
		}

		s.all[i] = s.all[i].anew()
	}

	s.giveBack(ctx, slices.DeleteFunc(slices.Clone(holds[first:]), func(h *hold) bool { return h == nil }))

	return holds[:first], refused
}

// ask asks for some names in one statement.
func (s *several) ask(ctx context.Context, start instant, some []*acquisition) ([]strategies.Grant, []error) {
	grants, errs := make([]strategies.Grant, len(some)), make([]error, len(some))

	ended := s.locker.acquires.Expect(len(some))

	var group sync.WaitGroup

	for i, a := range some {
		group.Go(func() {
			defer ended()

			grants[i], errs[i] = a.ask(ctx, start)
		})
	}

	group.Wait()

	return grants, errs
}

// giveBack frees locks of who did not get all, in the background if that takes longer than the call may. Nobody is told that they were
// had, and no minimum hold is left.
func (s *several) giveBack(ctx context.Context, holds []*hold) {
	if len(holds) == 0 {
		return
	}

	for _, h := range holds {
		h.keep(true)
	}

	end := func() {}
	if limit, why := s.all[0].limit(); why != nil {
		ctx, end = context.WithTimeoutCause(ctx, limit-now().since(s.all[0].began), why)
	}

	defer end()

	freed, name := make(chan struct{}), holds[0].name
	s.locker.background.count(name)

	go func() {
		defer s.locker.background.finish(name)
		defer close(freed)

		_ = together(holds, func(i int) error { return holds[i].release(ctx, new(Event)) })
	}()

	select {
	case <-freed:
	case <-ctx.Done():
	}
}

// keep says whether others are waited for before the lock is its caller's. Until then it is renewed, whatever the options say, and
// not held for too long.
func (h *hold) keep(kept bool) {
	h.mu.Lock()
	h.kept, h.from = kept, now()
	h.mu.Unlock()

	h.locker.keeper.resume(h)
}

// begin makes a lock that was kept its caller's.
func (h *hold) begin(ctx context.Context) error {
	h.keep(false)

	if !h.settings.renew {
		return h.handle().Extend(ctx, h.settings.lease) // it begins now
	}

	return nil
}

// anew is an acquisition of the same name that has not asked. What the one before may have left is nobody else's.
func (a *acquisition) anew() *acquisition {
	return &acquisition{
		locker: a.locker, key: a.key, set: a.set, try: a.try, call: a.call, queued: a.queued, wish: a.wish,
		request: newRequest(a.request.Name, a.set), abandoned: append(a.abandoned, a.request.Owner), began: a.began,
	}
}
