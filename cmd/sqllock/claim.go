package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
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
it (Locker.Adopt). A claim is a secret. The others take it from --claim-file or
$` + claimVariable + `, so that it is in no list of processes. The lock ends after
--lease unless it is renewed. "sqllock free" takes it away without a claim.

Without --wait or --no-wait it waits for as long as it takes. With several names
all are taken, and none alone; with --permits it is one of the N slots.

Nobody stops the work when the lease ends: ask for enough, check before what
must not happen twice, and let what is written refuse an older token, which is
in what "sqllock show" prints.`,
		Example: `  sqllock hold --name staging --lease 2h --claim-file staging.claim
  sqllock renew --lease 2h --claim-file staging.claim
  sqllock check --claim-file staging.claim && ./deploy.sh
  sqllock release --claim-file staging.claim`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.waits = cmd.Flags().Changed("wait")

			err := f.check()
			if err == nil && f.keep <= 0 {
				err = errors.New("say for how long: --lease TIME")
			}

			if err != nil {
				return usage(cmd, err)
			}

			if err := noDatabase(cmd, f.names...); err != nil {
				return err
			}

			f.label = cmp.Or(f.label, "sqllock hold")

			return f.hold(cmd)
		},
	}

	f.register(cmd)

	flags := cmd.Flags()
	flags.StringArrayVar(&f.names, "name", nil, "`name` of the lock (required); repeat it to hold several")
	offer(cmd, "name")
	flags.Var(&f.keep, "lease", "how long the lock is held unless it is renewed (required)")
	flags.VarP(&f.wait, "wait", "w", "wait for the lock at most so long")
	flags.BoolVarP(&f.noWait, "no-wait", "n", false, "try once, do not wait")
	flags.IntVar(&f.permits, "permits", 1, "how many may hold the name at a time")
	flags.StringVar(&f.label, "label", "", "what others see as the holder")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", exitConflict, "exit code if the lock is held by another")
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
		file, err := os.OpenFile(f.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return exitError{exitInternal, fmt.Errorf("the claim's file cannot be made: %w", err)}
		}
		defer file.Close()

		out = file
	}

	signals, stop := process.Catch(endings()...)
	defer stop()

	_, err = interruptible(cmd.Context(), signals, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.write(ctx, target, out)
	})
	if err != nil && f.file != "" {
		_ = os.Remove(f.file)
	}

	return refused(err, target, f.conflict)
}

func (f *holdFlags) write(ctx context.Context, target dsn.Target, out io.Writer) error {
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

	if _, err := f.around(ctx, locker); err != nil {
		return err
	}

	lock, err := f.ask(around.With(ctx, ownersIn()...), locker, f.names, time.Duration(f.wait))
	if err != nil {
		return err
	}

	claim, err := lock.Detach(ctx, time.Duration(f.keep))
	if err != nil {
		return errors.Join(err, lock.Release(ctx))
	}

	_, err = fmt.Fprintln(out, claim.Secret())
	if err == nil {
		err = ctx.Err()
	}

	if err != nil {
		err = exitError{exitInternal, fmt.Errorf("the claim cannot be written, and the lock is released: %w", err)}

		return errors.Join(err, locker.ReleaseClaim(context.WithoutCancel(ctx), claim))
	}

	return nil
}

// claimFlags are the flags of those who have a claim.
type claimFlags struct {
	database

	file string
}

func newRenew() *cobra.Command {
	var lease duration

	cmd := withClaim("renew", "Let a lock that was taken by hold run for longer",
		`Let a lock that "sqllock hold" took run for --lease from now on, or for longer
if it does so anyway.`, "sqllock renew --lease 2h --claim-file staging.claim",
		func(ctx context.Context, l looker, claim sqllock.Claim) (string, error) {
			return "renewed %s: it runs for " + text.Duration(time.Duration(lease)), l.ExtendClaim(ctx, claim, time.Duration(lease))
		})
	cmd.Flags().Var(&lease, "lease", "how long the lock is held from now on (required)")
	_ = cmd.MarkFlagRequired("lease") // never fails: there is the flag

	return cmd
}

func newCheck() *cobra.Command {
	return withClaim("check", "Look whether a lock that was taken by hold is still held",
		`Look whether a lock that "sqllock hold" took is still held. By the time the
command ends that may have changed.`, "sqllock check --claim-file staging.claim && ./deploy.sh",
		func(ctx context.Context, l looker, claim sqllock.Claim) (string, error) {
			return "%s is held, with token " + strconv.FormatInt(claim.Token(), 10), l.CheckClaim(ctx, claim)
		})
}

func newRelease() *cobra.Command {
	return withClaim("release", "Release a lock that was taken by hold",
		`Release a lock that "sqllock hold" took. Of several names each is released that
nobody else has. It may be repeated.`, "sqllock release --claim-file staging.claim",
		func(ctx context.Context, l looker, claim sqllock.Claim) (string, error) {
			return "released %s", l.ReleaseClaim(ctx, claim)
		})
}

// withClaim is a command that does something with a claim, and says so with the lock's name.
func withClaim(verb, short, long, example string, do func(context.Context, looker, sqllock.Claim) (said string, err error)) *cobra.Command {
	f := &claimFlags{}

	cmd := &cobra.Command{
		Use: verb, Short: short, Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Long: long + `

The claim is in --claim-file or in $` + claimVariable + `. Exits with 76 if the lock
is lost: its lease has ended, it was taken away or released, or a program has
adopted it.`, Example: "  " + example,
		RunE: func(cmd *cobra.Command, _ []string) error {
			claim, err := f.claim(cmd.InOrStdin())
			if err != nil {
				return usage(cmd, err)
			}

			return f.look(cmd.Context(), func(l looker) error {
				said, err := do(cmd.Context(), l, claim)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), said+"\n", strconv.Quote(claim.Name()))
				}

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
	secret := []byte(os.Getenv(claimVariable))

	switch f.file {
	case "":
	case "-":
		secret, err = io.ReadAll(in)
	default:
		secret, err = os.ReadFile(f.file)
	}

	switch {
	case err != nil:
		return claim, err
	case f.file == "" && len(secret) == 0:
		return claim, errors.New("no claim: name its --claim-file, or have it in $" + claimVariable)
	default:
		return sqllock.ParseClaim(string(secret))
	}
}
