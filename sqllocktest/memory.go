package sqllocktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/strategies"
)

// Memory is a strategy that keeps locks in this process: for the tests of
// programs that take locks. It does all that a strategy can, and what happens
// to locks in real life happens on demand:
//
//   - Lose takes a lock away, as if another process had taken it over.
//   - Age makes a lease run out without waiting.
//   - Wipe forgets all locks, as a server that lost its data, and Skew sets its clock.
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
	return &Memory{Script: newMemoryScript(), store: &memoryStore{
		rows: make(map[string]*memoryRow), ears: make(map[*memoryEar]struct{}), queue: make(map[memoryPlace]memoryWaiter),
	}}
}

// Peer returns a strategy with the same locks and a Script of its own, as
// another process has it.
func (m *Memory) Peer() *Memory { return &Memory{Script: newMemoryScript(), store: m.store} }

func newMemoryScript() *Script {
	return &Script{operations: []string{
		"acquire", "acquire-all", "raise", "renew", "renew-all", "check", "release", "release-all", "settle", "guard", "releasetx",
		"join", "pass", "list", "status", "force", "reap", "idle", "listen", "enqueue", "enqueue-all", "keep", "leave", "stand", "call", "waiters",
		"notes", "mark", "ask", "announce",
	}}
}

// memoryStore stands for the database.
type memoryStore struct {
	mu   sync.Mutex
	rows map[string]*memoryRow
	// floor is the largest token of the rows that were removed. The clock alone
	// is not enough here: in a synctest bubble it can stand still.
	floor  int64
	ears   map[*memoryEar]struct{}
	queue  map[memoryPlace]memoryWaiter
	ticket int64         // the last
	ahead  time.Duration // of this process's clock
}

// memoryEar is one that listens.
type memoryEar struct {
	process string
	turns   chan memoryTurn
}

// memoryTurn says whose turn it is, or that it has to be looked.
type memoryTurn struct {
	name, id string
	line     int64
	look     bool
}

func (e *memoryEar) hear(turn memoryTurn) {
	select {
	case e.turns <- turn:
	default: // it does not keep up
	}
}

// memoryRow is what is known of a name.
type memoryRow struct {
	name      string
	token     int64
	owner     string // empty: nobody
	holder    strategies.Holder
	acquired  time.Time
	expires   time.Time
	lockDelay time.Duration
	taken     time.Time // the name stays taken until then, also when released
	minHold   time.Duration
	reason    strategies.Reason // why the last grant ended, if not by its own release
	detail    string
	waiting   int64 // another number with each wait that begins; 0 if nobody waits
	pins      map[*MemoryTx]struct{}
	readers   map[string]memoryReader // by owner, if readers have it
	mark      int64
	asked     string // an owner that was asked to release the name, a blank, and why
}

// memoryName is what Features and transactions say as the database.
const memoryName = "memory"

// Features are all there are.
func (*Memory) Features() strategies.Features {
	return strategies.Features{
		Strategy: memoryName, Database: memoryName, LeavesLine: true,
		MinHold: true, LockDelay: true, Shared: true, Slots: true, Passes: true, Several: true,
	}
}

// do runs an operation under the script, and its effect under the mutex.
func (m *Memory) do(ctx context.Context, operation string, effect func(now time.Time) error) error {
	return m.play(ctx, operation, func() error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %w", strategies.ErrNotSent, err)
		}

		m.store.mu.Lock()
		defer m.store.mu.Unlock()

		return effect(time.Now().Add(m.store.ahead))
	})
}

// Acquire makes an attempt for each request.
func (m *Memory) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, m.acquireOne, m.acquireAll)
}

// Renew renews grants, or checks them.
func (m *Memory) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	return calls.Renew(ctx, grants, lease, m.renewAll)
}

// Release ends grants.
func (m *Memory) Release(ctx context.Context, grants []strategies.Grant) (contended []bool, errs []error) {
	return calls.Release(ctx, grants, m.releaseAll)
}

func (m *Memory) acquireOne(ctx context.Context, r strategies.Request) (grant strategies.Grant, err error) {
	if r.From != nil {
		return m.pass(ctx, r)
	}

	err = m.do(ctx, "acquire", func(now time.Time) (err error) {
		if r.Mode == strategies.Shared {
			grant, err = m.share(now, r)
		} else {
			grant, err = m.acquire(now, r)
		}

		return err
	})
	if err != nil {
		return strategies.Grant{}, err // its answer may be lost
	}

	return grant, nil
}

// pass has the grant of another owner go over to a request's.
func (m *Memory) pass(ctx context.Context, r strategies.Request) (grant strategies.Grant, err error) {
	passed := func(owner string) strategies.Grant {
		g := &memoryGrant{memory: m, name: r.Name, owner: owner, last: r.From.Last}

		return strategies.Grant{Token: r.From.Token, Last: r.From.Last, State: g}
	}

	if r.From.Owner == r.Owner {
		return passed(r.Owner), nil
	}

	err = m.do(ctx, "pass", func(now time.Time) error {
		from, expires := &memoryGrant{memory: m, name: r.Name, owner: r.From.Owner, last: r.From.Last}, now.Add(r.Lease)

		seen := m.store.rows[r.Name]

		again := seen != nil && seen.owner == r.Owner
		if again {
			from.owner = r.Owner
		}

		row, err := from.mine()

		switch {
		case err != nil:
			return err
		case !now.Before(row.expires):
			return &strategies.LostError{Reason: strategies.Expired}
		case len(row.pins) > 0:
			return &strategies.HeldError{Name: r.Name, Detail: "an open transaction guards it"}
		case again && row.expires.After(expires):
			expires = row.expires
		}

		row.owner, row.holder, row.expires, row.lockDelay, row.acquired = r.Owner, r.Holder, expires, r.LockDelay, now
		row.minHold = r.MinHold

		return nil
	})
	if err != nil {
		return grant, err
	}

	return passed(r.Owner), nil
}

func (m *Memory) acquireAll(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := make([]strategies.Grant, len(requests)), make([]error, len(requests))

	err := m.do(ctx, "acquire-all", func(now time.Time) error {
		for i, r := range requests {
			grants[i], errs[i] = m.acquire(now, r)
		}

		return nil
	})
	if err != nil {
		for i := range errs {
			grants[i], errs[i] = strategies.Grant{}, err
		}
	}

	return grants, errs
}

func (m *Memory) renewAll(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	return m.all(ctx, "renew-all", grants, func(now time.Time, _ int, row *memoryRow) {
		if expires := now.Add(lease); expires.After(row.expires) {
			row.expires = expires
		}
	})
}

func (m *Memory) releaseAll(ctx context.Context, grants []strategies.Grant) (contended []bool, errs []error) {
	contended = make([]bool, len(grants))
	errs = m.all(ctx, "release-all", grants, func(now time.Time, i int, row *memoryRow) {
		row.free("", "")

		contended[i] = m.store.tell(now, row)
	})

	return contended, errs
}

// all does something to the rows of grants; those that have none go alone.
func (m *Memory) all(
	ctx context.Context, operation string, grants []strategies.Grant, effect func(now time.Time, i int, row *memoryRow),
) []error {
	errs := make([]error, len(grants))

	err := m.do(ctx, operation, func(now time.Time) error {
		for i, grant := range grants {
			errs[i] = strategies.ErrNotBatched

			g, ok := grant.State.(*memoryGrant)
			if !ok {
				continue
			}

			if row, err := g.mine(); err == nil {
				effect(now, i, row)

				errs[i] = nil
			}
		}

		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}

	return errs
}

// refused says why a request is not granted; nil if it is.
func (m *Memory) refused(now time.Time, r strategies.Request) error {
	row := m.store.row(r.Name)

	if row.owner == r.Owner {
		return nil
	}

	if err := row.inTheWay(now); err != nil {
		return err
	}

	if row.waiting != 0 && !r.First {
		return &strategies.HeldError{Name: r.Name, Line: row.waiting}
	}

	return nil
}

// acquire grants the name if it is free.
func (m *Memory) acquire(now time.Time, r strategies.Request) (grant strategies.Grant, err error) {
	row := m.store.row(r.Name)

	if row.owner == r.Owner {
		// The same owner asks again: its first answer was lost.
		row.expires = now.Add(r.Lease)

		return m.grant(r, row), nil
	}

	if err := m.refused(now, r); err != nil {
		return grant, err
	}

	m.store.leaveLine(row, r)

	*row = memoryRow{
		name: r.Name, token: max(max(row.token, m.store.floor)+max(1, r.Tokens), now.UnixMicro()), owner: r.Owner, holder: r.Holder,
		acquired: now, expires: now.Add(r.Lease), lockDelay: r.LockDelay, minHold: r.MinHold, pins: row.pins, waiting: row.waiting,
		mark: row.mark,
	}

	return m.grant(r, row), nil
}

// leaveLine takes out of a name's line who is granted it.
func (s *memoryStore) leaveLine(row *memoryRow, r strategies.Request) {
	if row.waiting == r.Line {
		row.waiting = 0
	}

	if r.Wait != "" {
		delete(s.queue, memoryPlace{r.Process, r.Wait})
	}
}

// grant is the row's, with as many tokens as were asked for. The row has the last one.
func (m *Memory) grant(r strategies.Request, row *memoryRow) strategies.Grant {
	return strategies.Grant{
		Token: row.token - max(1, r.Tokens) + 1, Last: row.token,
		State: &memoryGrant{memory: m, name: r.Name, owner: r.Owner, last: row.token},
	}
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

// inTheWay returns a *strategies.HeldError unless the name is free.
func (r *memoryRow) inTheWay(now time.Time) error {
	free := r.taken
	if r.owner != "" {
		free = r.expires.Add(r.lockDelay)
	}

	switch taken := now.Before(free); {
	case taken && r.owner == "":
		return &strategies.HeldError{Name: r.name, Remaining: free.Sub(now), Detail: "the minimum hold of a lock that was released"}
	case taken && !now.Before(r.expires):
		return &strategies.HeldError{Name: r.name, Remaining: free.Sub(now), Detail: "the lock delay of a lease that expired"}
	case taken:
		held := &strategies.HeldError{
			Name: r.name, Holder: r.statuses(now)[0].Holder, Owner: r.owner, Token: r.token, Shared: r.reads(now), Remaining: free.Sub(now),
		}
		if r.detached() {
			held.Owner, held.Detail = "", "detached, and not adopted" // it is a secret
		}

		return held
	case len(r.pins) > 0:
		return &strategies.HeldError{Name: r.name, Detail: "an open transaction guards it"}
	default:
		return nil
	}
}

// detached says whether the grant waits to be adopted.
func (r *memoryRow) detached() bool { return strings.HasPrefix(r.owner, strategies.DetachedPrefix) }

// runs says for how long the name is held, or else taken though nobody holds it.
func (r *memoryRow) runs(now time.Time) (remaining, taken time.Duration) {
	switch {
	case r.owner == "":
		return 0, max(0, r.taken.Sub(now))
	case now.Before(r.expires):
		return r.expires.Sub(now), 0
	default:
		return 0, max(0, r.expires.Add(r.lockDelay).Sub(now))
	}
}

// Listen tells a process of its turns.
func (m *Memory) Listen(ctx context.Context, process string, ready func(), turn func(name, id string, line int64), look func(name string, released bool)) error {
	ear := &memoryEar{process: process, turns: make(chan memoryTurn, 1024)}

	err := m.do(ctx, "listen", func(time.Time) error {
		m.store.ears[ear] = struct{}{}

		return nil
	})
	if err != nil {
		return err
	}

	defer func() {
		m.store.mu.Lock()
		defer m.store.mu.Unlock()

		delete(m.store.ears, ear)
	}()

	ready()

	for {
		select {
		case t := <-ear.turns:
			if t.look {
				look(t.name, false)
			} else {
				turn(t.name, t.id, t.line)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Call tells those who are the first in line for names that are free.
func (m *Memory) Call(ctx context.Context, names []string) error {
	return m.do(ctx, "call", func(now time.Time) error {
		for _, name := range names {
			if row, ok := m.store.rows[name]; ok && (row.owner == "" || row.reads(now) && m.store.readersNext(now, name)) {
				m.store.tell(now, row)
			}
		}

		return nil
	})
}

// tell tells who is first in line of a release, if somebody waits, and says whether.
func (s *memoryStore) tell(now time.Time, row *memoryRow) bool {
	if row.waiting == 0 {
		return false
	}

	name := lineOf(row.name)

	line := s.line(now, name)
	if len(line) == 0 {
		return true
	}

	turn := memoryTurn{name: name, id: line[0].ID}
	if len(line) == 1 {
		turn.line = row.waiting
	}

	for ear := range s.ears {
		if ear.process == line[0].Process {
			ear.hear(turn)
		}
	}

	return true
}

// free ends the grant that the row has.
func (r *memoryRow) free(reason strategies.Reason, detail string) {
	r.owner, r.readers, r.reason, r.detail = "", nil, reason, detail
	r.taken = time.Time{}

	if r.minHold > 0 {
		r.taken = r.acquired.Add(r.minHold)
	}
}

// Close has nothing to give back.
func (*Memory) Close(context.Context) {}

// Settle ends what attempts of the owner left.
func (m *Memory) Settle(ctx context.Context, r strategies.Request) error {
	return m.do(ctx, "settle", func(now time.Time) error {
		row := m.store.rows[r.Name]

		switch {
		case row == nil:
		case r.Mode == strategies.Shared:
			m.store.leave(now, row, r.Owner)
		case row.owner == r.Owner:
			row.minHold = 0
			row.free("", "")
			m.store.tell(now, row)
		}

		return nil
	})
}

// Lose takes the lock away from its holder, as if another process had taken it
// over and released it again. The holder learns of it at its next renewal or
// Check, or when it uses Guard. Of a name with permits it is the first; strategies.SlotName
// names the others.
func (m *Memory) Lose(name string) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()

	row := m.store.row(name)
	row.free(strategies.TakenOver, "")
	row.taken = time.Time{}
	row.token++
}

// Age lets d pass for the lock of the name: its lease ends so much sooner.
func (m *Memory) Age(name string, d time.Duration) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()

	row := m.store.row(name)
	row.acquired, row.expires, row.taken = row.acquired.Add(-d), row.expires.Add(-d), row.taken.Add(-d)

	for owner, reader := range row.readers {
		reader.acquired, reader.expires = reader.acquired.Add(-d), reader.expires.Add(-d)
		row.readers[owner] = reader
	}
}

// Skew sets how far the clock that decides is ahead of this process's, as that of a server can be; negative is behind.
func (m *Memory) Skew(ahead time.Duration) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()

	m.store.ahead = ahead
}

// Wipe deletes all that is known of all names, tokens included, as if the server were restored without its data.
func (m *Memory) Wipe() {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()

	m.store.rows, m.store.floor = make(map[string]*memoryRow), 0
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

// Validate finds nothing wrong.
func (*Memory) Validate() error { return nil }

// List returns the names that are held or taken.
func (m *Memory) List(ctx context.Context, f strategies.Filter) ([]strategies.Status, error) {
	var held []strategies.Status

	err := m.do(ctx, "list", func(now time.Time) error {
		held = nil

		for name, row := range m.store.rows {
			if row.unfree(now) > 0 && strings.HasPrefix(name, f.Prefix) && (f.Name == "" || f.Name == lineOf(name)) {
				held = append(held, row.statuses(now)...)
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	slices.SortFunc(held, func(a, b strategies.Status) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Owner, b.Owner))
	})

	if f.Limit > 0 && len(held) > f.Limit {
		held = held[:f.Limit]
	}

	return held, nil
}

// Status tells of the name's latest grant.
func (m *Memory) Status(ctx context.Context, name string) (status strategies.Status, found bool, err error) {
	err = m.do(ctx, "status", func(now time.Time) error {
		row := m.store.rows[name]
		if found = row != nil && row.token != 0; found {
			status = row.statuses(now)[0]
			status.Guarded = len(row.pins) > 0

			notes := row.notes(now)
			status.Mark, status.ReleaseRequested = notes.Mark, notes.Asked
		}

		return nil
	})

	return status, found, err
}

// status is what is known of the row's latest grant.
func (r *memoryRow) status(now time.Time) strategies.Status {
	status := strategies.Status{Name: r.name, Strategy: memoryName, Token: r.token, Owner: r.owner, Holder: r.holder}

	if status.Remaining, status.Taken = r.runs(now); status.Remaining > 0 {
		status.HeldFor, status.Detached = now.Sub(r.acquired), r.detached()
	}

	if r.owner == "" {
		status.Ended, status.Detail = r.reason, r.detail
	}

	return status
}

// unfree is how long the name is not free.
func (r *memoryRow) unfree(now time.Time) time.Duration {
	remaining, taken := r.runs(now)

	return remaining + taken
}

// ForceRelease ends the grant that was seen, or what keeps the name taken after it.
func (m *Memory) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (found bool, err error) {
	err = m.do(ctx, "force", func(now time.Time) error {
		row := m.store.rows[seen.Name]
		if row == nil || row.unfree(now) == 0 {
			return nil
		}

		if !seen.Is(row.token, row.owner) {
			err := row.inTheWay(now)
			if held := (*strategies.HeldError)(nil); errors.As(err, &held) {
				held.Token = row.token // of whoever came after the one that was seen
			}

			return err
		}

		found = true

		// One that was released by itself ended for no other reason.
		if row.owner != "" {
			row.free(strategies.Forced, reason)
		}

		row.taken = time.Time{}
		m.store.tell(now, row)
		m.store.announce(seen.Name)

		return nil
	})

	return found, err
}

// Reap ends what expired and removes what was idle.
func (m *Memory) Reap(ctx context.Context, retention time.Duration) (strategies.Reaped, error) {
	var reaped strategies.Reaped

	err := m.do(ctx, "reap", func(now time.Time) error {
		for name, row := range m.store.rows {
			if row.owner != "" && !now.Before(row.expires.Add(row.lockDelay)) {
				row.free(strategies.Expired, "reaped")

				reaped.Expired++
			}

			if row.owner == "" && len(row.pins) == 0 && now.Sub(row.expires) > retention && now.After(row.taken) && row.mark == 0 {
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
	last   int64 // of its tokens
	freed  bool  // by a release
}

// mine returns the grant's row, or why there is none any more.
func (g *memoryGrant) mine() (*memoryRow, error) {
	row := g.memory.store.rows[g.name]
	if row != nil && row.token >= g.last && row.owner == g.owner { // a Raise without an answer may have been before
		return row, nil
	}

	lost := &strategies.LostError{Reason: strategies.Unknown}

	switch {
	case row == nil:
		lost.Detail = "its row is gone from the database"
	case row.token == g.last && row.owner == "" && row.reason == "":
		lost.Detail = "it was released"
	case row.token != g.last || row.owner != "":
		lost.Reason, lost.SuccessorToken = strategies.TakenOver, row.token

		if row.owner != "" {
			lost.Successor = row.holder
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

// Raise returns the grant under a token that is larger.
func (m *Memory) Raise(ctx context.Context, held strategies.Grant, token int64) (raised strategies.Grant, err error) {
	err = m.do(ctx, "raise", func(time.Time) error {
		g, ok := held.State.(*memoryGrant)
		if !ok {
			return fmt.Errorf("%w: %T is no writer's grant", strategies.ErrUnsupported, held.State)
		}

		row, err := g.mine()
		if err != nil {
			return err
		}

		row.token = max(row.token, token)
		raised = m.grant(strategies.Request{Name: g.name, Owner: g.owner}, row)

		return nil
	})
	if err != nil {
		return strategies.Grant{}, err
	}

	return raised, nil
}

// memoryGrantOf is the state of a grant.
func memoryGrantOf(held strategies.Grant) (*memoryGrant, error) {
	switch g := held.State.(type) {
	case *memoryGrant:
		return g, nil
	case *memoryShare:
		return g.phase, nil
	default:
		return nil, fmt.Errorf("sqllocktest: %T is no grant of a Memory", held.State)
	}
}

// Check looks whether the grant is still there.
func (g *memoryGrant) Check(ctx context.Context) error {
	return g.memory.do(ctx, "check", func(now time.Time) error {
		row, err := g.mine()
		if err != nil {
			return err
		}

		if !now.Before(row.expires) {
			return &strategies.LostError{Reason: strategies.Expired}
		}

		return nil
	})
}

// Release ends the grant.
func (g *memoryGrant) Release(ctx context.Context) (contended bool, err error) {
	err = g.memory.do(ctx, "release", func(now time.Time) error {
		row, err := g.mine()
		if err == nil {
			// Also when its lease has expired: nobody else had it since.
			row.free("", "")

			g.freed = true

			contended = g.memory.store.tell(now, row)

			return nil
		}

		// Its token, nobody's and no other reason: an earlier call released it.
		if row := g.memory.store.rows[g.name]; row == nil && g.freed || row != nil && row.token == g.last && row.reason == "" {
			return nil
		}

		return err
	})

	return contended, err
}
