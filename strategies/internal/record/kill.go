package record

import (
	"context"
	"errors"
	"strconv"

	"github.com/sqllock/sqllock/databases"
)

// Sessions returns the ids of the server's sessions that a statement lists.
func (s *Store) Sessions(
	ctx context.Context, on databases.Session, list databases.Statement, values databases.Values,
) (ids []int64, err error) {
	err = on.Query(ctx, list, values, func(row databases.Row) error {
		var id int64

		err := row(&id)
		ids = append(ids, id)

		return err
	})

	return ids, err
}

// Kill ends sessions, whose holders' locks are to end with them. One that has
// ended by itself does not keep the others.
func (s *Store) Kill(ctx context.Context, on databases.Session, ids []int64, kill databases.Statement) error {
	var errs []error

	for _, id := range ids {
		statement := kill

		// MySQL binds parameters in DML only (error 6413, seen on 9.7).
		if s.Dialect() == databases.MySQL {
			statement.SQL += strconv.FormatInt(id, 10)
		}

		if _, err := on.Exec(ctx, statement, databases.Values{"id": id}); err != nil && !s.gone(err) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

// gone says whether a session could not be ended because there is none.
func (s *Store) gone(err error) bool { return s.db.Classify(err) == databases.NoSession }
