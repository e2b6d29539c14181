package sqllocktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// memoryReader is one of those who have a name together.
type memoryReader struct {
	holder            strategies.Holder
	acquired, expires time.Time
}

// reads says whether readers have the name.
func (r *memoryRow) reads(now time.Time) bool { return r.readers != nil && now.Before(r.expires) }

// prolong lets the lease of the row run as long as those of its readers, from the longest of them on.
func (r *memoryRow) prolong() {
	r.expires = time.Time{}

	for _, reader := range r.readers {
		if reader.expires.After(r.expires) {
			r.expires = reader.expires
		}
	}
}

// share grants the name to a reader.
func (m *Memory) share(now time.Time, r strategies.Request) (grant strategies.Grant, err error) {
	row := m.store.row(r.Name)
	_, before := row.readers[r.Owner]

	switch reads := row.reads(now); {
	case reads && row.waiting != 0 && !r.First && !before:
		return grant, &strategies.HeldError{
			Name: r.Name, Holder: row.holder, Token: row.token, Shared: true, Remaining: row.expires.Sub(now), Line: row.waiting,
			Detail: "others are first in line",
		}
	case reads:
		m.store.leaveLine(row, r)
	default:
		phase := r
		phase.Owner, phase.Tokens, phase.MinHold, phase.LockDelay = "shared-memory-"+r.Owner, 1, 0, 0

		if _, err := m.acquire(now, phase); err != nil {
			return grant, err
		}

		if row.readers == nil {
			row.readers = make(map[string]memoryReader)
		}
	}

	reader, known := row.readers[r.Owner]
	if !known {
		reader = memoryReader{holder: r.Holder, acquired: now}
	}

	if expires := now.Add(r.Lease); expires.After(reader.expires) {
		reader.expires = expires
	}

	row.readers[r.Owner] = reader
	row.prolong()

	phase := &memoryGrant{memory: m, name: r.Name, owner: row.owner, last: row.token}

	return strategies.Grant{Token: row.token, Last: row.token, Phase: row.owner, State: &memoryShare{phase: phase, owner: r.Owner}}, nil
}

// leave takes a reader away, and frees the row if it was the last. It says whether it was one.
func (s *memoryStore) leave(now time.Time, row *memoryRow, owner string) (was bool) {
	if _, was = row.readers[owner]; !was {
		return false
	}

	delete(row.readers, owner)
	row.prolong()

	if len(row.readers) == 0 {
		row.free("", "")
		s.tell(now, row)
	}

	return true
}

// readersNext says whether a reader is the first in line.
func (s *memoryStore) readersNext(now time.Time, name string) bool {
	line := s.line(now, name)

	return len(line) > 0 && line[0].Shared
}

// statuses are what is known of the row's latest grant, for each reader if those have it.
func (r *memoryRow) statuses(now time.Time) []strategies.Status {
	var all []strategies.Status

	for owner, reader := range r.readers {
		if now.Before(reader.expires) {
			status := r.status(now)
			status.Shared, status.Owner, status.Holder = true, owner, reader.holder
			status.HeldFor, status.Remaining = now.Sub(reader.acquired), reader.expires.Sub(now)
			all = append(all, status)
		}
	}

	if len(all) == 0 {
		status := r.status(now)

		// Nobody's, if those who are left have died.
		if r.readers != nil {
			status.Shared, status.Owner, status.Holder = true, "", strategies.Holder{}
			status.Taken, status.Remaining, status.HeldFor = status.Remaining, 0, 0
		}

		return []strategies.Status{status}
	}

	slices.SortFunc(all, func(a, b strategies.Status) int { return strings.Compare(a.Owner, b.Owner) })

	return all
}

// memoryShare is the grant of a reader.
type memoryShare struct {
	phase    *memoryGrant
	owner    string
	released bool
}

// mine returns the row and the reader, or why there is none any more.
func (g *memoryShare) mine() (*memoryRow, memoryReader, error) {
	row, err := g.phase.mine()
	if err != nil {
		return nil, memoryReader{}, err
	}

	reader, ok := row.readers[g.owner]
	if !ok {
		err = &strategies.LostError{Reason: strategies.Unknown}
	}

	return row, reader, err
}

// Join says whether more readers may have a reader's grant.
func (m *Memory) Join(ctx context.Context, held strategies.Grant, r strategies.Request) (joins bool, err error) {
	err = m.do(ctx, "join", func(time.Time) error {
		g, ok := held.State.(*memoryShare)
		if !ok {
			return fmt.Errorf("sqllocktest: %T is no reader's grant", held.State)
		}

		row, _, err := g.mine()
		if err != nil {
			return err
		}

		if joins = r.First || row.waiting == 0; joins {
			m.store.leaveLine(row, r)
		}

		return nil
	})

	return joins && err == nil, err
}

// Renew lets the lease run from now on, and never shortens it.
func (g *memoryShare) Renew(ctx context.Context, lease time.Duration) error {
	return g.phase.memory.do(ctx, "renew", func(now time.Time) error {
		row, reader, err := g.mine()
		if err != nil {
			return err
		}

		if expires := now.Add(lease); expires.After(reader.expires) {
			reader.expires = expires
		}

		row.readers[g.owner] = reader
		row.prolong()

		return nil
	})
}

// Check looks whether the grant is still there.
func (g *memoryShare) Check(ctx context.Context) error {
	return g.phase.memory.do(ctx, "check", func(now time.Time) error {
		_, reader, err := g.mine()
		if err == nil && !now.Before(reader.expires) {
			err = &strategies.LostError{Reason: strategies.Expired}
		}

		return err
	})
}

// Release ends the grant, and the phase with the last of its readers.
func (g *memoryShare) Release(ctx context.Context) (contended bool, err error) {
	err = g.phase.memory.do(ctx, "release", func(now time.Time) error {
		row, _, err := g.mine()

		switch {
		case err == nil:
			contended = row.waiting != 0
			g.released = g.phase.memory.store.leave(now, row, g.owner)

			return nil
		case g.released:
			return nil
		}

		// Its token, nobody's and no other reason: an earlier call released it.
		if row := g.phase.memory.store.rows[g.phase.name]; row != nil && row.token == g.phase.last && row.reason == "" {
			return nil
		}

		return err
	})

	return contended, err
}
