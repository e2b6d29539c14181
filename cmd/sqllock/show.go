package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

func newShow() *cobra.Command {
	var (
		db     database
		asJSON bool
	)

	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a lock, or who had it last",
		Long: `Show who holds a lock, or who had it last and why it ended. Exits with 1 if
nobody holds it. "waiting" are those who wait, in the order of arrival, as
"sqllock ls --waiting" lists them. If the name has permits, this is about the
first of them; "slot 1" and so on are others that are held. "taken" is for how
long --min-hold keeps the name taken though nobody holds it any more; "guarded"
is whether a transaction keeps the next holder out at this moment (Lock.Guard);
SQLite does not tell, and --json leaves it out there.`,
		Example: `  sqllock show nightly
  sqllock show nightly --json`,
		Args: oneName, ValidArgsFunction: db.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()

			return db.look(ctx, func(l looker) error {
				status, err := l.Inspect(ctx, args[0])
				if err != nil {
					return err
				}

				holders, err := l.Holders(ctx, sqllock.Filter{Name: args[0]})
				if err != nil {
					return err
				}

				// A name with permits may be held though its first is not.
				others := slices.DeleteFunc(holders, func(s sqllock.Status) bool { return s.Slot == 0 })

				waiters, err := l.Waiters(ctx, sqllock.WaiterFilter{Name: args[0]})
				if err != nil {
					return err
				}

				if asJSON {
					// SQLite has no row locks to look at.
					err = printJSON(out, seenOf(status, others, waiters, l.db.Target.Dialect != databases.SQLite))
				} else {
					err = printStatus(out, status, others, waiters)
				}

				if err == nil && !status.Held() && !slices.ContainsFunc(others, sqllock.Status.Held) {
					err = exitError{exitNotHeld, nil}
				}

				return err
			})
		},
	}

	db.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")

	return cmd
}

// taken says for how long a name that nobody holds is kept taken; empty if it is
// free.
func taken(status sqllock.Status) string {
	if status.Taken <= 0 {
		return ""
	}

	return "for another " + text.Duration(status.Taken) + " (minimum hold or lock delay)"
}

// mostWaiters bounds how many of those who wait are shown to a person.
const mostWaiters = 20

func printStatus(out io.Writer, status sqllock.Status, others []sqllock.Status, waiters []sqllock.Waiter) error {
	lines := [][2]string{{"name", plain.Text(status.Name)}}
	add := func(key, value string) { lines = append(lines, [2]string{key, value}) }

	switch {
	case status.Held():
		add("held by", plain.Text(status.Holder.String()))
		add("for", text.Duration(status.HeldFor))
		add("lease", text.Duration(status.Remaining)+" unless renewed")
		add("strategy", plain.Text(status.Strategy))
		add("token", strconv.FormatInt(status.Token, 10))

		if status.Holder.Metadata != "" {
			add("metadata", plain.Text(status.Holder.Metadata))
		}
	case status.Token == 0:
		add("held by", "nobody")
	default:
		add("held by", "nobody")

		if kept := taken(status); kept != "" {
			add("taken", kept)
		}

		add("last", plain.Text(status.Holder.String()))
		add("token", strconv.FormatInt(status.Token, 10))

		if status.Ended != "" {
			add("ended", plain.Text(ended(status)))
		}
	}

	if status.Guarded {
		add("guarded", "a transaction keeps the next holder out")
	}

	for _, other := range others {
		slot := fmt.Sprintf("slot %d", other.Slot)

		if other.Held() {
			add(slot, fmt.Sprintf("%s, for %s, token %d", plain.Text(other.Holder.String()), text.Duration(other.HeldFor), other.Token))
		} else {
			add(slot, "taken "+taken(other))
		}
	}

	key := "waiting"

	for i, w := range waiters {
		if i == mostWaiters {
			add("", fmt.Sprintf("and %d more", len(waiters)-i))

			break
		}

		add(key, fmt.Sprintf("%d. %s, for %s", i+1, plain.Text(w.Holder.String()), text.Duration(w.Waited)))
		key = ""
	}

	for _, line := range lines {
		if _, err := fmt.Fprintf(out, "%-10s%s\n", line[0], line[1]); err != nil {
			return err
		}
	}

	return nil
}

// ended says why a grant ended.
func ended(status sqllock.Status) string {
	if status.Detail == "" {
		return string(status.Ended)
	}

	return string(status.Ended) + ": " + status.Detail
}

// seenJSON is a name as --json shows it.
type seenJSON struct {
	Name    string       `json:"name"`
	Held    bool         `json:"held"`
	Guarded *bool        `json:"guarded,omitempty"` // nil if that is not known
	Taken   float64      `json:"taken_seconds,omitempty"`
	Lock    *lockJSON    `json:"lock,omitempty"`
	Others  []lockJSON   `json:"others,omitempty"` // of the permits beside the first
	Last    *lastJSON    `json:"last,omitempty"`
	Waiting []waiterJSON `json:"waiting,omitempty"`
}

type lastJSON struct {
	Token int64  `json:"token"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Label string `json:"label"`
	Ended string `json:"ended,omitempty"`
}

// seenOf is a status as --json shows it; tells: the database says whether a
// transaction is guarded.
func seenOf(status sqllock.Status, others []sqllock.Status, waiters []sqllock.Waiter, tells bool) seenJSON {
	shown := seenJSON{Name: status.Name, Held: status.Held(), Taken: seconds(status.Taken)}

	if status.Held() {
		lock := jsonOf(status)
		shown.Lock = &lock
	}

	for _, other := range others {
		shown.Held = shown.Held || other.Held()
		shown.Others = append(shown.Others, jsonOf(other))
	}

	if tells {
		shown.Guarded = &status.Guarded
	}

	for _, w := range waiters {
		shown.Waiting = append(shown.Waiting, waiterOf(w))
	}

	if status.Token > 0 {
		shown.Last = &lastJSON{status.Token, status.Holder.Host, status.Holder.PID, status.Holder.Label, ended(status)}
	}

	return shown
}
