package sqllock

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Holders lists the locks that are held at this moment in the database, by
// whatever process and strategy, ordered by name.
func (l *Locker) Holders(ctx context.Context, f Filter) ([]HeldLock, error) {
	admin, err := l.administrator("list locks")
	if err != nil {
		return nil, err
	}

	if f.Limit < 0 {
		return nil, fmt.Errorf("list locks: %w: Filter.Limit %d is negative", ErrInvalidOption, f.Limit)
	}

	held, err := admin.Holders(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}

	return held, nil
}

// Inspect says who holds a lock. ErrNotHeld: nobody does.
func (l *Locker) Inspect(ctx context.Context, name string) (HeldLock, error) {
	if err := checkName(name); err != nil {
		return HeldLock{}, err
	}

	// Names sort by their bytes, so the name itself comes first of those that
	// begin with it.
	held, err := l.Holders(ctx, Filter{Prefix: name, Limit: 1})

	switch {
	case err != nil:
		return HeldLock{}, err
	case len(held) == 0 || held[0].Name != name:
		return HeldLock{}, fmt.Errorf("lock %q: %w", name, ErrNotHeld)
	default:
		return held[0], nil
	}
}

// LastGrant tells of the latest grant of a name, also when nobody holds it any
// more: who had it, why it ended, and whether a transaction guards it.
// ErrNotHeld: it was never granted, or its row was reaped.
func (l *Locker) LastGrant(ctx context.Context, name string) (LastGrant, error) {
	const verb = "look up the last grant"

	if err := checkName(name); err != nil {
		return LastGrant{}, err
	}

	if _, err := l.administrator(verb); err != nil {
		return LastGrant{}, err
	}

	historian, ok := l.strategy.(Historian)
	if !ok {
		return LastGrant{}, fmt.Errorf("%s: %w by strategy %s on %s", verb, ErrUnsupported, l.features.Strategy, l.features.Database)
	}

	grant, err := historian.LastGrant(ctx, name)
	if err != nil {
		return LastGrant{}, fmt.Errorf("%s of lock %q: %w", verb, name, err)
	}

	return grant, nil
}

// ForceRelease takes a lock away from whoever holds it. The holder learns of
// it at its next renewal, with ReasonForced and the reason given here; until
// then two may believe to hold it, and Guard and tokens keep that harmless.
// ErrNotHeld: nobody holds it.
func (l *Locker) ForceRelease(ctx context.Context, name, reason string) error {
	if err := checkName(name); err != nil {
		return err
	}

	admin, err := l.administrator("force release")
	if err != nil {
		return err
	}

	reason = cut(strings.ToValidUTF8(strings.ReplaceAll(reason, "\x00", ""), ""), MaxLabelLength-len(forcedPrefix))

	if err := admin.ForceRelease(ctx, name, reason); err != nil {
		return fmt.Errorf("force release of lock %q: %w", name, err)
	}

	l.defaults.logger.WarnContext(ctx, "lock released by force", "name", name, "reason", reason)

	return nil
}

// forcedPrefix is the room that strategies have beside the reason.
const forcedPrefix = "forced: "

// Reap ends grants whose lease ran out, for good order: an acquisition does
// not depend on it. It removes the rows of names that were not used for the
// retention that WithReaper set. With strategy forupdate it also ends the
// sessions of holders whose lease ran out, where the server has not.
func (l *Locker) Reap(ctx context.Context) (Reaped, error) {
	admin, err := l.administrator("reap")
	if err != nil {
		return Reaped{}, err
	}

	reaped, err := admin.Reap(ctx, l.defaults.retention)
	if err != nil {
		return reaped, fmt.Errorf("reap: %w", err)
	}

	return reaped, nil
}

// RunReaper reaps again and again, as often as WithReaper says, until ctx ends
// or the locker is closed; then it returns nil. Errors of the database are
// logged and tried again. Several processes may run it.
func (l *Locker) RunReaper(ctx context.Context) error {
	if _, err := l.administrator("reap"); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	stop := context.AfterFunc(l.life, cancel)
	defer stop()

	for sleep(ctx, jitter(2*l.defaults.reapEvery)) {
		reaped, err := l.Reap(ctx)

		switch {
		case errors.Is(err, ErrUnsupported), errors.Is(err, ErrNoSchema):
			return err
		case err != nil && ctx.Err() == nil:
			l.defaults.logger.WarnContext(ctx, "reaping failed", "error", err)
		case reaped != Reaped{}:
			l.defaults.logger.DebugContext(ctx, "reaped", "expired", reaped.Expired, "removed", reaped.Removed)
		}
	}

	return nil
}

func (l *Locker) administrator(verb string) (Administrator, error) {
	if l == nil || l.life.Err() != nil {
		return nil, fmt.Errorf("%s: %w", verb, ErrClosed)
	}

	admin, ok := l.strategy.(Administrator)
	if !ok || !l.features.Administer {
		return nil, fmt.Errorf("%s: %w by strategy %s on %s", verb, ErrUnsupported, l.features.Strategy, l.features.Database)
	}

	return admin, nil
}
