package grants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// freedTime bounds the look after a commit.
const freedTime = time.Second

// Listen tells of releases, where the database can tell. Where it tells of commits only,
// it looks which names are free.
func (q Queue) Listen(ctx context.Context, ready func(), released func(name string)) error {
	s := q.store

	listener, ok := s.db.(databases.Listener)
	if !ok {
		return fmt.Errorf("%w: notifications on %s", strategies.ErrUnsupported, s.sql.Name)
	}

	told := released

	// Who begins to wait asks sooner than a commit is seen, and has to go on asking.
	if s.sql.Freed.SQL != "" {
		ready, told = func() {}, func(string) { s.freed(ctx, released) }
	}

	err := listener.Listen(ctx, Channel, ready, told)
	if errors.Is(err, databases.ErrNoNotifications) {
		return fmt.Errorf("%w: %w", strategies.ErrUnsupported, err)
	}

	return err
}

// freed tells of the names that are free and waited for. An error is that of a moment: the
// next commit brings another look.
func (s *Store) freed(ctx context.Context, released func(name string)) {
	ctx, cancel := context.WithTimeout(ctx, freedTime)
	defer cancel()

	conn, err := s.LookConn(ctx)
	if err != nil {
		return
	}

	defer s.Return(conn, &err)

	err = conn.Query(ctx, s.sql.Freed, nil, func(row databases.Row) error {
		var name string

		err := row(&name)
		if err == nil {
			released(name)
		}

		return err
	})
}

// Register notes for so long that somebody waits for the name. It returns false if the
// row is locked.
func (q Queue) Register(ctx context.Context, name string, d time.Duration) (registered bool, err error) {
	s := q.store

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
