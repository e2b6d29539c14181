package forupdate

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Reap also ends the sessions of holders whose lease expired. The server does
// so by itself, unless something keeps such a session busy.
func (s *Strategy) Reap(ctx context.Context, retention time.Duration) (strategies.Reaped, error) {
	if _, err := s.endSessions(ctx, s.sql.Sessions, nil); err != nil {
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
		if _, err := s.endSessions(ctx, s.sql.Session, s.values(strategies.Request{Name: seen.Name, Owner: owner}, 0)); err != nil {
			return true, err
		}
	}

	return true, nil
}

// endSessions ends the sessions that a statement lists.
func (s *Strategy) endSessions(ctx context.Context, list databases.Statement, values databases.Values) (left bool, err error) {
	return s.store.EndSessions(ctx, list, values, nil, s.sql.Kill)
}
