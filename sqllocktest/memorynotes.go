package sqllocktest

import (
	"context"
	"strings"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Notes says what is kept of a name beside its grants.
func (m *Memory) Notes(ctx context.Context, name string) (notes strategies.Notes, err error) {
	err = m.do(ctx, "notes", func(now time.Time) error {
		if row := m.store.rows[name]; row != nil {
			notes = row.notes(now)
		}

		return nil
	})

	return notes, err
}

func (r *memoryRow) notes(now time.Time) strategies.Notes {
	notes := strategies.Notes{Mark: r.mark}

	if r.owner != "" && now.Before(r.expires) {
		notes.Owner, notes.Left = r.owner, r.expires.Sub(now)
	}

	if owner, reason, ok := strings.Cut(r.asked, " "); ok && owner == notes.Owner {
		notes.Asked = reason
	}

	return notes
}

// Mark records a number with the name.
func (m *Memory) Mark(ctx context.Context, name, owner string, mark int64) (noted bool, err error) {
	err = m.do(ctx, "mark", func(time.Time) error {
		if row := m.store.rows[name]; row != nil && row.owner == owner {
			row.mark = max(row.mark, mark)
			noted = true
		}

		return nil
	})

	return noted, err
}

// Ask asks whoever has the name to release it.
func (m *Memory) Ask(ctx context.Context, name, reason string) (asked bool, err error) {
	err = m.do(ctx, "ask", func(now time.Time) error {
		if row := m.store.rows[name]; row != nil && row.owner != "" && now.Before(row.expires) {
			row.asked, asked = row.owner+" "+reason, true
			m.store.announce(name)
		}

		return nil
	})

	return asked, err
}

// Announce lets all who listen look.
func (m *Memory) Announce(ctx context.Context, name string) error {
	return m.do(ctx, "announce", func(time.Time) error {
		m.store.announce(name)

		return nil
	})
}

func (s *memoryStore) announce(name string) {
	for ear := range s.ears {
		ear.hear(memoryTurn{look: true, name: name})
	}
}
