package grants

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// batch are calls that share a statement. It waits for nobody's row lock.
//
// Where the dialect has WithoutReturning, an UPDATE returns no rows, and how many it changed does not say which. So what
// became of them is read beside it.
type batch struct {
	*Store

	began     time.Time            // before a statement that grants was sent
	requests  []strategies.Request // that the statement is about
	open      map[string]int       // by owner, those that have no answer yet
	grants    []strategies.Grant
	contended []bool
	errs      []error   // ErrNotBatched of those without an answer: they have to go alone
	allows    allowance // as a request that was refused has found
}

func (s *Store) batch(n int) *batch {
	return &batch{
		Store: s, open: make(map[string]int, n), grants: make([]strategies.Grant, n), contended: make([]bool, n),
		errs: slices.Repeat([]error{strategies.ErrNotBatched}, n),
	}
}

// batchOf takes those grants that statements about several can renew, or release: one with a minimum hold is released in
// another way, alone.
func (s *Store) batchOf(grants []strategies.Grant, releases bool) *batch {
	b := s.batch(len(grants))

	for i, g := range grants {
		g, ok := g.State.(*Grant)
		if !ok || s.sql.Batch.Acquire.SQL == "" || g.Shared() || releases && g.request.MinHold > 0 {
			continue
		}

		if b.add(i, g.request); releases {
			g.released.Store(true)
		}
	}

	return b
}

func (b *batch) add(i int, r strategies.Request) {
	b.open[r.Owner], b.requests = i, append(b.requests, r)
}

// answer is the answer to a call, unless it has one.
func (b *batch) answer(owner string, err error) {
	if i, ok := b.open[owner]; ok {
		b.errs[i] = err

		delete(b.open, owner)
	}
}

// failed is for an error that came for all.
func (b *batch) failed(err error) {
	if err != nil && (errors.Is(err, strategies.ErrUnsettled) || !b.Busy(err) && !errors.Is(err, strategies.ErrBusy)) {
		b.answerAll(err)
	}
}

func (b *batch) answerAll(err error) {
	for owner := range b.open {
		b.answer(owner, err)
	}
}

// granted is the answer to a request that was granted.
func (b *batch) granted(r strategies.Request, token int64) {
	err := sound(token)
	if i, ok := b.open[r.Owner]; ok && err == nil {
		made := b.Grant(r, token)
		b.grants[i] = made.Granted(made)
	}

	b.answer(r.Owner, err)
}

// done is the answer to calls that were done, and says by owner whether others wait.
func (b *batch) done(contended map[string]bool) {
	for owner, waits := range contended {
		if i, ok := b.open[owner]; ok {
			b.contended[i] = waits
			b.answer(owner, nil)
		}
	}
}

// AcquireAll makes one attempt for each request, all in one statement.
func (s *Store) AcquireAll(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	b := s.batch(len(requests))
	for i, r := range requests {
		b.add(i, r)
	}

	if s.sql.Batch.Acquire.SQL != "" {
		b.failed(s.Attempt(ctx, b.acquire))
	}

	return b.grants, b.errs
}

func (b *batch) acquire(ctx context.Context, on databases.Conn) (err error) {
	sql, asked := &b.sql.Batch, b.requests

	err = b.promise(ctx, on, asked...)

	// The second round follows the making of rows, once in a name's life.
	for round := 0; round < 2 && err == nil && len(asked) > 0; round++ {
		values := b.batchValues(sql.Acquire, asked, nil)
		b.began = time.Now()

		if b.sql.WithoutReturning {
			asked, err = b.drawAndLook(ctx, on, asked, values)
		} else if err = b.draw(ctx, on, asked, values); err == nil {
			asked, _, err = b.look(ctx, on, asked, values)
		}

		if err == nil && len(asked) > 0 && len(sql.Create) > 0 {
			err = b.WithLockTimeout(ctx, on, sql.Create, b.batchValues(sql.Create[0], asked, nil))
		}
	}

	return err
}

// draw grants what is free.
func (b *batch) draw(ctx context.Context, on databases.Conn, asked []strategies.Request, values databases.Values) error {
	var tokens map[string]int64

	err := b.InTransaction(ctx, on, b.sql.Rows.Begin, func() (err error) {
		if tokens, err = readByKey[int64](ctx, on, b.sql.Batch.Acquire, values); err == nil && len(tokens) > 0 && b.sql.Rows.Make.SQL != "" {
			_, err = on.Run(ctx, b.sql.Rows.Make, values, nil)
		}

		return err
	})
	if err != nil {
		return err
	}

	for _, r := range asked {
		if token, ok := tokens[r.Owner]; ok {
			b.granted(r, token)
		}
	}

	return nil
}

// look asks about those that were not granted, and returns those that have no rows, and those whose records were taken and
// whose rows beside them are not there. values are those of what was asked for, which has the names.
func (b *batch) look(
	ctx context.Context, on databases.Conn, asked []strategies.Request, values databases.Values,
) (missing, orphans []strategies.Request, err error) {
	open := slices.DeleteFunc(slices.Clone(asked), func(r strategies.Request) bool {
		_, ok := b.open[r.Owner]

		return !ok
	})
	if len(open) == 0 {
		return nil, nil, nil
	}

	if len(open) < len(asked) {
		values = b.batchValues(b.sql.Batch.State, open, nil)
	}

	states, err := b.states(ctx, on, values)
	if err != nil {
		return nil, nil, err
	}

	for _, r := range open {
		switch st, found := states[r.Name]; {
		case !found, b.Unready(st):
			missing = append(missing, r)
		case b.inSteps() && st.Owner == r.Owner && (st.Left <= 0 || st.row != r.Owner):
			orphans = append(orphans, r)
		case st.Owner == r.Owner && st.Left > 0:
			// Of an earlier attempt too little may be left, whose row somebody has locked now: it is asked for alone.
			if st.Left+time.Since(b.began) >= r.Lease {
				b.granted(r, st.Token)
			}
		default:
			again, err := b.refusedAfter(ctx, on, st, r, &b.allows)
			if errors.Is(err, strategies.ErrBusy) {
				b.answerAll(err) // nobody waits for the same once more

				return nil, nil, nil
			}

			if !again {
				b.answer(r.Owner, err)
			}
		}
	}

	return missing, orphans, nil
}

// states reads those of the names that values have.
func (s *Store) states(ctx context.Context, on databases.Conn, values databases.Values) (map[string]State, error) {
	return readMap(ctx, on, s.sql.Batch.State, values, func(row databases.Row, name *string, st *State) error {
		if s.inSteps() {
			return st.scan(row, name, &st.row)
		}

		return st.scan(row, name)
	})
}

// RenewAll renews grants in one statement.
func (s *Store) RenewAll(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	b := s.batchOf(grants, false)
	b.send(ctx, b.useToRenew, func(ctx context.Context, on databases.Conn) error { return b.renew(ctx, on, lease) })

	return b.errs
}

// RenewAllOn is RenewAll on a connection that the caller has. An error came for all.
func (s *Store) RenewAllOn(ctx context.Context, on databases.Conn, grants []strategies.Grant, lease time.Duration) ([]error, error) {
	b := s.batchOf(grants, false)
	if len(b.requests) == 0 {
		return b.errs, nil
	}

	err := b.renew(ctx, on, lease)
	if s.Busy(err) {
		err = nil
	}

	return b.errs, err
}

// send runs f on a connection, which use has, if the statement is about any.
func (b *batch) send(
	ctx context.Context, use func(context.Context, func(databases.Conn) error) error, f func(ctx context.Context, on databases.Conn) error,
) {
	if len(b.requests) > 0 {
		b.failed(replaced(use(ctx, func(on databases.Conn) error { return f(ctx, on) })))
	}
}

// renew sends a renewal that returns the owners that it was done for; or else whose answer has the clock that the leases were
// renewed by: one that was not, because somebody has it locked, ends earlier.
func (b *batch) renew(ctx context.Context, on databases.Conn, lease time.Duration) error {
	renew, us := b.sql.Batch.Renew, b.lease(lease)
	values := b.batchValues(renew, b.requests, nil)
	values["lease"] = us

	if !b.sql.WithoutReturning {
		done, err := readByKey[bool](ctx, on, renew, values)
		b.done(done)

		return err
	}

	result, err := on.Run(ctx, renew, values, nil)
	if err != nil || result.LastInsertID == 0 {
		return err // or there was none to renew, and no clock was read
	}

	ends, err := b.leases(ctx, on, b.requests)

	for owner, end := range ends {
		if end >= result.LastInsertID+us {
			b.answer(owner, nil)
		}
	}

	return err
}

// leases returns, by owner, when those of the requests end by the database's clock that the owners have.
func (s *Store) leases(ctx context.Context, on databases.Conn, requests []strategies.Request) (map[string]int64, error) {
	return readByKey[int64](ctx, on, s.sql.Batch.Leases, s.batchValues(s.sql.Batch.Leases, requests, nil))
}

// ReleaseAll ends grants in one statement.
func (s *Store) ReleaseAll(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	b := s.batchOf(grants, true)

	release := b.release
	if s.sql.WithoutReturning {
		release = b.releaseSeen
	}

	b.send(ctx, b.Use, release)

	for i, g := range grants {
		if g, ok := g.State.(*Grant); ok && !errors.Is(b.errs[i], strategies.ErrNotBatched) {
			g.tried.Store(true)
		}
	}

	return b.contended, b.errs
}

// release sends a release that returns the owners that it was done for.
func (b *batch) release(ctx context.Context, on databases.Conn) error {
	var contended map[string]bool

	sql := b.sql
	values := b.batchValues(sql.Batch.Release, b.requests, nil)

	err := b.InTransaction(ctx, on, sql.Rows.Begin, func() error {
		if sql.Rows.Delete.SQL != "" {
			if _, err := on.Run(ctx, sql.Rows.Delete, values, nil); err != nil {
				return err
			}
		}

		return b.quietly(sql.Batch.Release, sql.Batch.ReleaseQuietly, func(release databases.Statement) (err error) {
			contended, err = readByKey[bool](ctx, on, release, values)

			return err
		})
	})
	if err == nil {
		b.done(contended)
	}

	return err
}

// releaseSeen reads before it releases: what is there afterwards may be a successor's already,
// and would not say whether the lock was released or lost. Only leases that were
// seen are released. If fewer rows changed than that it looks which are left, which
// somebody has locked: the others were ours during the call, and are not any more.
func (b *batch) releaseSeen(ctx context.Context, on databases.Conn) error {
	seen, err := b.seen(ctx, on)
	if err != nil || len(seen) == 0 {
		return err
	}

	release := b.sql.Batch.Release

	result, err := on.Run(ctx, release, b.batchValues(release, seen, nil), nil)
	if err != nil {
		return err
	}

	var left map[string]int64

	if result.RowsAffected != int64(len(seen)) {
		if left, err = b.leases(ctx, on, seen); err != nil {
			return err
		}
	}

	for _, r := range seen {
		if _, ok := left[r.Owner]; !ok {
			b.done(map[string]bool{r.Owner: result.LastInsertID != 0})
		}
	}

	return nil
}

// seen are the requests whose leases are there, after their rows are deleted where there are such.
func (b *batch) seen(ctx context.Context, on databases.Conn) (seen []strategies.Request, err error) {
	if b.inSteps() {
		return b.deleted(ctx, on)
	}

	before, err := b.leases(ctx, on, b.requests)

	for _, r := range b.requests {
		if _, ok := before[r.Owner]; ok {
			seen = append(seen, r)
		}
	}

	return seen, err
}

// What a strategy keeps beside the records of a batch changes together with them: in the same statement, and then nothing is
// needed for it; in one transaction; or in steps, each of which commits by itself, where the dialect has WithoutReturning.

// inSteps says whether records and rows change in steps.
func (s *Store) inSteps() bool {
	return s.sql.Rows.Make.SQL != "" && len(s.sql.Rows.Begin) == 0
}

// drawAndLook grants what is free, makes the rows of that if it is done in steps, and looks what became of it. A record whose
// row could not be made is given back, or the name would be held by nobody until its lease ends. It returns those that have no
// records.
func (b *batch) drawAndLook(
	ctx context.Context, on databases.Conn, asked []strategies.Request, values databases.Values,
) (missing []strategies.Request, err error) {
	granted, err := on.Run(ctx, b.sql.Batch.Acquire, values, nil)
	if err != nil {
		return nil, err
	}

	var made error

	// It makes all rows or none. Either way some of the records may be ours.
	if b.inSteps() && granted.RowsAffected > 0 {
		if made = b.WithLockTimeout(ctx, on, []databases.Statement{b.sql.Rows.Make}, values); !b.Clean(made) {
			return nil, unsettled(made)
		}
	}

	missing, orphans, err := b.look(ctx, on, asked, values)
	if err == nil && len(orphans) > 0 {
		err = b.giveBack(ctx, on, orphans, made)
	}

	if err != nil && b.inSteps() {
		err = unsettled(made, err)
	}

	return missing, err
}

// unsettled marks the errors of an attempt that may have left records.
func unsettled(errs ...error) error {
	return Doubt(errors.Join(append(errs, strategies.ErrUnsettled)...))
}

// giveBack frees the records whose rows are not there. Those that somebody has locked meanwhile are left to Settle. The others are
// answered with the cause if the server has refused to make their rows, and else have to go alone.
func (b *batch) giveBack(ctx context.Context, on databases.Conn, orphans []strategies.Request, cause error) error {
	back := b.batch(len(orphans))
	for i, r := range orphans {
		back.add(i, r)
	}

	if err := back.releaseSeen(ctx, on); err != nil {
		return err
	}

	refused := cause != nil && !b.Busy(cause) && !errors.Is(cause, strategies.ErrBusy)

	for i, r := range orphans {
		if back.errs[i] != nil {
			b.answer(r.Owner, &strategies.HeldError{Name: r.Name, Detail: "a transaction has its row locked", Err: strategies.ErrUnsettled})
		} else if refused {
			b.answer(r.Owner, b.Explain(cause))
		}
	}

	return nil
}

// deleted deletes the rows of grants, and returns the requests whose records are there and whose rows are not. A row that
// somebody has locked stays, and its record with it; so does one that may not be deleted.
func (b *batch) deleted(ctx context.Context, on databases.Conn) (seen []strategies.Request, err error) {
	values := b.batchValues(b.sql.Rows.Delete, b.requests, nil)

	// A row is deleted while its lease is there.
	result, err := on.Run(ctx, b.sql.Rows.Delete, values, nil)
	if !b.Clean(err) || result.RowsAffected == int64(len(b.requests)) {
		return b.requests, err
	}

	states, err := b.states(ctx, on, values)

	for _, r := range b.requests {
		if st := states[r.Name]; st.Owner == r.Owner && st.row != r.Owner {
			seen = append(seen, r)
		}
	}

	return seen, err
}
