package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// doctorFlags are the flags of "sqllock doctor".
type doctorFlags struct {
	database

	strategy string
	lease    duration
	holders  int
	failOn   string
	json     bool
	// tries: a lock is tried.
	tries bool
}

// defaultHolders is how many processes are taken to hold locks at a time.
const defaultHolders = 10

func newDoctor() *cobra.Command {
	f := &doctorFlags{lease: duration(sqllock.DefaultLease), tries: true}

	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what about the database would harm locks, and how to fix it",
		Long: `Look at the server, the tables and the database URL, and say in plain words what
would harm locks, and how to fix it. Nothing is changed, but for one lock of a
name of its own, which is acquired, renewed and released, and leaves no row.

  error     locks do not work, or do not exclude
  warning   has an effect when something else goes wrong: a crash, load
  note      harmless; good to know

Exits with 1 if there is an error, or what --fail-on says, with 69 if the
database cannot be reached, and with 75 if what others have locked kept it from
looking.

Whether locks keep their promises on a server the conformance suite tries, in
some minutes, in a schema or database of its own: the program sqllock-prove of
each release, with -dsn-file FILE.`,
		Example: `  sqllock doctor
  sqllock doctor --strategy advisory --holders 200
  sqllock doctor --fail-on warning --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromVariables(cmd, &f.strategy, &f.lease); err != nil {
				return usage(cmd, err)
			}

			level := doctor.Level(f.failOn)

			switch {
			case level != doctor.Note && level != doctor.Warning && level != doctor.Error:
				return usage(cmd, fmt.Errorf("--fail-on %s is not error, warning or note", bounded(f.failOn)))
			case f.lease <= 0:
				return usage(cmd, fmt.Errorf("--lease %s is not positive", &f.lease))
			case f.holders < 0:
				return usage(cmd, fmt.Errorf("--holders %d is negative", f.holders))
			}

			if _, err := strategy(f.strategy, nil); err != nil {
				return err
			}

			return f.examine(cmd.Context(), cmd.OutOrStdout(), level)
		},
	}

	f.register(cmd)

	flags := cmd.Flags()
	strategyFlag(cmd, &f.strategy, "the strategy that will be used: cas, insert, forupdate or advisory")
	flags.Var(&f.lease, "lease", "the lease that will be used")
	flags.IntVar(&f.holders, "holders", defaultHolders, "how many processes will hold locks at a time")
	flags.StringVar(&f.failOn, "fail-on", string(doctor.Error), "exit with 1 from this `level` on: error, warning or note")
	flags.BoolVar(&f.json, "json", false, "print a JSON array")
	offer(cmd, "fail-on", string(doctor.Error), string(doctor.Warning), string(doctor.Note))

	return cmd
}

func (f *doctorFlags) examine(ctx context.Context, out io.Writer, failOn doctor.Level) error {
	target, err := f.target()
	if err != nil {
		return err
	}

	findings, err := f.findings(ctx, target)
	if err != nil {
		return err
	}

	if err := f.print(out, findings); err != nil {
		return err
	}

	switch {
	case slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Level.AtLeast(failOn) }):
		return exitError{exitFailed, nil}
	case slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Hindered }):
		return exitError{exitNotAcquired, errors.New("not all could be looked at: a transaction of somebody else has sqllock's tables locked")}
	default:
		return nil
	}
}

// findings opens the database without making or changing anything.
func (f *doctorFlags) findings(ctx context.Context, target dsn.Target) ([]doctor.Finding, error) {
	plan := doctor.Plan{Strategy: f.strategy, Lease: time.Duration(f.lease), Holders: f.holders}

	db, err := target.WithLockWait().OpenToLook(ctx)

	switch {
	case target.Embedded && errors.Is(err, fs.ErrNotExist):
		return doctor.Unmade(target, plan), nil
	case err != nil:
		return nil, exitError{exitUnavailable, err}
	}
	defer db.Close()

	// As run would; whether the strategy suits the database the findings say.
	if _, err := lockerOf(f.strategy, db); err == nil {
		if _, err := lockerOf(f.strategy, db, sqllock.WithLease(plan.Lease)); err != nil {
			return nil, refused(err, target, exitNotAcquired)
		}
	}

	if f.tries {
		plan.Locker = func(lease time.Duration) (*sqllock.Locker, error) {
			return lockerOf(f.strategy, db, sqllock.WithLease(lease), sqllock.WithLabel("sqllock doctor"))
		}
	}

	findings, err := doctor.Examine(ctx, db, plan)

	return findings, refused(err, target, exitNotAcquired)
}

// Columns before what was found, and how many a text has at least.
const (
	findingColumns = 22
	leastColumns   = 24
)

func (f *doctorFlags) print(out io.Writer, findings []doctor.Finding) error {
	if f.json {
		return printJSON(out, findings)
	}

	// Else it ends up in mails and tickets.
	width := cmp.Or(terminalWidth(out), helpWidth)

	var b strings.Builder

	for _, finding := range findings {
		paragraph(&b, fmt.Sprintf("%-8s %-12s ", finding.Level, finding.Check), finding.Found, width)

		for _, more := range [][2]string{{"effect: ", finding.Effect}, {"fix:    ", finding.Fix}} {
			if more[1] != "" {
				paragraph(&b, strings.Repeat(" ", findingColumns)+more[0], more[1], width)
			}
		}

		// To be copied as they are.
		for _, statement := range finding.Statements {
			b.WriteString(plain.Text(statement) + "\n")
		}
	}

	_, err := io.WriteString(out, b.String())

	return err
}

// paragraph writes a text behind what it begins with, in lines of that width.
func paragraph(b *strings.Builder, begin, said string, width int) {
	indent := text.Width(begin)

	for _, line := range text.Wrap(plain.Text(said), max(width-indent, leastColumns)) {
		b.WriteString(begin + line + "\n")
		begin = strings.Repeat(" ", indent)
	}
}
