package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/sqllock"
)

// trialLease is the longest lease of a trial: a pause after a fail-over is as long as the longest lease that anybody asked for.
const trialLease = 5 * time.Second

// trial takes a lock of a name that nobody else has, and looks whether it excludes and shows: a trigger, a constraint or another view
// does what no catalog says.
func trial(ctx context.Context, e *exam) ([]Finding, error) {
	// A lock that holds a connection would keep one of a proxy's, perhaps the last, from everybody.
	if !e.usable || e.Locker == nil || e.shares && e.connectionHeld() {
		return nil, nil
	}

	lease, name := min(e.Lease, cmp.Or(e.longest, trialLease), trialLease), "sqllock doctor "+rand.Text()
	defer e.remove(ctx, name) // after the lockers, which may still have it

	first, err := e.Locker(lease)
	if err != nil {
		return nil, nil // the check of the strategy tells
	}
	defer closed(ctx, first)

	second, err := e.Locker(lease)
	if err != nil {
		return nil, err
	}
	defer closed(ctx, second)

	err = e.tryLock(ctx, first, second, name, lease)

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
type brokenError struct{ error }

// broken is what an error of the library says about the tables; nil if it says something else, which other checks tell.
func broken(said string, err error) error {
	for _, other := range []error{
		sqllock.ErrUnreachable, sqllock.ErrReadOnly, sqllock.ErrNotAllowed, sqllock.ErrUnsupported, sqllock.ErrTooManyConnections, sqllock.ErrRecovering,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, other) {
			return err
		}
	}

	return brokenError{fmt.Errorf("%s: %w", said, err)}
}

// tryLock returns a brokenError, or what kept it from finding out.
func (e *exam) tryLock(ctx context.Context, first, second *sqllock.Locker, name string, lease time.Duration) error {
	lock, err := first.TryAcquire(ctx, name)
	if errors.Is(err, sqllock.ErrUnreachable) {
		// Then it is no reason that a transaction has the name's row locked.
		if status, inspectErr := first.Inspect(ctx, name); inspectErr == nil && !status.Guarded {
			return brokenError{fmt.Errorf("a lock that nobody has cannot be acquired: %w", err)}
		}
	}

	if err != nil {
		return broken("a lock that nobody has cannot be acquired", err)
	}

	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()

	switch again, err := second.TryAcquire(ctx, name); {
	case err == nil:
		_ = again.Release(ctx)

		return brokenError{errors.New("a lock that is held can be acquired")}
	case !errors.Is(err, sqllock.ErrNotAcquired):
		return broken("a lock that is held is not refused", err)
	}

	if err := lock.Extend(ctx, lease); err != nil {
		return broken("a lock cannot be renewed", err)
	}

	if err := e.listsSoon(ctx, "sqllock_holders", name, "a lock that is held"); err != nil {
		return err
	}

	waiting, cancel := context.WithCancel(ctx)
	waited := make(chan error, 1)

	go func() {
		next, err := second.Acquire(waiting, name)
		if err == nil {
			err = next.Release(ctx)
		}

		waited <- err
	}()

	err = e.listsSoon(ctx, "sqllock_waiters", name, "who waits")
	if err == nil {
		err = lock.Release(ctx)
	} else {
		cancel()
	}

	waitErr := <-waited

	cancel()

	if err == nil && waitErr != nil {
		err = broken("a lock cannot be acquired by who waits for it", waitErr)
	}

	return err
}

// Bounds of how long a view may take to show.
const (
	showTime  = 3 * time.Second
	showEvery = 20 * time.Millisecond
)

// listsSoon is an error if a view does not have a name after a while.
func (e *exam) listsSoon(ctx context.Context, view, name, what string) error {
	for begun := time.Now(); ; {
		var count int

		err := e.one(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE name = '%s'", view, name), &count)

		switch {
		case err != nil || count > 0:
			return err
		case time.Since(begun) > showTime:
			return brokenError{fmt.Errorf("the view %s does not have %s", view, what)}
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(showEvery):
		}
	}
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
		if !table.View && oneRows[table.Name] == "" {
			_, _ = e.conn.ExecContext(ctx, e.asked(fmt.Sprintf("DELETE FROM %s WHERE name = '%s'", table.Name, name)), e.mode()...)
		}
	}
}
