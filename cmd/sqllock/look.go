package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// looker is a database open for looking at locks and acting on those of others.
type looker struct {
	*sqllock.Locker

	db *dsn.Database
}

// look opens the database, calls do, and closes it. Errors get their exit code.
func (d *database) look(ctx context.Context, do func(looker) error) error {
	target, err := d.target()
	if err != nil {
		return err
	}

	db, err := open(ctx, target, warn)
	if err != nil {
		return err
	}
	defer db.Close()

	locker, err := lockerOf("cas", db)
	if err != nil {
		return refused(err, target, exitNotAcquired)
	}
	defer closeLocker(ctx, locker)

	return refused(do(looker{locker, db}), target, exitNotAcquired)
}

// How often a lock is asked for that another holds. There may be hundreds of this
// command that wait for one, each of which is a process.
const (
	pollSoon  = 20 * time.Millisecond
	pollLater = time.Second
)

// lockerOf makes a locker of a strategy by its name.
func lockerOf(name string, db *dsn.Database, options ...sqllock.Option) (*sqllock.Locker, error) {
	s, err := strategy(name, db.Locks)
	if err != nil {
		return nil, err
	}

	// No connection more for each process that waits.
	return sqllock.New(s, append(options, sqllock.WithoutNotifications(), sqllock.WithPoll(pollSoon, pollLater))...)
}

// oneName is the only argument of a command.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage(cmd, fmt.Errorf("name one lock, not %d", len(args)))
	}

	return nil
}

// completionTime bounds how long a press of the tab key waits for a database.
const completionTime = 2 * time.Second

// completeName offers the names of locks that are held.
func (d *database) completeName(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp

	target, err := d.target()
	if err != nil || target.Embedded || len(args) > 0 {
		return nil, nothing
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()

	var names []string

	_ = d.look(ctx, func(l looker) error {
		held, err := l.Holders(ctx, sqllock.Filter{Prefix: begun, Limit: 100})
		for _, lock := range held {
			// Others would move the cursor, or be several lines to the shell.
			if plain.Text(lock.Name) == lock.Name {
				names = append(names, lock.Name+"\t"+plain.Text(lock.Holder.String()))
			}
		}

		return err
	})

	return names, nothing
}
