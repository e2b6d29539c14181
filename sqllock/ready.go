package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// Ready says whether the locker can be used: nil if it is not closed, and the database answers and has the tables of locks and of readers as
// this version needs them. The other tables are made together with those, and are not looked at. It is for a readiness probe. It reads what is known of a name that nobody can have, in two small statements on one connection
// of the pool at a time, and changes nothing. The answer is of this moment, and takes until ctx ends, 5 seconds at most.
//
// Nil does not say that locks can be acquired: whether the server takes writes, as a standby does not, and whether
// the account may write is not looked at. Nor are the locks that are held: those have contexts of their own. Do not make a liveness
// probe of it: a restart does not mend the database, and ends the locks of the process.
//
// Errors are those of [Locker.Acquire]: [ErrUnreachable] or [ErrTooManyConnections], with ctx's error if that ended the wait for the
// answer; [ErrNoSchema]; [ErrUnsupported], the server does not suit; [ErrNotAllowed]; [ErrClosed]; the database's.
func (l *Locker) Ready(ctx context.Context) error {
	const verb = "look whether the database is ready"

	if err := l.administers(ctx, verb); err != nil {
		return err
	}

	nobodys := strategies.SlotName("", 1) // a slot of a name that is empty

	err := call.Bounded(ctx, attemptTime, func(ctx context.Context) error {
		if _, _, err := l.strategy.Status(ctx, nobodys); err != nil {
			return err
		}

		_, err := l.strategy.List(ctx, strategies.Filter{Name: nobodys, Limit: 1})

		return err
	})

	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, ErrUnreachable) && !isAnswer(err):
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}

	return fmt.Errorf("%s: %w", verb, ownTime(ctx, err))
}
