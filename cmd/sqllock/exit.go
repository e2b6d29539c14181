package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// Exit codes, those of sysexits.h where there is one for it, and those of
// shells for what concerns the command.
const (
	exitFailed        = 1
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

    1   a check of the demo failed
   64   wrong usage: a flag, the lock's name, the database URL; or the strategy
        does not work on that database
   69   the database can not be reached, is read-only, or has no tables of
        sqllock ("sqllock migrate up" makes them)
   70   sqllock could not do its part on this machine
   75   the lock is held by another and was not acquired in time; the command
        did not run (--conflict-exit-code)
   76   the lock was lost, or could not be renewed for so long that the command
        was ended; what it did is suspect, whatever it said
  126   the command was found and can not be executed
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

// outcome is the exit code of an error and what to print.
func outcome(err error) (code int, text string) {
	if err == nil {
		return 0, ""
	}

	var e exitError
	if !errors.As(err, &e) {
		e = exitError{exitUsage, err} // cobra's own, about the command line
	}

	return e.code, oneLine(e.Error())
}

// oneLine joins the lines of joined errors.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// refused makes an exitError out of an error of the core or of the database, and
// adds what to do about it.
func refused(err error, target dsn.Target, notAcquired int) error {
	err = brief(err)

	var caught signalError

	switch {
	case err == nil:
		return nil
	case errors.As(err, &caught):
		return exitError{exitSignal + process.Number(caught.signal), err}
	case errors.Is(err, sqllock.ErrNoSchema):
		return exitError{exitUnavailable, fmt.Errorf("%w; run: %s", err, target.MigrateCommand())}
	case errors.Is(err, sqllock.ErrReadOnly):
		return exitError{exitUnavailable, err}
	case errors.Is(err, sqllock.ErrNotAcquired):
		return exitError{notAcquired, err}
	case errors.Is(err, sqllock.ErrInvalidName), errors.Is(err, sqllock.ErrInvalidOption),
		errors.Is(err, sqllock.ErrUnsupported), errors.Is(err, databases.ErrWrongServer):
		return exitError{exitUsage, err}
	default:
		return exitError{exitUnavailable, fmt.Errorf("%s: %w", target, err)}
	}
}

// brief takes the package's name off, which the command's line begins with
// anyway.
func brief(err error) error {
	if err == nil || !strings.HasPrefix(err.Error(), "sqllock: ") {
		return err
	}

	return briefError{err}
}

type briefError struct{ error }

func (e briefError) Error() string { return strings.TrimPrefix(e.error.Error(), "sqllock: ") }

func (e briefError) Unwrap() error { return e.error }

// signalError says that this process was told to end.
type signalError struct{ signal os.Signal }

func (e signalError) Error() string { return "ended by signal: " + e.signal.String() }
