package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// longPause is a pause after a fail-over that is worth a warning.
const longPause = 10 * time.Minute

// recovery says whether locks are granted, and for how long they would not be after a fail-over.
func recovery(ctx context.Context, e *exam) ([]Finding, error) {
	if !e.usable || e.Locker == nil {
		return nil, nil
	}

	locker, err := e.Locker()
	if err != nil {
		return nil, nil // the check of the strategy tells
	}
	defer closed(ctx, locker)

	switch r, err := locker.Recovery(ctx); {
	case errors.Is(err, sqllock.ErrUnsupported):
		return nil, nil
	case err != nil:
		return nil, err
	case r.Pause() > 0:
		why := "another server has become the primary"
		if r.Crashed || r.Remaining > 0 && r.Asynchronous {
			why = "there was a fail-over, or a crash with asynchronous commit"
		}

		return found(Warning, why, fmt.Sprintf("nothing is granted for %s", r.Pause().Round(time.Second)),
			`wait, or, if no commit was lost, run "sqllock recovery --end"`), nil
	case r.Lossless && !r.Asynchronous:
		return fine("fail-overs are said to lose no commit: %s", r.Reason), nil
	case r.Longest >= longPause:
		return found(Warning, fmt.Sprintf("a lease of %s was asked for by %s", r.Longest.Round(time.Second), r.LongestBy),
			"after a fail-over nothing is granted for as long", "give long work a short lease, which is renewed"), nil
	default:
		return fine("after a fail-over nothing is granted for %s, the longest lease", r.Longest.Round(time.Millisecond)), nil
	}
}
