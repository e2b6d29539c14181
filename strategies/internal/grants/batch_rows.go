package grants

import (
	"context"

	"github.com/sqllock/sqllock/databases"
)

// besides runs what changes records, in a transaction if it also has to change rows beside them. A commit that SQLite
// refuses has left the transaction open.
func (s *Store) besides(ctx context.Context, conn databases.Conn, change func(*Rows) error) error {
	rows := s.sql.batch.Rows
	if rows == nil {
		return change(nil)
	}

	if _, err := conn.Exec(ctx, rows.Begin, nil); err != nil {
		return err
	}

	err := change(rows)
	if err == nil {
		_, err = conn.Exec(ctx, groupCommit, nil)
	}

	if err == nil {
		return nil
	}

	return rollBack(ctx, conn, err)
}

// release sends the release of grants, which returns the owners that it was done for.
func (t *together) release(ctx context.Context, conn databases.Conn, values databases.Values) error {
	var contended map[string]bool

	err := t.besides(ctx, conn, func(rows *Rows) (err error) {
		if rows != nil {
			if _, err = conn.Exec(ctx, rows.Delete, values); err != nil {
				return err
			}
		}

		contended, err = byOwner[bool](ctx, conn, t.sql.batch.Release, values, len(t.requests))

		return err
	})
	if err == nil {
		t.allDone(contended)
	}

	return err
}
