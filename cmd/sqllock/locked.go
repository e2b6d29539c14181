package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

const (
	// releaseTime bounds how long the end of a run waits for the database.
	releaseTime = 10 * time.Second
	// settleTime bounds how long it waits for an attempt without an answer to
	// be given back, which the lease would do too.
	settleTime = 2 * time.Second
	// freeTime bounds the try to free the name of a command that never ran.
	freeTime = 2 * time.Second
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
		return refused(err, target, f.conflict)
	}
	defer closeLocker(ctx, locker)

	around, err := f.around(ctx, locker)
	if err != nil {
		return refused(err, target, f.conflict)
	}

	// This process ends with those, and its command with it.
	f.names = slices.DeleteFunc(f.names, func(name string) bool {
		return slices.ContainsFunc(around, func(lock passed) bool { return lock.name == name })
	})

	if len(f.names) == 0 {
		return f.become(ctx, command, db, locker)
	}

	if f.verbose {
		warn(fmt.Sprintf("waiting for %s in %s", f.locks(), target))
	}

	h, err := interruptible(ctx, signals, func(ctx context.Context) (*held, error) { return f.acquire(ctx, locker) })
	if err != nil {
		if h != nil {
			// The signal came when the lock was there already.
			_ = h.giveBack(ctx)
		}

		return refused(err, target, f.conflict)
	}

	command.Env = f.environment(h)
	ran, err := f.underLock(h, command, signals)

	if !ran {
		if err := h.giveBack(ctx); err != nil {
			warn(shellError{err}.Error())
		}

		return err
	}

	return f.released(ctx, h, err)
}

// become runs the command in the place of this process, under the locks of the
// run around it.
func (f *runFlags) become(ctx context.Context, command process.Command, db *dsn.Database, locker *sqllock.Locker) error {
	closeLocker(ctx, locker)
	_ = db.Close()

	command.Env = os.Environ()

	return exitError{exitNotExecutable, fmt.Errorf("command cannot be executed: %w", process.Become(command))}
}

// quoted are names for messages.
func quoted(names []string) string { return strings.Join(mapped(names, strconv.Quote), " and ") }

// locks are the names behind what they are.
func (f *runFlags) locks() string {
	return map[bool]string{false: "lock ", true: "locks "}[len(f.names) > 1] + quoted(f.names)
}

func (f *runFlags) locker(db *dsn.Database) (*sqllock.Locker, error) {
	// Without -v what matters is said in the command's own words.
	logger := slog.New(slog.DiscardHandler)
	if f.verbose {
		logger = slog.New(slog.NewTextHandler(plainLines{os.Stderr}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}

	if f.minHold > 0 {
		s, err := strategy(f.strategy, db.Locks)
		if err != nil {
			return nil, err
		}

		f.free = func(ctx context.Context, slot, owner string) error {
			ctx, cancel := context.WithTimeout(ctx, freeTime)
			defer cancel()

			return s.Settle(ctx, strategies.Request{Name: slot, Owner: owner})
		}
	}

	return lockerOf(f.strategy, db, sqllock.WithLease(time.Duration(f.lease)), sqllock.WithLabel(f.label),
		sqllock.WithMinHold(time.Duration(f.minHold)), sqllock.WithLogger(logger))
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

// underLock runs the command, and says whether it began. Its error is how the command
// ended, or why it did not begin.
func (f *runFlags) underLock(h *held, command process.Command, signals <-chan os.Signal) (ran bool, err error) {
	if caught := ending(signals); caught != nil {
		return false, refused(signalError{caught}, dsn.Target{}, f.conflict)
	}

	group, err := process.Start(command, h.Remaining()-f.lead()+process.Latency, process.Self{
		Held: heldCommand, Watchdog: watchdogCommand,
		Replaced: func(pid int) {
			warn(fmt.Sprintf("the watchdog of the command (process %d) ended or was stopped, and was replaced", pid))
		},
	})

	switch {
	case errors.As(err, new(*process.NotExecutableError)):
		return false, exitError{exitNotExecutable, fmt.Errorf("command cannot be executed: %w", err)}
	case err != nil:
		return false, exitError{exitInternal, fmt.Errorf("start the command: %w", err)}
	}

	ended := process.Supervision{
		Lock: h, Group: group, Ask: f.loss.signal, Grace: f.loss.grace, Lead: f.lead(), Signals: signals,
		Warn: func(left time.Duration) {
			warn(fmt.Sprintf("%s cannot be renewed; the command has %s to end", f.locks(), left.Round(time.Millisecond)))
		},
	}.Run()

	if !group.Gone(time.Second) {
		warn("what the command left in the background does not die; the lock is released all the same")
	}

	switch {
	case errors.Is(ended, process.ErrNotKept):
		return true, exitError{exitLost, fmt.Errorf("%s could not be renewed; the command was ended", f.locks())}
	case ended != nil:
		return true, exitError{exitInternal, ended}
	}

	if code := group.Status().ExitCode(); code != 0 {
		return true, exitError{code, nil}
	}

	return true, nil
}

// ending is a signal to end that came before the command began; nil if none did. As
// while the lock is waited for, others are nobody's business.
func ending(signals <-chan os.Signal) os.Signal {
	for {
		select {
		case sig := <-signals:
			if process.Ending(sig) {
				return sig
			}
		default:
			return nil
		}
	}
}

// released releases the locks and decides how all ended: a lost lock outdoes
// what the command said.
func (f *runFlags) released(ctx context.Context, h *held, ended error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()

	var completed error
	if !f.tick.IsZero() && ended == nil {
		completed = once.Complete(ctx, h.locks[0], f.tick.Time) // a tick goes with one name
	}

	err := errors.Join(h.release(ctx), completed)
	failed := new(sqllock.ReleaseError)

	switch {
	case err == nil:
	case completed != nil && !errors.Is(err, sqllock.ErrLost):
		return exitError{exitUnavailable, fmt.Errorf("the command has succeeded, and that could not be recorded, so it may run again: %w", completed)}
	case errors.Is(err, sqllock.ErrLost):
		return exitError{exitLost, err}
	case errors.As(err, &failed) && errors.Is(failed.Err, sqllock.ErrNoSchema):
		return exitError{exitLost, fmt.Errorf("lock %s was lost: its tables were removed while it was held", quoted(f.names))}
	default:
		warn(shellError{err}.Error())
	}

	return ended
}

// warn is for what the user should know though it is no error of the command.
func warn(said string) {
	said = "sqllock: " + oneLine(said)
	if width := terminalWidth(os.Stderr); width > 0 {
		said = wrapped(said, width)
	}

	_, _ = fmt.Fprintln(os.Stderr, said)
}

// plainLines is a log without the control characters that slog leaves as they are.
type plainLines struct{ io.Writer }

// Write gets a line.
func (p plainLines) Write(line []byte) (int, error) {
	said := strings.TrimSuffix(string(line), "\n")
	_, err := io.WriteString(p.Writer, plain.Text(said)+"\n")

	return len(line), err
}
