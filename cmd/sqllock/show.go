package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
nobody holds it. "taken" is for how long --min-hold keeps the name taken though
nobody holds it any more; "guarded" is whether a transaction keeps the next
holder out at this moment (Lock.Guard); SQLite does not tell, and --json leaves
it out there.`,
		Example: `  sqllock show nightly
  sqllock show nightly --json`,
		Args: oneName, ValidArgsFunction: db.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()

			return db.look(ctx, func(l looker) error {
				seen, err := l.seen(ctx, args[0])
				if err != nil {
					return err
				}

				if asJSON {
					err = json.NewEncoder(out).Encode(seen.json())
				} else {
					err = seen.print(out)
				}

				if err == nil && seen.held == nil {
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

// seen is what the database knows of one name.
type seen struct {
	name string
	held *sqllock.HeldLock  // nil if nobody holds it
	last *sqllock.LastGrant // nil if it was never granted, or reaped
	// tells: the database says whether a transaction is guarded.
	tells bool
}

func (l looker) seen(ctx context.Context, name string) (seen, error) {
	// SQLite has no row locks to look at.
	s := seen{name: name, tells: l.db.Target.Dialect != databases.SQLite}

	held, err := l.Inspect(ctx, name)

	switch {
	case errors.Is(err, sqllock.ErrNotHeld):
	case err != nil:
		return s, err
	default:
		s.held = &held
	}

	last, err := l.lastGrant(ctx, name)

	switch {
	case errors.Is(err, sqllock.ErrNotHeld):
	case err != nil:
		return s, err
	default:
		s.last = &last
	}

	return s, nil
}

// lastGrant is LastGrant of whichever strategy kept the name: insert has a table
// of its own.
func (l looker) lastGrant(ctx context.Context, name string) (sqllock.LastGrant, error) {
	last, err := l.LastGrant(ctx, name)
	if err != nil && !errors.Is(err, sqllock.ErrNotHeld) || last.Remaining > 0 || last.Taken > 0 {
		return last, err
	}

	inserts, err := lockerOf("insert", l.db)
	if err != nil {
		return last, err
	}
	defer closeLocker(ctx, inserts)

	return inserts.LastGrant(ctx, name)
}

// taken says for how long a name that nobody holds is kept taken; empty if it is
// free.
func taken(last sqllock.LastGrant) string {
	if last.Taken <= 0 {
		return ""
	}

	return "for another " + text.Duration(last.Taken) + " (minimum hold or lock delay)"
}

func (s seen) print(out io.Writer) error {
	lines := [][2]string{{"name", plain.Text(s.name)}}
	add := func(key, value string) { lines = append(lines, [2]string{key, value}) }

	if s.held != nil {
		add("held by", plain.Text(s.held.Holder.String()))
		add("for", text.Duration(s.held.HeldFor))
		add("lease", text.Duration(s.held.Remaining)+" unless renewed")
		add("strategy", s.held.Strategy)
		add("token", strconv.FormatInt(s.held.Token, 10))

		if s.held.Holder.Metadata != "" {
			add("metadata", plain.Text(s.held.Holder.Metadata))
		}
	} else {
		add("held by", "nobody")

		if s.last != nil {
			if kept := taken(*s.last); kept != "" {
				add("taken", kept)
			}

			add("last", plain.Text(s.last.Holder.String()))
			add("token", strconv.FormatInt(s.last.Token, 10))
		}
	}

	if s.held == nil && s.last != nil && s.last.Ended != "" {
		add("ended", plain.Text(ended(*s.last)))
	}

	if s.last != nil && s.last.Guarded {
		add("guarded", "a transaction keeps the next holder out")
	}

	for _, line := range lines {
		if _, err := fmt.Fprintf(out, "%-10s%s\n", line[0], line[1]); err != nil {
			return err
		}
	}

	return nil
}

// ended says why a grant ended.
func ended(last sqllock.LastGrant) string {
	if last.Detail == "" {
		return string(last.Ended)
	}

	return string(last.Ended) + ": " + last.Detail
}

// seenJSON is a name as --json shows it.
type seenJSON struct {
	Name    string    `json:"name"`
	Held    bool      `json:"held"`
	Guarded *bool     `json:"guarded,omitempty"` // nil if that is not known
	Taken   float64   `json:"taken_seconds,omitempty"`
	Lock    *lockJSON `json:"lock,omitempty"`
	Last    *lastJSON `json:"last,omitempty"`
}

type lastJSON struct {
	Token int64  `json:"token"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Label string `json:"label"`
	Ended string `json:"ended,omitempty"`
}

func (s seen) json() seenJSON {
	shown := seenJSON{Name: s.name, Held: s.held != nil}

	if s.held != nil {
		lock := jsonOf(*s.held)
		shown.Lock = &lock
	}

	if s.tells {
		guarded := s.last != nil && s.last.Guarded
		shown.Guarded = &guarded
	}

	if s.last != nil {
		shown.Taken = s.last.Taken.Seconds()
		shown.Last = &lastJSON{
			s.last.Token, s.last.Holder.Host, s.last.Holder.PID, s.last.Holder.Label, ended(*s.last),
		}
	}

	return shown
}
