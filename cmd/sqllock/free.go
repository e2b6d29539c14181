package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
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
	slot   int
	token  int64
	force  bool
}

func newFree() *cobra.Command {
	f := &freeFlags{}

	cmd := &cobra.Command{
		Use:   "free NAME --token N --reason TEXT",
		Short: "Take a lock away from its holder",
		Long: `Take a lock away from its holder, who learns of it at its next renewal, within a
third of its lease; "sqllock run" kills its command then. Nobody is told of one
that "sqllock hold" took before its next renew or check. Until then two may
believe that they hold it, so be sure that the holder is gone, or that what it
does is guarded or checks tokens. The holder can neither renew nor guard any
more. (Except on PostgreSQL and SQLite, if it had a guarded transaction open, it
can guard further ones until it learns of the loss or the name is acquired
again.) The next token is larger than every one before. The holder is told the
reason, unless somebody acquired the name before that renewal.

--token is that of the holder that you looked at, as show and serve print it. If
somebody else has the lock by now, free takes nothing, says who, and exits
with 75. Without --token it says who has the lock, and exits with 64.

free refuses while the holder has a guarded transaction open, because that may
still commit, and while another transaction has the row locked, because that
looks the same. With --force the lock is freed all the same, and the next holder
waits for the end of the transaction. What cannot be skipped (a row of
PostgreSQL that SELECT ... FOR UPDATE locked, a locked table, SQLite's one
writer) it waits for some seconds, and then exits with 75.

A name with permits needs --slot; without it free lists who holds them, and
exits with 64. A shared lock is taken away from all of its readers, who have one
token. With strategy forupdate or advisory the session that holds the lock is
ended, and all other locks in it; this may need a privilege.

The reason, and who gave it, is kept until the name is acquired again, and shown
by "sqllock show NAME". If only --min-hold still keeps the name taken, free ends
that.`,
		Example: `  sqllock show nightly
  sqllock free nightly --token 1795624678724879 --reason "4711: machine is gone"
  sqllock free export --slot 2 --token 1795624678724911 --reason "ticket 4712"`,
		Args: oneName, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkSlot(f.slot); err != nil {
				return usage(cmd, err)
			}

			switch given := f.given("token"); {
			case given && f.token < 1:
				return usage(cmd, fmt.Errorf("--token %d is not above 0", f.token))
			case given && checkReason(f.reason) != nil:
				return usage(cmd, checkReason(f.reason))
			}

			return f.look(cmd.Context(), func(l looker) error {
				err := f.free(cmd.Context(), cmd.OutOrStdout(), l, args[0])

				return hindered(cmd.Context(), l.db, f.title(args[0])+" cannot be freed", err)
			})
		},
	}

	f.register(cmd)
	cmd.Flags().StringVar(&f.reason, "reason", "", "`text` for the holder and for those who ask later (required)")
	cmd.Flags().IntVar(&f.slot, "slot", 0, "which of the permits of the name, as show lists them")
	cmd.Flags().Int64Var(&f.token, "token", 0, "that of the holder whom it is taken from (required)")
	cmd.Flags().BoolVar(&f.force, "force", false, "free it though a transaction is guarded")

	return cmd
}

func (f *freeFlags) free(ctx context.Context, out io.Writer, l looker, name string) error {
	s, err := l.see(ctx, name, f.slot)
	status, holders, readers := s.status, s.listed, s.readers()

	if err == nil {
		err = f.chosen(name, status, holders)
	}

	// A renewal or an attempt has the row for a moment, too.
	for look := 1; err == nil && status.Guarded && (!f.force || !status.Held()) && look < guardLooks; look++ {
		if err = pause(ctx, guardPause); err == nil {
			status, err = l.Inspect(ctx, sqllock.SlotName(name, f.slot))
		}
	}

	row := ""
	if err == nil && status.Guarded && (!f.force || !status.Held()) {
		row = strings.ReplaceAll(inTheRow(ctx, l.db, name, f.slot), "\n", " ")
	}

	if err == nil {
		err = f.gone(name, status, row)
	}

	switch {
	case err != nil:
		return err
	case status.Guarded && !f.force:
		return exitError{exitNotAcquired, fmt.Errorf("%s is guarded, or somebody else has its row locked: if the open transaction "+
			"is one of %s, it may still commit; wait for it or end it, or use --force (it is locked %s)", f.title(name), listed(holders, label), row)}
	}

	locker, err := lockerOf(status.Strategy, l.db)
	if err != nil {
		return err
	}
	defer closeLocker(ctx, locker)

	// A row or a table that another transaction has locked is waited for.
	ctx, cancel := context.WithTimeout(ctx, forceTime)
	defer cancel()

	switch err = locker.ForceRelease(ctx, status, trace(f.reason)); {
	case errors.Is(err, sqllock.ErrNotHeld):
		return f.notHeld(name)
	case errors.Is(err, sqllock.ErrChangedHands):
		if status, err = l.Inspect(ctx, sqllock.SlotName(name, f.slot)); err == nil {
			err = f.gone(name, status, "")
		}

		return err
	case err != nil:
		return err
	}

	holder, what := label(status), f.permit(name)

	switch {
	case len(readers) > 1:
		_, err = fmt.Fprintf(out, "freed %s, held by %d readers with token %d: %s\n", what, len(readers), status.Token, listed(readers, label))
	case status.Held():
		_, err = fmt.Fprintf(out, "freed %s, held by %s for %s with token %d\n", what, holder, text.Duration(status.HeldFor), status.Token)
	default:
		kept := map[bool]string{true: "minimum hold", false: "lock delay"}[status.Owner == ""]
		_, err = fmt.Fprintf(out, "ended the %s of %s (last holder %s, token %d)\n", kept, what, holder, status.Token)
	}

	return err
}

// chosen refuses to choose one of several permits, or whoever has the lock by now.
func (f *freeFlags) chosen(name string, status sqllock.Status, holders []sqllock.Status) error {
	switch {
	case !f.given("slot") && slices.ContainsFunc(holders, func(s sqllock.Status) bool { return s.Slot > 0 }):
		return exitError{exitUsage, fmt.Errorf("lock %q has permits, say with --slot N and --token N which one to free, and with --reason why: %s",
			name, listed(holders, func(s sqllock.Status) string { return fmt.Sprintf("slot %d is %s", s.Slot, hands(s)) }))}
	case f.token == 0 && (status.Held() || status.Taken > 0):
		return exitError{exitUsage, fmt.Errorf("say with --token N whom to take it from, and with --reason why: %s is %s", f.title(name), hands(status))}
	default:
		return nil
	}
}

// gone says that nobody has the lock, or somebody else. row is by whom its row is locked.
func (f *freeFlags) gone(name string, status sqllock.Status, row string) error {
	switch {
	case !status.Held() && status.Taken == 0 && row != "":
		return exitError{exitNotAcquired, fmt.Errorf("%s is not held by anyone, but nobody gets it either: its row is locked %s; "+
			"let the transaction end, or end its session", f.title(name), row)}
	case !status.Held() && status.Taken == 0:
		return f.notHeld(name)
	case status.Token != f.token:
		return exitError{exitNotAcquired, fmt.Errorf("%s is not freed: whoever had token %d does not have it, and it is %s by now; look again",
			f.title(name), f.token, hands(status))}
	default:
		return nil
	}
}

// hands says in whose hands a lock is.
func hands(status sqllock.Status) string {
	how := "held by"
	if !status.Held() {
		how = "taken after" // a minimum hold or a lock delay
	}

	return fmt.Sprintf("%s %s with token %d", how, label(status), status.Token)
}

// label is the holder for messages.
func label(status sqllock.Status) string { return plain.Text(status.Holder.String()) }

// mostListed bounds how many holders a message lists.
const mostListed = 10

// listed is what is said of each holder, one behind the other.
func listed(holders []sqllock.Status, say func(sqllock.Status) string) string {
	said := mapped(holders[:min(len(holders), mostListed)], say)

	if more := len(holders) - mostListed; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}

	return strings.Join(said, ", ")
}

// permit is what is freed: the name, with the slot if it was given.
func (f *freeFlags) permit(name string) string {
	if f.given("slot") {
		return fmt.Sprintf("slot %d of %q", f.slot, name)
	}

	return strconv.Quote(name)
}

// title is permit for the begin of an error.
func (f *freeFlags) title(name string) string {
	if f.given("slot") {
		return f.permit(name)
	}

	return "lock " + f.permit(name)
}

func (f *freeFlags) notHeld(name string) error {
	return exitError{exitNotHeld, fmt.Errorf("%s is not held by anyone", f.title(name))}
}

// How often, and after which pause, it is looked whether a lock is guarded.
const (
	guardLooks = 4
	guardPause = 100 * time.Millisecond
)

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// checkReason says what is wrong with --reason.
func checkReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return errors.New("say why: --reason TEXT")
	}

	return nil
}

// traceRoom is what the row has for a reason, with who gave it.
const traceRoom = 240

// trace is the reason with who gave it.
func trace(reason string) string {
	who := os.Getenv("SUDO_USER")

	if current, err := user.Current(); err == nil && who == "" {
		who = current.Username
	}

	by := fmt.Sprintf(" (by %s on %s, %s)", who, thisProcess().Host, time.Now().UTC().Format("2006-01-02 15:04 UTC"))

	if room := max(0, traceRoom-len(by)); len(reason) > room {
		reason = strings.ToValidUTF8(reason[:room], "") // not in the middle of a character
	}

	return reason + by
}
