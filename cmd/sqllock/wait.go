package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/sqllock"
)

// waitFlags are the flags of "sqllock wait".
type waitFlags struct {
	database

	wait duration
	code int
}

// Between two looks.
const (
	lookSoon  = 50 * time.Millisecond
	lookLater = time.Second
)

func newWait() *cobra.Command {
	f := &waitFlags{}

	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until nobody holds a lock, without taking it",
		Long: `Wait until nobody holds a lock, nor one of its permits, as a reader or as a
writer, without taking it. By the time the command ends somebody may hold it
again: to do something under the lock, use run. A name that only --min-hold
keeps taken is held by nobody: the command says so, and does not wait for that.`,
		Example: `  sqllock wait deploy --wait 5m && echo "the deployment is over"`,
		Args:    oneName, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.wait < 0:
				return usage(cmd, fmt.Errorf("--wait %s is negative", &f.wait))
			case f.code < 0 || f.code > 255:
				return usage(cmd, fmt.Errorf("--conflict-exit-code %d is not between 0 and 255", f.code))
			}

			return f.look(cmd.Context(), func(l looker) error {
				signals, stop := process.Catch(endings()...)
				defer stop()

				_, err := interruptible(cmd.Context(), signals, func(ctx context.Context) (struct{}, error) {
					return struct{}{}, f.until(ctx, l, args[0])
				})

				return err
			})
		},
	}

	f.register(cmd)
	cmd.Flags().VarP(&f.wait, "wait", "w", "wait at most so long; also --timeout")
	// The name that run has, and the one that reads better behind the word wait.
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "timeout" {
			name = "wait"
		}

		return pflag.NormalizedName(name)
	})
	cmd.Flags().IntVarP(&f.code, "conflict-exit-code", "E", exitConflict, "exit code if the lock is still held")

	return cmd
}

// endings are the signals that are caught to end the command, so that the line of who is
// waited for does not stay on the terminal.
func endings() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGALRM} }

func (f *waitFlags) until(ctx context.Context, l looker, name string) error {
	begun := time.Now()

	defer tell(ctx, l, name)()

	// The first look says, too, whether that is a name, and is a glance as the others are: another permit
	// may be held than the first.
	look := func(ctx context.Context, name string) (s seen, err error) {
		if s.status, err = l.Inspect(ctx, name); err == nil && (!s.status.Held() || s.status.Shared) {
			guarded := s.status.Guarded
			s, err = l.glance(ctx, name)
			s.status.Guarded = guarded
		}

		return s, err
	}

	for again := lookSoon; ; again = min(2*again, lookLater) {
		// No longer than the wait may still last, nor so short that no answer could come.
		limit := lookTime
		if f.given("wait") {
			limit = max(time.Duration(f.wait)-time.Since(begun), time.Second)
		}

		looking, cancel := context.WithTimeout(ctx, limit)
		s, err := look(looking, name)

		cancel()

		if err != nil {
			return err
		}

		if !s.status.Held() {
			sayTaken(ctx, l, s.status)

			return nil
		}

		look = l.glance

		if f.given("wait") {
			left := time.Duration(f.wait) - time.Since(begun)
			if left <= 0 {
				return exitError{f.code, fmt.Errorf("lock %q is still held by %s", name, s.by())}
			}

			again = min(again, left)
		}

		// It is not free by itself before its lease ends.
		if err := pause(ctx, again); err != nil {
			return err
		}
	}
}

// sayTaken says it if the next holder is kept out all the same.
func sayTaken(ctx context.Context, l looker, status sqllock.Status) {
	if kept := taken(status); kept != "" {
		warn(fmt.Sprintf("nobody holds lock %q, but it stays taken %s", status.Name, kept))
	}

	if status.Guarded {
		warn(fmt.Sprintf("nobody holds lock %q, but a transaction keeps the next holder out; sqllock show says whose", status.Name))
	}

	if r, err := l.recovery(ctx); err == nil && r.Pause() > 0 {
		warn(fmt.Sprintf("nobody holds lock %q, but %s", status.Name, doctor.Said(r)))
	}
}
