package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
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

// tell says who holds the lock that is waited for, of several one that is not free, until the function it returns is called.
func tell(ctx context.Context, l looker, names ...string) (end func()) {
	ctx, cancel := context.WithCancel(ctx)

	var told sync.WaitGroup

	told.Go(func() {
		if term.IsTerminal(int(os.Stderr.Fd())) {
			shown := false

			for wait := progressFirst; pause(ctx, wait) == nil; wait = progressEvery {
				if w := waitingFor(ctx, l, names); w.why != "" {
					progressLine(w)

					shown = true
				}
			}

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

		for wait := plainFirst; pause(ctx, wait) == nil; wait = plainLook {
			w := waitingFor(ctx, l, names)

			if w.why != "" && (time.Since(said) >= plainEvery || w.unreachable != gone) {
				warn(waitingText + w.name + w.why)

				said, gone = time.Now(), w.unreachable
			}
		}
	})

	return func() {
		cancel()
		told.Wait()
	}
}

// clearLine puts the cursor to the line's begin and clears the line.
const clearLine = "\r\x1b[K"

// leastName is how many columns a name keeps for the sake of what follows it.
const leastName = 16

func progressLine(w waiting) {
	// The last column is left free: some terminals go to the next line there.
	width := cmp.Or(terminalWidth(os.Stderr), helpWidth) - 1
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

func waitingFor(ctx context.Context, l looker, names []string) waiting {
	s, err := l.glance(ctx, names[0])
	for _, name := range names[1:] {
		// What this process has it keeps while it waits for another.
		if err == nil && (!s.status.Held() || isOurs(s.status.Holder)) {
			s, err = l.glance(ctx, name)
		}
	}

	status := s.status
	w := waiting{name: plain.Text(status.Name)}

	switch {
	case ctx.Err() != nil:
	case errors.Is(err, sqllock.ErrUnreachable):
		w.why, w.unreachable = "; the database cannot be reached or does not answer", true
	case errors.Is(err, sqllock.ErrTooManyConnections):
		said := oneLine(err.Error())
		w.why = "; " + said[max(0, strings.Index(said, sqllock.ErrTooManyConnections.Error())):]
	case err != nil:
		w.why = "; who holds it is not known: " + oneLine(err.Error())
	case status.Held():
		w.why = fmt.Sprintf(", held by %s for %s, lease %s%s", s.by(), text.Duration(status.HeldFor),
			text.Duration(status.Remaining), inLine(l.place(ctx, status.Name)))
	case status.Taken > 0:
		w.why = ", held by nobody, taken " + taken(status) + inLine(l.place(ctx, status.Name))
	default:
		w.why = ", held by nobody: it changes hands, the database is busy, or an open transaction has its row locked" +
			inLine(l.place(ctx, status.Name))

		if r, err := l.recovery(ctx); err == nil && r.Pause() > 0 {
			w.why = "; " + doctor.Said(r)
		}
	}

	return w
}

// isOurs says whether it is this process that holds or waits.
func isOurs(holder sqllock.Holder) bool { return processOf(holder) == processOf(thisProcess()) }

// thisProcess is who holds the locks of this process, and waits for them.
func thisProcess() sqllock.Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host" // as the library says
	}

	return sqllock.Holder{Host: host, PID: os.Getpid()}
}

// inLine says how many others come before a place; nothing if that is not known.
func inLine(place int) string {
	switch place {
	case 0:
		return ""
	case 1:
		return ", next in line"
	default:
		return fmt.Sprintf(", %d ahead in line", place-1)
	}
}

// place is that of this process among those who wait for a name; zero if that is not known.
func (l looker) place(ctx context.Context, name string) int {
	waiters, err := l.Waiters(ctx, sqllock.WaiterFilter{Name: name})
	if i := slices.IndexFunc(waiters, func(w sqllock.Waiter) bool { return isOurs(w.Holder) }); err == nil && i >= 0 {
		return waiters[i].Place
	}

	return 0
}
