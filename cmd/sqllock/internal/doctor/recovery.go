package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// longPause is a pause after a fail-over that is worth a warning.
const longPause = 10 * time.Minute

// recovery says whether locks are granted, and for how long they would not be after a fail-over.
func recovery(ctx context.Context, e *exam) ([]Finding, error) {
	if !e.usable || e.Locker == nil {
		return nil, nil
	}

	locker, err := e.Locker(e.Lease)
	if err != nil {
		return nil, nil // the check of the strategy tells
	}
	defer closed(ctx, locker)

	r, err := locker.Recovery(ctx)
	e.longest = r.Longest

	switch {
	case errors.Is(err, sqllock.ErrUnsupported):
		return nil, nil
	case err != nil:
		return nil, err
	case r.Pause() > 0:
		e.usable = false // an attempt would begin the pause

		fix := "wait"
		if !r.Asynchronous { // with which a crash loses commits
			fix += `, or, if no commit was lost, run "sqllock recovery --end"`
		}

		return found(Warning, Said(r), "no lock can be acquired, and none was tried here", fix), nil
	case r.Longest >= longPause && (!r.Lossless || r.Asynchronous):
		return found(Warning, fmt.Sprintf("a lease of %s was asked for by %s", r.Longest.Round(time.Second), r.LongestBy),
			"after a fail-over nothing is granted for as long", "give long work a short lease, which is renewed"), nil
	default:
		return fine("%s", forecast(r)), nil
	}
}

// Said is what a person is told of a recovery.
func Said(r sqllock.Recovery) string {
	begins := fmt.Sprintf("nothing is granted for %s, counted from the next attempt to acquire a lock: ", r.Pause().Round(time.Millisecond))

	switch {
	case r.Remaining > 0 && r.Remaining >= r.Pause(): // or else there was another fail-over since
		return fmt.Sprintf("nothing is granted for another %s, until %s: %s", r.Remaining.Round(time.Millisecond),
			time.Now().Add(r.Remaining).UTC().Format("15:04:05 UTC"), plain.Text(r.Reason))
	case r.Pause() == 0:
		return "locks are granted; " + forecast(r)
	case r.Server == r.Noted:
		return begins + "the server has crashed, and grants commit asynchronously"
	default:
		return begins + "another server has become the primary"
	}
}

// forecast says what is known of the next fail-over.
func forecast(r sqllock.Recovery) string {
	after := "after a fail-over"
	if r.Asynchronous {
		after = "grants commit asynchronously: after a fail-over or a crash"
	}

	said := fmt.Sprintf("%s nothing is granted for %s, the longest lease, asked for by %s", after, r.Longest.Round(time.Millisecond), r.LongestBy)

	switch {
	case r.Lossless && r.Asynchronous:
		return said + "; --lossless does not count as long as they do"
	case r.Lossless:
		return "fail-overs are said to lose no commit: there is no pause after them; the latest reason given: " + r.Reason
	case r.Longest == 0:
		return "no lease is known"
	default:
		return said
	}
}
