package grants

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// What a transaction of several statements begins and ends with, as package databases/tidb knows them.
var (
	groupBegin    = databases.Statement{Name: "group.begin", SQL: `BEGIN`}
	groupCommit   = databases.Statement{Name: "group.commit", SQL: `COMMIT`}
	groupRollback = databases.Statement{Name: "group.rollback", SQL: `ROLLBACK`}
)

// inTransaction commits what do has done if it says so, and rolls it back otherwise.
func inTransaction(ctx context.Context, conn databases.Conn, do func() (done bool, err error)) (done bool, err error) {
	return transaction(ctx, conn, []databases.Statement{groupBegin}, do)
}

// transaction is inTransaction for one that begins in another way.
func transaction(
	ctx context.Context, conn databases.Conn, begin []databases.Statement, do func() (done bool, err error),
) (done bool, err error) {
	if err := execAll(ctx, conn, begin, nil); err != nil {
		return false, err
	}

	if done, err = do(); done && err == nil {
		if _, err := conn.Exec(ctx, groupCommit, nil); err != nil {
			return false, Doubt(err)
		}

		return true, nil
	}

	return false, rollBack(ctx, conn, err)
}

// rollBack ends a transaction, also though ctx has ended: the connection goes back to the pool. It returns the cause.
func rollBack(ctx context.Context, conn databases.Conn, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patientTime)
	defer cancel()

	if _, failed := conn.Exec(ctx, groupRollback, nil); failed != nil {
		return Doubt(errors.Join(cause, failed))
	}

	return cause
}

// acquireEach takes one name after the other in a transaction, which commits if it has all of them. It waits for nobody's
// row lock, so that the order of the names does not matter.
func (s *Store) acquireEach(ctx context.Context, conn databases.Conn, requests []strategies.Request) ([]strategies.Grant, error) {
	// The second round follows the making of rows, once in a name's life.
	for range 2 {
		b := s.acquisitions(requests)

		all, err := b.drawEach(ctx, conn)

		switch {
		case err != nil:
			return nil, s.AsHeld(ctx, conn, requests[0].Name, err)
		case all:
			return b.grants, nil
		}

		missing, err := b.lookEach(ctx, conn)
		if err != nil {
			return nil, err
		}

		if err := s.createEach(ctx, conn, missing); err != nil {
			return nil, s.AsHeld(ctx, conn, missing[0].Name, err)
		}

		if held := b.refused(); held != nil || len(missing) == 0 {
			return nil, cmp.Or(held, b.errs[0])
		}
	}

	return nil, &strategies.HeldError{Name: requests[0].Name, Detail: "its row comes and goes"}
}

// drawEach grants all that was asked for, or nothing.
func (b *acquisitions) drawEach(ctx context.Context, conn databases.Conn) (all bool, err error) {
	tokens := make([]int64, len(b.requests))

	all, err = inTransaction(ctx, conn, func() (bool, error) {
		for i, r := range b.requests {
			var err error
			if tokens[i], err = b.Store.draw(ctx, conn, b.sql.Acquire, b.values(r)); tokens[i] == 0 || err != nil {
				return false, err
			}
		}

		return true, nil
	})

	for i, r := range b.requests {
		if all {
			b.granted(r.Owner, tokens[i])
		}
	}

	return all, err
}

// lookEach asks how the names are, and returns those that have no rows.
func (b *acquisitions) lookEach(ctx context.Context, conn databases.Conn) (missing []strategies.Request, err error) {
	_, err = inTransaction(ctx, conn, func() (bool, error) {
		for i, r := range b.requests {
			st, found, err := ReadState(ctx, conn, b.sql.State, r.Name)

			switch {
			case err != nil:
				return false, err
			case found && !b.Unready(st):
				b.errs[i] = b.Refused(ctx, conn, st, r)
			default:
				missing = append(missing, r)
			}
		}

		return true, nil
	})

	return missing, err
}

// createEach makes the rows of names.
func (s *Store) createEach(ctx context.Context, conn databases.Conn, missing []strategies.Request) error {
	for _, r := range missing {
		if err := s.Briefly(ctx, conn, s.sql.Create, s.values(r)); err != nil {
			return err
		}
	}

	return nil
}

// enqueueEach is enqueueAll in a transaction, whose clock is the same for all.
func (s *Store) enqueueEach(
	ctx context.Context, conn databases.Conn, all []strategies.Waiter, ttl time.Duration,
) (taken map[string]bool, err error) {
	taken = make(map[string]bool, len(all))
	steps := s.sql.EnqueueAll

	_, err = inTransaction(ctx, conn, func() (bool, error) {
		for _, w := range all {
			values := waiterValues(w, ttl)
			if err := execAll(ctx, conn, steps[:len(steps)-1], values); err != nil {
				return false, err
			}

			known, err := byOwner[bool](ctx, conn, steps[len(steps)-1], values, 1)
			if err != nil {
				return false, err
			}

			maps.Copy(taken, known)
		}

		return true, nil
	})

	return taken, err
}
