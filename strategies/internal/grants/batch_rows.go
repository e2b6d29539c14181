package grants

import (
	"cmp"
	"context"
	"errors"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// What a strategy keeps beside the records is changed together with them: in the
// same statement, and then nothing here is needed; in one transaction (besides); or in
// steps, each of which commits by itself and has what comes after it in mind (step).

// inSteps says whether a batch is several steps.
func (s *Store) inSteps() bool {
	return s.sql.batch != nil && s.sql.batch.Rows != nil && s.sql.batch.Rows.Begin.SQL == ""
}

// besides runs what changes records, in a transaction if it also has to change rows beside them. A commit that SQLite
// refuses has left the transaction open.
func (s *Store) besides(ctx context.Context, conn databases.Conn, change func(*Rows) error) error {
	rows := s.sql.batch.Rows
	if rows == nil {
		return change(nil)
	}

	_, err := conn.Exec(ctx, rows.Begin, nil)
	if err != nil {
		return err
	}

	if err = change(rows); err == nil {
		_, err = conn.Exec(ctx, groupCommit, nil)
	}

	if err == nil {
		return nil
	}

	// Also though ctx has ended: the connection goes back to the pool.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patientTime)
	defer cancel()

	if _, failed := conn.Exec(ctx, groupRollback, nil); failed != nil {
		return Doubt(errors.Join(err, failed))
	}

	return err
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

// deleted deletes the rows of grants, and returns the requests whose records are there and whose rows are
// not. One that somebody has locked stays, and its record with it: that of a name that is free is left over only by a crash.
func (t *together) deleted(ctx context.Context, conn databases.Conn) ([]strategies.Request, error) {
	if _, err := conn.Exec(ctx, t.sql.batch.Rows.Delete, t.batchValues(t.sql.batch.Rows.Delete, t.requests)); err != nil {
		return nil, err
	}

	names, err := t.rowed(ctx, conn, t.requests)
	seen := make([]strategies.Request, 0, len(names))

	for _, r := range t.requests {
		if st, found := names[r.Name]; found && st.Owner == r.Owner && st.row != r.Owner {
			seen = append(seen, r)
		}
	}

	return seen, err
}

// rowed is the state of a name with the owner of its row, empty if there is none.
type rowed struct {
	State

	row string
}

// rowed reads the states of names, which are missing if they have no records.
func (s *Store) rowed(ctx context.Context, conn databases.Conn, requests []strategies.Request) (map[string]rowed, error) {
	names := make(map[string]rowed, len(requests))
	statement := s.sql.batch.State

	err := conn.Query(ctx, statement, s.batchValues(statement, requests), func(row databases.Row) error {
		var (
			name string
			st   rowed
			err  error
		)

		st.State, err = scan(row, &name, &st.row)
		names[name] = st

		return err
	})

	return names, err
}

// stepGroup is step for names of which all are granted or none.
func (s *Store) stepGroup(ctx context.Context, conn databases.Conn, requests []strategies.Request) ([]strategies.Grant, error) {
	b := s.acquisitions(requests)

	if err := b.step(ctx, conn, s.sql.batch.Group, true); err != nil {
		return nil, s.AsHeld(ctx, conn, requests[0].Name, err)
	}

	if granted, err := b.group(); granted || err != nil {
		return b.grants, err
	}

	for _, err := range b.errs {
		if errors.Is(err, strategies.ErrUnsettled) {
			return nil, err
		}
	}

	return nil, cmp.Or(b.refused(), b.errs[0], error(&strategies.HeldError{Name: requests[0].Name, Detail: "it changes hands"}))
}

// step looks first, as an attempt for one name does, and takes nothing whose row is left over and cannot be deleted. Then
// it takes the records, makes the rows and looks what it has: a record whose row could not be made is given back.
func (b *acquisitions) step(ctx context.Context, conn databases.Conn, acquire databases.Statement, all bool) error {
	free, err := b.free(ctx, conn)
	if err != nil || len(free) == 0 || all && len(free) < len(b.requests) {
		return err
	}

	values := b.batchValues(acquire, free)
	values["count"] = int64(len(free))

	if _, err := conn.Exec(ctx, acquire, values); err != nil {
		return err
	}

	// For a row that a transaction has made which is none of sqllock's it waits briefly. Refused by the server it has made
	// none, and some records may be ours: what is to be done is the same.
	if err := b.Briefly(ctx, conn, []databases.Statement{b.sql.batch.Rows.Make}, values); err != nil && !b.Clean(err) {
		return err
	} else if err != nil && !errors.Is(err, strategies.ErrBusy) {
		return errors.Join(err, b.giveBack(ctx, conn, free))
	}

	names, err := b.rowed(ctx, conn, free)
	if err != nil {
		return err
	}

	var back []strategies.Request

	for _, r := range free {
		switch st, found := names[r.Name]; {
		case found && st.Owner == r.Owner && st.row == r.Owner && st.Left > 0:
			b.granted(r.Owner, st.Token)
		case found && st.Owner == r.Owner:
			back = append(back, r)
		case found:
			b.errs[b.index[r.Owner]] = b.Refused(ctx, conn, st.State, r)
		}
	}

	if all && len(back) > 0 {
		back = free
		clear(b.grants)
	}

	if len(back) == 0 {
		return nil
	}

	return b.giveBack(ctx, conn, back)
}

// free are those of the requests whose names look free and have no rows of others any more. It answers the others, and makes
// the records of names that have none, once in a name's life.
func (b *acquisitions) free(ctx context.Context, conn databases.Conn) (free []strategies.Request, err error) {
	asked, cleared := b.requests, false

	for round := 0; round < 3 && len(asked) > 0; round++ {
		names, err := b.rowed(ctx, conn, asked)
		if err != nil {
			return nil, err
		}

		var missing, left []strategies.Request

		for _, r := range asked {
			switch st, found := names[r.Name]; {
			case !found, b.unready(st.State):
				missing = append(missing, r)
			case st.Owner != r.Owner && st.Left+st.Delay > 0 || st.Waits(r):
				b.errs[b.index[r.Owner]] = b.Refused(ctx, conn, st.State, r)
			case st.row == "" || st.row == r.Owner:
				free = append(free, r)
			case cleared:
				// Somebody has it locked.
				b.errs[b.index[r.Owner]] = st.Held(r.Name)
			default:
				left = append(left, r)
			}
		}

		if len(left) > 0 {
			cleared = true

			if _, err := conn.Exec(ctx, b.sql.batch.Rows.Clear, b.batchValues(b.sql.batch.Rows.Clear, left)); err != nil {
				return nil, err
			}
		}

		if len(missing) > 0 {
			if err := b.Briefly(ctx, conn, b.sql.batch.Create, b.batchValues(b.sql.batch.Create[0], missing)); err != nil {
				return nil, err
			}
		}

		asked = append(left, missing...)
	}

	return free, nil
}

// giveBack frees records that were taken without their rows, or a name would be held by nobody until its lease ends. What
// somebody has locked meanwhile is left to Settle. The others have to go alone.
func (b *acquisitions) giveBack(ctx context.Context, conn databases.Conn, back []strategies.Request) error {
	rows, sql := b.sql.batch.Rows, b.sql.batch

	_, err := conn.Exec(ctx, rows.Delete, b.batchValues(rows.Delete, back))
	if err == nil || b.Clean(err) {
		_, err = conn.Exec(ctx, sql.Release, b.batchValues(sql.Release, back))
	}

	names := make(map[string]rowed)

	if err == nil || b.Busy(err) {
		names, err = b.rowed(ctx, conn, back)
	}

	if err != nil {
		return Doubt(errors.Join(strategies.ErrUnsettled, err))
	}

	for _, r := range back {
		if st := names[r.Name]; st.Owner == r.Owner {
			b.errs[b.index[r.Owner]] = &strategies.HeldError{Name: r.Name, Detail: "a transaction has its row locked", Err: strategies.ErrUnsettled}
		}
	}

	return nil
}
