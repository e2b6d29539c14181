package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// Listen tells of releases, where the database can tell.
func (s *Store) Listen(ctx context.Context, ready func(), released func(name string)) error {
	listener, ok := s.db.(databases.Listener)
	if !ok {
		return fmt.Errorf("%w: notifications on %s", sqllock.ErrUnsupported, s.Dialect())
	}

	err := listener.Listen(ctx, Channel, ready, released)
	if errors.Is(err, databases.ErrNoNotifications) {
		return fmt.Errorf("%w: %w", sqllock.ErrUnsupported, err)
	}

	return err
}

// Register notes for so long that somebody waits for the name.
func (s *Store) Register(ctx context.Context, name string, d time.Duration) (registered bool, err error) {
	err = s.On(ctx, func(conn databases.Conn) error {
		result, err := conn.Exec(ctx, s.statements.Register, databases.Values{"name": name, "for": ceil(d)})
		registered = result.RowsAffected > 0

		return err
	})
	if s.Busy(err) {
		err = nil
	}

	return registered, err
}
