package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/sqllock"
)

func newResign() *cobra.Command {
	var (
		db     database
		reason string
	)

	cmd := &cobra.Command{
		Use:   "resign NAME",
		Short: "Ask a leader to step down",
		Long: `Ask whoever holds a lock to release it, and say why. Nobody is forced: a leader
of package election ends its work then, at once on PostgreSQL and SQLite and
within a second elsewhere, and the first of those who wait is the next. Other
programs see the request if they look for it (Status.ReleaseRequested), and
"sqllock run" and "sqllock hold" do not: to take a lock away use free. Exits
with 1 if nobody holds the lock.`,
		Example: `  sqllock resign scheduler --reason "the machine is going down"`,
		Args:    oneName, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkReason(reason); err != nil {
				return usage(cmd, err)
			}

			return db.look(cmd.Context(), func(l looker) error {
				err := l.RequestRelease(cmd.Context(), args[0], trace(reason))

				switch {
				case errors.Is(err, sqllock.ErrNotHeld):
					return exitError{exitNotHeld, fmt.Errorf("nobody holds lock %q", args[0])}
				case err != nil:
					return hindered(cmd.Context(), l.db, fmt.Sprintf("the holder of lock %q cannot be asked", args[0]), err)
				}

				_, err = fmt.Fprintf(cmd.OutOrStdout(), "asked the holder of %q to release it\n", args[0])

				return err
			})
		},
	}

	db.register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for the holder (required)")

	return cmd
}
