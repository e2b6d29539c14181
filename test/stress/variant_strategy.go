//go:build unix

package stress

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
)

// alone are the features of a strategy whose calls are made one by one.
func alone(s strategies.Strategy) strategies.Features {
	f := s.Features()
	f.Unbatched = true

	return f
}

// renewing changes what the core hears of a renewal.
func renewing(hear func(error) error) func(*worker, lined) (strategies.Strategy, error) {
	return func(_ *worker, inner lined) (strategies.Strategy, error) { return misheard{inner, hear}, nil }
}

type misheard struct {
	guarder

	hear func(error) error
}

func (m misheard) Features() strategies.Features { return alone(m.guarder) }

func (m misheard) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	errs := m.guarder.Renew(ctx, grants, lease)

	for i, err := range errs {
		if lease > 0 {
			errs[i] = m.hear(err)
		}
	}

	return errs
}

// newUnsettled says of attempts whose answer was not awaited that they left nothing, and does not look.
func newUnsettled(_ *worker, inner lined) (strategies.Strategy, error) { return unsettled{inner}, nil }

type unsettled struct{ guarder }

// Acquire answers a call that has been cancelled later than the core waits for it, as a slow server does.
func (u unsettled) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, u.acquire, calls.AcquireAlone)
}

func (u unsettled) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	g, err := strategies.AcquireOne(ctx, u.guarder, r)
	if ctx.Err() != nil {
		sleep(context.WithoutCancel(ctx), 100*time.Millisecond)
	}

	return g, err
}

func (u unsettled) Features() strategies.Features { return alone(u.guarder) }

func (unsettled) Settle(context.Context, strategies.Request) error { return nil }

// newUnreserved hands locks on with tokens that the row does not know of, and gives again: it counts one for each grant.
func newUnreserved(_ *worker, inner lined) (strategies.Strategy, error) {
	return unreserved{inner}, nil
}

type unreserved struct{ guarder }

func (u unreserved) Features() strategies.Features { return alone(u.guarder) }

func (u unreserved) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := u.guarder.Acquire(ctx, requests)

	for i, g := range grants {
		grants[i].Token, grants[i].Last = g.Last, g.Last+g.Last-g.Token
	}

	return grants, errs
}

// standing changes what those in line are told.
type standing struct {
	lined

	change func(*strategies.Standing)
}

func (s standing) Stand(ctx context.Context, process string, ttl time.Duration) ([]strategies.Standing, error) {
	all, err := s.lined.Stand(ctx, process, ttl)
	for i := range all {
		s.change(&all[i])
	}

	return all, err
}

// newSkipping overlooks the first in line.
func newSkipping(_ *worker, inner lined) (strategies.Strategy, error) {
	return standing{inner, func(s *strategies.Standing) { s.Ahead = max(0, s.Ahead-1) }}, nil
}

// newSleeping tells only those of a turn who were seen to wait before: whoever comes into line when the name has just
// been released sleeps. It takes its time to enter, so that this happens.
func newSleeping(_ *worker, inner lined) (strategies.Strategy, error) {
	var waited sync.Map // by ID

	return slowEntry{standing{inner, func(s *strategies.Standing) {
		if s.Ahead > 0 || s.Taken > 0 {
			waited.Store(s.ID, true)
		} else if _, ok := waited.Load(s.ID); !ok {
			s.Taken = time.Second
		}
	}}}, nil
}

type slowEntry struct{ standing }

func (s slowEntry) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	sleep(ctx, 30*time.Millisecond)

	return s.standing.Enqueue(ctx, all, ttl)
}

// counters is a table of tokens that count from one.
const counters = `CREATE TABLE IF NOT EXISTS stress_tokens (name TEXT PRIMARY KEY, token BIGINT NOT NULL)`

const countUp = `INSERT INTO stress_tokens AS t VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET token = t.token + 1 RETURNING token`

// newHeldToken draws tokens in a transaction that stays open while the lock is held, as one is tempted to do
// where the lock is such a transaction: what ends it without a COMMIT takes the token back.
func newHeldToken(w *worker, inner lined) (strategies.Strategy, error) {
	if _, err := w.data.ExecContext(context.Background(), counters); err != nil && !duplicate(err) {
		return nil, err
	}

	return heldTokens{inner, w.data}, nil
}

// duplicate: two sessions that create a table at the same time may both find that it is not there.
func duplicate(err error) bool {
	var state interface{ SQLState() string }

	return errors.As(err, &state) && (state.SQLState() == "23505" || state.SQLState() == "42P07")
}

type heldTokens struct {
	guarder

	db *sql.DB
}

func (h heldTokens) Features() strategies.Features { return alone(h.guarder) }

func (h heldTokens) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, h.acquire, calls.AcquireAlone)
}

func (h heldTokens) acquire(ctx context.Context, r strategies.Request) (none strategies.Grant, err error) {
	g, err := single.TryAcquire(ctx, h.guarder, r)
	if err != nil {
		return none, err
	}

	// Beyond the attempt, whose context ends with it.
	after := context.WithoutCancel(ctx)

	tx, err := h.db.BeginTx(after, nil)
	if err != nil {
		return none, errors.Join(err, g.Release(after))
	}

	var token int64
	if err := tx.QueryRowContext(ctx, countUp, r.Name).Scan(&token); err != nil {
		return none, errors.Join(err, tx.Rollback(), g.Release(after))
	}

	return strategies.Grant{Token: token, Last: token, State: heldToken{g, tx}}, nil
}

func (heldTokens) Renew(ctx context.Context, grants []strategies.Grant, lease time.Duration) []error {
	return calls.Renew(ctx, grants, lease, calls.RenewAlone)
}

func (heldTokens) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	return calls.Release(ctx, grants, calls.ReleaseAlone)
}

func (heldTokens) Guard(ctx context.Context, tx strategies.Tx, g strategies.Grant) error {
	held, _ := g.State.(heldToken)

	return held.Guard(ctx, tx)
}

type heldToken struct {
	single.Grant

	tx *sql.Tx
}

func (h heldToken) Release(ctx context.Context) (bool, error) {
	_ = h.tx.Commit() // the first time

	return strategies.ReleaseOne(ctx, h.Strategy, h.Grant.Grant)
}

// pooledAdvisory takes and frees session-level advisory locks on whatever connection the pool has at hand.
type pooledAdvisory struct {
	strategies.Strategy

	db *sql.DB
}

func newPooledAdvisory(w *worker, inner lined) (strategies.Strategy, error) {
	if _, err := w.data.ExecContext(context.Background(), counters); err != nil && !duplicate(err) {
		return nil, err
	}

	return pooledAdvisory{inner, w.data}, nil
}

func (pooledAdvisory) Features() strategies.Features {
	return strategies.Features{Strategy: "advisory", Database: "postgres", ConnectionHeld: true, Unbatched: true}
}

func (p pooledAdvisory) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, p.acquire, calls.AcquireAlone)
}

func (p pooledAdvisory) acquire(ctx context.Context, r strategies.Request) (g strategies.Grant, err error) {
	var locked bool

	err = p.db.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", r.Name).Scan(&locked)

	switch {
	case err != nil:
		return g, err
	case !locked:
		return g, &strategies.HeldError{Name: r.Name}
	}

	err = p.db.QueryRowContext(ctx, countUp, r.Name).Scan(&g.Token)
	g.Last, g.State = g.Token, r.Name

	return g, err
}

func (pooledAdvisory) Renew(_ context.Context, grants []strategies.Grant, _ time.Duration) []error {
	return make([]error, len(grants))
}

func (p pooledAdvisory) Release(ctx context.Context, grants []strategies.Grant) ([]bool, []error) {
	errs := make([]error, len(grants))
	for i, g := range grants {
		_, errs[i] = p.db.ExecContext(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", g.State)
	}

	return make([]bool, len(grants)), errs
}
