//go:build unix

package stress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
)

// changed is a strategy whose grants are changed.
type changed struct {
	strategies.Strategy

	change func(ctx context.Context, r strategies.Request, g single.Grant) (strategies.Grant, error)
}

func newChanged(
	inner strategies.Strategy, change func(context.Context, strategies.Request, single.Grant) (strategies.Grant, error),
) (strategies.Strategy, error) {
	return changed{inner, change}, nil
}

func (c changed) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, c.acquire, calls.AcquireAlone)
}

func (c changed) Features() strategies.Features { return alone(c.Strategy) }

// alone are the features of a strategy whose calls are made one by one.
func alone(s strategies.Strategy) strategies.Features {
	f := s.Features()
	f.Unbatched = true

	return f
}

func (c changed) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	g, err := single.TryAcquire(ctx, c.Strategy, r)
	if err != nil {
		return nil, err
	}

	altered, err := c.change(ctx, r, g)
	if err != nil {
		return nil, errors.Join(err, g.Release(context.WithoutCancel(ctx)))
	}

	return altered, nil
}

// renewing changes what the core hears of a renewal.
func renewing(hear func(error) error) func(*worker, strategies.Strategy) (strategies.Strategy, error) {
	return func(_ *worker, inner strategies.Strategy) (strategies.Strategy, error) {
		return newChanged(inner, func(_ context.Context, _ strategies.Request, g single.Grant) (strategies.Grant, error) {
			return misheard{g, hear}, nil
		})
	}
}

type misheard struct {
	single.Grant

	hear func(error) error
}

func (m misheard) Renew(ctx context.Context, lease time.Duration) error {
	return m.hear(m.Grant.Renew(ctx, lease))
}

// newUnsettled says of attempts whose answer was not awaited that they left nothing, and does not look.
func newUnsettled(_ *worker, inner strategies.Strategy) (strategies.Strategy, error) {
	return unsettled{inner}, nil
}

type unsettled struct{ strategies.Strategy }

// Acquire answers a call that has been cancelled later than the core waits for it, as a slow server does.
func (u unsettled) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, u.acquire, calls.AcquireAlone)
}

func (u unsettled) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	g, err := strategies.AcquireOne(ctx, u.Strategy, r)
	if ctx.Err() != nil {
		sleep(context.WithoutCancel(ctx), 100*time.Millisecond)
	}

	return g, err
}

func (u unsettled) Features() strategies.Features { return alone(u.Strategy) }

func (unsettled) Settle(context.Context, strategies.Request) error { return nil }

// newSameToken hands locks on as if they were the same.
func newSameToken(_ *worker, inner strategies.Strategy) (strategies.Strategy, error) {
	return newChanged(inner, func(_ context.Context, _ strategies.Request, g single.Grant) (strategies.Grant, error) {
		return sameToken{g, g.Token()}, nil
	})
}

type sameToken struct {
	single.Grant

	token int64
}

func (s sameToken) Token() int64 { return s.token }

func (s sameToken) Next() strategies.Grant {
	reserver, _ := s.Grant.Grant.(strategies.Reserver)

	if next := reserver.Next(); next != nil {
		return sameToken{single.Grant{Grant: next, Strategy: s.Strategy}, s.token}
	}

	return nil
}

// newUnreserved hands locks on with tokens that the row does not know of, and may
// give again: those of the next half second, where tokens follow the clock.
func newUnreserved(_ *worker, inner strategies.Strategy) (strategies.Strategy, error) {
	return newChanged(inner, func(_ context.Context, _ strategies.Request, g single.Grant) (strategies.Grant, error) {
		return unreserved{g, 0}, nil
	})
}

type unreserved struct {
	single.Grant

	ahead int64
}

func (u unreserved) Token() int64 { return u.Grant.Token() + u.ahead }

func (u unreserved) Next() strategies.Grant {
	reserver, _ := u.Grant.Grant.(strategies.Reserver)

	if next := reserver.Next(); next != nil {
		return unreserved{single.Grant{Grant: next, Strategy: u.Strategy}, u.ahead + time.Second.Microseconds()/2}
	}

	return nil
}

// standing changes what those in line are told.
type standing struct {
	lined

	change func(*strategies.Standing)
}

func newStanding(inner strategies.Strategy, change func(*strategies.Standing)) (standing, error) {
	with, ok := inner.(lined)
	if !ok {
		return standing{}, fmt.Errorf("%T has no line", inner)
	}

	return standing{with, change}, nil
}

func (s standing) Stand(ctx context.Context, process string) ([]strategies.Standing, error) {
	all, err := s.lined.Stand(ctx, process)
	for i := range all {
		s.change(&all[i])
	}

	return all, err
}

// newSkipping overlooks the first in line.
func newSkipping(_ *worker, inner strategies.Strategy) (strategies.Strategy, error) {
	return newStanding(inner, func(s *strategies.Standing) { s.Ahead = max(0, s.Ahead-1) })
}

// newSleeping tells only those of a turn who were seen to wait before: whoever comes into line when the name has just
// been released sleeps. It takes its time to enter, so that this happens.
func newSleeping(_ *worker, inner strategies.Strategy) (strategies.Strategy, error) {
	var waited sync.Map // by ID

	told, err := newStanding(inner, func(s *strategies.Standing) {
		if s.Ahead > 0 || s.Taken > 0 {
			waited.Store(s.ID, true)
		} else if _, ok := waited.Load(s.ID); !ok {
			s.Taken = time.Second
		}
	})
	if err != nil {
		return nil, err
	}

	return slowEntry{told}, nil
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
func newHeldToken(w *worker, inner strategies.Strategy) (strategies.Strategy, error) {
	if _, err := w.data.ExecContext(context.Background(), counters); err != nil && !duplicate(err) {
		return nil, err
	}

	return newChanged(inner, func(ctx context.Context, r strategies.Request, g single.Grant) (strategies.Grant, error) {
		// Beyond the attempt, whose context ends with it.
		tx, err := w.data.BeginTx(context.WithoutCancel(ctx), nil)
		if err != nil {
			return nil, err
		}

		held := &heldToken{Grant: g, tx: tx}
		if err := tx.QueryRowContext(ctx, countUp, r.Name).Scan(&held.token); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}

		return held, nil
	})
}

// duplicate: two sessions that create a table at the same time may both find that it is not there.
func duplicate(err error) bool {
	var state interface{ SQLState() string }

	return errors.As(err, &state) && (state.SQLState() == "23505" || state.SQLState() == "42P07")
}

type heldToken struct {
	single.Grant

	tx    *sql.Tx
	token int64
	once  sync.Once
}

func (h *heldToken) Token() int64 { return h.token }

func (h *heldToken) Release(ctx context.Context) error {
	h.once.Do(func() { _ = h.tx.Commit() })

	return h.Grant.Release(ctx)
}

// pooledAdvisory takes and frees session-level advisory locks on whatever connection the pool has at hand.
type pooledAdvisory struct {
	strategies.Strategy

	db *sql.DB
}

func newPooledAdvisory(w *worker, inner strategies.Strategy) (strategies.Strategy, error) {
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

func (p pooledAdvisory) acquire(ctx context.Context, r strategies.Request) (strategies.Grant, error) {
	var locked bool

	err := p.db.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", r.Name).Scan(&locked)

	switch {
	case err != nil:
		return nil, err
	case !locked:
		return nil, &strategies.HeldError{Name: r.Name}
	}

	g := pooledGrant{db: p.db, name: r.Name}

	return g.drawn(ctx)
}

type pooledGrant struct {
	strategies.Grant // none

	db    *sql.DB
	name  string
	token int64
}

func (g pooledGrant) drawn(ctx context.Context) (strategies.Grant, error) {
	err := g.db.QueryRowContext(ctx, countUp, g.name).Scan(&g.token)

	return g, err
}

func (g pooledGrant) Token() int64                               { return g.token }
func (g pooledGrant) Renew(context.Context, time.Duration) error { return nil }
func (g pooledGrant) Check(context.Context) error                { return nil }

func (g pooledGrant) Guard(context.Context, strategies.Tx) error { return strategies.ErrUnsupported }

func (g pooledGrant) Release(ctx context.Context) error {
	_, err := g.db.ExecContext(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", g.name)

	return err
}
