package forupdate

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/internal/record"
)

// Reap also ends the sessions of holders whose lease ran out. The server does
// so by itself, unless something keeps such a session busy.
func (s *Strategy) Reap(ctx context.Context, retention time.Duration) (sqllock.Reaped, error) {
	err := s.store.On(ctx, func(conn databases.Conn) error { return s.kill(ctx, conn, s.sql.sessions, nil) })
	if err != nil {
		return sqllock.Reaped{}, err
	}

	return s.Admin.Reap(ctx, retention)
}

// ForceRelease also ends the session that holds the lock.
func (s *Strategy) ForceRelease(ctx context.Context, name, reason string) error {
	var st record.State

	err := s.store.On(ctx, func(conn databases.Conn) (err error) {
		st, _, err = s.store.State(ctx, conn, name)

		return err
	})
	if err != nil {
		return err
	}

	if err := s.Admin.ForceRelease(ctx, name, reason); err != nil {
		return err
	}

	return s.store.On(ctx, func(conn databases.Conn) error {
		return s.kill(ctx, conn, s.sql.session, s.values(sqllock.Request{Name: name, Owner: st.Owner}, 0))
	})
}

// kill ends the sessions that a statement lists.
func (s *Strategy) kill(
	ctx context.Context, conn databases.Conn, list databases.Statement, values databases.Values,
) error {
	ids, err := s.store.Sessions(ctx, conn, list, values)
	if err != nil {
		return err
	}

	return s.store.Kill(ctx, conn, ids, s.sql.kill)
}
