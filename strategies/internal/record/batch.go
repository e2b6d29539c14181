package record

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// TryAcquireAll makes one attempt for each request, all in one statement. It
// waits for nobody's row lock.
func (s *Store) TryAcquireAll(ctx context.Context, requests []sqllock.Request) ([]sqllock.Grant, []error) {
	b := acquisitions{
		Store: s, requests: requests,
		grants: make([]sqllock.Grant, len(requests)), errs: make([]error, len(requests)), index: make(map[string]int, len(requests)),
	}

	for i, r := range requests {
		b.index[r.Owner] = i
	}

	err := s.On(ctx, func(conn databases.Conn) error { return b.run(ctx, conn) })
	if s.Busy(err) {
		err = sqllock.ErrAlone
	}

	for i := range requests {
		if b.grants[i] == nil && b.errs[i] == nil {
			b.errs[i] = err
		}

		if b.grants[i] == nil && b.errs[i] == nil {
			b.errs[i] = sqllock.ErrAlone
		}
	}

	return b.grants, b.errs
}

// acquisitions are those of one statement.
type acquisitions struct {
	*Store

	requests []sqllock.Request
	grants   []sqllock.Grant
	errs     []error
	index    map[string]int // by owner
}

func (b *acquisitions) run(ctx context.Context, conn databases.Conn) error {
	asked := b.requests

	// The second round follows the making of rows, once in a name's life.
	for range 2 {
		values := b.batchValues(b.statements.Batch.Acquire, asked)

		if err := b.draw(ctx, conn, values); err != nil {
			return err
		}

		missing, err := b.look(ctx, conn, asked, values)
		if err != nil || len(missing) == 0 {
			return err
		}

		for _, statement := range b.statements.Batch.Create {
			if _, err := conn.Exec(ctx, statement, b.batchValues(statement, missing)); err != nil {
				return err
			}
		}

		asked = missing
	}

	return nil
}

// draw grants what is free.
func (b *acquisitions) draw(ctx context.Context, conn databases.Conn, values databases.Values) error {
	if b.Dialect() == databases.MySQL {
		// It does not say what it granted: look does.
		_, err := conn.Exec(ctx, b.statements.Batch.Acquire, values)

		return err
	}

	tokens, err := byOwner[int64](ctx, conn, b.statements.Batch.Acquire, values, len(b.requests))
	for owner, token := range tokens {
		b.granted(owner, token)
	}

	return err
}

// byOwner sends a statement that returns a value for each owner that it was done
// for, of so many at most. There are none after an error: the rows come before the commit, which can
// still fail.
func byOwner[V any](
	ctx context.Context, conn databases.Conn, statement databases.Statement, values databases.Values, most int,
) (map[string]V, error) {
	answers := make(map[string]V, most)

	err := conn.Query(ctx, statement, values, func(row databases.Row) error {
		var (
			owner string
			value V
		)

		err := row(&owner, &value)
		answers[owner] = value

		return err
	})
	if err != nil {
		return nil, err
	}

	return answers, nil
}

func (b *acquisitions) granted(owner string, token int64) {
	if i, ok := b.index[owner]; ok {
		b.grants[i] = b.Grant(b.requests[i], token)
	}
}

// look asks about those that were not granted, and returns those that have no
// rows. values are those of what was asked for, which has the names.
func (b *acquisitions) look(
	ctx context.Context, conn databases.Conn, asked []sqllock.Request, values databases.Values,
) ([]sqllock.Request, error) {
	var open []sqllock.Request

	for _, r := range asked {
		if b.grants[b.index[r.Owner]] == nil {
			open = append(open, r)
		}
	}

	if len(open) == 0 {
		return nil, nil
	}

	if len(open) < len(asked) {
		values = b.batchValues(b.statements.Batch.State, open)
	}

	states := make(map[string]State, len(open))

	err := conn.Query(ctx, b.statements.Batch.State, values, func(row databases.Row) error {
		var name string

		st, err := scan(row, &name)
		states[name] = st

		return err
	})
	if err != nil {
		return nil, err
	}

	var missing []sqllock.Request

	for _, r := range open {
		i := b.index[r.Owner]

		switch st, found := states[r.Name]; {
		case !found:
			missing = append(missing, r)
		case st.Owner == r.Owner && st.Left > 0:
			b.granted(r.Owner, st.Token)
		default:
			b.errs[i] = st.Held(r.Name)
		}
	}

	return missing, nil
}

// RenewAll renews grants in one statement.
func (s *Store) RenewAll(ctx context.Context, grants []sqllock.Grant, lease time.Duration) []error {
	t := s.together(grants, func(*Grant) bool { return true })

	return t.run(ctx, s.statements.Batch.Renew, "lease", s.lease(lease))
}

// ReleaseAll ends grants in one statement. One with a minimum hold is released in
// another way, alone.
func (s *Store) ReleaseAll(ctx context.Context, grants []sqllock.Grant) []error {
	durable := false

	t := s.together(grants, func(g *Grant) bool {
		if g.request.MinHold > 0 {
			return false
		}

		g.released.Store(true)

		durable = durable || g.request.DurableRelease

		return true
	})

	return t.run(ctx, s.statements.Batch.Release, "durable", durable)
}

// together are grants that one statement is about.
type together struct {
	*Store

	grants   []sqllock.Grant
	requests []sqllock.Request
	index    map[string]int // by owner, of what is not done
	errs     []error
}

// together takes those grants for which fit is true. The others have to go alone,
// as have those that the statement will not be done with.
func (s *Store) together(grants []sqllock.Grant, fit func(*Grant) bool) *together {
	t := &together{Store: s, grants: grants, errs: make([]error, len(grants)), index: make(map[string]int, len(grants))}

	for i, g := range grants {
		t.errs[i] = sqllock.ErrAlone

		if g, ok := g.(*Grant); ok && fit(g) {
			t.index[g.request.Owner] = i
			t.requests = append(t.requests, g.request)
		}
	}

	return t
}

// run sends the statement, which binds one value more for all of them.
func (t *together) run(ctx context.Context, statement databases.Statement, name string, value any) []error {
	if len(t.requests) == 0 {
		return t.errs
	}

	values := t.batchValues(statement, t.requests)
	values[name] = value

	err := t.On(ctx, func(conn databases.Conn) error { return t.send(ctx, conn, statement, values) })
	if err != nil && !t.Busy(err) {
		for _, i := range t.index {
			t.errs[i] = err
		}
	}

	return t.errs
}

func (t *together) send(
	ctx context.Context, conn databases.Conn, statement databases.Statement, values databases.Values,
) error {
	if t.Dialect() != databases.MySQL {
		crowded, err := byOwner[bool](ctx, conn, statement, values, len(t.requests))
		for owner, waits := range crowded {
			t.done(owner, waits)
		}

		return err
	}

	// It does not say which rows it changed, but how many.
	result, err := conn.Exec(ctx, statement, values)
	if err == nil && result.RowsAffected == int64(len(t.requests)) {
		for _, r := range t.requests {
			t.done(r.Owner, false)
		}
	}

	return err
}

func (t *together) done(owner string, crowded bool) {
	if i, ok := t.index[owner]; ok {
		t.errs[i] = nil

		if g, ok := t.grants[i].(*Grant); ok {
			g.crowded.Store(crowded)
		}

		delete(t.index, owner)
	}
}

// batchValues are what a statement about several requests binds. PostgreSQL takes
// an array for each column, the others a JSON array of objects.
func (s *Store) batchValues(statement databases.Statement, requests []sqllock.Request) databases.Values {
	values := databases.Values{"strategy": s.strategy}

	for _, arg := range statement.Args {
		if column, ok := columns[arg]; ok {
			values[arg] = array(requests, column)
		} else if arg == "calls" {
			values[arg] = s.calls(requests)
		}
	}

	return values
}

// columns are what PostgreSQL takes as arrays.
var columns = map[string]func(sqllock.Request) string{
	"names":     func(r sqllock.Request) string { return r.Name },
	"owners":    func(r sqllock.Request) string { return r.Owner },
	"leases":    func(r sqllock.Request) string { return number(ceil(r.Lease)) },
	"delays":    func(r sqllock.Request) string { return number(ceil(r.LockDelay)) },
	"hosts":     func(r sqllock.Request) string { return r.Holder.Host },
	"pids":      func(r sqllock.Request) string { return number(int64(r.Holder.PID)) },
	"labels":    func(r sqllock.Request) string { return r.Holder.Label },
	"metadatas": func(r sqllock.Request) string { return r.Holder.Metadata },
	"tokens":    func(r sqllock.Request) string { return number(tokens(r)) },
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// array is the text of an array of a column's values.
func array(requests []sqllock.Request, column func(sqllock.Request) string) string {
	var b strings.Builder

	for i, r := range requests {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteByte('"')
		b.WriteString(quoteElement.Replace(column(r)))
		b.WriteByte('"')
	}

	b.WriteByte('}')

	return b.String()
}

// quoteElement escapes what has a meaning between the quotes of an array's element
// (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// call is a request in JSON.
type call struct {
	Name     string `json:"name"`
	Owner    string `json:"owner"`
	Lease    int64  `json:"lease"`
	Delay    int64  `json:"delay"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Label    string `json:"label"`
	Metadata string `json:"metadata"`
	Tokens   int64  `json:"tokens"`
}

func (s *Store) calls(requests []sqllock.Request) string {
	list := make([]call, len(requests))
	for i, r := range requests {
		list[i] = call{
			r.Name, r.Owner, s.lease(r.Lease), ceil(r.LockDelay), r.Holder.Host, r.Holder.PID, r.Holder.Label, r.Holder.Metadata, tokens(r),
		}
	}

	// Strings and numbers always have a form in JSON.
	text, _ := json.Marshal(list)

	return string(text)
}
