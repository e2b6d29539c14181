package grants

import (
	"context"
	"errors"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// What a strategy keeps beside the records changes together with them: in the same statement, and then nothing here is needed;
// in one transaction (besides); or in steps, each of which commits by itself: taken and deleted.

// inSteps says whether records and rows change in steps.
func (s *Store) inSteps() bool {
	return s.sql.Rows.Make.SQL != "" && s.sql.Rows.Begin.SQL == ""
}

// withSideRows runs what changes records, in a transaction if it also has to change rows beside them. A commit that SQLite
// refuses has left the transaction open.
func (s *Store) withSideRows(ctx context.Context, conn databases.Conn, change func(rows bool) error) error {
	begin := s.sql.Rows.Begin
	if begin.SQL == "" {
		return change(false)
	}

	if _, err := conn.Exec(ctx, begin, nil); err != nil {
		return err
	}

	err := change(true)
	if err == nil {
		_, err = conn.Exec(ctx, s.sql.Commit, nil)
	}

	if err == nil {
		return nil
	}

	return s.rollBack(ctx, conn, err)
}

// release sends the release of grants, which returns the owners that it was done for.
func (t *together) release(ctx context.Context, conn databases.Conn, values databases.Values) error {
	var contended map[string]bool

	err := t.withSideRows(ctx, conn, func(rows bool) (err error) {
		if rows {
			if _, err = conn.Exec(ctx, t.sql.Rows.Delete, values); err != nil {
				return err
			}
		}

		return t.quietly(t.sql.Batch.Release, t.sql.Batch.ReleaseQuietly, func(release databases.Statement) (err error) {
			contended, err = byOwner[bool](ctx, conn, release, values, len(t.requests))

			return err
		})
	})
	if err == nil {
		t.allDone(contended)
	}

	return err
}

// rowed is the state of a name, and the owner of its row if records and rows change in steps.
type rowed struct {
	State

	row string
}

// states reads those of names by a statement, which has the name before the columns of State.
func (s *Store) states(
	ctx context.Context, conn databases.Conn, statement databases.Statement, values databases.Values,
) (map[string]rowed, error) {
	states := make(map[string]rowed)

	err := conn.Query(ctx, statement, values, func(row databases.Row) (err error) {
		var (
			name string
			st   rowed
		)

		more := []any{&name}
		if s.inSteps() {
			more = append(more, &st.row)
		}

		st.State, err = scan(row, more...)
		states[name] = st

		return err
	})
	if err != nil {
		return nil, err
	}

	return states, nil
}

// taken looks what became of the records that were asked for, after it has made their rows where they change in steps. A record whose
// row could not be made is given back, or the name would be held by nobody until its lease ends. It returns those that have no
// records.
func (b *acquisitions) taken(
	ctx context.Context, conn databases.Conn, asked []strategies.Request, values databases.Values,
) (missing []strategies.Request, err error) {
	sql := &b.sql.Batch
	if !b.inSteps() {
		return b.look(ctx, conn, sql.State, asked, values)
	}

	var made error

	// It makes all rows or none. Either way some of the records may be ours.
	if b.changed {
		if made = b.WithLockTimeout(ctx, conn, []databases.Statement{b.sql.Rows.Make}, values); !b.Clean(made) {
			return nil, unsettled(made)
		}
	}

	missing, err = b.look(ctx, conn, sql.State, asked, values)

	switch {
	case err != nil:
		return nil, unsettled(made, err)
	case len(b.orphans) == 0:
		return missing, nil
	default:
		return missing, b.giveBack(ctx, conn, made)
	}
}

// unsettled marks the errors of an attempt that may have left records.
func unsettled(errs ...error) error {
	return Doubt(errors.Join(append(errs, strategies.ErrUnsettled)...))
}

// giveBack frees the records whose rows are not there. Those that somebody has locked meanwhile are left to Settle. The others are
// answered with the cause if the server has refused to make their rows, and else have to go alone.
func (b *acquisitions) giveBack(ctx context.Context, conn databases.Conn, cause error) error {
	sql, back := &b.sql.Batch, b.orphans
	b.orphans = nil

	// Whoever may not insert may not delete, either. A row that is left is in nobody's way without the record.
	_, err := conn.Exec(ctx, b.sql.Rows.Delete, b.batchValues(b.sql.Rows.Delete, back))
	if b.Clean(err) {
		_, err = conn.Exec(ctx, sql.Release, b.batchValues(sql.Release, back))
	}

	if !b.Clean(err) {
		return unsettled(cause, err)
	}

	left, err := b.leases(ctx, conn, sql.Leases, back)
	if err != nil {
		return unsettled(cause, err)
	}

	for _, r := range back {
		i := b.index[r.Owner]

		if _, ours := left[r.Owner]; ours {
			b.errs[i] = rowLocked(r, strategies.ErrUnsettled)
		} else if cause != nil && !b.Busy(cause) && !errors.Is(cause, strategies.ErrBusy) {
			b.errs[i] = b.Explain(cause)
		}
	}

	return nil
}

// rowLocked is the answer to a request whose row could not be made.
func rowLocked(r strategies.Request, err error) error {
	return &strategies.HeldError{Name: r.Name, Detail: "a transaction has its row locked", Err: err}
}

// deleted deletes the rows of grants, and returns the requests whose records are there and whose rows are not. A row that
// somebody has locked stays, and its record with it.
func (t *together) deleted(ctx context.Context, conn databases.Conn) ([]strategies.Request, error) {
	sql := &t.sql.Batch
	values := t.batchValues(t.sql.Rows.Delete, t.requests)

	// A row is deleted while its lease is there.
	result, err := conn.Exec(ctx, t.sql.Rows.Delete, values)
	if err != nil || result.RowsAffected == int64(len(t.requests)) {
		return t.requests, err
	}

	states, err := t.states(ctx, conn, sql.State, values)
	if err != nil {
		return nil, err
	}

	seen := make([]strategies.Request, 0, len(states))

	for _, r := range t.requests {
		if st := states[r.Name]; st.Owner == r.Owner && st.row != r.Owner {
			seen = append(seen, r)
		}
	}

	return seen, nil
}
