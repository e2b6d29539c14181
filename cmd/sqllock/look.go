package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/sqllock"
)

// looker is a database open for looking at locks and acting on those of others.
type looker struct {
	*sqllock.Locker

	db *dsn.Database
}

// look opens the database, calls do, and closes it. Errors get their exit code.
func (d *database) look(ctx context.Context, do func(looker) error) error {
	target, err := d.target()
	if err != nil {
		return err
	}

	db, err := open(ctx, target.WithLockWait(), warn)
	if err != nil {
		return err
	}
	defer db.Close()

	locker, err := lockerOf("cas", db)
	if err != nil {
		return refused(err, target, exitNotAcquired)
	}
	defer closeLocker(ctx, locker)

	return refused(do(looker{locker, db}), target, exitNotAcquired)
}

// lookTime bounds one look at the database: one that does not answer any more
// is told of.
const lookTime = 5 * time.Second

// inTime asks so long at most.
func inTime[A, T any](ctx context.Context, ask func(context.Context, A) (T, error), about A) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()

	return ask(ctx, about)
}

// Holders is the Locker's, bounded.
func (l looker) Holders(ctx context.Context, filter sqllock.Filter) ([]sqllock.Status, error) {
	return inTime(ctx, l.Locker.Holders, filter)
}

// Inspect is the Locker's, bounded.
func (l looker) Inspect(ctx context.Context, name string) (sqllock.Status, error) {
	return inTime(ctx, l.Locker.Inspect, name)
}

// Waiters is the Locker's, bounded.
func (l looker) Waiters(ctx context.Context, filter sqllock.WaiterFilter) ([]sqllock.Waiter, error) {
	return inTime(ctx, l.Locker.Waiters, filter)
}

// glance is Inspect for those who look again and again: it does not ask whether the
// name is guarded, for which the row is locked for a moment. Hundreds of processes that
// wait would keep it from those who acquire and renew. Of several permits it is one that is held,
// and of several readers one.
func (l looker) glance(ctx context.Context, name string) (seen, error) {
	listed, err := l.Holders(ctx, sqllock.Filter{Name: name})
	if err != nil || len(listed) == 0 {
		return seen{status: sqllock.Status{Name: name}}, err
	}

	// One that is held, rather than one that is only taken.
	return seen{status: listed[max(0, slices.IndexFunc(listed, sqllock.Status.Held))], listed: listed}, nil
}

// by says who holds it.
func (s seen) by() string {
	switch who, others := label(s.status), len(s.readers())-1; {
	case others > 1:
		return fmt.Sprintf("%s and %d other readers", who, others)
	case others == 1:
		return who + " and another reader"
	default:
		return who
	}
}

// How often a lock is asked for that another holds. There may be hundreds of this
// command that wait for one, each of which is a process.
const (
	pollSoon  = 20 * time.Millisecond
	pollLater = time.Second
)

// lockerOf makes a locker of a strategy by its name.
func lockerOf(name string, db *dsn.Database, options ...sqllock.LockerOption) (*sqllock.Locker, error) {
	s, err := strategy(name, db.Locks)
	if err != nil {
		return nil, err
	}

	// No connection more for each process that waits.
	locker, err := sqllock.New(s, append(options, sqllock.WithTuning(sqllock.Tuning{NoNotifications: true, PollMin: pollSoon, PollMax: pollLater}))...)

	// It is wrapped in the library's name, which the program says anyway.
	return locker, cmp.Or(errors.Unwrap(err), err)
}

// oneName is the only argument of a command.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one lock, not %d", len(args))
	}

	return noDatabase(args)
}

// noDatabase refuses a database in the place of a lock's name: a --dsn is missing, and
// messages would show the password.
func noDatabase(names []string) error {
	if slices.ContainsFunc(names, dsn.IsDatabase) {
		return fmt.Errorf("a database stands in the place of a lock's name; --%s names the database", dsn.Flag)
	}

	return nil
}

// embeddedTime bounds the migration of the embedded file, which a process that
// writes to it keeps waiting.
const embeddedTime = 10 * time.Second

// open opens the database for locks. The embedded file is migrated, because
// nobody else would; what somebody named is theirs to migrate. say is told
// where locks are kept if nobody said that.
func open(ctx context.Context, target dsn.Target, say func(string)) (*dsn.Database, error) {
	db, err := target.Open(ctx, false)
	if err != nil {
		return nil, exitError{exitUnavailable, err}
	}

	if !target.Embedded {
		return db, nil
	}

	ctx, cancel := context.WithTimeout(ctx, embeddedTime)
	defer cancel()

	if _, err := migrate.Up(ctx, db); err != nil {
		return nil, exitError{exitUnavailable, errors.Join(fmt.Errorf("migrate %s: %w", target, err), db.Close())}
	}

	say(unnamed(target))

	return db, nil
}

// unnamed says where locks are kept if nobody said that. It is said each time: who forgot
// to name the server on one of the machines would believe to have locks between them, and
// sees only what came last.
func unnamed(target dsn.Target) string {
	return fmt.Sprintf("no --%s and no %s: locks are kept in %s, for this machine and user only",
		dsn.Flag, dsn.Variable, target.Path)
}
