package grants

import (
	"cmp"
	"context"
	"errors"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// What a transaction of several statements begins and ends with, as package databases/tidb knows them.
var (
	groupBegin    = databases.Statement{Name: "group.begin", SQL: `BEGIN`}
	groupCommit   = databases.Statement{Name: "group.commit", SQL: `COMMIT`}
	groupRollback = databases.Statement{Name: "group.rollback", SQL: `ROLLBACK`}
)

// acquireEach takes one name after the other in a transaction, which commits if it has all of them. It waits for nobody's
// row lock, so that the order of the names does not matter.
func (s *Store) acquireEach(ctx context.Context, conn databases.Conn, requests []strategies.Request) ([]strategies.Grant, error) {
	// The second round follows the making of rows, once in a name's life.
	for range 2 {
		b := s.acquisitions(requests)

		all, err := b.drawEach(ctx, conn)
		if err != nil {
			return nil, s.AsHeld(ctx, conn, requests[0].Name, err)
		}

		if all {
			return b.grants, nil
		}

		missing, err := b.lookEach(ctx, conn)
		if err != nil {
			return nil, err
		}

		for _, r := range missing {
			if err := s.Briefly(ctx, conn, s.sql.Create, s.values(r)); err != nil {
				return nil, s.AsHeld(ctx, conn, r.Name, err)
			}
		}

		if held := b.refused(); held != nil || len(missing) == 0 {
			return nil, cmp.Or(held, b.errs[0])
		}
	}

	return nil, &strategies.HeldError{Name: requests[0].Name, Detail: "its row comes and goes"}
}

// drawEach grants all that was asked for, or nothing.
func (b *acquisitions) drawEach(ctx context.Context, conn databases.Conn) (all bool, err error) {
	if _, err := conn.Exec(ctx, groupBegin, nil); err != nil {
		return false, err
	}

	tokens := make([]int64, 0, len(b.requests))

	for _, r := range b.requests {
		token, err := b.drawOne(ctx, conn, r)
		if err != nil || token == 0 {
			return false, undo(ctx, conn, err)
		}

		tokens = append(tokens, token)
	}

	if _, err := conn.Exec(ctx, groupCommit, nil); err != nil {
		return false, Doubt(err)
	}

	for i, r := range b.requests {
		b.granted(r.Owner, tokens[i])
	}

	return true, nil
}

func (b *acquisitions) drawOne(ctx context.Context, conn databases.Conn, r strategies.Request) (int64, error) {
	return b.Store.draw(ctx, conn, b.sql.Acquire, b.values(r))
}

// undo rolls back, also though ctx has ended: the connection goes back to the pool.
func undo(ctx context.Context, conn databases.Conn, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patientTime)
	defer cancel()

	if _, err := conn.Exec(ctx, groupRollback, nil); err != nil {
		return Doubt(errors.Join(cause, err))
	}

	return cause
}

// lookEach asks how the names are, and returns those that have no rows.
func (b *acquisitions) lookEach(ctx context.Context, conn databases.Conn) (missing []strategies.Request, err error) {
	for i, r := range b.requests {
		st, found, err := ReadState(ctx, conn, b.sql.State, r.Name)

		switch {
		case err != nil:
			return nil, err
		case found:
			b.errs[i] = b.Refused(ctx, conn, st, r)
		default:
			missing = append(missing, r)
		}
	}

	return missing, nil
}
