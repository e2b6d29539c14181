package sqllock

import (
	"context"
	"log/slog"
)

// progress is what observers are told of a wait in line.
type progress struct {
	ctx   context.Context //nolint:containedctx // its values, for the observers
	began instant

	// These are under the mutex of waiters.
	place int        // that they were told last; zero if they were told none
	held  *HeldError // who had the name when it was asked for last; nil if that is not known
}

// progress returns what to tell of the wait; nil if nobody wants to know.
func (a *acquisition) progress(ctx context.Context) *progress {
	if !a.locker.tells(ctx, slog.LevelDebug) {
		return nil
	}

	return &progress{ctx: ctx, began: a.began}
}

// setHeld notes who has the name of one who waits.
func (w *waiters) setHeld(one *waiting, held *HeldError) {
	if one.progress == nil {
		return
	}

	if held.Token == 0 {
		held = nil // others in line were in the way
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	one.progress.held = held
}

// news appends what there is to tell of one who waits, whose place is known.
func (one *waiting) news(all []item, place int) []item {
	p := one.progress
	if p == nil || p.place == place {
		return all
	}

	p.place = place

	return append(all, item{ctx: p.ctx, event: Event{
		Kind: Waiting, Name: one.Name, Place: place, Held: p.held, Waited: now().since(p.began),
	}})
}
