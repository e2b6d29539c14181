package record

import (
	"context"
	"strconv"

	"github.com/sqllock/sqllock/databases"
)

// Kill ends the sessions whose ids a statement lists, of holders whose lock is
// to end with them.
func (s *Store) Kill(
	ctx context.Context, conn databases.Conn, list databases.Statement, values databases.Values, kill databases.Statement,
) error {
	var ids []int64

	err := conn.Query(ctx, list, values, func(row databases.Row) error {
		var id int64

		err := row(&id)
		ids = append(ids, id)

		return err
	})
	if err != nil {
		return err
	}

	for _, id := range ids {
		statement := kill

		// MySQL binds parameters in DML only (error 6413, seen on 9.7).
		if s.Dialect() == databases.MySQL {
			statement.SQL += strconv.FormatInt(id, 10)
		}

		if _, err := conn.Exec(ctx, statement, databases.Values{"id": id}); err != nil {
			return err
		}
	}

	return nil
}
