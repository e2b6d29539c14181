package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/internal/around"
	"github.com/sqllock/sqllock/sqllock"
)

// claimVariable has a claim where no file is named: the arguments of a command are seen by all.
const claimVariable = "SQLLOCK_CLAIM"

// holdFlags are the flags of "sqllock hold".
type holdFlags struct {
	runFlags

	keep duration // how long the lock is held without a process
	file string
}

func newHold() *cobra.Command {
	f := &holdFlags{runFlags: runFlags{lease: duration(sqllock.DefaultLease), strategy: "cas"}}

	cmd := &cobra.Command{
		Use:   "hold --name NAME --lease TIME",
		Short: "Take a lock that outlives this process, and print its claim",
		Long: `Take a lock that outlives this process, and print its claim: a text with which
any process on any machine can renew, check and release it, or a program adopt
it (Locker.Adopt). A claim is a secret: renew, check and release take it from
--claim-file or $` + claimVariable + `, so that "ps" does not show it. The lock ends
after --lease unless it is renewed. "sqllock free" takes it away without claim.

Without --wait or --no-wait it waits for as long as it takes. With several names
all are taken, and none alone; with --permits it is one of the N slots. It is
kept as by --strategy cas. Times are seconds (5, 0.5) or have units (1m30s).

Nobody stops the work when the lease ends: renew before each step, and stop if
that fails. Let what is written refuse a smaller token, which check prints.

A claim is good if hold has exited with 0. If it is killed, the name may be
taken for half a minute, and the file must be removed.`,
		Example: `  sqllock hold --name staging --lease 30m --claim-file staging.claim
  sqllock renew --lease 30m --claim-file staging.claim && ./deploy.sh
  sqllock release --claim-file staging.claim`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return usage(cmd, err)
			}

			if f.keep <= 0 {
				return usage(cmd, errors.New("say for how long: --lease TIME"))
			}

			if f.file == "-" {
				f.file = ""
			}

			return f.hold(cmd)
		},
	}

	f.register(cmd)

	flags := cmd.Flags()
	flags.Var(&f.keep, "lease", "how long the lock is held unless it is renewed (required)")
	flags.IntVar(&f.permits, "permits", 1, "how many may hold the name at a time")
	flags.StringVar(&f.label, "label", "sqllock hold", "what others see as the holder")
	flags.StringVar(&f.file, "claim-file", "", "new `file` for the claim, which only this user can read (default stdout)")

	return cmd
}

// hold takes the lock, leaves it without a process, and writes its claim. Without a claim that somebody can read it is released.
func (f *holdFlags) hold(cmd *cobra.Command) error {
	target, err := f.target()
	if err != nil {
		return err
	}

	out := cmd.OutOrStdout()

	if f.file != "" {
		file, err := os.OpenFile(f.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_SYNC, 0o600)
		if err != nil {
			return exitError{exitInternal, fmt.Errorf("the claim's file cannot be made: %w", claimInPlace(f.file, err))}
		}
		defer file.Close()

		out = file
	}

	// They are caught until this process ends: one that ended it with a good claim would say that there is none.
	signals, _ := process.Notify()

	written, err := interruptible(cmd.Context(), signals, func(ctx context.Context) (written bool, err error) {
		err = f.detach(ctx, target, out)

		return err == nil, err
	})
	if written {
		return nil // whatever signal came meanwhile
	}

	if f.file != "" {
		_ = os.Remove(f.file)
	}

	return refused(err, target, f.conflict)
}

// detach returns nil if the claim is written, and of a lock that is held for as long as was asked for.
func (f *holdFlags) detach(ctx context.Context, target dsn.Target, out io.Writer) error {
	db, err := open(ctx, target, warn)
	if err != nil {
		return err
	}
	defer db.Close()

	// What cannot be is said before anything is waited for.
	if _, err := lockerOf(f.strategy, db, sqllock.WithLease(time.Duration(f.keep)), sqllock.WithoutRenewal()); err != nil {
		return err
	}

	locker, err := f.locker(db)
	if err != nil {
		return err
	}
	defer closeLocker(ctx, locker)

	if _, err := f.around(ctx, locker); err != nil {
		return err
	}

	lock, err := f.ask(around.With(ctx, ownersIn()...), locker, f.names, time.Duration(f.wait))
	if err != nil {
		return err
	}

	// Whoever kills this process before the claim is written leaves a lock that ends soon.
	claim, err := lock.Detach(ctx, min(time.Duration(f.keep), sqllock.DefaultLease))
	if err != nil {
		_ = lock.Release(ctx) // if it is held still; else it returns the same error

		return err
	}

	if _, err = fmt.Fprintln(out, claim.Secret()); err != nil {
		err = exitError{exitInternal, fmt.Errorf("the claim cannot be written, and the lock is released: %w", err)}
	} else {
		err = cmp.Or(ctx.Err(), locker.ExtendClaim(ctx, claim, time.Duration(f.keep)))
	}

	if err != nil {
		_ = locker.ReleaseClaim(context.WithoutCancel(ctx), claim)
	}

	return err
}

// claimFlags are the flags of those who have a claim.
type claimFlags struct {
	database

	file string
}

func newRenew() *cobra.Command {
	var lease duration

	cmd := withClaim("renew", "Let a lock that hold took run for longer",
		`Let a lock that "sqllock hold" took, or a program has detached, run for --lease
from now on, or for longer if it does so anyway. Times are seconds, or have
units (90s, 1m30s). Exits with 76 if the lock is lost: its lease has ended, it
was taken away or released, or a program has adopted it.`, "sqllock renew --lease 30m --claim-file staging.claim && ./deploy.sh",
		func(ctx context.Context, l looker, claim sqllock.Claim) (string, error) {
			return "renewed for " + text.Duration(time.Duration(lease)) + " at least", l.ExtendClaim(ctx, claim, time.Duration(lease))
		})
	cmd.Flags().Var(&lease, "lease", "how long the lock is held from now on (required)")
	_ = cmd.MarkFlagRequired("lease") // never fails: there is the flag

	return cmd
}

func newCheck() *cobra.Command {
	return withClaim("check", "Look whether a lock that hold took is still held",
		`Look whether a lock that "sqllock hold" took, or a program has detached, is
still held, and print its token, and its slot if that is not 0. By the time the
command ends that may have changed: before work, renew it. Exits with 76 if the
lock is lost: its lease has ended, it was taken away or released, or a program
has adopted it.`, "sqllock check --claim-file staging.claim",
		func(ctx context.Context, l looker, claim sqllock.Claim) (string, error) {
			return "held", l.CheckClaim(ctx, claim)
		})
}

func newRelease() *cobra.Command {
	return withClaim("release", "Release a lock that hold took",
		`Release a lock that "sqllock hold" took, or a program has detached. Of several
names each is released that nobody else has. It may be repeated. Exits with 76
if the lock was lost before: its lease has ended, it was taken away, or somebody
else has it.`, "sqllock release --claim-file staging.claim",
		func(ctx context.Context, l looker, claim sqllock.Claim) (string, error) {
			return "released", l.ReleaseClaim(ctx, claim)
		})
}

// withClaim is a command that does something with a claim, and says that it has and to which lock.
func withClaim(verb, short, long, example string, do func(context.Context, looker, sqllock.Claim) (said string, err error)) *cobra.Command {
	f := &claimFlags{}

	cmd := &cobra.Command{
		Use: verb, Short: short, Long: long, Example: "  " + example, ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 { // it may be the claim, and is not shown
				return errors.New("the claim is no argument: name its --claim-file, or have it in $" + claimVariable)
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			claim, err := f.claim(cmd.InOrStdin())
			if err != nil {
				return usage(cmd, err)
			}

			return f.look(cmd.Context(), func(l looker) error {
				said, err := do(cmd.Context(), l, claim)
				if err != nil {
					return err
				}

				said += fmt.Sprintf(": %s, token %d", quoted(claim.Names()), claim.Token())
				if claim.Slot() > 0 {
					said += fmt.Sprintf(", slot %d", claim.Slot())
				}

				_, err = fmt.Fprintln(cmd.OutOrStdout(), said)

				return err
			})
		},
	}

	f.register(cmd)
	cmd.Flags().StringVar(&f.file, "claim-file", "", "`file` with the claim, - for stdin (default $"+claimVariable+")")

	return cmd
}

// claim reads the claim. No error shows what was read.
func (f *claimFlags) claim(in io.Reader) (claim sqllock.Claim, err error) {
	switch f.file {
	case "":
		secret := os.Getenv(claimVariable)
		if secret == "" {
			return claim, errors.New("no claim: name its --claim-file, or have it in $" + claimVariable)
		}

		in = strings.NewReader(secret)
	case "-":
	default:
		file, err := os.Open(f.file)
		if err != nil {
			return claim, claimInPlace(f.file, err)
		}
		defer file.Close()

		in = file
	}

	secret, err := io.ReadAll(io.LimitReader(in, mostClaim))
	if err != nil {
		return claim, err
	}

	return sqllock.ParseClaim(string(secret))
}

// mostClaim is more than any claim takes.
const mostClaim = 1 << 20

// claimInPlace is err, which shows a file's name, unless that is a claim.
func claimInPlace(file string, err error) error {
	if _, invalid := sqllock.ParseClaim(file); invalid == nil {
		return errors.New("--claim-file takes a file, and was given a claim")
	}

	return err
}
