package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// lsFlags are the flags of "sqllock ls".
type lsFlags struct {
	database

	json    bool
	waiting bool
	watch   duration
}

const defaultWatch = "2s"

func newLs() *cobra.Command {
	f := &lsFlags{}

	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks that are held, or who waits for them",
		Long: `List the locks that are held, of every strategy, or those whose names begin
with PREFIX. HELD is how long the lock has been held, LEASE how long the lease
runs if it is not renewed; both by the database's clock. Names that nobody holds
any more and that a minimum hold or a lock delay keeps taken are listed too,
with the time left. On a terminal names and holders are cut to its width. SLOT
is which of the permits of a name it is, SHARED whether it is a reader, and
DETACHED whether no process has it, as "sqllock hold" leaves a lock. If nothing
is granted after a fail-over, a last line says so; with --json, stderr.

With --waiting, list who waits for locks, by name and then in the order of
arrival: a process once for each lock that it asks for, and once for each
goroutine of it that waits while it holds another lock; HOLDS is "others" then.`,
		Example: `  sqllock ls
  sqllock ls --waiting
  sqllock ls customer/ --watch
  sqllock ls --json | jq -r '.[] | select(.held_seconds > 3600) | .name'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("give one prefix, not %d", len(args))
			}

			return noDatabase(args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.watch < 0 {
				return usage(cmd, fmt.Errorf("--watch=%s is negative", &f.watch))
			}

			filter := sqllock.Filter{Prefix: strings.Join(args, "")}

			// The time of a flag that may go without one stands behind a "=".
			if often := new(duration); f.watch.String() == defaultWatch && often.Set(filter.Prefix) == nil {
				return usage(cmd, fmt.Errorf("%s was read as PREFIX, not as the interval of --watch; write --watch=%s", filter.Prefix, filter.Prefix))
			}

			return f.look(cmd.Context(), func(l looker) error { return f.list(cmd.Context(), cmd.OutOrStdout(), l, filter) })
		},
	}

	f.register(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print a JSON array; one in each line with --watch")
	cmd.Flags().BoolVar(&f.waiting, "waiting", false, "list who waits, and not who holds")
	cmd.Flags().Var(&f.watch, "watch", "list again every two seconds, or as often as --watch=TIME says")
	cmd.Flags().Lookup("watch").NoOptDefVal = defaultWatch

	return cmd
}

// listing is what is listed, in both forms.
type listing struct {
	json  any
	table text.Table
	none  string // instead of a table without rows

	recovery sqllock.Recovery
}

// list lists once, or until ctx ends.
func (f *lsFlags) list(ctx context.Context, out io.Writer, l looker, filter sqllock.Filter) error {
	width, look := terminalWidth(out), f.locks
	if f.waiting {
		look = f.waiters
	}

	for {
		listed, err := look(ctx, l, filter)
		if err == nil {
			listed.recovery, err = l.recovery(ctx)
		}

		if err == nil {
			err = f.print(out, listed, width)
		}

		if err != nil || f.watch == 0 {
			return err
		}

		if pause(ctx, time.Duration(f.watch)) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
}

// locks lists those that are held.
func (*lsFlags) locks(ctx context.Context, l looker, filter sqllock.Filter) (listing, error) {
	locks, err := l.Holders(ctx, filter)
	if err != nil {
		return listing{}, err
	}

	table := text.Table{Header: []string{"NAME", "HOLDER", "HELD", "LEASE", "STRATEGY", "SLOT", "SHARED", "DETACHED"}, Shrink: []int{0, 1}, Holders: []int{1}}

	for _, lock := range locks {
		held, left := "-", "expired, taken for "+text.Duration(lock.Taken)

		switch {
		case lock.Held():
			held, left = text.Duration(lock.HeldFor), text.Duration(lock.Remaining)
		case lock.Owner == "":
			left = "released, taken for " + text.Duration(lock.Taken)
		}

		table.Rows = append(table.Rows, []string{
			plain.Text(lock.Name), plain.Text(lock.Holder.String()), held, left, plain.Text(lock.Strategy), strconv.Itoa(lock.Slot), yes(lock.Shared), yes(lock.Detached),
		})
	}

	table.Omit("SLOT", "0")
	table.Omit("SHARED", yes(false))
	table.Omit("DETACHED", yes(false))

	return listing{json: mapped(locks, jsonOf), table: table, none: none("no locks are held", filter)}, nil
}

// waiters lists those who wait.
func (*lsFlags) waiters(ctx context.Context, l looker, filter sqllock.Filter) (listing, error) {
	waiters, err := l.Waiters(ctx, sqllock.WaiterFilter{Prefix: filter.Prefix})
	if err != nil {
		return listing{}, err
	}

	table := text.Table{Header: []string{"NAME", "PLACE", "WAITER", "WAITED", "HOLDS", "SHARED"}, Shrink: []int{0, 2}, Holders: []int{2}}

	for _, w := range waiters {
		holds := "-"
		if w.HoldsOthers() {
			holds = "others"
		}

		table.Rows = append(table.Rows, []string{
			plain.Text(w.Name), strconv.Itoa(w.Place), plain.Text(w.Holder.String()), text.Duration(w.Waited), holds, yes(w.Shared),
		})
	}

	table.Omit("SHARED", yes(false))

	return listing{json: mapped(waiters, waiterOf), table: table, none: none("nobody waits for locks", filter)}, nil
}

// yes is what a column says of what is so or not.
func yes(so bool) string {
	if so {
		return "yes"
	}

	return "-"
}

// none says that there is nothing to list.
func none(said string, filter sqllock.Filter) string {
	if filter.Prefix == "" {
		return said
	}

	// Nothing has such a name, so it may be a database for which a flag is missing.
	return fmt.Sprintf("%s whose names begin with %q", said, filter.Prefix)
}

// Clears the screen of a terminal.
const clearScreen = "\x1b[H\x1b[2J"

func (f *lsFlags) print(out io.Writer, listed listing, width int) error {
	if f.json {
		if listed.recovery.Pause() > 0 {
			warn(doctor.Said(listed.recovery))
		}

		return printJSON(out, listed.json)
	}

	var b strings.Builder

	if f.watch > 0 && width > 0 {
		b.WriteString(clearScreen)
	}

	if len(listed.table.Rows) > 0 {
		b.WriteString(strings.Join(listed.table.Lines(width), "\n") + "\n")
	} else {
		b.WriteString(listed.none + "\n")
	}

	if listed.recovery.Pause() > 0 {
		b.WriteString(wrapped(doctor.Said(listed.recovery), width) + "\n")
	}

	if f.watch > 0 && width == 0 {
		b.WriteString("\n")
	}

	_, err := io.WriteString(out, b.String())

	return err
}

// wrapped is a text in lines of so many columns; zero is what help takes.
func wrapped(said string, width int) string {
	return strings.Join(text.Wrap(plain.Text(said), cmp.Or(width, helpWidth)), "\n")
}

// terminalWidth is zero if out is no terminal.
func terminalWidth(out io.Writer) (width int) {
	if file, ok := out.(interface{ Fd() uintptr }); ok {
		width, _, _ = term.GetSize(int(file.Fd())) // zero with an error
	}

	return width
}

// lockJSON is a held lock as --json shows it. The owner is left out: with the
// name it is enough to release the lock.
type lockJSON struct {
	Name     string `json:"name"`
	Slot     int    `json:"slot"`
	Strategy string `json:"strategy"`
	Token    int64  `json:"token"`
	holderJSON
	HeldSeconds      float64 `json:"held_seconds"`
	RemainingSeconds float64 `json:"remaining_seconds"`
	TakenSeconds     float64 `json:"taken_seconds,omitempty"`
	Shared           bool    `json:"shared"`
	Detached         bool    `json:"detached"`
}

// holderJSON is who holds or waits.
type holderJSON struct {
	Host     string          `json:"host"`
	PID      int             `json:"pid"`
	Label    string          `json:"label"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // nil if it is not JSON
}

// waiterJSON is one who waits as --json shows it.
type waiterJSON struct {
	Name  string `json:"name"`
	Place int    `json:"place"`
	holderJSON
	WaitedSeconds float64 `json:"waited_seconds"`
	HoldsOthers   bool    `json:"holds_others"`
	Shared        bool    `json:"shared"`
}

func waiterOf(w sqllock.Waiter) waiterJSON {
	return waiterJSON{w.Name, w.Place, holderOf(w.Holder), seconds(w.Waited), w.HoldsOthers(), w.Shared}
}

func holderOf(holder sqllock.Holder) holderJSON {
	shown := holderJSON{Host: holder.Host, PID: holder.PID, Label: holder.Label}
	if metadata := []byte(holder.Metadata); json.Valid(metadata) {
		shown.Metadata = metadata
	}

	return shown
}

// seconds has microseconds, as databases have. One division rounds once, so that no
// more digits are printed.
func seconds(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1e6 }

func jsonOf(lock sqllock.Status) lockJSON {
	return lockJSON{
		lock.Name, lock.Slot, lock.Strategy, lock.Token, holderOf(lock.Holder),
		seconds(lock.HeldFor), seconds(lock.Remaining), seconds(lock.Taken), lock.Shared, lock.Detached,
	}
}
