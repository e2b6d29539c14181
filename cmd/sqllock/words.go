package main

import (
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// shellError is an error of the library in words of the command line. Its own
// are for Go programs.
type shellError struct{ error }

// Error puts the words in the place of what the errors inside say.
func (e shellError) Error() string { return e.replaced(e.error.Error(), e.error) }

func (e shellError) Unwrap() error { return e.error }

// replaced is what was said with err, which may be nil, and those inside it in other words.
func (e shellError) replaced(said string, err error) string {
	if words := e.words(err); words != "" {
		said = strings.Replace(said, err.Error(), words, 1)
	}

	switch err := err.(type) { //nolint:errorlint // it walks through what errors.As would
	case *sqllock.ReleaseError:
		said = e.replaced(said, err.Err)
	case *once.CompleteError:
		said = e.replaced(said, err.Err)
	case *sqllock.LostError:
		said = e.replaced(said, err.Err)
	case interface{ Unwrap() error }:
		said = e.replaced(said, err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			said = e.replaced(said, inner)
		}
	}

	return said
}

// words are those of an error that has others for Go programs; else empty.
func (e shellError) words(err error) string {
	switch err := err.(type) { //nolint:errorlint // those inside it come by themselves
	case *sqllock.OptionError:
		return flagged(*err)
	case *sqllock.ReleaseError:
		// This process ends before it has tried again, or soon.
		return fmt.Sprintf("release lock %q: %s; it is free after %s, at the latest", err.Name, err.Err, err.FreeAfter)
	case *sqllock.SchemaError:
		// refused says it with the flags that name the database.
		return fmt.Sprintf("%s: %s", sqllock.ErrNoSchema, err.Err)
	case *sqllock.UnsupportedError:
		unsupported := *err
		if unsupported.Op != "" {
			unsupported.Op = "--strategy " + err.Strategy
		}

		return strings.Replace(unsupported.Error(), "use strategies/", "use --strategy ", 1)
	case *databases.ServerError:
		server := *err
		server.Untested = false

		return server.Error()
	default:
		return ""
	}
}

// flagged is an error in an option, with the flag in the place of the library's
// function, if there is one.
func flagged(option sqllock.OptionError) string {
	flag, known := map[string]string{
		"WithLease": "--lease", "WithMinHold": "--min-hold", "tick": "--tick", "WithLabel": "--label", "WithShared": "--shared",
	}[option.Option]
	if !known {
		return ""
	}

	option.Option, option.Value, option.Instead = strings.TrimSpace(flag+" "+option.Value), "", ""
	option.Reason = strings.Replace(option.Reason, "use strategy ", "use --strategy ", 1)

	return option.Error()
}
