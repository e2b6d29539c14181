package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func newMigrate() *cobra.Command {
	var db database

	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make, change or remove sqllock's tables",
		Long: `Make, change or remove sqllock's tables.

Versions are kept in the table ` + migrations.TableName + `, apart from those of
your application. Any number of processes may migrate at once. To apply the SQL
with another tool, take it from "sqllock migrate print".`,
		Example: `  sqllock migrate up
  sqllock migrate status
  sqllock migrate print --dialect postgres`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("say up, down, status or print"))
		},
	}

	db.register(cmd)
	cmd.AddCommand(newMigrateUp(&db), newMigrateDown(&db), newMigrateStatus(&db), newMigratePrint(&db))

	return cmd
}

func newMigrateUp(db *database) *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Create the tables, or update them to this version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.migrate(cmd, true, func(open *dsn.Database) error {
				steps, err := migrate.Up(cmd.Context(), open)
				report(cmd.OutOrStdout(), "applied", "nothing to apply", open.Target, steps, err)

				return err
			})
		},
	}
}

func newMigrateDown(db *database) *cobra.Command {
	var all, force bool

	cmd := &cobra.Command{
		Use: "down", Short: "Roll back one version, or all of them", Args: cobra.NoArgs,
		Long: `Roll back one version, or all of them. The first version rolled back takes
the tables with it: whoever holds a lock loses it, and a job whose tick is
recorded there may run again for that tick. While locks are held or ticks are
recorded it is refused, unless --force is given.`,
		Example: `  sqllock migrate down
  sqllock migrate down --all`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.migrate(cmd, false, func(open *dsn.Database) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), rollbackTime)
				defer cancel()

				if !force {
					if err := nothingToLose(ctx, open); err != nil {
						return hindered(ctx, open, "nothing was rolled back", err)
					}
				}

				steps, err := migrate.Down(ctx, open, all)
				report(cmd.OutOrStdout(), "rolled back", "nothing to roll back", open.Target, steps, err)

				return hindered(ctx, open, "not all was rolled back", err)
			})
		},
	}

	cmd.Flags().BoolVar(&all, "all", false, "roll back every version")
	cmd.Flags().BoolVar(&force, "force", false, "do it though locks are held or ticks are recorded")

	return cmd
}

// named is how many of the locks that would be lost a refusal names.
const named = 3

// nothingToLose is an error while locks are held or ticks are recorded. Without tables there are none.
func nothingToLose(ctx context.Context, db *dsn.Database) error {
	locker, err := lockerOf("cas", db)
	if err != nil {
		return err
	}
	defer closeLocker(ctx, locker)

	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()

	locks, err := locker.Holders(ctx, sqllock.Filter{Limit: named + 1})

	switch {
	case errors.Is(err, sqllock.ErrNoSchema):
		return nil
	case err != nil:
		return err
	case len(locks) == 0:
		return noTicks(ctx, db)
	}

	held := mapped(locks, func(lock sqllock.Status) string {
		if lock.Taken > 0 {
			return fmt.Sprintf("%q, taken for another %s", lock.Name, text.Duration(lock.Taken))
		}

		return fmt.Sprintf("%q by %s", lock.Name, lock.Holder)
	})

	if len(held) > named {
		held = append(held[:named], "others")
	}

	return exitError{exitNotAcquired, fmt.Errorf("locks are held, and would be lost: %s; let them end, or use --force", strings.Join(held, ", "))}
}

// noTicks is an error while ticks are recorded.
func noTicks(ctx context.Context, db *dsn.Database) error {
	table := "sqllock_locks"
	if db.Target.Dialect == databases.MySQL || db.Target.Dialect == databases.TiDB {
		table = "sqllock_leases"
	}

	var ticks int

	err := db.SQL.QueryRowContext(ctx, "SELECT count(*) FROM "+table+" WHERE tick <> 0").Scan(&ticks)
	if db.Locks.Classify(err) == databases.NoSchema { // a part of the tables is gone already
		return nil
	}

	if err != nil || ticks == 0 {
		return err
	}

	return exitError{exitNotAcquired, fmt.Errorf("ticks are recorded (%d), and would be lost; their jobs may run again for them; "+
		"to remove the tables all the same, use --force", ticks)}
}

func newMigrateStatus(db *database) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the versions and which are applied", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.migrate(cmd, false, func(open *dsn.Database) error {
				schemas, err := migrate.SchemasOf(cmd.Context(), open)
				if err == nil {
					err = schemas.OnlyElsewhere()
				}

				if err != nil {
					return err
				}

				statuses, err := migrate.Statuses(cmd.Context(), open)

				for _, s := range statuses {
					state := "pending"
					if s.Applied {
						state = "applied " + s.At.UTC().Format("2006-01-02 15:04:05 UTC")
					}

					cmd.Printf("%-32s %s\n", s.Name, state)
				}

				cmd.Printf("%-32s %d\n", "protocol of this sqllock", strategies.Protocol)

				return err
			})
		},
	}
}

func newMigratePrint(db *database) *cobra.Command {
	var (
		dialect         string
		functions, down bool
	)

	cmd := &cobra.Command{
		Use: "print", Short: "Print the SQL, without a database", Args: cobra.NoArgs,
		Example: `  sqllock migrate print --dialect postgres > 0042_sqllock.sql
  sqllock migrate print --functions | psql -1 "$DATABASE_URL"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if functions {
				return migrate.PrintFiles(cmd.OutOrStdout(), "functions of PostgreSQL", migrations.Functions(), down)
			}

			if dialect == "" {
				target, err := db.target()
				if err != nil {
					return err
				}

				dialect = string(target.Dialect)
			}

			if err := migrate.Print(cmd.OutOrStdout(), dialect, down); err != nil {
				return usage(cmd, err)
			}

			return nil
		},
	}

	cmd.Flags().StringVar(&dialect, "dialect", "", "postgres, mysql (MariaDB too), tidb or sqlite (default that of the database)")
	offer(cmd, "dialect", "postgres", "mysql", "tidb", "sqlite")
	cmd.Flags().BoolVar(&down, "down", false, "print what removes them")
	cmd.Flags().BoolVar(&functions, "functions", false, "print PostgreSQL's functions for programs without the library")
	cmd.MarkFlagsMutuallyExclusive("dialect", "functions")

	return cmd
}

// migrate opens the database, calls do, and closes it.
func (d *database) migrate(cmd *cobra.Command, create bool, do func(*dsn.Database) error) error {
	target, err := d.target()
	if err != nil {
		return err
	}

	if !create {
		target = target.WithLockWait()
	}

	open, err := target.Open(cmd.Context(), create)
	if err != nil {
		return exitError{exitUnavailable, err}
	}

	if target.Embedded {
		warn(unnamed(target))
	}

	err = errors.Join(do(open), open.Close())

	switch decided := (exitError{}); {
	case err == nil:
		return nil
	case errors.As(err, &decided):
		return decided
	case errors.As(err, new(*migrate.UnderWayError)):
		return exitError{exitNotAcquired, fmt.Errorf("migrate %s: %w", target, err)}
	default:
		return exitError{exitUnavailable, fmt.Errorf("migrate %s: %w", target, err)}
	}
}

// report writes a line for each step.
func report(out io.Writer, did, nothing string, target dsn.Target, steps []migrate.Step, err error) {
	for _, s := range steps {
		_, _ = fmt.Fprintf(out, "%s %s (%s)\n", did, s.Name, s.Took.Round(time.Millisecond))
	}

	if len(steps) == 0 && err == nil {
		_, _ = fmt.Fprintf(out, "%s: %s\n", nothing, target)
	}
}
