//go:build unix

package stress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// complete is all that our strategies can do.
type complete interface {
	sqllock.Strategy
	sqllock.Settler
	sqllock.Administrator
	sqllock.Validator
}

// completeGrant is all that our grants can do.
type completeGrant interface {
	sqllock.Grant
	sqllock.Guarder
}

// changed is a strategy whose grants are changed.
type changed struct {
	complete

	change func(ctx context.Context, r sqllock.Request, g completeGrant) (sqllock.Grant, error)
}

func newChanged(
	inner sqllock.Strategy, change func(context.Context, sqllock.Request, completeGrant) (sqllock.Grant, error),
) (sqllock.Strategy, error) {
	whole, ok := inner.(complete)
	if !ok {
		return nil, fmt.Errorf("%T lacks something that the variant needs", inner)
	}

	return changed{whole, change}, nil
}

func (c changed) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	g, err := c.complete.TryAcquire(ctx, r)
	if err != nil {
		return nil, err
	}

	whole, ok := g.(completeGrant)
	if !ok {
		return nil, fmt.Errorf("%T lacks something that the variant needs", g)
	}

	return c.change(ctx, r, whole)
}

// renewing changes what the core hears of a renewal.
func renewing(hear func(error) error) func(*worker, sqllock.Strategy) (sqllock.Strategy, error) {
	return func(_ *worker, inner sqllock.Strategy) (sqllock.Strategy, error) {
		return newChanged(inner, func(_ context.Context, _ sqllock.Request, g completeGrant) (sqllock.Grant, error) {
			return misheard{g, hear}, nil
		})
	}
}

type misheard struct {
	completeGrant

	hear func(error) error
}

func (m misheard) Renew(ctx context.Context, lease time.Duration) error {
	return m.hear(m.completeGrant.Renew(ctx, lease))
}

// newSameToken hands locks on as if they were the same.
func newSameToken(_ *worker, inner sqllock.Strategy) (sqllock.Strategy, error) {
	return newChanged(inner, func(_ context.Context, _ sqllock.Request, g completeGrant) (sqllock.Grant, error) {
		return sameToken{g, g.Token()}, nil
	})
}

type sameToken struct {
	completeGrant

	token int64
}

func (s sameToken) Token() int64 { return s.token }

func (s sameToken) Next() sqllock.Grant {
	reserver, _ := s.completeGrant.(sqllock.Reserver)

	if next, ok := reserver.Next().(completeGrant); ok {
		return sameToken{next, s.token}
	}

	return nil
}

// newUnreserved hands locks on with tokens that the row does not know of, and may
// give again: those of the next half second, where tokens follow the clock.
func newUnreserved(_ *worker, inner sqllock.Strategy) (sqllock.Strategy, error) {
	return newChanged(inner, func(_ context.Context, _ sqllock.Request, g completeGrant) (sqllock.Grant, error) {
		return unreserved{g, 0}, nil
	})
}

type unreserved struct {
	completeGrant

	ahead int64
}

func (u unreserved) Token() int64 { return u.completeGrant.Token() + u.ahead }

func (u unreserved) Next() sqllock.Grant {
	reserver, _ := u.completeGrant.(sqllock.Reserver)

	if next, ok := reserver.Next().(completeGrant); ok {
		return unreserved{next, u.ahead + time.Second.Microseconds()/2}
	}

	return nil
}

// counters is a table of tokens that count from one.
const counters = `CREATE TABLE IF NOT EXISTS stress_tokens (name TEXT PRIMARY KEY, token BIGINT NOT NULL)`

const countUp = `INSERT INTO stress_tokens AS t VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET token = t.token + 1 RETURNING token`

// newHeldToken draws tokens in a transaction that stays open while the lock is held, as one is tempted to do
// where the lock is such a transaction: what ends it without a COMMIT takes the token back.
func newHeldToken(w *worker, inner sqllock.Strategy) (sqllock.Strategy, error) {
	if _, err := w.data.ExecContext(context.Background(), counters); err != nil && !duplicate(err) {
		return nil, err
	}

	return newChanged(inner, func(ctx context.Context, r sqllock.Request, g completeGrant) (sqllock.Grant, error) {
		// Beyond the attempt, whose context ends with it.
		tx, err := w.data.BeginTx(context.WithoutCancel(ctx), nil)
		if err != nil {
			return nil, err
		}

		held := &heldToken{completeGrant: g, tx: tx}
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
	completeGrant

	tx    *sql.Tx
	token int64
	once  sync.Once
}

func (h *heldToken) Token() int64 { return h.token }

func (h *heldToken) Release(ctx context.Context) error {
	h.once.Do(func() { _ = h.tx.Commit() })

	return h.completeGrant.Release(ctx)
}

// pooledAdvisory takes and frees session-level advisory locks on whatever connection the pool has at hand.
type pooledAdvisory struct{ db *sql.DB }

func newPooledAdvisory(w *worker, _ sqllock.Strategy) (sqllock.Strategy, error) {
	if _, err := w.data.ExecContext(context.Background(), counters); err != nil && !duplicate(err) {
		return nil, err
	}

	return pooledAdvisory{w.data}, nil
}

func (pooledAdvisory) Features() sqllock.Features {
	return sqllock.Features{Strategy: "advisory", Database: "postgres", ConnectionHeld: true}
}

func (p pooledAdvisory) TryAcquire(ctx context.Context, r sqllock.Request) (sqllock.Grant, error) {
	var locked bool

	err := p.db.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", r.Name).Scan(&locked)

	switch {
	case err != nil:
		return nil, err
	case !locked:
		return nil, &sqllock.HeldError{Name: r.Name}
	}

	g := pooledGrant{p, r.Name, 0}

	return g.drawn(ctx)
}

type pooledGrant struct {
	pooledAdvisory

	name  string
	token int64
}

func (g pooledGrant) drawn(ctx context.Context) (sqllock.Grant, error) {
	err := g.db.QueryRowContext(ctx, countUp, g.name).Scan(&g.token)

	return g, err
}

func (g pooledGrant) Token() int64                               { return g.token }
func (g pooledGrant) Renew(context.Context, time.Duration) error { return nil }
func (g pooledGrant) Check(context.Context) error                { return nil }

func (g pooledGrant) Release(ctx context.Context) error {
	_, err := g.db.ExecContext(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", g.name)

	return err
}
