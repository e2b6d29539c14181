package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
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
func (f *runFlags) run(ctx context.Context, path string, args []string) error {
	target, err := f.target()
	if err != nil {
		return err
	}

	signals, stop := process.Notify()
	defer stop()

	db, err := open(ctx, target, warn)
	if err != nil {
		return err
	}
	defer db.Close()

	locker, err := f.locker(db)
	if err != nil {
		return err
	}
	defer closeLocker(ctx, locker)

	if f.verbose {
		warn(fmt.Sprintf("waiting for lock %q in %s", f.name, target))
	}

	lock, err := f.acquire(ctx, locker, signals)
	if err != nil {
		return refused(err, target, f.conflict)
	}

	err = f.underLock(lock, path, args, signals)

	return f.released(ctx, lock, err)
}

func (f *runFlags) locker(db *dsn.Database) (*sqllock.Locker, error) {
	s, err := strategy(f.strategy, db.Locks)
	if err != nil {
		return nil, err
	}

	// Without -v what matters is said in the command's own words.
	logger := slog.New(slog.DiscardHandler)
	if f.verbose {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}

	locker, err := sqllock.New(s, sqllock.WithLease(f.lease), sqllock.WithLabel(f.label), sqllock.WithLogger(logger))
	if err != nil {
		return nil, refused(err, db.Target, f.conflict)
	}

	return locker, nil
}

// closeLocker waits for an attempt whose answer was lost to be given back.
func closeLocker(ctx context.Context, locker *sqllock.Locker) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()

	_ = locker.Close(ctx)
}

// acquire waits for the lock, unless a signal ends that.
func (f *runFlags) acquire(
	ctx context.Context, locker *sqllock.Locker, signals <-chan os.Signal,
) (*sqllock.Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	got := make(chan struct{})
	listened := make(chan struct{})

	go func() {
		defer close(listened)
		cancelOnSignal(signals, got, cancel)
	}()

	lock, err := f.ask(ctx, locker)

	close(got)
	<-listened

	if caught := (signalError{}); errors.As(context.Cause(ctx), &caught) {
		// It may have come when the lock was there already.
		_ = lock.Release(ctx)

		return nil, caught
	}

	return lock, err
}

func cancelOnSignal(signals <-chan os.Signal, got <-chan struct{}, cancel context.CancelCauseFunc) {
	for {
		select {
		case sig := <-signals:
			if process.Ending(sig) {
				cancel(signalError{sig})

				return
			}
		case <-got:
			return
		}
	}
}

func (f *runFlags) ask(ctx context.Context, locker *sqllock.Locker) (*sqllock.Lock, error) {
	switch {
	case f.noWait:
		return locker.TryAcquire(ctx, f.name)
	case f.waits:
		return locker.Acquire(ctx, f.name, sqllock.WithMaxWait(f.wait))
	default:
		return locker.Acquire(ctx, f.name)
	}
}

// underLock runs the command. Its error is how the command ended.
func (f *runFlags) underLock(lock *sqllock.Lock, path string, args []string, signals <-chan os.Signal) error {
	watchdog, err := process.StartWatchdog(watchdogCommand)
	if err != nil {
		return exitError{exitInternal, fmt.Errorf("start the watchdog: %w", err)}
	}
	defer watchdog.Dismiss()

	group, err := process.Start(process.Command{Path: path, Args: args, Env: environment(lock)})
	if err != nil {
		return exitError{exitNotExecutable, fmt.Errorf("command can not be executed: %w", err)}
	}

	watchdog.Watch(group)

	undisturbed := process.Supervision{
		Lock: lock, Group: group, Watchdog: watchdog, Grace: f.grace, Signals: signals,
		Warn: func(left time.Duration) {
			warn(fmt.Sprintf("lock %q can not be renewed; the command has %s to end", f.name, left.Round(time.Millisecond)))
		},
	}.Run()

	if !group.Gone(time.Second) {
		warn("what the command left in the background does not die; the lock is released all the same")
	}

	if !undisturbed {
		return exitError{exitLost, fmt.Errorf("lock %q (token %d) could not be renewed; the command was ended",
			lock.Name(), lock.Token())}
	}

	if code := group.Status().ExitCode(); code != 0 {
		return exitError{code, nil}
	}

	return nil
}

// environment is this process's, and the lock.
func environment(lock *sqllock.Lock) []string {
	return append(os.Environ(),
		"SQLLOCK_NAME="+lock.Name(),
		"SQLLOCK_TOKEN="+strconv.FormatInt(lock.Token(), 10),
		"SQLLOCK_OWNER="+lock.Owner(),
	)
}

// released releases the lock and decides how all ended: a lost lock outdoes
// what the command said.
func (f *runFlags) released(ctx context.Context, lock *sqllock.Lock, ended error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()

	err := lock.Release(ctx)

	switch {
	case err == nil:
	case errors.Is(err, sqllock.ErrLost):
		return exitError{exitLost, err}
	default:
		warn(fmt.Sprintf("%s; it is free when its lease ends", err))
	}

	return ended
}

// warn is for what the user should know though it is no error of the command.
func warn(text string) { _, _ = fmt.Fprintf(os.Stderr, "sqllock: %s\n", oneLine(text)) }
