package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Holders lists the locks that are held at this moment in the database, by
// whatever process and strategy, ordered by name, and names that are taken though
// nobody holds them: see [Status.Taken]. It does not ask which are guarded. Errors:
// [ErrInvalidOption] if f.Limit is negative, [ErrInvalidName] if f.Name or f.Prefix is in no name, [ErrClosed]; the database's.
func (l *Locker) Holders(ctx context.Context, f Filter) ([]Status, error) {
	const verb = "list locks"

	if err := l.administers(ctx, verb); err != nil {
		return nil, err
	}

	if err := checkFilter("Filter", f.Name, f.Prefix, f.Limit); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}

	listed, err := l.strategy.List(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, ownTime(ctx, err))
	}

	splitSlots(listed)

	return listed, nil
}

// checkFilter says what is wrong with a filter: no name has such text, and PostgreSQL would refuse it.
func checkFilter(filter, name, prefix string, limit int) error {
	switch {
	case limit < 0:
		return fmt.Errorf("%w: %s.Limit %d is negative", ErrInvalidOption, filter, limit)
	case !printable(name):
		return fmt.Errorf("%w: %s.Name %q is not UTF-8 or has a NUL byte", ErrInvalidName, filter, name)
	case !printable(prefix):
		return fmt.Errorf("%w: %s.Prefix %q is not UTF-8 or has a NUL byte", ErrInvalidName, filter, prefix)
	default:
		return nil
	}
}

// Waiters lists who waits for locks at this moment, in whatever process, by name and in
// the order of arrival, in which they get the lock. A process is listed once for each name
// that it waits for; it may hold others meanwhile. A goroutine that holds another lock and waits
// behind one of its own process is listed, too, after those in line, once it has waited for a
// quarter of a second. A process that has died is listed for up to three seconds. Errors:
// [ErrInvalidOption] if f.Limit is negative, [ErrInvalidName] if f.Name or f.Prefix is in no name, [ErrUnsupported] if the strategy does not know,
// [ErrClosed]; the database's.
func (l *Locker) Waiters(ctx context.Context, f WaiterFilter) ([]Waiter, error) {
	const verb = "list waiters"

	if err := l.administers(ctx, verb); err != nil {
		return nil, err
	}

	if err := checkFilter("WaiterFilter", f.Name, f.Prefix, f.Limit); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}

	if l.waiters.queuer == nil {
		return nil, fmt.Errorf("%s: %w by strategy %s on %s", verb, ErrUnsupported, l.features.Strategy, l.features.Database)
	}

	listed, err := l.waiters.queuer.Waiters(ctx, f)
	most := len(listed)

	if slices.ContainsFunc(listed, wants) && most == f.Limit {
		f.Limit = 0 // there may be others
		listed, err = l.waiters.queuer.Waiters(ctx, f)
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, ownTime(ctx, err))
	}

	listed = slices.DeleteFunc(listed, wants)
	listed = listed[:min(most, len(listed))]

	setPlaces(listed)

	return listed, nil
}

// Inspect returns the status of a name: who holds it, or how long it is taken though
// nobody does, or who had it last and why that ended. A name that was never granted, or
// whose row was reaped, has the token 0. If it has permits, this is about the first;
// [SlotName] names the others, and [Locker.Holders] lists those that are taken. Errors: [ErrInvalidName],
// [ErrClosed]; the database's.
func (l *Locker) Inspect(ctx context.Context, name string) (Status, error) {
	name, slot, err := splitSlotName(name)
	if err != nil {
		return Status{}, err
	}

	if err := l.administers(ctx, "inspect"); err != nil {
		return Status{}, err
	}

	status, found, err := l.strategy.Status(ctx, strategies.SlotName(name, slot))

	switch {
	case err != nil:
		return Status{}, fmt.Errorf("inspect lock %q: %w", name, ownTime(ctx, err))
	case !found:
		return Status{Name: name, Slot: slot}, nil
	default:
		status.Name, status.Slot = name, slot

		return status, nil
	}
}

// ForceRelease takes a lock away from the holder that was seen: seen is what [Locker.Inspect],
// or [Locker.Holders] returned, and whoever has acquired the name since
// keeps it. Of seen, Name, Slot, Token and Owner count. The holder learns of
// it at its next renewal, with [ReasonForced] and the reason given here; until
// then two may believe that they hold it, and [Lock.Guard] and tokens keep that harmless.
// Its process may also hand it on, for up to 25 milliseconds after the grant. If the
// holder has released it or its lease has expired, this ends the minimum hold or the lock delay that
// keeps the name taken. A shared lock is taken away from all of its readers. The reason loses
// NUL bytes and invalid UTF-8, and is shortened to 247 bytes.
//
// Errors: [ErrNotHeld], the name is free; [ErrChangedHands], with a *[HeldError] that tells who has
// it; a *[HeldError] alone, a transaction has its row locked for a change, which an open
// [Lock.Guard] on PostgreSQL does not; [ErrInvalidOption], the reason is empty; [ErrInvalidName], [ErrClosed]; the database's. With strategy quorum the holder may
// have lost the lock though there is an error, if too few servers answered: call it again.
func (l *Locker) ForceRelease(ctx context.Context, seen Status, reason string) error {
	name, slot := seen.Name, seen.Slot

	if err := errors.Join(checkName(name), checkSlot(slot)); err != nil {
		return err
	}

	if err := l.administers(ctx, "force release"); err != nil {
		return err
	}

	reason, err := cleanReason(reason)
	if err != nil {
		return fmt.Errorf("force release of lock %q: %w", name, err)
	}

	grant := strategies.Status{Name: strategies.SlotName(name, slot), Token: seen.Token, Owner: seen.Owner}

	forced, err := l.strategy.ForceRelease(ctx, grant, reason)
	if err == nil && !forced {
		err = ErrNotHeld
	}

	err = asHeld(name, err)
	if held := new(HeldError); errors.As(err, &held) && held.Token != 0 && !grant.Is(held.Token, held.Owner) {
		err = fmt.Errorf("%w: %w", ErrChangedHands, err)
	}

	if err != nil {
		return fmt.Errorf("force release of lock %q: %w", name, ownTime(ctx, err))
	}

	l.listener.call(ctx, name)

	l.logger.WarnContext(ctx, "lock released by force", "name", name, "slot", slot, "token", seen.Token, "reason", reason)

	return nil
}

// cleanReason is what the holder is told.
func cleanReason(reason string) (string, error) {
	reason = cut(strings.ToValidUTF8(strings.ReplaceAll(reason, "\x00", ""), ""), MaxLabelLength-len(forcedPrefix))
	if strings.TrimSpace(reason) == "" {
		return "", fmt.Errorf("%w: the reason is empty", ErrInvalidOption)
	}

	return reason, nil
}

// checkSlot says whether a number can be that of a permit.
func checkSlot(slot int) error {
	if slot < 0 || slot >= MaxPermits {
		return fmt.Errorf("%w: there is no slot %d, from 0 to %d", ErrInvalidOption, slot, MaxPermits-1)
	}

	return nil
}

// forcedPrefix is the room that strategies have beside the reason.
const forcedPrefix = "forced: "

// Reap marks expired grants as ended, to keep the tables tidy; acquisitions do not depend
// on it. It removes the rows of names that were not acquired for the retention,
// which is a minute at least and seven days as a rule, also those that the removal in the
// background leaves: see [Tuning]. A name's token grows even over the removal of its
// row. With strategy forupdate it also ends the sessions of holders whose
// lease has expired, where the server has not. Errors: [ErrInvalidOption] if the retention
// is shorter than a minute, [ErrClosed]; the database's.
func (l *Locker) Reap(ctx context.Context, retention time.Duration) (Reaped, error) {
	if err := l.administers(ctx, "reap"); err != nil {
		return Reaped{}, err
	}

	if err := checkRetention(retention); err != nil {
		return Reaped{}, err
	}

	reaped, err := l.strategy.Reap(ctx, retention)
	if err != nil {
		return reaped, fmt.Errorf("reap: %w", ownTime(ctx, err))
	}

	return reaped, nil
}

func checkRetention(retention time.Duration) error {
	if retention < time.Minute {
		return fmt.Errorf("reap: %w: the retention of %s is shorter than a minute", ErrInvalidOption, retention)
	}

	return nil
}

// RunReaper reaps repeatedly, with pauses of every, a millisecond at least, and a tenth
// more or less at random, until ctx ends or the locker is closed; then it returns nil. Of a
// locker that was closed before, it returns [ErrClosed]. Errors of the database are logged
// and tried again, but [ErrUnsupported] and [ErrNoSchema] end it. Several processes may run
// it.
func (l *Locker) RunReaper(ctx context.Context, every, retention time.Duration) error {
	if err := l.administers(ctx, "reap"); err != nil {
		return err
	}

	if err := checkRetention(retention); err != nil {
		return err
	}

	if every < time.Millisecond || every > maxLease {
		return fmt.Errorf("reap: %w: the interval %s is not between %s and %s",
			ErrInvalidOption, every, time.Millisecond, days(maxLease))
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	stop := context.AfterFunc(l.life, cancel)
	defer stop()

	for sleep(ctx, every*7/10+jitter(every*2/5)) {
		reaped, err := l.Reap(ctx, retention)

		switch {
		case errors.Is(err, ErrUnsupported), errors.Is(err, ErrNoSchema):
			return err
		case err != nil && ctx.Err() == nil:
			l.logger.WarnContext(ctx, "reaping failed", "error", err)
		case reaped != Reaped{}:
			l.logger.DebugContext(ctx, "reaped", "expired", reaped.Expired, "removed", reaped.Removed)
		}
	}

	return nil
}

// administers reports a call that cannot be served.
func (l *Locker) administers(ctx context.Context, verb string) error {
	if err := checkContext(ctx, verb); err != nil {
		return err
	}

	if l == nil || l.life.Err() != nil {
		return fmt.Errorf("%s: %w", verb, ErrClosed)
	}

	return nil
}
