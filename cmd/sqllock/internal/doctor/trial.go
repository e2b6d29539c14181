package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/sqllock"
)

// trial takes a lock of a name that nobody else has, and looks whether it excludes and shows: a trigger, a constraint or another view
// does what no catalog says.
func trial(ctx context.Context, e *exam) ([]Finding, error) {
	// A lock that holds a connection would keep one of a proxy's, perhaps the last, from everybody.
	if !e.usable || e.Locker == nil || e.shares && e.connectionHeld() {
		return nil, nil
	}

	name := "sqllock doctor " + rand.Text()
	defer e.remove(ctx, name) // after the lockers, which may still have it

	first, err := e.Locker()
	if err != nil {
		return nil, nil // the check of the strategy tells
	}
	defer closed(ctx, first)

	second, err := e.Locker()
	if err != nil {
		return nil, err
	}
	defer closed(ctx, second)

	err = e.tryLock(ctx, first, second, name)

	switch broken := (brokenError{}); {
	case err == nil:
		return fine("a lock was acquired, renewed, waited for and released"), nil
	case errors.As(err, &broken):
		return found(Error, broken.Error(), "locks do not work, or do not show",
			"look for triggers, rules and constraints of the tables, and for another view; \"sqllock migrate print\" shows how they were"), nil
	case errors.Is(err, sqllock.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return hindered("a lock could not be tried, as if somebody else had a table locked: " + err.Error()), nil
	default:
		// Other checks tell of a server that takes no writes, no second session, or is not supported.
		return nil, nil
	}
}

// closed closes a locker whose locks are released.
func closed(ctx context.Context, locker *sqllock.Locker) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()

	_ = locker.Close(ctx)
}

// brokenError says what a lock does that it must not do.
type brokenError struct {
	said string
	err  error
}

func (b brokenError) Error() string {
	if b.err == nil {
		return b.said
	}

	return b.said + ": " + b.err.Error()
}

// broken is what an error of the library says about the tables; nil if it says something else, which other checks tell.
func broken(said string, err error) error {
	for _, other := range []error{
		sqllock.ErrUnreachable, sqllock.ErrReadOnly, sqllock.ErrNotAllowed, sqllock.ErrUnsupported, sqllock.ErrTooManyConnections,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, other) {
			return err
		}
	}

	return brokenError{said, err}
}

// tryLock returns a brokenError, or what kept it from finding out.
func (e *exam) tryLock(ctx context.Context, first, second *sqllock.Locker, name string) error {
	lock, err := first.TryAcquire(ctx, name)
	if errors.Is(err, sqllock.ErrUnreachable) {
		lock, err = first.TryAcquire(ctx, name)
	}

	if errors.Is(err, sqllock.ErrUnreachable) && nobodyLocks(ctx, first, name) {
		return brokenError{"a lock that nobody has cannot be acquired", err}
	}

	if err != nil {
		return broken("a lock that nobody has cannot be acquired", err)
	}

	if err := e.tryHeld(ctx, lock, second); err != nil {
		_ = lock.Release(ctx)

		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	waited := make(chan error, 1)

	go func() {
		next, err := second.Acquire(ctx, name)
		if err == nil {
			err = next.Release(ctx)
		}

		waited <- err
	}()

	shown, err := e.listsSoon(ctx, "sqllock_waiters", name)
	if err != nil || !shown {
		cancel()
		<-waited
		_ = lock.Release(context.WithoutCancel(ctx))

		if err == nil {
			err = brokenError{"the view sqllock_waiters does not have who waits", nil}
		}

		return err
	}

	if err := errors.Join(lock.Release(ctx), <-waited); err != nil {
		return broken("a lock cannot be released, and acquired by who waits for it", err)
	}

	return nil
}

// nobodyLocks says whether the database answers, and no transaction has a name's row locked: then it is no reason for not acquiring it.
func nobodyLocks(ctx context.Context, locker *sqllock.Locker, name string) bool {
	status, err := locker.Inspect(ctx, name)

	return err == nil && !status.Guarded
}

func (e *exam) tryHeld(ctx context.Context, lock *sqllock.Lock, second *sqllock.Locker) error {
	switch again, err := second.TryAcquire(ctx, lock.Name()); {
	case err == nil:
		_ = again.Release(ctx)

		return brokenError{"a lock that is held can be acquired", nil}
	case !errors.Is(err, sqllock.ErrNotAcquired):
		return broken("a lock that is held is not refused", err)
	}

	if err := lock.Extend(ctx, e.Lease); err != nil {
		return broken("a lock cannot be renewed", err)
	}

	shown, err := e.lists(ctx, "sqllock_holders", lock.Name())
	if err == nil && !shown {
		err = brokenError{"the view sqllock_holders does not have a lock that is held", nil}
	}

	return err
}

// Bounds of how long a wait may take to show.
const (
	showTime  = 3 * time.Second
	showEvery = 20 * time.Millisecond
)

func (e *exam) listsSoon(ctx context.Context, view, name string) (shown bool, err error) {
	deadline := time.After(showTime)
	tick := time.NewTicker(showEvery)

	defer tick.Stop()

	for {
		if shown, err = e.lists(ctx, view, name); shown || err != nil {
			return shown, err
		}

		select {
		case <-deadline:
			return false, nil
		case <-tick.C:
		}
	}
}

// lists says whether a view has a name.
func (e *exam) lists(ctx context.Context, view, name string) (bool, error) {
	var count int

	err := e.one(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE name = '%s'", view, name), &count)

	return count > 0, err
}

// remove removes what is left of a name. Its token is forgotten: no other process ever has that name.
func (e *exam) remove(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()

	expected, err := migrate.Expected(e.db.Target.Dialect)
	if err != nil {
		return
	}

	for _, table := range expected {
		if !table.View && table.Name != "sqllock_floor" {
			_, _ = e.conn.ExecContext(ctx, e.asked(fmt.Sprintf("DELETE FROM %s WHERE name = '%s'", table.Name, name)), e.mode()...)
		}
	}
}
