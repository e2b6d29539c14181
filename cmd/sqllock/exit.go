package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/plain"
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

    1   run, wait: the lock is held by another, or the database is busy, and
        that did not end in time; the command did not run. It is flock's code,
        which a command may exit with too: --conflict-exit-code gives another.
        show, free: nobody holds the lock; doctor: something would hurt; demo: a
        check failed
   64   wrong usage: a flag, the lock's name, the database URL; or the strategy
        does not work on that database
   69   the database can not be reached, is read-only, or has no tables of
        sqllock ("sqllock migrate up" makes them)
   70   sqllock could not do its part on this machine, or write what it prints
   75   free: the lock is guarded; migrate down: locks are held; in other
        subcommands: the database is busy
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

// outcome is the exit code of a command's error and what to print.
func outcome(cmd *cobra.Command, err error) (code int, said string) {
	if err == nil {
		return 0, ""
	}

	var e exitError
	if !errors.As(err, &e) {
		// Cobra's own, about the command line.
		return exitUsage, oneLine(err.Error()) + "; see: " + cmd.CommandPath() + " --help"
	}

	return e.code, oneLine(e.Error())
}

// oneLine joins the lines of what is said on stderr, each of them once: a driver
// lists what each address of a server answered, and each way to connect. Labels
// and reasons in it are what others wrote, and must not move the cursor.
func oneLine(said string) string {
	var b strings.Builder

	seen := map[string]bool{}

	for _, line := range strings.FieldsFunc(said, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(line)

		switch {
		case line == "" || seen[line]:
			continue
		case strings.HasSuffix(b.String(), ":") || strings.HasSuffix(b.String(), "?"):
			b.WriteString(" ")
		case b.Len() > 0:
			b.WriteString("; ")
		}

		seen[line] = true

		b.WriteString(line)
	}

	return plain.Text(b.String())
}

// refused makes an exitError out of an error of the core or of the database, and
// adds what to do about it.
func refused(err error, target dsn.Target, notAcquired int) error {
	err = inShellWords(err)

	var (
		caught  signalError
		decided exitError
	)

	switch {
	case err == nil:
		return nil
	case errors.As(err, &decided):
		return decided
	case errors.Is(err, sqllock.ErrLost):
		return exitError{exitLost, err}
	case errors.As(err, &caught):
		return exitError{exitSignal + process.Number(caught.signal), err}
	case errors.Is(err, sqllock.ErrNoSchema):
		return exitError{exitUnavailable, fmt.Errorf("%w; run: %s", err, target.MigrateCommand())}
	case errors.Is(err, sqllock.ErrReadOnly):
		return exitError{exitUnavailable, err}
	case errors.Is(err, sqllock.ErrTooManyConnections):
		// Also when the wait for one ended: whether the lock is held was not learned.
		return exitError{exitUnavailable, fmt.Errorf("%s: %w", target, err)}
	case errors.Is(err, sqllock.ErrNotAcquired):
		return exitError{notAcquired, err}
	case errors.Is(err, sqllock.ErrInvalidName), errors.Is(err, sqllock.ErrInvalidOption),
		errors.Is(err, sqllock.ErrUnsupported), errors.Is(err, databases.ErrWrongServer):
		return exitError{exitUsage, err}
	default:
		return exitError{exitUnavailable, fmt.Errorf("%s: %w", target, err)}
	}
}

// shellError is an error of the library in words of the command line. Its own
// are for Go programs.
type shellError struct{ error }

// inShellWords is err, which may be nil, as a shellError.
func inShellWords(err error) error {
	if err == nil {
		return nil
	}

	return shellError{err}
}

// libraryOption is an option of the library that is a flag here, as errors name
// it.
var libraryOption = regexp.MustCompile(`With(Lease|MinHold|Label)\b(\(\S+\))?`)

// goesOn is what the library promises of a release that failed. This process ends
// before that, or soon.
var goesOn = regexp.MustCompile(` \(tried again in the background;[^)]*\)`)

// fileBusy is what the library says of a lock that it could not look at, because
// SQLite's one writer was somebody else.
var fileBusy = regexp.MustCompile(`(lock "(?:[^"\\]|\\.)*") is held \(database is locked\b.*\)$`)

func (e shellError) Error() string {
	// The line begins with the program's name anyway.
	said := strings.TrimPrefix(e.error.Error(), "sqllock: ")
	// refused says it with the flags that name the database.
	said = strings.Replace(said, `run "sqllock migrate up", or your own goose with the files of package migrations: `, "", 1)
	said = goesOn.ReplaceAllString(said, "")
	said = fileBusy.ReplaceAllString(said, "$1 was not acquired: another process writes to the database file, and did not end in time")
	said = strings.NewReplacer(
		"advisory.New: ", "--strategy advisory: ", "forupdate.New: ", "--strategy forupdate: ", "use strategies/cas", "use --strategy cas",
		"use a longer lease or WithoutRenewal", "use a longer lease").Replace(said)

	return libraryOption.ReplaceAllStringFunc(said, func(option string) string {
		return strings.NewReplacer(
			"WithLease", "--lease", "WithMinHold", "--min-hold", "WithLabel", "--label", "(", " ", ")", "").Replace(option)
	})
}

func (e shellError) Unwrap() error { return e.error }

// signalError says that this process was told to end.
type signalError struct{ signal os.Signal }

func (e signalError) Error() string { return "ended by signal: " + e.signal.String() }
