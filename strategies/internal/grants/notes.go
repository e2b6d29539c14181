package grants

import (
	"context"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Notes reads what is kept of a name beside its grants. Of a request it says so only as long as its owner has the name.
func (b Base) Notes(ctx context.Context, name string) (strategies.Notes, error) {
	return result(ctx, b.store.Use, func(on databases.Conn) (strategies.Notes, error) { return b.store.notes(ctx, on, name) })
}

func (s *Store) notes(ctx context.Context, on databases.Session, name string) (notes strategies.Notes, err error) {
	var (
		left  int64
		asked string
	)

	_, err = ReadOne(ctx, on, s.sql.Notes, databases.Values{"name": name, "where": s.Where()}, &notes.Owner, &left, &notes.Mark, &asked)

	if left <= 0 {
		notes.Owner = ""
	}

	notes.Left = max(0, micros(left))

	if owner, reason, ok := strings.Cut(asked, " "); ok && owner == notes.Owner {
		notes.Asked = reason
	}

	return notes, err
}

// Mark records a number with the name, while the owner has the name.
func (b Base) Mark(ctx context.Context, name, owner string, mark int64) (noted bool, err error) {
	values := databases.Values{"name": name, "owner": owner, "mark": mark}

	return b.note(ctx, b.store.sql.Mark, name, values, func(n strategies.Notes) bool { return n.Owner == owner && n.Mark >= mark })
}

// Ask asks whoever has the name to release it.
func (b Base) Ask(ctx context.Context, name, reason string) (asked bool, err error) {
	values := databases.Values{"name": name, "reason": reason}

	asked, err = b.note(ctx, b.store.sql.Ask, name, values, func(n strategies.Notes) bool { return n.Owner != "" && n.Asked == reason })
	if asked {
		_ = b.Announce(ctx, name) // a hint
	}

	return asked, err
}

// note sends a statement, which may change nothing because all was so before. MySQL does not count that.
func (b Base) note(
	ctx context.Context, statement databases.Statement, name string, values databases.Values, is func(strategies.Notes) bool,
) (noted bool, err error) {
	s := b.store

	return result(ctx, s.Use, func(on databases.Conn) (bool, error) {
		values["where"] = s.Where()

		result, err := s.retryBusy(ctx, on, statement, values)
		if err != nil || result.RowsAffected > 0 {
			return err == nil, s.busy(err, "another transaction is in the way of the note")
		}

		notes, err := s.notes(ctx, on, name)

		return err == nil && is(notes), err
	})
}

// Announce tells all who listen that something has changed about the name, where that can be.
func (b Base) Announce(ctx context.Context, name string) error {
	if b.store.sql.Announce.SQL == "" {
		return nil
	}

	return b.store.Use(ctx, func(on databases.Conn) error {
		return b.store.hint(ctx, on, b.store.sql.Announce, databases.Values{"name": name})
	})
}
