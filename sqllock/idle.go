package sqllock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

const (
	// keepTime is how long a strategy keeps what it holds of the pool when its last lock has ended.
	keepTime = 2 * time.Second
	// giveBackTime bounds what gives it back.
	giveBackTime = 5 * time.Second
)

// idle has a strategy give back the connection that it keeps without a lock. Strategies have no timers.
type idle struct {
	keeper strategies.IdleKeeper // nil if it keeps none
	armed  atomic.Bool           // a look is to come
	life   context.Context       //nolint:containedctx // the locker's own, which nothing here ends with
}

// watchIdle lets the strategy keep what it can, and looks after each attempt.
func (l *Locker) watchIdle() {
	keeper, ok := l.strategy.(strategies.IdleKeeper)
	if !ok {
		return
	}

	l.idle.keeper, l.idle.life = keeper, context.WithoutCancel(l.life)
	keeper.KeepIdle()

	l.acquires.send = func(ctx context.Context, all []strategies.Request) ([]strategies.Grant, []error) {
		defer l.idle.arm(keepTime)

		grants, errs := l.strategy.Acquire(ctx, all)
		for _, err := range errs {
			l.suspect(err)
		}

		return grants, errs
	}
}

// suspect has all locks renewed at once when an attempt has failed: what ended it may have ended the session that holds them,
// and others may have them by now. The end of the caller's context breaks nothing; a deadline is often met because the database is
// slow, which more renewals would only make slower.
func (l *Locker) suspect(err error) {
	for _, harmless := range []error{context.Canceled, context.DeadlineExceeded, strategies.ErrNotAcquired, strategies.ErrNotBatched} {
		if errors.Is(err, harmless) {
			return
		}
	}

	if err != nil {
		l.keeper.hurry()
	}
}

// arm has a look come, unless one is to come already.
func (i *idle) arm(after time.Duration) {
	if !i.armed.Load() && !i.armed.Swap(true) {
		time.AfterFunc(after, i.look)
	}
}

// look gives back what was kept for long enough, and otherwise comes again. An attempt that returns from now on has
// another come: this one may be too early to see what it has opened.
func (i *idle) look() {
	i.armed.Store(false)

	ctx, cancel := context.WithTimeout(i.life, giveBackTime)
	defer cancel()

	if again := i.keeper.GiveBack(ctx, keepTime); again > 0 {
		i.arm(again)
	}
}

// close gives back at once what is kept. What still has a lock on it, which Close could not end, is given back later. It
// does not wait for a driver that does not return.
func (i *idle) close(ctx context.Context) {
	if i.keeper == nil {
		return
	}

	_ = bounded(ctx, giveBackTime, func(ctx context.Context) error {
		i.keeper.GiveBack(ctx, 0)

		return nil
	})
}
