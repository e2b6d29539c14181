// Package moving is the code that the pages of docs/moving quote: a task with
// another lock, the same with sqllock, and with both for the time of the
// change. Its tests run all three beside each other.
package moving

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// Work is what a lock protects. It has to end when its context does.
type Work = func(context.Context) error

// WithSQLLock edits the document while nobody else does.
func WithSQLLock(ctx context.Context, locker *sqllock.Locker, edit Work) error {
	return locker.Do(ctx, "document/7", func(ctx context.Context, _ *sqllock.Lock) error {
		return edit(ctx) // ctx ends when the lock is lost
	})
}

// Nightly runs the report on one machine of the cluster, and nowhere again
// within ten minutes.
func Nightly(ctx context.Context, locker *sqllock.Locker, report Work) error {
	return locker.TryDo(ctx, "nightly", func(ctx context.Context, _ *sqllock.Lock) error {
		return report(ctx)
	}, sqllock.WithMinHold(10*time.Minute), sqllock.WithMaxHold(time.Hour))
}

// keep renews a lock that does not renew itself, until ctx ends. A renewal that
// fails, or gets no answer, ends the work.
func keep(ctx context.Context, every time.Duration, renew func(context.Context) error, lost context.CancelCauseFunc) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}

		renewal, cancel := context.WithTimeout(ctx, every)
		err := renew(renewal)

		cancel()

		if err != nil {
			lost(err)

			return
		}
	}
}
