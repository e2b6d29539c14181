package grants

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// Removal are the statements that remove the rows of idle names, in one transaction. Where one has "IN (:names...)" it is
// given so many.
//
// The tokens of a name go on growing when its row was removed, whatever the clock does, because sqllock_floor has the
// largest of all that ever were. A row that is made has the token 0, with which nobody is granted it, until a statement that begins later
// makes that the floor: whoever makes the row waits for a removal that is under way, and a statement that had begun before
// may not see what that noted. So an acquisition reads the token of the row alone, as it does anyway.
type Removal struct {
	// Begin begins the transaction.
	Begin []databases.Statement `sql:"grant.remove-isolate,grant.remove-begin,group.begin"`
	// Lock returns the names and tokens of rows that nobody has locked, and that are still idle. LockForgotten is that for
	// Forgotten.
	Lock          databases.Statement `sql:"grant.lock-idle"`
	LockForgotten databases.Statement `sql:"grant.lock-forgotten"`
	// LockLeftovers lock rows that strategies keep beside, which nobody else has locked, and return the names. As many
	// RemoveLeftovers remove those.
	LockLeftovers   []databases.Statement `sql:"grant.lock-leftover inserts,grant.lock-leftover mutexes"`
	RemoveLeftovers []databases.Statement `sql:"grant.remove-leftover inserts,grant.remove-leftover mutexes"`
	// Floor notes a token. It comes after all rows were locked, as with whoever reads the floor.
	Floor databases.Statement `sql:"grant.floor"`
	// Delete removes the rows.
	Delete []databases.Statement `sql:"grant.remove,grant.remove-leases,grant.remove-leftover"`
}

// ReapIdle removes rows of names that nobody uses, nor has acquired for so long, and of which nothing is noted; with the last of them
// what dead waiters left.
func (b Base) ReapIdle(ctx context.Context, idle time.Duration, limit int) (removed int, more bool, err error) {
	s := b.store

	conn, err := s.Conn(ctx)
	if err != nil {
		return 0, false, err
	}

	defer s.Return(conn, &err)

	removed, more, err = s.remove(ctx, conn, s.sql.Idle, s.sql.Remove.Lock, idle, limit)
	if err == nil && !more {
		err = s.sweep(ctx, conn)
	}

	return removed, more, err
}

// page is how many rows Reap removes at a time.
const page = 1000

// removeForgotten removes the rows of names that nobody has acquired for the retention.
func (s *Store) removeForgotten(ctx context.Context, conn databases.Conn, retention time.Duration) (removed int, err error) {
	for more := true; more && err == nil; {
		var n int

		n, more, err = s.remove(ctx, conn, s.sql.Forgotten, s.sql.Remove.LockForgotten, retention, page)
		removed += n
	}

	return removed, err
}

// remove removes some rows. There are more if it has found as many as it may remove, and none was in its way.
func (s *Store) remove(
	ctx context.Context, conn databases.Conn, find, lock databases.Statement, age time.Duration, limit int,
) (removed int, more bool, err error) {
	values := databases.Values{"age": age.Microseconds(), "limit": int64(limit)}

	if s.sql.Remove.Floor.SQL == "" {
		var n int64

		err = conn.Query(ctx, find, values, func(row databases.Row) error { return row(&n) })
		if s.Busy(err) {
			return 0, false, nil
		}

		return int(n), int(n) >= limit, err
	}

	names, err := column(ctx, conn, find, values)
	if err != nil || len(names) == 0 {
		return 0, false, err
	}

	removed, err = s.removeNames(ctx, conn, lock, values, names)
	if s.Busy(err) {
		err = nil
	}

	return removed, err == nil && len(names) >= limit && removed > 0, err
}

// removeNames removes those of the names that are still idle.
func (s *Store) removeNames(
	ctx context.Context, conn databases.Conn, lock databases.Statement, values databases.Values, names []string,
) (removed int, err error) {
	_, err = s.transaction(ctx, conn, s.sql.Remove.Begin, func() (bool, error) {
		removed, err = s.removeLocked(ctx, conn, lock, values, names)

		return removed > 0, err
	})

	switch {
	case err != nil:
		return 0, err
	case removed > 0 || len(names) == 1 || !s.sql.OneByOne:
		return removed, nil
	}

	// One row that somebody has locked keeps all others from being locked.
	half := len(names) / 2

	for _, part := range [][]string{names[:half], names[half:]} {
		n, err := s.removeNames(ctx, conn, lock, values, part)
		if err != nil {
			return removed, err
		}

		removed += n
	}

	return removed, nil
}

// removeLocked does so in a transaction.
func (s *Store) removeLocked(
	ctx context.Context, conn databases.Conn, lock databases.Statement, values databases.Values, names []string,
) (removed int, err error) {
	sql := s.sql.Remove

	var (
		locked  []string
		largest int64
	)

	lock, bound := named(lock, values, names)

	err = conn.Query(ctx, lock, bound, func(row databases.Row) error {
		var (
			name  string
			token int64
		)

		err := row(&name, &token)
		locked, largest = append(locked, name), max(largest, token)

		return err
	})
	if err != nil || len(locked) == 0 {
		return 0, err
	}

	left := make([][]string, len(sql.LockLeftovers))

	for i, lock := range sql.LockLeftovers {
		lock, bound := named(lock, nil, locked)

		if left[i], err = column(ctx, conn, lock, bound); err != nil {
			return 0, err
		}
	}

	if _, err := conn.Exec(ctx, sql.Floor, databases.Values{"token": largest}); err != nil {
		return 0, err
	}

	for _, step := range sql.Delete {
		step, bound := named(step, nil, locked)

		if _, err := conn.Exec(ctx, step, bound); err != nil {
			return 0, err
		}
	}

	for i, step := range sql.RemoveLeftovers {
		if len(left[i]) == 0 {
			continue
		}

		step, bound := named(step, nil, left[i])

		if _, err := conn.Exec(ctx, step, bound); err != nil {
			return 0, err
		}
	}

	return len(locked), nil
}

// column is what a statement lists of one column.
func column(ctx context.Context, on databases.Session, list databases.Statement, values databases.Values) (all []string, err error) {
	err = on.Query(ctx, list, values, func(row databases.Row) error {
		var text string

		err := row(&text)
		all = append(all, text)

		return err
	})

	return all, err
}

// named is a statement with as many placeholders as there are names, in place of its first one, which is followed by dots.
func named(statement databases.Statement, values databases.Values, names []string) (databases.Statement, databases.Values) {
	before, list, _ := strings.Cut(statement.SQL, "IN (")
	each, after, _ := strings.Cut(list, "...")
	bound := make(databases.Values, len(values)+len(names))
	maps.Copy(bound, values)

	args := make([]string, 0, len(names)+len(statement.Args))

	for i, name := range names {
		arg := "name" + strconv.Itoa(i)
		args, bound[arg] = append(args, arg), name
	}

	statement.SQL = before + "IN (" + strings.Join(slices.Repeat([]string{each}, len(names)), ", ") + after
	statement.Args = append(args, statement.Args[1:]...)

	return statement, bound
}
