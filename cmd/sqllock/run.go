package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/sqllock"
)

// runFlags are the flags of "sqllock run".
type runFlags struct {
	database

	name     string
	lease    time.Duration
	wait     time.Duration
	waits    bool // --wait was given
	noWait   bool
	strategy string
	label    string
	grace    time.Duration
	conflict int
	verbose  bool
}

const runLong = `Run a command while a lock is held.

Without --wait or --no-wait it waits for the lock for as long as it takes. The
command finds the lock in its environment: SQLLOCK_NAME, SQLLOCK_OWNER and
SQLLOCK_TOKEN, a number that grows with every grant of the name.

The command has a process group of its own. Signals are passed on to it. When
the lock can not be renewed, the group gets SIGTERM as soon as less than --grace
is left, and SIGKILL before another can have the lock; at once if the lock was
taken away. It is killed too if sqllock dies. What the command leaves behind in
its group is killed before the lock is released, so background work must be
waited for; a process that leaves the group (setsid) is not seen. The keyboard's
Ctrl-Z does not suspend the command. On Windows only the command itself is
killed.`

func newRun() *cobra.Command {
	f := &runFlags{}

	cmd := &cobra.Command{
		Use:   "run --name NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command while a lock is held",
		Long:  runLong + "\n\n" + exitCodes,
		Example: `  sqllock run --name nightly --no-wait -- ./report.sh
  sqllock run --name deploy --wait 5m --label "$USER" -- make deploy`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, errors.New("no command to run"))
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.waits = cmd.Flags().Changed("wait")

			if !cmd.Flags().Changed("grace") {
				f.grace = min(5*time.Second, f.lease/3)
			}

			if err := f.check(); err != nil {
				return usage(cmd, err)
			}

			path, err := executable(args[0])
			if err != nil {
				return err
			}

			if f.label == "" {
				f.label = filepath.Base(args[0])
			}

			return f.run(cmd.Context(), path, args[1:])
		},
	}

	f.register(cmd)

	flags := cmd.Flags()
	flags.StringVarP(&f.name, "name", "n", "", "name of the lock (required)")
	flags.DurationVar(&f.lease, "lease", sqllock.DefaultLease, "how long the lock outlives a holder that is cut off")
	flags.DurationVar(&f.wait, "wait", 0, "wait for the lock at most so long")
	flags.BoolVar(&f.noWait, "no-wait", false, "try once")
	flags.StringVar(&f.strategy, "strategy", "cas", strategyUsage)
	flags.StringVar(&f.label, "label", "", "what others see as the holder (default the command's name)")
	flags.DurationVar(&f.grace, "grace", 0, "time between SIGTERM and SIGKILL (default 5s or a third of the lease)")
	flags.IntVar(&f.conflict, "conflict-exit-code", exitNotAcquired, "exit code if the lock is held by another")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "say on stderr what happens to the lock")
	// What follows the command is the command's, also without "--".
	flags.SetInterspersed(false)

	return cmd
}

// check says what is wrong with the flags.
func (f *runFlags) check() error {
	switch {
	case f.name == "":
		return errors.New("no lock is named: --name NAME")
	case f.waits && f.noWait:
		return errors.New("--wait and --no-wait exclude each other")
	case f.wait < 0:
		return fmt.Errorf("--wait %s is negative", f.wait)
	case f.grace < 0 || f.grace > f.lease/2:
		// Between renewals the trust falls to about two thirds of the lease.
		return fmt.Errorf("--grace %s is not between 0 and half the lease (%s)", f.grace, f.lease/2)
	case f.conflict < 0 || f.conflict > 255:
		return fmt.Errorf("--conflict-exit-code %d is not between 0 and 255", f.conflict)
	default:
		return nil
	}
}

// executable finds the command before the lock is waited for.
func executable(name string) (string, error) {
	path, err := exec.LookPath(name)

	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", exitError{exitNotFound, fmt.Errorf("command not found: %s", name)}
	default:
		return "", exitError{exitNotExecutable, fmt.Errorf("command can not be executed: %w", err)}
	}
}
