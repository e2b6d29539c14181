//go:build unix

package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ownError is what kept a round from being run, or from being judged: a server that did not come up, a connection of
// the set-up that timed out. It says nothing of the locks.
type ownError struct{ error }

func (o ownError) Unwrap() error { return o.error }

// own makes an error one of the run itself.
func own(err error) error {
	if err == nil {
		return nil
	}

	return ownError{err}
}

// tries is how often a round is begun that could not be run.
const tries = 3

// tryRound runs a round, and runs it again if it could not be run.
func (h *host) tryRound(ctx context.Context, s Settings, seed uint64, log io.Writer) (judged result, err error) {
	for try := 1; ; try++ {
		judged, err = h.run(ctx, s, seed)

		var fault ownError
		if try == tries || ctx.Err() != nil || !errors.As(err, &fault) {
			return judged, err
		}

		fmt.Fprintf(log, "%-18s seed %d: could not run, tried again: %v\n", h.pair, seed, err)

		_ = os.RemoveAll(judged.folder)
	}
}

// patiently calls f, which prepares or reads and may be repeated, until it succeeds: a server that has just been
// started, on a machine that has much to do, may not answer at once.
func patiently(ctx context.Context, f func() error) error {
	const (
		most  = 10
		pause = 200 * time.Millisecond
	)

	for try := 1; ; try++ {
		err := f()
		if err == nil || try == most || ctx.Err() != nil {
			return own(err)
		}

		sleep(ctx, time.Duration(try)*pause)
	}
}
