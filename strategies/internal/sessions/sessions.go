// Package sessions has what strategies share whose locks are held by database sessions.
package sessions

import (
	"context"
	"slices"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// Gate is the right to use a session, which one has at a time. It is a channel, so that waiting for it can end with a context.
type Gate chan struct{}

// NewGate returns a gate that nobody has entered.
func NewGate() Gate { return make(Gate, 1) }

// Enter waits until nobody uses the session. Leave has to follow.
func (g Gate) Enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		// Not its cause, which may be another lock's loss.
		return ctx.Err()
	}
}

// Leave lets the next one in.
func (g Gate) Leave() { <-g }

// Validate reports a database that cannot carry a strategy: on those in refused it does not work, for the reason there, nor
// with a pool of one connection, as onePool says.
func Validate(store *grants.Store, strategy string, refused map[databases.Dialect]string, onePool string) error {
	if err := store.Validate(); err != nil {
		return err
	}

	invalid := &strategies.UnsupportedError{Op: strategy + ".New", Strategy: strategy, Where: refused[store.Dialect().Name], Instead: "cas"}

	switch {
	case invalid.Where != "":
		return invalid
	case store.MaxConns() == 1:
		invalid.Where, invalid.Fix, invalid.Instead = "with a pool of one connection"+onePool, "allow two or more", ""

		return invalid
	default:
		return nil
	}
}

// End ends those of the sessions that a statement lists for which ours is true.
func End(
	ctx context.Context, store *grants.Store, list databases.Statement, values databases.Values, ours func(id int64) bool,
	kill databases.Statement,
) (err error) {
	conn, err := store.Conn(ctx)
	if err != nil {
		return err
	}

	defer store.Return(conn, &err)

	ids, err := grants.Sessions(ctx, conn, list, values)
	if err != nil {
		return err
	}

	return store.Kill(ctx, conn, slices.DeleteFunc(ids, func(id int64) bool { return !ours(id) }), kill)
}

// Any is true of any session.
func Any(int64) bool { return true }
