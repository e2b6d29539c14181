package grants

import (
	"context"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Notes reads what is kept of a name beside its grants. Of a request it says so only as long as its owner has the name.
func (b Base) Notes(ctx context.Context, name string) (notes strategies.Notes, err error) {
	s := b.store

	conn, err := s.Conn(ctx)
	if err != nil {
		return notes, err
	}

	defer s.Return(conn, &err)

	return s.notes(ctx, conn, name)
}

func (s *Store) notes(ctx context.Context, on databases.Session, name string) (notes strategies.Notes, err error) {
	var (
		left  int64
		asked string
	)

	err = on.Query(ctx, s.sql.Notes, databases.Values{"name": name}, func(row databases.Row) error {
		return row(&notes.Owner, &left, &notes.Mark, &asked)
	})

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
	return b.note(ctx, b.store.sql.Mark, databases.Values{"name": name, "owner": owner, "mark": mark}, func(n strategies.Notes) bool {
		return n.Owner == owner && n.Mark >= mark
	})
}

// Ask asks whoever has the name to release it.
func (b Base) Ask(ctx context.Context, name, reason string) (asked bool, err error) {
	asked, err = b.note(ctx, b.store.sql.Ask, databases.Values{"name": name, "reason": reason}, func(n strategies.Notes) bool {
		return n.Owner != "" && n.Asked == reason
	})
	if asked {
		_ = b.Announce(ctx, name) // a hint
	}

	return asked, err
}

// note sends a statement, which may change nothing because all was so before. MySQL does not count that.
func (b Base) note(
	ctx context.Context, statement databases.Statement, values databases.Values, is func(strategies.Notes) bool,
) (noted bool, err error) {
	s := b.store

	conn, err := s.Conn(ctx)
	if err != nil {
		return false, err
	}

	defer s.Return(conn, &err)

	result, err := s.retryBusy(ctx, conn, statement, values)
	if s.Busy(err) {
		err = busyError{"another transaction is in the way of the note", err}
	}

	if err != nil || result.RowsAffected > 0 {
		return err == nil, err
	}

	name, _ := values["name"].(string)
	notes, err := s.notes(ctx, conn, name)

	return err == nil && is(notes), err
}

// Announce tells all who listen that something has changed about the name, where that can be.
func (b Base) Announce(ctx context.Context, name string) (err error) {
	announce := b.store.sql.Announce
	if announce.SQL == "" {
		return nil
	}

	conn, err := b.store.Conn(ctx)
	if err != nil {
		return err
	}

	defer b.store.Return(conn, &err)

	return b.store.hint(ctx, conn, announce, databases.Values{"name": name})
}
