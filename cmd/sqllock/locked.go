package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/sqllock"
)

const (
	// releaseTime bounds how long the end of a run waits for the database.
	releaseTime = 10 * time.Second
	// settleTime bounds how long it waits for an attempt without an answer to
	// be given back, which the lease would do too.
	settleTime = 2 * time.Second
)

// run is "sqllock run" with everything checked.
func (f *runFlags) run(ctx context.Context, command process.Command) error {
	target, err := f.target()
	if err != nil {
		return err
	}

	// Before anything is opened: a migration of the embedded file may wait.
	signals, stop := process.Notify()
	defer stop()

	db, err := interruptible(ctx, signals, func(ctx context.Context) (*dsn.Database, error) {
		return open(ctx, target, warn)
	})
	if err != nil {
		return refused(err, target, f.conflict)
	}
	defer db.Close()

	locker, err := f.locker(db)
	if err != nil {
		return err
	}
	defer closeLocker(ctx, locker)

	if f.sharedEnv {
		shared, err := f.share(ctx, locker)
		if err != nil {
			return refused(err, target, f.conflict)
		}

		if shared {
			return f.become(ctx, command, db, locker)
		}
	}

	if f.verbose {
		warn(fmt.Sprintf("waiting for lock %s in %s", f.quoted(), target))
	}

	h, err := interruptible(ctx, signals, func(ctx context.Context) (*held, error) { return f.acquire(ctx, locker) })
	if err != nil {
		if h != nil {
			// The signal came when the lock was there already.
			_ = h.release(ctx)
		}

		return refused(err, target, f.conflict)
	}

	command.Env = f.environment(h)
	err = f.underLock(h, command, signals)

	return f.released(ctx, h, err)
}

// share takes those names off the list that a run around this one holds, and
// says whether none is left.
func (f *runFlags) share(ctx context.Context, locker *sqllock.Locker) (bool, error) {
	var missing []string

	for _, name := range f.names {
		ours, err := heldOutside(ctx, locker, name)
		if err != nil {
			return false, err
		}

		if !ours {
			missing = append(missing, name)
		}
	}

	f.names = missing

	return len(missing) == 0, nil
}

// become runs the command in the place of this process, under the locks of the
// run around it.
func (f *runFlags) become(ctx context.Context, command process.Command, db *dsn.Database, locker *sqllock.Locker) error {
	closeLocker(ctx, locker)
	_ = db.Close()

	command.Env = os.Environ()

	return exitError{exitNotExecutable, fmt.Errorf("command can not be executed: %w", process.Become(command))}
}

// quoted are the names for messages.
func (f *runFlags) quoted() string {
	quoted := make([]string, len(f.names))
	for i, name := range f.names {
		quoted[i] = strconv.Quote(name)
	}

	return strings.Join(quoted, " and ")
}

func (f *runFlags) locker(db *dsn.Database) (*sqllock.Locker, error) {
	// Without -v what matters is said in the command's own words.
	logger := slog.New(slog.DiscardHandler)
	if f.verbose {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}

	locker, err := lockerOf(f.strategy, db, sqllock.WithLease(time.Duration(f.lease)), sqllock.WithLabel(f.label),
		sqllock.WithMinHold(time.Duration(f.minHold)), sqllock.WithLogger(logger))

	return locker, refused(err, db.Target, f.conflict)
}

// closeLocker waits for an attempt whose answer was lost to be given back.
func closeLocker(ctx context.Context, locker *sqllock.Locker) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()

	_ = locker.Close(ctx)
}

// lead is how long before the end of the trust in a lock the group is killed:
// enough for the kernel to end it, and little beside the lease.
func (f *runFlags) lead() time.Duration { return min(100*time.Millisecond, time.Duration(f.lease)/20) }

// underLock runs the command. Its error is how the command ended.
func (f *runFlags) underLock(h *held, command process.Command, signals <-chan os.Signal) error {
	watchdog, err := process.StartWatchdog(watchdogCommand)
	if err != nil {
		return exitError{exitInternal, fmt.Errorf("start the watchdog: %w", err)}
	}
	defer watchdog.Dismiss()

	watchdog.Until(h.Remaining() - f.lead() + process.Latency)

	group, err := process.Start(command, watchdog, heldCommand)

	switch refused := (*process.NotExecutableError)(nil); {
	case errors.As(err, &refused):
		return exitError{exitNotExecutable, fmt.Errorf("command can not be executed: %w", err)}
	case err != nil:
		return exitError{exitInternal, fmt.Errorf("start the command: %w", err)}
	}

	undisturbed := process.Supervision{
		Lock: h, Group: group, Watchdog: watchdog, Ask: f.loss.signal, Grace: f.loss.grace, Lead: f.lead(), Signals: signals,
		Warn: func(left time.Duration) {
			warn(fmt.Sprintf("lock %s can not be renewed; the command has %s to end", f.quoted(), left.Round(time.Millisecond)))
		},
	}.Run()

	if !group.Gone(time.Second) {
		warn("what the command left in the background does not die; the lock is released all the same")
	}

	if !undisturbed {
		return exitError{exitLost, fmt.Errorf("lock %s could not be renewed; the command was ended", f.quoted())}
	}

	if code := group.Status().ExitCode(); code != 0 {
		return exitError{code, nil}
	}

	return nil
}

// released releases the locks and decides how all ended: a lost lock outdoes
// what the command said.
func (f *runFlags) released(ctx context.Context, h *held, ended error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()

	err := h.release(ctx)

	switch {
	case err == nil:
	case errors.Is(err, sqllock.ErrLost):
		return exitError{exitLost, err}
	case errors.Is(err, sqllock.ErrNoSchema):
		return exitError{exitLost, fmt.Errorf("lock %s was lost: its tables were removed while it was held", f.quoted())}
	default:
		warn(fmt.Sprintf("%s; it is free when its lease of %s ends, at the latest", inShellWords(err), &f.lease))
	}

	return ended
}

// warn is for what the user should know though it is no error of the command.
func warn(said string) { _, _ = fmt.Fprintf(os.Stderr, "sqllock: %s\n", oneLine(said)) }
