package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/sqllock"
)

// share is a lock of a run around this one, under which the command runs too. In the
// process group of that run the command ends with the lock. Outside it this run asks
// the database whether the lock is still held.
type share struct {
	passed

	locker *sqllock.Locker

	mu    sync.Mutex
	asked time.Time     // before the database said
	left  time.Duration // that so much of the lease was left
	reads bool          // and that it is a shared lock
}

// shareLostError says that the lock of the run around this one has ended.
type shareLostError struct{ name string }

func (e shareLostError) Error() string {
	return fmt.Sprintf("lock %q was lost: the run around this one does not hold it any more", e.name)
}

func (e shareLostError) Unwrap() error { return sqllock.ErrLost }

// inside says whether this process is in the group that ends with the lock.
func (s *share) inside() bool { return s.group == strconv.Itoa(process.OwnGroup()) }

// look asks the database. A shareLostError: the lock is not held any more. Any other
// error: it did not say.
func (s *share) look(ctx context.Context) error {
	asked := time.Now()

	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()

	holders, err := s.locker.Holders(ctx, sqllock.Filter{Name: s.name})
	if err != nil {
		return err
	}

	i := slices.IndexFunc(holders, func(status sqllock.Status) bool { return status.Held() && s.is(status) })
	if i < 0 {
		return shareLostError{s.name}
	}

	status := holders[i]

	s.mu.Lock()
	defer s.mu.Unlock()

	// As much less as a holder trusts less.
	s.asked, s.left, s.reads = asked, status.Remaining-status.Remaining/100-10*time.Millisecond, status.Shared

	return nil
}

// Remaining is how long the lock is held at least if it is not renewed. Both clocks
// are asked: one of them stands still while the machine sleeps.
func (s *share) Remaining() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	passed := max(now.Sub(s.asked), now.Round(0).Sub(s.asked.Round(0)))

	return max(0, s.left-passed)
}

// shareRetry is the shortest time between two looks.
const shareRetry = 20 * time.Millisecond

// watch looks until the context ends, and calls lost if the lock does.
func (s *share) watch(ctx context.Context, lost context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(shareRetry, min(s.Remaining()/4, pollLater))):
		}

		if err := s.look(ctx); errors.As(err, new(shareLostError)) {
			lost(err)

			return
		}
	}
}
