package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// reapTime bounds one run.
const reapTime = time.Minute

func newReap() *cobra.Command {
	var db database

	retention := duration(7 * 24 * time.Hour)

	cmd := &cobra.Command{
		Use:   "reap",
		Short: "End leases that expired, and remove names long unused",
		Long: `End leases that expired, at most 1000, and remove all names not used for the
retention. Nothing depends on it: an acquisition replaces what expired by
itself. Tokens go on growing over the removal, whatever the clock does.

Programs that stay up remove names that are used once (order/123456) by
themselves. Run it now and then where such names come from commands and short
programs only: those end before a name is old enough.`,
		Example: `  sqllock reap
  sqllock reap --retention 720h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.look(cmd.Context(), func(l looker) error {
				// It does what the others do, and ends sessions besides.
				strategy := "forupdate"
				if d := l.db.Target.Dialect; d == databases.SQLite || d == databases.TiDB {
					strategy = "cas"
				}

				locker, err := lockerOf(strategy, l.db)
				if err != nil {
					return err
				}
				defer closeLocker(cmd.Context(), locker)

				// A reaper leaves out what is busy, and SQLite's one writer keeps it from all.
				if l.db.Target.Dialect == databases.SQLite {
					tx, err := l.db.SQL.BeginTx(cmd.Context(), nil)
					if err != nil {
						return hindered(cmd.Context(), l.db, "reaping did not begin", err)
					}

					_ = tx.Rollback()
				}

				// A table that another transaction has locked is waited for.
				ctx, cancel := context.WithTimeout(cmd.Context(), reapTime)
				defer cancel()

				reaped, err := locker.Reap(ctx, time.Duration(retention))

				switch {
				case errors.Is(err, sqllock.ErrInvalidOption):
					return usage(cmd, fmt.Errorf("--retention %s is shorter than a minute", &retention))
				case err != nil:
					return hindered(cmd.Context(), l.db, "reaping did not end", err)
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
