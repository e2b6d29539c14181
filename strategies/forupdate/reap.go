package forupdate

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/sessions"
)

// Reap also ends the sessions of holders whose lease expired. The server does
// so by itself, unless something keeps such a session busy.
func (s *Strategy) Reap(ctx context.Context, retention time.Duration) (strategies.Reaped, error) {
	if err := s.kill(ctx, s.sql.Sessions, nil); err != nil {
		return strategies.Reaped{}, err
	}

	return s.base.Reap(ctx, retention)
}

// ForceRelease also ends the session of the holder whose grant it ended, or those of all readers.
func (s *Strategy) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (bool, error) {
	owner, found, err := s.store.Force(ctx, seen, reason)
	if err != nil || owner == "" {
		return found, err
	}

	owners, err := s.store.Owners(ctx, seen.Name, owner)
	if err != nil {
		return true, err
	}

	for _, owner := range owners {
		if err := s.kill(ctx, s.sql.Session, s.values(strategies.Request{Name: seen.Name, Owner: owner}, 0)); err != nil {
			return true, err
		}
	}

	return true, nil
}

// endSession makes sure that a session of ours that broke down is gone. It has the
// owner's mark, which no other has.
func (s *Strategy) endSession(ctx context.Context, r strategies.Request) error {
	return s.store.EndSessions(ctx, s.sql.Session, s.values(r, 0), sessions.Any, s.sql.Kill)
}

// kill ends the sessions that a statement lists.
func (s *Strategy) kill(ctx context.Context, list databases.Statement, values databases.Values) error {
	return sessions.End(ctx, s.store, list, values, sessions.Any, s.sql.Kill)
}
