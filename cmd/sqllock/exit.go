package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// Exit codes, those of sysexits.h where there is one for it, and those of
// shells for what concerns the command.
const (
	exitFailed        = 1
	exitNotHeld       = 1
	exitConflict      = 1 // flock's
	exitUsage         = 64
	exitUnavailable   = 69
	exitInternal      = 70
	exitNotAcquired   = 75
	exitLost          = 76
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128
)

const exitCodes = `sqllock run exits as the command did. Else, and in other subcommands:

    1   run, hold, wait: the lock was still held when the wait ended, or the job
        of --tick was done; the command did not run. It is flock's code, which a
        command may exit with too: --conflict-exit-code gives another.
        show, free, resign: nobody holds the lock; doctor: it found an error, or
        what --fail-on says
   64   wrong usage: a flag, the lock's name, the database URL; the strategy
        does not work on that database; free: --token or --slot is missing;
        renew, check, release: there is no claim, or it was cut or changed
   69   the database cannot be reached, is busy with others, is read-only,
        grants nothing yet after a fail-over ("sqllock recovery" says how long),
        has no tables of sqllock ("sqllock migrate up" makes them), or its user
        lacks a privilege ("sqllock doctor" prints the GRANTs); run --tick: also
        if the database is away when the command has succeeded, which may run
        again then
   70   sqllock could not do its part on this machine, or write what it prints
   75   free: the lock is guarded, or somebody else has it by now; migrate down:
        locks are held, or ticks are recorded; free, resign, reap, migrate: a
        transaction or migration of somebody else is in the way
   76   the lock was lost, or could not be renewed for so long that the command
        was ended; what it did is suspect, whatever it said; renew, check,
        release: the claim is of a lock that was lost, or adopted
  126   the command was found and cannot be executed
  127   the command was not found
  128+n the command was killed by signal n, or sqllock got signal n while it
        waited for the lock`

func newExitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodes}
}

// exitError is an error with its exit code. Without an error there is nothing left
// to say.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}

	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// usage is an error in the command line.
func usage(cmd *cobra.Command, err error) error {
	return exitError{exitUsage, fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())}
}

// outcome is the exit code of a command's error and what to print.
func outcome(cmd *cobra.Command, err error) (code int, said string) {
	if err == nil {
		return 0, ""
	}

	var e exitError
	if !errors.As(err, &e) {
		// About the command line: of Args, or cobra's own, which quotes what it did not expect.
		return exitUsage, oneLine(err.Error()) + "; see: " + cmd.CommandPath() + " --help"
	}

	// Drivers wrap it, too.
	said = strings.ReplaceAll(e.Error(), context.DeadlineExceeded.Error(), "no answer in time")

	return e.code, oneLine(said)
}

// oneLine is what may be said on stderr. Labels and reasons in it are what others wrote,
// and must not move the cursor.
func oneLine(said string) string { return plain.Text(plain.Joined(said)) }

// refused makes an exitError out of an error of the core or of the database, and
// adds what to do about it.
func refused(err error, target dsn.Target, notAcquired int) error {
	if err == nil {
		return nil
	}

	err = shellError{err}

	var (
		caught  signalError
		decided exitError
	)

	switch {
	case errors.As(err, &decided):
		return decided
	case errors.Is(err, sqllock.ErrLost):
		return exitError{exitLost, err}
	case errors.As(err, &caught):
		return exitError{exitSignal + process.Number(caught.signal), err}
	case errors.Is(err, sqllock.ErrNoSchema):
		return exitError{exitUnavailable, fmt.Errorf("%w; run: %s", err, target.MigrateCommand())}
	case errors.Is(err, sqllock.ErrReadOnly), errors.Is(err, sqllock.ErrNotAllowed), errors.Is(err, sqllock.ErrRecovering):
		return exitError{exitUnavailable, err}
	case errors.Is(err, sqllock.ErrTooManyConnections), errors.Is(err, sqllock.ErrUnreachable):
		// Also when a wait ended: whether the lock is held was not learned, so no
		// --conflict-exit-code may say that another has it.
		return exitError{exitUnavailable, fmt.Errorf("%s: %w", target, err)}
	case errors.Is(err, sqllock.ErrNotAcquired), errors.Is(err, once.ErrDone):
		return exitError{notAcquired, err}
	case errors.Is(err, sqllock.ErrInvalidName), errors.Is(err, sqllock.ErrInvalidOption), errors.Is(err, sqllock.ErrInvalidClaim),
		errors.Is(err, sqllock.ErrUnsupported), errors.Is(err, databases.ErrWrongServer):
		return exitError{exitUsage, err}
	default:
		return exitError{exitUnavailable, fmt.Errorf("%s: %w", target, err)}
	}
}

// signalError says that this process was told to end.
type signalError struct{ signal os.Signal }

func (e signalError) Error() string { return "ended by signal: " + e.signal.String() }
