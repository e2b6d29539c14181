package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/sqllock"
)

func newRecovery() *cobra.Command {
	var (
		db                  database
		json, end, lossless bool
		reason              string
	)

	cmd := &cobra.Command{
		Use:   "recovery",
		Short: "Show or end the pause after a fail-over",
		Long: `Show whether locks are granted. When another server becomes the primary of the
database it may lack the last locks that were granted before, whose holders
trust them until their leases end. So it grants nothing for as long as the
longest lease, while those who hold a lock that it knows of keep it.

After a planned switchover, which loses nothing, --end ends the pause.
--lossless says for all that fail-overs of this database lose no commit, because
the standby is synchronous or the servers share their storage: then there is no
pause. --lossless=false takes that back.`,
		Example: `  sqllock recovery
  sqllock recovery --end --reason "switched over for the upgrade"
  sqllock recovery --lossless --reason "synchronous_standby_names is set"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sets := db.given("lossless")

			switch changes := end || sets; {
			case changes && checkReason(reason) != nil:
				return usage(cmd, checkReason(reason))
			case !changes && reason != "":
				return usage(cmd, errors.New("--reason is for --end and --lossless"))
			}

			return db.look(cmd.Context(), func(l looker) (err error) {
				switch {
				case end:
					err = l.EndRecovery(cmd.Context(), trace(reason))
				case sets:
					err = l.SetLossless(cmd.Context(), lossless, trace(reason))
				}

				r := sqllock.Recovery{}
				if err == nil {
					r, err = l.Recovery(cmd.Context())
				}

				if err != nil {
					return hindered(cmd.Context(), l.db, "the pause after a fail-over cannot be looked at", err)
				}

				out := cmd.OutOrStdout()
				if json {
					return printJSON(out, recoveryOf(r))
				}

				_, err = fmt.Fprintln(out, wrapped(doctor.Said(r), terminalWidth(out)))

				return err
			})
		},
	}

	db.register(cmd)
	cmd.Flags().BoolVar(&json, "json", false, "print a JSON object")
	cmd.Flags().BoolVar(&end, "end", false, "let locks be granted now")
	cmd.Flags().BoolVar(&lossless, "lossless", false, "say that fail-overs lose no commit")
	cmd.MarkFlagsMutuallyExclusive("end", "lossless")
	cmd.Flags().StringVar(&reason, "reason", "", "`text` to record (required with --end and --lossless)")

	return cmd
}

// recoveryOf is what --json shows of a recovery.
func recoveryOf(r sqllock.Recovery) map[string]any {
	return map[string]any{
		"granting": r.Pause() == 0, "remaining_seconds": r.Pause().Seconds(), "crashed": r.Crashed, "server": r.Noted, "previous": r.Previous,
		"reason": r.Reason, "lossless": r.Lossless, "asynchronous": r.Asynchronous, "longest_seconds": r.Longest.Seconds(), "longest_by": r.LongestBy,
	}
}

// recovery is the Locker's, bounded. Where there are no pauses, or none to be seen, as by this user or on a replica, it is
// the zero value.
func (l looker) recovery(ctx context.Context) (sqllock.Recovery, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()

	r, err := l.Recovery(ctx)
	if errors.Is(err, sqllock.ErrUnsupported) || errors.Is(err, sqllock.ErrNotAllowed) || errors.Is(err, sqllock.ErrReadOnly) {
		return sqllock.Recovery{}, nil
	}

	return r, err
}
