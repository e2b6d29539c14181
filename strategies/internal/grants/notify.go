package grants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Listen tells of releases, where the database can tell.
func (s *Store) Listen(ctx context.Context, ready func(), released func(name string)) error {
	listener, ok := s.db.(databases.Listener)
	if !ok {
		return fmt.Errorf("%w: notifications on %s", strategies.ErrUnsupported, s.sql.Name)
	}

	err := listener.Listen(ctx, Channel, ready, released)
	if errors.Is(err, databases.ErrNoNotifications) {
		return fmt.Errorf("%w: %w", strategies.ErrUnsupported, err)
	}

	return err
}

// Register notes for so long that somebody waits for the name. It returns false if the
// row is locked.
func (s *Store) Register(ctx context.Context, name string, d time.Duration) (registered bool, err error) {
	defer func() {
		if s.Busy(err) {
			err = nil
		}
	}()

	conn, err := s.Conn(ctx)
	if err != nil {
		return false, err
	}

	defer s.Return(conn, &err)

	result, err := conn.Exec(ctx, s.sql.Register, databases.Values{"name": name, "for": ceil(d)})

	return result.RowsAffected > 0, err
}
