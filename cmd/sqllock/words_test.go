package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// TestWordsOfTheCommandLine are in the place of those for Go programs, in whatever
// they are wrapped.
func TestWordsOfTheCommandLine(t *testing.T) {
	t.Parallel()

	refused := errors.New("refused")

	for _, c := range []struct {
		err  error
		want string
	}{
		{refused, "refused"},
		{
			fmt.Errorf("lock %q: %w", "a", &sqllock.SchemaError{Err: refused}),
			`lock "a": sqllock's tables are missing or outdated: refused`,
		},
		{
			errors.Join(
				&sqllock.ReleaseError{Name: "b", FreeAfter: time.Minute, Err: &sqllock.SchemaError{Err: refused}},
				&sqllock.ReleaseError{Name: "a", FreeAfter: time.Second, Err: refused}),
			`release lock "b": sqllock's tables are missing or outdated: refused; it is free after 1m0s, at the latest` + "\n" +
				`release lock "a": refused; it is free after 1s, at the latest`,
		},
		{
			&sqllock.OptionError{Option: "WithLease", Value: "1s", Reason: "is too short; use a longer lease", Instead: "WithoutRenewal", Err: sqllock.ErrInvalidOption},
			"invalid option: --lease 1s is too short; use a longer lease",
		},
		{
			&sqllock.OptionError{Option: "WithMinHold", Reason: "by strategy x on y", Err: sqllock.ErrUnsupported},
			"--min-hold: not supported by strategy x on y",
		},
		{
			&sqllock.OptionError{Option: "WithMaxWait", Value: "0s", Reason: "is zero", Err: sqllock.ErrInvalidOption},
			"invalid option: WithMaxWait(0s) is zero",
		},
		{
			fmt.Errorf("lock %q: %w", "a", &sqllock.UnsupportedError{Strategy: "advisory", Where: "there", Fix: "go elsewhere", Instead: "cas"}),
			`lock "a": strategy advisory: not supported there; go elsewhere, or use --strategy cas`,
		},
		{
			&sqllock.UnsupportedError{Op: "advisory.New", Strategy: "advisory", Where: "there", Fix: "go elsewhere"},
			"--strategy advisory: not supported there; go elsewhere",
		},
		{
			fmt.Errorf("%w: %w", sqllock.ErrUnsupported, &databases.ServerError{Found: "it is another", Untested: true}),
			"not supported: unsuitable server: it is another",
		},
	} {
		if got := (shellError{c.err}).Error(); got != c.want {
			t.Errorf("%v\nis said as %q,\nwant       %q", c.err, got, c.want)
		}
	}
}
