package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// freeFlags are the flags of "sqllock free".
type freeFlags struct {
	database

	reason string
	force  bool
}

func newFree() *cobra.Command {
	f := &freeFlags{}

	cmd := &cobra.Command{
		Use:   "free NAME --reason TEXT",
		Short: "Take a lock away from its holder",
		Long: `Take a lock away from its holder, who learns of it at its next renewal, within a
third of its lease; "sqllock run" kills its command then. Until then two may
believe to hold it, so be sure that the holder is gone, or that what it does is
guarded or checks tokens. The holder can not renew or guard any more, and the
next token is larger than every one before. It is told the reason, unless
somebody acquired the name before that renewal.

While a transaction of the holder is guarded it is refused: that transaction may
still commit. With --force the lock is freed all the same, and the next holder
waits for the end of the transaction. On SQLite, which has one writer, it waits
for the transaction itself and fails if that takes long.

With strategy forupdate or advisory the session that holds the lock is ended,
and all other locks in it with it; this may need a privilege of the database
user.

The reason, and who gave it, is kept until the name is acquired again, and shown
by "sqllock show NAME". A lock that was released, and is kept by --min-hold
only, is held by nobody and can not be freed.`,
		Example: `  sqllock free nightly --reason "ticket 4711: the machine is gone"`,
		Args:    oneName, ValidArgsFunction: f.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.reason == "" {
				return usage(cmd, errors.New("say why: --reason TEXT"))
			}

			return f.look(cmd.Context(), func(l looker) error { return f.free(cmd.Context(), cmd.OutOrStdout(), l, args[0]) })
		},
	}

	f.register(cmd)
	cmd.Flags().StringVar(&f.reason, "reason", "", "`text` for the holder and for those who ask later (required)")
	cmd.Flags().BoolVar(&f.force, "force", false, "free it though a transaction is guarded")

	return cmd
}

func (f *freeFlags) free(ctx context.Context, out io.Writer, l looker, name string) error {
	held, err := l.Inspect(ctx, name)
	if errors.Is(err, sqllock.ErrNotHeld) {
		return notHeld(name)
	}

	if err != nil {
		return err
	}

	if !f.force {
		guarded, err := l.guarded(ctx, name)

		switch {
		case err != nil:
			return err
		case guarded:
			return exitError{exitNotAcquired, fmt.Errorf("lock %q is guarded: a transaction of its holder, %s, is open and may still commit; "+
				"wait for it or end it, or use --force", name, held.Holder)}
		}
	}

	locker, err := lockerOf(held.Strategy, l.db)
	if err != nil {
		return err
	}
	defer closeLocker(ctx, locker)

	err = locker.ForceRelease(ctx, name, trace(f.reason))

	switch {
	case errors.Is(err, sqllock.ErrNotHeld):
		return notHeld(name)
	case err != nil:
		return err
	}

	_, err = fmt.Fprintf(out, "freed %q, held by %s for %s with token %d\n",
		name, plain.Text(held.Holder.String()), text.Duration(held.HeldFor), held.Token)

	return err
}

func notHeld(name string) error {
	return exitError{exitNotHeld, fmt.Errorf("lock %q is not held by anyone", name)}
}

// A renewal or an attempt has the row for a moment too, so guarded looks so
// often.
const (
	guardLooks = 4
	guardPause = 100 * time.Millisecond
)

// guarded says whether a transaction with a guard is open.
func (l looker) guarded(ctx context.Context, name string) (bool, error) {
	for look := 1; ; look++ {
		last, err := l.lastGrant(ctx, name)

		switch {
		case errors.Is(err, sqllock.ErrNotHeld):
			return false, nil
		case err != nil || !last.Guarded:
			return false, err
		case look == guardLooks:
			return true, nil
		}

		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(guardPause):
		}
	}
}

// traceRoom is what the row has for a reason, with who gave it.
const traceRoom = 240

// trace is the reason with who gave it.
func trace(reason string) string {
	who := ""

	if current, err := user.Current(); err == nil {
		who = current.Username
	}

	if sudo := os.Getenv("SUDO_USER"); sudo != "" {
		who = sudo
	}

	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}

	by := fmt.Sprintf(" (by %s on %s, %s)", who, host, time.Now().UTC().Format("2006-01-02 15:04 UTC"))

	for len(reason)+len(by) > traceRoom && reason != "" {
		runes := []rune(reason)
		reason = string(runes[:len(runes)-1])
	}

	return reason + by
}
