package main

import (
	"fmt"
	"os"
	"runtime/debug"
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

  --dsn URL             postgres://user:password@host/db
                        mysql://user:password@host/db   (mariadb:// is the same)
                        sqlite:path                     (for one machine)
  --dsn-file FILE       a file with such a URL
  DATABASE_URL          such a URL
  PGHOST, PGSERVICE or PGDATABASE, with libpq's other variables and a .pgpass
  MYSQL_HOST, with MYSQL_DATABASE, MYSQL_USER, MYSQL_PASSWORD, MYSQL_TCP_PORT

With none of these it is an SQLite file in your state folder, for this machine
and user only, made on first use. Do not put a password into --dsn; use another
way: a command line is seen by all, though sqllock takes the password out of its
own.`,
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
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, err) })
	root.AddCommand(
		newRun(), newLs(), newShow(), newWait(), newFree(), newReap(), newDoctor(), newMigrate(), newDemo(), newVersion(), newExitCodes(), newWatchdog(), newHeldCommand(), newDemoWorker(),
	)

	return root
}

// refuseUnknown makes errors of what cobra's own commands do not know. They print
// help instead. It comes after SetOut: completion keeps what it finds there.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()

	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			// A command that runs has its arguments checked.
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			help := cmd.Run

			cmd.Run, cmd.RunE = nil, func(cmd *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usage(root, fmt.Errorf("no command %q", strings.Join(args, " ")))
				}

				help(cmd, args)

				return nil
			}
		}
	}
}

// helpWidth is how many columns help takes.
const helpWidth = 80

// database are the flags that say which database, shared by the commands.
type database struct {
	url, file string
	flags     *pflag.FlagSet
}

func (d *database) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	d.flags = flags
	flags.StringVar(&d.url, dsn.Flag, "", "database `URL` (default $"+dsn.Variable+")")
	flags.StringVar(&d.file, dsn.FileFlag, "", "`file` with the database URL")
}

func (d *database) target() (dsn.Target, error) {
	// An empty one is a variable of a script that is not set. To take the file
	// of this machine instead would give two machines the same lock.
	for flag, value := range map[string]string{dsn.Flag: d.url, dsn.FileFlag: d.file} {
		if value == "" && d.flags.Changed(flag) {
			return dsn.Target{}, exitError{exitUsage, fmt.Errorf("--%s is empty", flag)}
		}
	}

	target, err := dsn.Resolve(d.url, d.file, os.LookupEnv)
	if err != nil {
		return dsn.Target{}, exitError{exitUsage, err}
	}

	return target, nil
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
			return exitError{exitInternal, process.ServeHeld(args)}
		},
	}
}

// The hidden subcommands that this program starts itself as.
const (
	watchdogCommand = "watch-group"
	heldCommand     = "exec-held"
)
