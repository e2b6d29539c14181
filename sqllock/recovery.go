package sqllock

import (
	"context"
	"fmt"

	"github.com/sqllock/sqllock/strategies"
)

// Recovery is what the database knows of fail-overs. Its fields are those of [strategies.Recovery].
type Recovery = strategies.Recovery

// Recovery says whether nothing is granted yet, because another server has become the primary of the database and may lack what the
// one before has granted, or it has crashed with [Tuning].AsynchronousCommit, and until when: see [ErrRecovering]. Errors: [ErrUnsupported] if the database has no such pauses: SQLite,
// TiDB, and strategy quorum, each of whose servers has its own; [ErrReadOnly] on a replica; [ErrClosed]; the database's.
func (l *Locker) Recovery(ctx context.Context) (recovery Recovery, err error) {
	err = l.recoverer(ctx, "look for a recovery pause", func(r strategies.Recoverer) error {
		recovery, err = r.Recovery(ctx)

		return err
	})

	return recovery, err
}

// EndRecovery ends a recovery pause, and one that would begin because the server has changed, for whoever knows that the server has
// all that was granted: after a planned switchover for example. The reason is recorded: [Recovery]. Errors are those of
// [Locker.Recovery]; [ErrInvalidOption], the reason is empty; [ErrUnreachable] if a transaction has the row locked that says so.
func (l *Locker) EndRecovery(ctx context.Context, reason string) error {
	return l.recoverer(ctx, "end a recovery pause", func(r strategies.Recoverer) error {
		reason, err := cleanReason(reason)
		if err != nil {
			return err
		}

		return r.EndRecovery(ctx, reason)
	})
}

// SetLossless says for all who use the database that its fail-overs lose no commit, so that there are no recovery pauses: the standby
// is synchronous, or the servers share their storage. It ends a pause. False is the default. The reason is recorded: [Recovery]. Errors
// are those of [Locker.EndRecovery].
func (l *Locker) SetLossless(ctx context.Context, lossless bool, reason string) error {
	return l.recoverer(ctx, "say whether fail-overs lose commits", func(r strategies.Recoverer) error {
		reason, err := cleanReason(reason)
		if err != nil {
			return err
		}

		return r.SetLossless(ctx, lossless, reason)
	})
}

// recoverer does something with the strategy, if its database has recovery pauses.
func (l *Locker) recoverer(ctx context.Context, verb string, do func(strategies.Recoverer) error) error {
	if err := l.administers(ctx, verb); err != nil {
		return err
	}

	recoverer, ok := l.strategy.(strategies.Recoverer)
	if !ok || !l.features.Recovers {
		return fmt.Errorf("%s: %w by strategy %s on %s, which has none", verb, ErrUnsupported, l.features.Strategy, l.features.Database)
	}

	if err := do(recoverer); err != nil {
		return fmt.Errorf("%s: %w", verb, ownTime(ctx, err))
	}

	return nil
}
