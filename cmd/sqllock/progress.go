package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
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
	// Sooner if the database has gone away, or come back.
	plainLook = 5 * time.Second
)

// tell says who holds the lock that is waited for until the function it returns
// is called. full is why no connection was to be had lately, if it is for that.
func tell(ctx context.Context, locker *sqllock.Locker, name string, full func() error) (end func()) {
	ctx, cancel := context.WithCancel(ctx)

	var told sync.WaitGroup

	told.Go(func() {
		if term.IsTerminal(int(os.Stderr.Fd())) {
			shown := false

			every(ctx, progressFirst, progressEvery, func() {
				if w := waitingFor(ctx, locker, name, full); w.why != "" {
					progressLine(w)

					shown = true
				}
			})

			// Else the line is somebody else's, who may have left the cursor in it.
			if shown {
				_, _ = fmt.Fprint(os.Stderr, clearLine)
			}

			return
		}

		var (
			said time.Time
			gone bool
		)

		every(ctx, plainFirst, plainLook, func() {
			w := waitingFor(ctx, locker, name, full)

			if w.why != "" && (time.Since(said) >= plainEvery || w.unreachable != gone) {
				warn(waitingText + w.name + w.why)

				said, gone = time.Now(), w.unreachable
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

// leastName is how many columns a name keeps for the sake of what follows it.
const leastName = 16

func progressLine(w waiting) {
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}

	// The last column is left free: some terminals go to the next line there.
	width--

	name := text.FitMiddle(w.name, max(width-text.Width(waitingText+w.why), leastName))
	_, _ = fmt.Fprint(os.Stderr, clearLine+text.Fit(waitingText+name+w.why, width))
}

const waitingText = "waiting for "

// waiting is what is said of a wait.
type waiting struct {
	name string
	// why it lasts; empty if there is nothing to say any more.
	why string
	// unreachable: it is for the database.
	unreachable bool
}

func waitingFor(ctx context.Context, locker *sqllock.Locker, name string, full func() error) waiting {
	looking, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()

	status, err := glance(looking, locker, name)
	w := waiting{name: plain.Text(name)}

	switch {
	case ctx.Err() != nil:
	case errors.Is(err, sqllock.ErrUnreachable):
		w.why, w.unreachable = "; the database cannot be reached or does not answer", true
	case errors.Is(err, sqllock.ErrTooManyConnections):
		w.why = noConnection(err)
	case err != nil:
		w.why = "; who holds it is not known: " + oneLine(err.Error())
	case status.Held():
		w.why = fmt.Sprintf(", held by %s for %s, lease %s%s",
			plain.Text(status.Holder.String()), text.Duration(status.HeldFor), text.Duration(status.Remaining), inLine(looking, locker, name))
	default:
		w.why = whyTaken(status, full())
	}

	return w
}

// inLine says how many others come before this process; nothing if none do, or that is not
// known.
func inLine(ctx context.Context, locker *sqllock.Locker, name string) string {
	waiters, err := locker.Waiters(ctx, sqllock.WaiterFilter{Name: name})
	host, _ := os.Hostname()

	for _, waiter := range waiters {
		switch {
		case err != nil || waiter.Holder.PID != os.Getpid() || waiter.Holder.Host != host:
		case waiter.Place == 1:
			return ", next in line"
		default:
			return fmt.Sprintf(", %d ahead in line", waiter.Place-1)
		}
	}

	return ""
}

// whyTaken says what keeps a name that nobody holds.
func whyTaken(status sqllock.Status, full error) string {
	switch {
	case status.Taken > 0:
		return ", held by nobody, taken " + taken(status)
	case full != nil:
		return noConnection(full)
	default:
		return ", held by nobody: it changes hands, or the database is busy"
	}
}

// noConnection is what is said of a wait for a connection, whether the attempt at the
// lock met it or the look at who holds it.
func noConnection(err error) string {
	said := oneLine(err.Error())

	return "; " + said[max(0, strings.Index(said, sqllock.ErrTooManyConnections.Error())):]
}
