package sqllocktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// Memory is a strategy that keeps locks in this process: for the tests of
// programs that take locks. It does all that a strategy can, and what happens
// to locks in real life happens on demand:
//
//   - Lose takes a lock away, as if another process had taken it over.
//   - Age makes a lease run out without waiting.
//   - Its Script fails operations, loses their answers, and stops them.
//   - Begin opens a transaction to guard; only its locks are real.
//   - Peer is the same locks as another process sees them.
//
// It reads time.Now, so under testing/synctest leases take no time.
type Memory struct {
	*Script

	store *memoryStore
}

// NewMemory returns a strategy without any lock.
func NewMemory() *Memory {
	return &Memory{Script: &Script{}, store: &memoryStore{rows: make(map[string]*memoryRow)}}
}

// Peer returns a strategy with the same locks and a Script of its own, as
// another process has it.
func (m *Memory) Peer() *Memory { return &Memory{Script: &Script{}, store: m.store} }

// memoryStore stands for the database.
type memoryStore struct {
	mu   sync.Mutex
	rows map[string]*memoryRow
	// floor is the largest token of the rows that were removed. The clock alone
	// is not enough here: in a synctest bubble it can stand still.
	floor int64
}

// memoryRow is what is known of a name.
type memoryRow struct {
	name      string
	token     int64
	owner     string // empty: nobody
	holder    sqllock.Holder
	acquired  time.Time
	expires   time.Time
	lockDelay time.Duration
	taken     time.Time // the name stays taken until then, also when released
	minHold   time.Duration
	reason    sqllock.Reason // why the last grant ended, if not by its own release
	detail    string
	pins      map[*MemoryTx]struct{}
}

// memoryName is what Features and transactions say as the database.
const memoryName = "memory"

// Features are all there are.
func (*Memory) Features() sqllock.Features {
	return sqllock.Features{
		Strategy: memoryName, Database: memoryName,
		Guard: true, ReleaseTx: true, MinHold: true, LockDelay: true, Administer: true,
	}
}

// do runs an operation under the script, and its effect under the mutex.
func (m *Memory) do(ctx context.Context, operation string, effect func(now time.Time) error) error {
	return m.play(ctx, operation, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}

		m.store.mu.Lock()
		defer m.store.mu.Unlock()

		return effect(time.Now())
	})
}

// TryAcquire makes one attempt.
func (m *Memory) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	var grant *memoryGrant

	err := m.do(ctx, "acquire", func(now time.Time) error {
		row := m.store.row(r.Name)

		if row.owner == r.Owner {
			// The same owner asks again: its first answer was lost.
			row.expires = now.Add(r.Lease)
			grant = &memoryGrant{m, r.Name, r.Owner, row.token}

			return nil
		}

		if err := row.inTheWay(now); err != nil {
			return err
		}

		*row = memoryRow{
			name: r.Name, token: max(row.token+1, m.store.floor+1, now.UnixMicro()), owner: r.Owner, holder: r.Holder,
			acquired: now, expires: now.Add(r.Lease), lockDelay: r.LockDelay, minHold: r.MinHold, pins: row.pins,
		}
		grant = &memoryGrant{m, r.Name, r.Owner, row.token}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return grant, nil
}

// row returns the name's row, which it makes if there is none.
func (s *memoryStore) row(name string) *memoryRow {
	row, ok := s.rows[name]
	if !ok {
		row = &memoryRow{name: name, pins: make(map[*MemoryTx]struct{})}
		s.rows[name] = row
	}

	return row
}

// inTheWay returns a *sqllock.HeldError unless the name is free.
func (r *memoryRow) inTheWay(now time.Time) error {
	free := r.taken
	if r.owner != "" {
		free = r.expires.Add(r.lockDelay)
	}

	switch {
	case now.Before(free):
		return &sqllock.HeldError{Name: r.name, Holder: r.holder, Token: r.token, Remaining: free.Sub(now)}
	case len(r.pins) > 0:
		return &sqllock.HeldError{Name: r.name, Detail: "an open transaction guards it"}
	default:
		return nil
	}
}

// free ends the grant that the row has.
func (r *memoryRow) free(reason sqllock.Reason, detail string) {
	r.owner, r.reason, r.detail = "", reason, detail
	r.taken = r.acquired.Add(r.minHold)
}

// Settle ends what attempts of the owner left.
func (m *Memory) Settle(ctx context.Context, r sqllock.Request) error {
	return m.do(ctx, "settle", func(time.Time) error {
		if row := m.store.rows[r.Name]; row != nil && row.owner == r.Owner {
			row.minHold = 0
			row.free("", "")
		}

		return nil
	})
}

// Lose takes the lock away from its holder, as if another process had taken it
// over and released it again. The holder learns of it at its next renewal or
// Check, or when it uses Guard.
func (m *Memory) Lose(name string) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()

	row := m.store.row(name)
	row.free(sqllock.ReasonTakenOver, "")
	row.taken = time.Time{}
	row.token++
}

// Age lets d pass for the lock of the name: its lease ends so much sooner.
func (m *Memory) Age(name string, d time.Duration) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()

	row := m.store.row(name)
	row.acquired, row.expires, row.taken = row.acquired.Add(-d), row.expires.Add(-d), row.taken.Add(-d)
}

// Remove deletes all that is known of the name, as an operator could do.
func (m *Memory) Remove(name string) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()

	m.store.remove(name)
}

func (s *memoryStore) remove(name string) {
	if row := s.rows[name]; row != nil {
		s.floor = max(s.floor, row.token)
		delete(s.rows, name)
	}
}

// Holders lists the locks that are held.
func (m *Memory) Holders(ctx context.Context, f sqllock.Filter) ([]sqllock.HeldLock, error) {
	var held []sqllock.HeldLock

	err := m.do(ctx, "holders", func(now time.Time) error {
		held = nil

		for name, row := range m.store.rows {
			if row.owner != "" && now.Before(row.expires) && strings.HasPrefix(name, f.Prefix) {
				held = append(held, sqllock.HeldLock{
					Name: name, Strategy: memoryName, Token: row.token, Holder: row.holder,
					HeldFor: now.Sub(row.acquired), Remaining: row.expires.Sub(now), Owner: row.owner,
				})
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	slices.SortFunc(held, func(a, b sqllock.HeldLock) int { return strings.Compare(a.Name, b.Name) })

	if f.Limit > 0 && len(held) > f.Limit {
		held = held[:f.Limit]
	}

	return held, nil
}

// ForceRelease ends the grant of whoever holds the name.
func (m *Memory) ForceRelease(ctx context.Context, name, reason string) error {
	return m.do(ctx, "force", func(now time.Time) error {
		row := m.store.rows[name]
		if row == nil || row.owner == "" || !now.Before(row.expires) {
			return sqllock.ErrNotHeld
		}

		row.free(sqllock.ReasonForced, reason)
		row.taken = time.Time{}

		return nil
	})
}

// Reap ends what ran out and removes what was idle.
func (m *Memory) Reap(ctx context.Context, retention time.Duration) (sqllock.Reaped, error) {
	var reaped sqllock.Reaped

	err := m.do(ctx, "reap", func(now time.Time) error {
		for name, row := range m.store.rows {
			if row.owner != "" && !now.Before(row.expires.Add(row.lockDelay)) {
				row.free(sqllock.ReasonExpired, "reaped")

				reaped.Expired++
			}

			if row.owner == "" && len(row.pins) == 0 && now.Sub(row.expires) > retention && now.After(row.taken) {
				m.store.remove(name)

				reaped.Removed++
			}
		}

		return nil
	})

	return reaped, err
}

// memoryGrant is a grant.
type memoryGrant struct {
	memory *Memory
	name   string
	owner  string
	token  int64
}

// Token is the fencing token.
func (g *memoryGrant) Token() int64 { return g.token }

// mine returns the grant's row, or why there is none any more.
func (g *memoryGrant) mine() (*memoryRow, error) {
	row := g.memory.store.rows[g.name]
	lost := &sqllock.LostError{Name: g.name, Token: g.token, Reason: sqllock.ReasonUnknown}

	switch {
	case row == nil:
		lost.Detail = "its row is gone"
	case row.token == g.token && row.owner == g.owner:
		return row, nil
	case row.token != g.token:
		lost.Reason = sqllock.ReasonTakenOver

		if row.owner != "" {
			lost.Detail = fmt.Sprintf("by %s with token %d", row.holder, row.token)
		}
	case row.reason != "":
		lost.Reason, lost.Detail = row.reason, row.detail
	}

	return nil, lost
}

// Renew lets the lease run from now on, and never shortens it.
func (g *memoryGrant) Renew(ctx context.Context, lease time.Duration) error {
	return g.memory.do(ctx, "renew", func(now time.Time) error {
		row, err := g.mine()
		if err != nil {
			return err
		}

		if expires := now.Add(lease); expires.After(row.expires) {
			row.expires = expires
		}

		return nil
	})
}

// Check looks whether the grant is still there.
func (g *memoryGrant) Check(ctx context.Context) error {
	return g.memory.do(ctx, "check", func(now time.Time) error {
		row, err := g.mine()
		if err != nil {
			return err
		}

		if !now.Before(row.expires) {
			return &sqllock.LostError{Name: g.name, Token: g.token, Reason: sqllock.ReasonExpired}
		}

		return nil
	})
}

// Release ends the grant.
func (g *memoryGrant) Release(ctx context.Context) error {
	return g.memory.do(ctx, "release", func(time.Time) error {
		row, err := g.mine()
		if err == nil {
			// Also when its lease ran out: nobody else had it since.
			row.free("", "")

			return nil
		}

		// Its token, nobody's and no other reason: an earlier call released it.
		if row := g.memory.store.rows[g.name]; row != nil && row.token == g.token && row.reason == "" {
			return nil
		}

		return err
	})
}
