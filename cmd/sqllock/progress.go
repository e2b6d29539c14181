package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// How often it is said who is waited for: on a terminal in one line that
// changes, otherwise in plain lines that a log can bear.
const (
	progressFirst = 300 * time.Millisecond
	progressEvery = time.Second
	plainFirst    = 2 * time.Second
	plainEvery    = time.Minute
)

// tell says who holds the lock that is waited for until the function it returns
// is called.
func tell(ctx context.Context, locker *sqllock.Locker, name string) (end func()) {
	ctx, cancel := context.WithCancel(ctx)

	var told sync.WaitGroup

	told.Go(func() {
		if term.IsTerminal(int(os.Stderr.Fd())) {
			shown := false

			every(ctx, progressFirst, progressEvery, func() {
				if line := waitingFor(ctx, locker, name); line != "" {
					progressLine(line)

					shown = true
				}
			})

			// Else the line is somebody else's, who may have left the cursor in it.
			if shown {
				_, _ = fmt.Fprint(os.Stderr, clearLine)
			}

			return
		}

		every(ctx, plainFirst, plainEvery, func() {
			if line := waitingFor(ctx, locker, name); line != "" {
				warn(line)
			}
		})
	})

	return func() {
		cancel()
		told.Wait()
	}
}

// every calls f after first and then again and again, until ctx ends.
func every(ctx context.Context, first, then time.Duration, f func()) {
	timer := time.NewTimer(first)
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			f()
			timer.Reset(then)
		}
	}
}

// clearLine puts the cursor to the line's begin and clears the line.
const clearLine = "\r\x1b[K"

func progressLine(line string) {
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}

	// The last column is left free: some terminals go to the next line there.
	_, _ = fmt.Fprint(os.Stderr, clearLine+text.Fit(line, width-1))
}

// waitingFor is the line; empty if there is nothing to say any more.
func waitingFor(ctx context.Context, locker *sqllock.Locker, name string) string {
	lock, err := locker.Inspect(ctx, name)

	switch {
	case ctx.Err() != nil:
		return ""
	case errors.Is(err, sqllock.ErrNotHeld):
		return "waiting for " + plain.Text(name) + ", held by nobody" + whyTaken(ctx, locker, name)
	case err != nil:
		return "waiting for " + plain.Text(name) + "; who holds it is not known: " + oneLine(err.Error())
	default:
		return fmt.Sprintf("waiting for %s, held by %s for %s, lease %s", plain.Text(name), plain.Text(lock.Holder.String()),
			text.Duration(lock.HeldFor), text.Duration(lock.Remaining))
	}
}

// whyTaken says what keeps a name that nobody holds.
func whyTaken(ctx context.Context, locker *sqllock.Locker, name string) string {
	last, err := locker.LastGrant(ctx, name)
	if err != nil || last.Taken <= 0 {
		return ": it changes hands, or the database is busy"
	}

	return ", taken " + taken(last)
}
