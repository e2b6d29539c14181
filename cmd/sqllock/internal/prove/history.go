package prove

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// The checks of a history, which have the names that docs/guarantees.md has for them.
const (
	checkWindows = "trust windows"
	checkTokens  = "token order"
	checkGuard   = "guard"
	checkClose   = "left after Close"
	checkFree    = "free in time"
)

const (
	historyTime = 20 * time.Second
	// leasesIn is how many leases it lasts.
	leasesIn = 15
	// historyWait bounds a wait for a lock, and closeTime what ends a locker.
	historyWait = 5 * time.Second
	closeTime   = 20 * time.Second
	// leastGrants is how many a history needs to say anything. It goes on for up to so many times as long until there
	// are a few more, and holders that stopped under a guard.
	leastGrants = 10
	longest     = 4
	fewGrants   = 40
	fewStops    = 5
)

// counterTable is where a history counts what was written under guards.
const counterTable = "sqllock_prove_counter"

// counterSQL makes it.
const counterSQL = "CREATE TABLE " + counterTable + " (name VARCHAR(64) NOT NULL PRIMARY KEY, value BIGINT NOT NULL, token BIGINT NOT NULL)"

// history is what lockers of one strategy did with a few names while faults struck between them and the database.
type history struct {
	names   []string
	members []*member
	db      *sql.DB
	dialect databases.Dialect
	lasts   time.Duration
	wrap    func(*sql.Tx) strategies.Tx
	// Statements says which statement decides an operation, where its name does not.
	statements map[string]string

	mu        sync.Mutex
	grants    []*grant
	committed map[string]int64 // guarded writes of each name
	unknown   map[string]int64 // those whose commit had an error
	stops     int              // of holders under a guard
	late      []string         // guarded writes behind those of a successor
}

// member is a locker with a pool of its own, as another process has it.
type member struct {
	locker *sqllock.Locker
	faulty *sqllocktest.Faulty
	label  string
	closed error
	left   []string // what the locker had when it was closed
}

// grant is one lock as its holder saw it.
type grant struct {
	name  string
	token int64
	// called and returned are when it was asked for and had; until is the last moment at which the lock said that it
	// was held.
	called, returned, until time.Time
	// committing is when the commit of a guarded write began that succeeded; zero if there was none.
	committing time.Time
}

// lease is that of its locks.
func (h *history) lease() time.Duration { return h.lasts / leasesIn }

// pausing is so much longer than a lease that others can have the name and give it back meanwhile.
func (h *history) pausing() time.Duration { return 3 * h.lease() }

// run lets the members work while faults strike, and closes them.
func (h *history) run(t *testing.T, witness *sqllock.Locker) {
	t.Helper()

	h.committed, h.unknown = map[string]int64{}, map[string]int64{}

	for _, name := range h.names {
		if _, err := h.db.ExecContext(t.Context(), h.sql("INSERT INTO "+counterTable+" (name, value, token) VALUES (?, 0, 0)"), name); err != nil {
			t.Fatal(err)
		}
	}

	// A machine that is busy takes longer until something has happened.
	ctx, cancel := context.WithTimeout(t.Context(), longest*h.lasts)
	defer cancel()

	var group sync.WaitGroup

	group.Go(func() {
		h.enough(ctx)
		cancel()
	})

	for i, m := range h.members {
		for range 2 {
			group.Go(func() { h.work(ctx, m) })
		}

		// The first has none, so that there is one whose word is not in doubt.
		if i > 0 {
			group.Go(func() { h.strike(ctx, m.faulty) })
		}
	}

	group.Wait()

	for _, m := range h.members {
		m.faulty.Reset()
	}

	for _, m := range h.members {
		group.Go(func() { m.close(context.WithoutCancel(t.Context()), witness) })
	}

	group.Wait()
}

// enough waits until the history has lasted for its time, and there were grants and stops enough to say something.
func (h *history) enough(ctx context.Context) {
	const often = 20 * time.Millisecond

	tick := time.NewTicker(often)
	defer tick.Stop()

	for begun := time.Now(); ctx.Err() == nil; <-tick.C {
		h.mu.Lock()
		full := len(h.grants) >= fewGrants && (h.stops >= fewStops || h.dialect == databases.SQLite)
		h.mu.Unlock()

		if full && time.Since(begun) >= h.lasts {
			return
		}
	}
}

// close closes the locker, and looks at once whether it has left something: a lease would end that soon.
func (m *member) close(ctx context.Context, witness *sqllock.Locker) {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()

	if m.closed = m.locker.Close(ctx); m.closed != nil {
		return
	}

	var holders []sqllock.Status
	if holders, m.closed = witness.Holders(ctx, sqllock.Filter{}); m.closed != nil {
		return
	}

	for _, status := range holders {
		if status.Held() && status.Holder.Label == m.label {
			m.left = append(m.left, fmt.Sprintf("%s: token %d is held by a locker whose Close() returned nil", status.Name, status.Token))
		}
	}
}

// work has names again and again, until ctx ends in the middle of it.
func (h *history) work(ctx context.Context, m *member) {
	for ctx.Err() == nil {
		h.once(ctx, m, h.names[rand.IntN(len(h.names))])
	}
}

func (h *history) once(ctx context.Context, m *member, name string) {
	waiting, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()

	g := &grant{name: name, called: time.Now()}

	lock, err := m.locker.Acquire(waiting, name)
	if err != nil {
		return // a fault, or the end
	}

	g.token, g.returned = lock.Token(), time.Now()
	g.until = g.returned

	h.mu.Lock()
	h.grants = append(h.grants, g)
	h.mu.Unlock()

	if rand.IntN(2) == 0 {
		h.write(ctx, m, lock, g)
	} else {
		h.hold(ctx, lock, g, time.Duration(rand.IntN(20))*time.Millisecond)
	}

	// Some are left to Close.
	if ctx.Err() == nil {
		g.sample(lock)

		_ = lock.Release(ctx)
	}
}

// sample notes that the lock is held now, if it says so.
func (g *grant) sample(lock *sqllock.Lock) {
	if at := time.Now(); lock.Err() == nil {
		g.until = at
	}
}

// hold lets time pass, and asks the lock meanwhile.
func (h *history) hold(ctx context.Context, lock *sqllock.Lock, g *grant, d time.Duration) {
	const often = 2 * time.Millisecond

	tick := time.NewTicker(often)
	defer tick.Stop()

	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; <-tick.C {
		g.sample(lock)
	}
}

// stop lets the process of a locker stop for longer than a lease, as far as its locks go: they are not renewed.
func (h *history) stop(ctx context.Context, m *member, lock *sqllock.Lock, g *grant) {
	_, resume := m.faulty.Pause(h.statement("renew"), sqllocktest.Before)
	defer resume()

	h.hold(ctx, lock, g, h.pausing())
}

func (h *history) count() {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.stops++
}

// write reads a number, and writes it increased, which is right if nobody else does so meanwhile: the guard alone sees to
// that, because the holder sometimes stops for longer than its lease, before the guard or under it.
func (h *history) write(ctx context.Context, m *member, lock *sqllock.Lock, g *grant) {
	const moments = 5 // at two of which the process stops

	moment := rand.IntN(moments)

	if moment == 0 {
		h.stop(ctx, m, lock, g)
	}

	// The transaction is the caller's, and none of the faults strikes it: how it ended is known. It ends by itself.
	ctx = context.WithoutCancel(ctx)

	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return
	}

	defer func() { _ = tx.Rollback() }()

	if err := lock.Guard(ctx, h.wrap(tx)); err != nil {
		return
	}

	var value, token int64
	if tx.QueryRowContext(ctx, h.sql("SELECT value, token FROM "+counterTable+" WHERE name = ?"), g.name).Scan(&value, &token) != nil {
		return
	}

	// SQLite has one writer: under a guard there, nobody does anything.
	if moment == 1 && h.dialect != databases.SQLite {
		h.stop(ctx, m, lock, g)
		h.count()
	} else {
		h.hold(ctx, lock, g, time.Duration(rand.IntN(10))*time.Millisecond)
	}

	if _, err := tx.ExecContext(ctx, h.sql("UPDATE "+counterTable+" SET value = ?, token = ? WHERE name = ?"), value+1, g.token, g.name); err != nil {
		return
	}

	committing := time.Now()
	err = tx.Commit()

	h.mu.Lock()
	defer h.mu.Unlock()

	switch {
	case err != nil:
		h.unknown[g.name]++
	case token > g.token:
		h.late = append(h.late, fmt.Sprintf("%s: the holder with token %d wrote after the one with token %d", g.name, g.token, token))

		fallthrough
	default:
		h.committed[g.name]++
		g.committing = committing
	}
}

// strike lets faults happen between a locker and the database: connections that break, answers that are lost, statements
// that stop for longer than a lease and go on then.
func (h *history) strike(ctx context.Context, faulty *sqllocktest.Faulty) {
	const (
		least, more = 100 * time.Millisecond, 200 * time.Millisecond
		kinds       = 4
	)

	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(least + rand.N(more)):
		}

		switch rand.IntN(kinds) {
		case 0:
			faulty.Fail("*", 1, sqllocktest.Before, nil)
		case 1:
			faulty.Fail("*", 1, sqllocktest.After, nil)
		default:
			operations := []string{"acquire", "attempt", "renew", "renew", "release"}
			_, resume := faulty.Pause(h.statement(operations[rand.IntN(len(operations))]), sqllocktest.When(rand.IntN(2)))

			select {
			case <-ctx.Done():
			case <-time.After(rand.N(h.pausing())):
			}

			resume()
		}
	}
}

func (h *history) statement(operation string) string {
	if name, ok := h.statements[operation]; ok {
		return name
	}

	if operation == "attempt" {
		return h.statement("acquire")
	}

	return operation
}

// sql writes the parameters of a statement as the database wants them.
func (h *history) sql(statement string) string {
	if h.dialect != databases.Postgres {
		return statement
	}

	for n := 1; strings.Contains(statement, "?"); n++ {
		statement = strings.Replace(statement, "?", fmt.Sprintf("$%d", n), 1)
	}

	return statement
}
