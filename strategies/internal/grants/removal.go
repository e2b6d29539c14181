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
	// Leftovers remove rows that strategies keep beside, and that nobody else has locked.
	Leftovers []databases.Statement `sql:"grant.remove-leftover inserts,grant.remove-leftover mutexes"`
	// Floor notes a token. It comes after all rows were locked, as with whoever reads the floor.
	Floor databases.Statement `sql:"grant.floor"`
	// Delete removes the rows.
	Delete []databases.Statement `sql:"grant.remove,grant.remove-leases"`
}

// ReapIdle removes rows of names that nobody uses, nor has acquired for so long, and of which nothing is noted; with the last of them
// what dead waiters left.
func (b Base) ReapIdle(ctx context.Context, idle time.Duration, limit int) (removed int, more bool, err error) {
	s := b.store

	err = s.Use(ctx, func(on databases.Conn) (err error) {
		removed, more, err = s.remove(ctx, on, s.sql.Idle, s.sql.Remove.Lock, idle, limit)
		if err != nil || more {
			return err
		}

		if now := time.Now().Unix(); now-s.lowered.Load() >= lowerEvery {
			s.lowered.Store(now)

			if err := s.lowerPromise(ctx, on); err != nil {
				return err
			}
		}

		return s.sweep(ctx, on)
	})

	return removed, more, err
}

// lowerEvery is how often, in seconds, whoever removes idle names looks whether the longest lease is over.
const lowerEvery = 3600

// page is how many rows Reap removes at a time.
const page = 1000

// removeForgotten removes the rows of names that nobody has acquired for the retention.
func (s *Store) removeForgotten(ctx context.Context, on databases.Conn, retention time.Duration) (removed int, err error) {
	for more := true; more && err == nil; {
		var n int

		n, more, err = s.remove(ctx, on, s.sql.Forgotten, s.sql.Remove.LockForgotten, retention, page)
		removed += n
	}

	return removed, err
}

// remove removes some rows. There are more if it has found as many as it may remove, and none was in its way.
func (s *Store) remove(
	ctx context.Context, on databases.Conn, find, lock databases.Statement, age time.Duration, limit int,
) (removed int, more bool, err error) {
	var found int

	values := databases.Values{"age": age.Microseconds(), "limit": int64(limit)}

	if s.sql.Remove.Floor.SQL == "" {
		_, err = ReadOne(ctx, on, find, values, &removed)
		found = removed
	} else {
		var names []string

		names, err = readTexts(ctx, on, find, values)
		if found = len(names); err == nil && found > 0 {
			removed, err = s.removeNames(ctx, on, lock, values, names)
		}
	}

	if s.Busy(err) {
		return removed, false, nil
	}

	return removed, err == nil && found >= limit && removed > 0, err
}

// removeNames removes those of the names that are still idle.
func (s *Store) removeNames(
	ctx context.Context, on databases.Conn, lock databases.Statement, values databases.Values, names []string,
) (removed int, err error) {
	err = s.InTransaction(ctx, on, s.sql.Remove.Begin, func() (err error) {
		removed, err = s.removeLocked(ctx, on, lock, values, names)

		return err
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
		n, err := s.removeNames(ctx, on, lock, values, part)
		if err != nil {
			return removed, err
		}

		removed += n
	}

	return removed, nil
}

// removeLocked does so in a transaction.
func (s *Store) removeLocked(
	ctx context.Context, on databases.Conn, lock databases.Statement, values databases.Values, names []string,
) (int, error) {
	lock, bound := listed(lock, values, names)

	tokens, err := readByKey[int64](ctx, on, lock, bound)
	if err != nil || len(tokens) == 0 {
		return 0, err
	}

	remove, locked := &s.sql.Remove, slices.Sorted(maps.Keys(tokens))
	largest := slices.Max(slices.Collect(maps.Values(tokens)))

	for _, step := range slices.Concat(remove.Leftovers, []databases.Statement{remove.Floor}, remove.Delete) {
		step, bound := listed(step, databases.Values{"token": largest}, locked)

		if _, err := on.Run(ctx, step, bound, nil); err != nil {
			return 0, err
		}
	}

	return len(locked), nil
}

// listed is a statement, in all its steps, with as many placeholders as there are names in place of one that is followed by dots.
func listed(statement databases.Statement, values databases.Values, names []string) (databases.Statement, databases.Values) {
	bound := maps.Clone(values)

	before, list, found := strings.Cut(statement.SQL, "IN (")
	if each, after, dots := strings.Cut(list, "..."); found && dots {
		args := make([]string, len(names), len(names)+len(statement.Args))

		for i, name := range names {
			args[i] = "name" + strconv.Itoa(i)
			bound[args[i]] = name
		}

		statement.SQL = before + "IN (" + strings.Join(slices.Repeat([]string{each}, len(names)), ", ") + after
		statement.Args = append(args, statement.Args[1:]...)
	}

	if statement.Then != nil {
		then, _ := listed(*statement.Then, bound, names)
		statement.Then = &then
	}

	return statement, bound
}
