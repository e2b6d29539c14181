package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sqllock",
		Short: "Locks between processes that share only a SQL database",
		Long: `Locks between processes that share only a SQL database.

The database is the first of these that is given:

  --dsn URL             postgres://user@host/db
                        mysql://user@host/db   (mariadb:// is the same)
                        tidb://user@host/db
                        sqlite:path            (for one machine)
  --dsn-file FILE       a file with such a URL: postgres://user:password@host/db
  DATABASE_URL          such a URL
  PGHOST, PGSERVICE or PGDATABASE, with libpq's other variables and a .pgpass

With none of these it is an SQLite file in your state folder, for this machine
and user only; --require-dsn, or SQLLOCK_REQUIRE_DSN=1, makes that an error. A
--dsn with a password is refused, because a command line is seen by all.

SQLLOCK_STRATEGY and SQLLOCK_LEASE stand in for --strategy and --lease of run
and doctor, SQLLOCK_CLAIM for --claim-file of renew, check and release.`,
		Example: `  sqllock migrate up
  sqllock run --name nightly --no-wait -- ./report.sh
  sqllock ls
  sqllock doctor`,
		// Without Args cobra refuses unknown commands, and says which is meant.
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}

	// Flags too for the terminal that the texts are written for.
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	root.Version = version(debug.ReadBuildInfo())
	root.SetVersionTemplate("{{.Version}}\n")
	// Cobra's own takes -v too, which is --verbose in run.
	root.Flags().Bool("version", false, "print the version")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, flagError(err)) })
	root.AddCommand(
		newRun(), newHold(), newRenew(), newCheck(), newRelease(), newLs(), newShow(), newWait(), newFree(), newResign(), newRecovery(), newReap(), newServe(), newDoctor(), newMigrate(), newVersion(), newExitCodes(), newWatchdog(), newHeldCommand(),
	)

	return root
}

// version is what the Go toolchain wrote into the binary, with the commit if that has no tag.
func version(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "sqllock, built without version information"
	}

	return "sqllock " + cmp.Or(info.Main.Version, "(devel)") + " " + info.GoVersion
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { cmd.Println(cmd.Root().Version) },
	}
}

// flagError is an error of the flags, in words for who is no programmer.
func flagError(err error) error {
	value, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok || !errors.As(err, new(*strconv.NumError)) {
		return err
	}

	flag, given := value.GetFlag(), cmp.Or(bounded(value.GetValue()), `""`)

	switch {
	case flag.Value.Type() == "bool":
		return fmt.Errorf("--%s=%s is neither true nor false", flag.Name, given)
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s %s is too large a number", flag.Name, given)
	default:
		return fmt.Errorf("--%s %s is not a whole number", flag.Name, given)
	}
}

// refuseUnknown makes errors of what cobra's own commands do not know. They print
// help instead. It comes after SetOut: completion keeps what it finds there.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()

	// A command that runs has its arguments checked.
	completion, _, _ := root.Find([]string{"completion"})
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }

	help, _, _ := root.Find([]string{"help"})
	run := help.Run

	help.Run, help.RunE = nil, func(cmd *cobra.Command, args []string) error {
		if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return usage(root, fmt.Errorf("no command %q", strings.Join(args, " ")))
		}

		run(cmd, args)

		return nil
	}
}

// helpWidth is how many columns help takes.
const helpWidth = 80

// database are the flags that say which database, shared by the commands.
type database struct {
	cmd       *cobra.Command // that has these flags
	url, file string
	require   bool
}

const requireFlag = "require-dsn"

func (d *database) register(cmd *cobra.Command) {
	d.cmd = cmd
	flags := cmd.PersistentFlags()
	flags.StringVar(&d.url, dsn.Flag, "", "database `URL` (default $"+dsn.Variable+")")
	flags.StringVar(&d.file, dsn.FileFlag, "", "`file` with the database URL")
	flags.BoolVar(&d.require, requireFlag, false, "fail if no database is named, instead of using a local file (default $"+requireVariable+")")
}

// given says whether a flag of the command is on its line.
func (d *database) given(flag string) bool { return d.cmd.Flag(flag).Changed }

func (d *database) target() (dsn.Target, error) {
	// An empty one is a variable of a script that is not set. To take the file
	// of this machine instead would give two machines the same lock.
	for flag, value := range map[string]string{dsn.Flag: d.url, dsn.FileFlag: d.file} {
		if value == "" && d.given(flag) {
			return dsn.Target{}, exitError{exitUsage, fmt.Errorf("--%s is empty", flag)}
		}
	}

	if value := os.Getenv(requireVariable); value != "" && !d.given(requireFlag) {
		required, err := strconv.ParseBool(value)
		if err != nil {
			return dsn.Target{}, exitError{exitUsage, fmt.Errorf("%s=%s is neither 1 nor 0", requireVariable, bounded(value))}
		}

		d.require = required
	}

	target, err := dsn.Resolve(d.url, d.file, os.LookupEnv)

	switch {
	case err != nil:
		return dsn.Target{}, exitError{exitUsage, err}
	case d.require && target.Embedded:
		return dsn.Target{}, exitError{exitUsage, fmt.Errorf("no database is named, and --%s (%s) forbids the file of this machine; give --%s, --%s or %s",
			requireFlag, requireVariable, dsn.Flag, dsn.FileFlag, dsn.Variable)}
	default:
		return target, nil
	}
}

// newWatchdog is for process.StartWatchdog.
func newWatchdog() *cobra.Command {
	return &cobra.Command{
		Use: watchdogCommand, Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { process.ServeWatchdog(os.Stdin) },
	}
}

// newHeldCommand is for process.Start.
func newHeldCommand() *cobra.Command {
	return &cobra.Command{
		Use: heldCommand, Hidden: true, Args: cobra.MinimumNArgs(1), DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := nameGroup(); err != nil {
				return exitError{exitInternal, err}
			}

			return exitError{exitInternal, process.ServeHeld(args)} // nil is said by another
		},
	}
}

// The hidden subcommands that this program starts itself as.
const (
	watchdogCommand = "watch-group"
	heldCommand     = "exec-held"
)
