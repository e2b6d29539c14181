package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sqllock",
		Short: "Locks between processes that share only a SQL database",
		Long: `Locks between processes that share only a SQL database.

The database is that of --dsn, else of DATABASE_URL:

  postgres://user:password@host/db
  mysql://user:password@host/db        mariadb:// is the same
  sqlite:path                          for the processes of one machine

Without either it is an SQLite file in your state folder, made on first use.
A password is better kept in DATABASE_URL: command lines are seen by all.`,
		Example: `  sqllock demo
  sqllock migrate up
  sqllock run --name nightly --no-wait -- ./report.sh`,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}

	// Results go to stdout; cobra's Print would write to stderr.
	root.SetOut(os.Stdout)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, err) })
	root.AddCommand(
		newRun(), newMigrate(), newDemo(), newVersion(), newExitCodes(), newWatchdog(), newDemoWorker(),
	)

	return root
}

// database is the flag that says which database, shared by the commands.
type database struct{ url string }

func (d *database) register(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&d.url, dsn.Flag, "", "database URL (default $"+dsn.Variable+")")
}

func (d *database) target() (dsn.Target, error) {
	target, err := dsn.Resolve(d.url, os.Getenv)
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

const watchdogCommand = "watch-group"
