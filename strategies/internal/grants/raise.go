package grants

import (
	"context"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Raise returns a grant under a token, if that is larger than its own. Where the answer to an earlier call was lost the row
// has the token already.
func (s *Store) Raise(ctx context.Context, granted strategies.Grant, token int64) (raised strategies.Grant, err error) {
	g, ok := granted.State.(*Grant)
	if !ok {
		return raised, notOurs(granted)
	}

	conn, err := s.Conn(ctx)
	if err != nil {
		return raised, replaced(err)
	}

	defer s.Return(conn, &err)

	last, err := g.raise(ctx, conn, token)
	if err != nil {
		return raised, err
	}

	// One token: what was reserved is below it.
	r := g.request
	r.Tokens = 1

	return s.Grant(r, last).Granted(), nil
}

// raise returns the token that the row has afterwards.
func (g *Grant) raise(ctx context.Context, on databases.Session, token int64) (last int64, err error) {
	s, values := g.store, g.store.values(g.request)
	values["token"] = token

	// Above Read Committed it is refused where another has changed the row since it began: a renewal, for example. Where
	// there is one writer it has waited for that already.
	for range conflictTries {
		if last, err = s.draw(ctx, on, s.sql.Raise, values); !s.Busy(err) || s.sql.OneWriter {
			break
		}
	}

	switch {
	case s.Busy(err):
		return 0, busyError{"another transaction is in the way of the token", err}
	case err != nil || last > 0:
		return last, err
	}

	st, found, err := ReadState(ctx, on, s.sql.State, g.request.Name)

	switch {
	case err != nil:
		return 0, err
	case found && st.Owner == g.request.Owner:
		return 0, busyError{"another transaction is in the way of the token", errRowLocked}
	default:
		return 0, g.lost(st)
	}
}
