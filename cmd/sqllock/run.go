package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/sqllock"
)

// runFlags are the flags of "sqllock run".
type runFlags struct {
	database

	names     []string
	lease     duration
	wait      duration
	noWait    bool
	minHold   duration
	tick      tick
	permits   int
	shared    bool
	strategy  string
	label     string
	onLoss    string
	loss      onLoss // what onLoss says
	conflict  int
	sharedEnv bool
	verbose   bool

	// free ends a lock of this run, and no other, without its minimum hold; nil if it
	// has none.
	free func(ctx context.Context, slot, owner string) error
}

const runLong = `Run a command while a lock is held, as flock does on one machine.

Without --wait or --no-wait it waits for as long as it takes, and says who has
the lock and how many are ahead in the line. If the database does not answer
within --wait, or five seconds with --no-wait, the exit code is 69. The command
finds in its environment SQLLOCK_NAME, SQLLOCK_OWNER and SQLLOCK_TOKEN, a number
that grows with every grant of the name; of further names in SQLLOCK_NAME_2 and
so on. The order of several names does not matter: while it waits for one, those
that sort before it are held.

With --permits N up to N commands hold the name at a time. SQLLOCK_SLOT, from 0
to N-1, is which of them it is. All should give the same N; where they differ,
the larger one bounds how many run. N counts for every --name. Tokens grow
within a slot: who refuses late writers keeps the largest of each slot.

With --shared the command is a reader: any number of readers hold the name at a
time, and no writer, which is who runs without it. A reader that comes after a
writer waits for that. Readers who hold the name together have one SQLLOCK_TOKEN
and one SQLLOCK_OWNER; SQLLOCK_HOLDER tells them apart. All readers of a name
need the same --strategy. It does not go together with several names, --permits
or --min-hold, nor with --strategy advisory on MySQL and MariaDB.

With --tick the command is a job that belongs to a point in time, and succeeds
once for it, however late a machine starts: if a command with that tick, or a
later one, has ended with 0 under the same name, this one is not run, and the
exit code is 1 (or what -E says). If it failed or died, the next one runs. A
tick is a date, which is the name of a day and the same in all zones; a point in
time with its zone (2026-11-23T02:15Z); or how often the job runs, a whole part
of a day counted from midnight UTC: 15m is the current quarter of an hour. For a
day of local time say the zone: --tick "$(TZ=Europe/Berlin date +%F)", in which
crontab wants \%F. It does not go together with several names, --permits,
--shared and --shared-env.

The command has a process group of its own. HUP, INT, QUIT, TERM, ALRM, USR1,
USR2, WINCH and CONT are passed on to it, if sqllock was not started with them
ignored. When the lock cannot be renewed, the group is asked to end and later
killed, as --on-loss says, before another can have the lock. If the lock was
taken away, or sqllock dies, it is killed at once. What the command leaves
behind in its group is killed before the lock is released, so background work
must be waited for; a process that leaves the group (setsid, or GNU's timeout
without --foreground) is not seen. On Windows only the command itself is killed.

A database goes on with a statement whose client was killed, and the next
command may run beside it. PostgreSQL looks for its client if it is asked to:
PGOPTIONS='-c client_connection_check_interval=1s'. MySQL and MariaDB do not.

A run inside another run of the same name would wait for itself: that is an
error (64). With --shared-env the command is under the lock of the run around
it, and ends with that lock; outside the process group of that run (setsid) that
is an error. A reader cannot become a writer. Runs inside each other can wait
for each other: one of them then ends with an error. Name all locks in one run
instead (--name a --name b): such a run gives back what it keeps to whoever
would wait for it in a circle.

SQLLOCK_STRATEGY and SQLLOCK_LEASE stand in for --strategy and --lease. In cron
use --require-dsn, so that a missing variable is an error.

Times are seconds (5, 0.5) or have units (90s, 1m30s). From flock:

  flock -n /tmp/a cmd            sqllock run --name a -n cmd
  flock -s /tmp/a cmd            sqllock run --name a -s cmd
  flock -w 10 -E 3 /tmp/a cmd    sqllock run --name a -w 10 -E 3 cmd`

const runExample = `  sqllock run --name nightly --no-wait -- ./report.sh
  sqllock run --name deploy --wait 5m --label "$USER" -- make deploy
  sqllock run --name db --name files --on-loss term,kill=10s -- ./backup.sh
  sqllock run --name hourly --no-wait -E 0 --min-hold 10m -- ./job
  sqllock run --name report --no-wait -E 0 --tick "$(date +%F)" -- ./report.sh
  sqllock run --name catalog --shared -- ./report.sh
  sqllock run --name export --permits 4 -- \
    sh -c './export --port $((9000 + SQLLOCK_SLOT))'`

func newRun() *cobra.Command {
	f := &runFlags{lease: duration(sqllock.DefaultLease)}

	cmd := &cobra.Command{
		Use:     "run --name NAME [flags] -- COMMAND [ARG...]",
		Short:   "Run a command while a lock is held",
		Long:    runLong + "\n\n" + exitCodes,
		Example: runExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return errors.New("no command to run")
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(fromVariables(cmd, &f.strategy, &f.lease), f.check()); err != nil {
				return usage(cmd, err)
			}

			path, err := executable(args[0])
			if err != nil {
				return err
			}

			f.label = cmp.Or(f.label, filepath.Base(args[0]))

			return f.run(cmd.Context(), process.Command{Path: path, Args: args[1:]})
		},
	}

	f.register(cmd)

	flags := cmd.Flags()
	flags.Var(&f.lease, "lease", "how long the lock outlives a holder that is cut off")
	flags.Var(&f.minHold, "min-hold", "keep the name taken for so long, also if the command ends sooner")
	flags.Var(&f.tick, "tick", "run the command once for this day or point in time, or once an hour with 1h")
	flags.IntVar(&f.permits, "permits", 1, "how many may hold each name at a time")
	flags.BoolVarP(&f.shared, "shared", "s", false, "hold the name as a reader, beside other readers")
	strategyFlag(cmd, &f.strategy, "how the lock is kept: cas, insert, forupdate or advisory")
	flags.StringVar(&f.label, "label", "", "what others see as the holder (default the command's name)")
	flags.StringVar(&f.onLoss, "on-loss", "",
		"`actions` before the lock cannot be trusted any more (default term,kill=5s, or a third of the lease)")
	flags.BoolVar(&f.sharedEnv, "shared-env", false, "share the lock of a run around this one")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "say on stderr what happens to the lock")
	// What follows the command is the command's, also without "--".
	flags.SetInterspersed(false)

	return cmd
}

// register adds the flags that "sqllock hold" has as well.
func (f *runFlags) register(cmd *cobra.Command) {
	f.database.register(cmd)

	flags := cmd.Flags()
	flags.StringArrayVar(&f.names, "name", nil, "`name` of the lock (required); repeat it to hold several")
	offer(cmd, "name")
	flags.VarP(&f.wait, "wait", "w", "wait for the lock at most so long")
	flags.BoolVarP(&f.noWait, "no-wait", "n", false, "try once, do not wait")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", exitConflict, "exit code if the lock is held by another")
}

// check says what is wrong with the flags.
func (f *runFlags) check() (err error) {
	f.loss, err = parseOnLoss(f.onLoss, time.Duration(f.lease))

	switch {
	case len(f.names) == 0 || slices.Contains(f.names, ""):
		return errors.New("no lock is named: --name NAME")
	case slices.ContainsFunc(f.names, isFlag):
		return errors.New("a --name begins with -: it is a flag, and the name is missing")
	case len(slices.Compact(slices.Sorted(slices.Values(f.names)))) < len(f.names):
		return errors.New("a --name is given twice")
	case len(f.names) > sqllock.MaxNames:
		return fmt.Errorf("--name is given %d times; at most %d are possible", len(f.names), sqllock.MaxNames)
	case f.given("wait") && f.noWait:
		return errors.New("--wait and --no-wait cannot be used together")
	case f.wait < 0:
		return fmt.Errorf("--wait %s is negative", &f.wait)
	case f.permits < 1 || f.permits > sqllock.MaxPermits:
		return fmt.Errorf("--permits %d is not between 1 and %d", f.permits, sqllock.MaxPermits)
	case f.conflict < 0 || f.conflict > 255:
		return fmt.Errorf("--conflict-exit-code %d is not between 0 and 255", f.conflict)
	default:
		return cmp.Or(f.apart(), noDatabase(f.names), err)
	}
}

// apart reports flags that cannot be used together.
func (f *runFlags) apart() error {
	several, permits, ticks := len(f.names) > 1, f.permits > 1, !f.tick.IsZero()

	for _, pair := range []struct {
		given       bool
		flag, other string
	}{
		{f.shared && several, "--shared", "several names"},
		{f.shared && permits, "--shared", "--permits"},
		{f.shared && f.minHold > 0, "--shared", "--min-hold"},
		{ticks && several, "--tick", "several names"},
		{ticks && permits, "--tick", "--permits"},
		{ticks && f.shared, "--tick", "--shared"},
		{ticks && f.sharedEnv, "--tick", "--shared-env"},
	} {
		if pair.given {
			return fmt.Errorf("%s does not go together with %s", pair.flag, pair.other)
		}
	}

	return nil
}

// isFlag says whether a name is surely what should have come after it: pflag
// takes whatever follows --name.
func isFlag(name string) bool { return strings.HasPrefix(name, "-") }

// executable finds the command before the lock is waited for.
func executable(name string) (string, error) {
	path, err := exec.LookPath(name)

	// Both say the name, without telling how far it goes.
	if outer := (*exec.Error)(nil); errors.As(err, &outer) {
		err = outer.Err
	}

	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}

	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", exitError{exitNotFound, fmt.Errorf("command not found: %s", bounded(name))}
	default:
		return "", exitError{exitNotExecutable, fmt.Errorf("command cannot be executed: %s: %w", bounded(name), err)}
	}
}

// bounded is an argument for a message, in quotes if they are needed to tell how far it goes.
func bounded(argument string) string {
	if strings.ContainsAny(argument, " \t\r\n\"") {
		return strconv.Quote(argument)
	}

	return argument
}
