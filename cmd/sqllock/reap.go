package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

func newReap() *cobra.Command {
	var db database

	retention := duration(7 * 24 * time.Hour)

	cmd := &cobra.Command{
		Use:   "reap",
		Short: "End leases that ran out, and remove names long unused",
		Long: `End leases that ran out, and remove names not used for the retention, at most
1000 of each. Nothing depends on it: an acquisition takes over what ran out by
itself. Run it now and then where names are made up once (order/123456). Tokens
go on growing over the removal, as long as the database's clock is not set back
by more than the retention.`,
		Example: `  sqllock reap
  sqllock reap --retention 720h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.look(cmd.Context(), func(l looker) error {
				// It does what the others do, and ends sessions besides.
				strategy := "forupdate"
				if l.db.Target.Dialect == databases.SQLite {
					strategy = "cas"
				}

				locker, err := lockerOf(strategy, l.db, sqllock.WithReaper(time.Minute, time.Duration(retention)))

				switch {
				case errors.Is(err, sqllock.ErrInvalidOption):
					return usage(cmd, fmt.Errorf("--retention %s is not between a minute and 366 days", &retention))
				case err != nil:
					return err
				}
				defer closeLocker(cmd.Context(), locker)

				reaped, err := locker.Reap(cmd.Context())
				if err != nil {
					return err
				}

				_, err = fmt.Fprintf(cmd.OutOrStdout(), "leases ended: %d, names removed: %d\n", reaped.Expired, reaped.Removed)

				return err
			})
		},
	}

	db.register(cmd)
	cmd.Flags().Var(&retention, "retention", "remove names not used for so long, at least a minute")

	return cmd
}
