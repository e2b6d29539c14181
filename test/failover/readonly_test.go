package failover_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/servers"
)

// TestReadOnly: a server that takes no writes answers ErrReadOnly, however the
// pool came to it, and is no obstacle once another one takes them.
func TestReadOnly(t *testing.T) {
	t.Parallel()

	c := start(t, servers.Asynchronous)
	standby := address(t, c.StandbyDSN())

	pools := make([]readOnlyPools, len(all))
	for i, s := range all {
		pools[i] = prepareReadOnly(t, s, c)
	}

	do(t, "catch up", c.CaughtUp)

	for _, p := range pools {
		wantReadOnly(t, p.wrong, p.strategy.Name+"/standby")

		if st, err := p.wrong.Recovery(t.Context()); !errors.Is(err, sqllock.ErrReadOnly) {
			t.Errorf("Recovery() of a standby = %+v, %v, want ErrReadOnly", st, err)
		}

		// The statement itself is refused: the strategy has found its server fit before.
		p.move(standby)
		wantReadOnly(t, p.moved, p.strategy.Name+"/moved to a standby")
		wantReadOnly(t, p.moved, p.strategy.Name+"/moved to a standby") // now asked before

		if st, err := p.moved.Recovery(t.Context()); !errors.Is(err, sqllock.ErrReadOnly) {
			t.Errorf("Recovery() of a standby = %+v, %v, want ErrReadOnly", st, err)
		}
	}

	// Sessions go on, and are refused from now on.
	sessions := make([][]*pgxpool.Conn, len(pools))
	for i, p := range pools {
		sessions[i] = p.fill(t)
	}

	demoted := open(t, c.PrimaryDSN())
	exec(t, demoted, "ALTER SYSTEM SET default_transaction_read_only = on")
	exec(t, demoted, "SELECT pg_reload_conf()")

	for i, p := range pools {
		for _, session := range sessions[i] {
			awaitReadOnly(t, session)
		}

		wantReadOnly(t, p.stale, p.strategy.Name+"/demoted")
	}

	do(t, "promote", c.Promote)

	for _, p := range pools {
		t.Run(p.strategy.Name, func(t *testing.T) {
			t.Parallel()
			p.check(t, newRival(t, p.strategy, c.dsn(t)))
		})
	}
}

// readOnlyPools are the pools of three processes that come upon a server that
// takes no writes.
type readOnlyPools struct {
	strategy strategy
	wrong    holder               // was given the standby
	moved    holder               // goes by a name that moves to the standby
	move     func(address string) // moves it
	stale    holder               // has connections to a primary that is demoted
	kept     *sqllock.Lock        // of stale
	end      ending               // of kept
}

// staleConnections is how many connections stale has at most.
const staleConnections = 4

func prepareReadOnly(t *testing.T, s strategy, c cluster) readOnlyPools {
	t.Helper()

	name := newMover(address(t, c.PrimaryDSN()))

	p := readOnlyPools{
		strategy: s,
		wrong:    newHolder(t, s, c.StandbyDSN()),
		moved: newHolder(t, s, c.PrimaryDSN(), func(config *pgxpool.Config) {
			config.ConnConfig.DialFunc = name.dial
		}),
		stale: newHolder(t, s, c.dsn(t), func(config *pgxpool.Config) { config.MaxConns = staleConnections }),
	}

	p.move = func(address string) {
		name.move(address)
		name.hangUp()
	}

	lock := mustAcquire(t, p.moved.Locker, s.Name+"/before")
	if err := lock.Release(t.Context()); err != nil {
		t.Fatalf("Release() = %v, want nil", err)
	}

	p.kept = mustAcquire(t, p.stale.Locker, s.Name+"/kept")
	p.end = watch(p.kept)

	return p
}

// fill takes all connections that the stale pool may have and are not in use.
func (p readOnlyPools) fill(t *testing.T) (sessions []*pgxpool.Conn) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	free := staleConnections
	if p.stale.Features().ConnectionHeld {
		free-- // has the lock
	}

	for range free {
		session, err := p.stale.pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(session.Release) // closing the pool waits for it
		sessions = append(sessions, session)
	}

	return sessions
}

// awaitReadOnly waits until the session has heard that its server takes no writes
// any more, and returns it to its pool.
func awaitReadOnly(t *testing.T, session *pgxpool.Conn) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for answer := ""; answer != "on"; {
		if err := session.QueryRow(ctx, "SHOW transaction_read_only").Scan(&answer); err != nil {
			t.Fatal(err)
		}
	}

	session.Release()
}

// check is after the fail-over.
func (p readOnlyPools) check(t *testing.T, rival *sqllock.Locker) {
	t.Helper()

	for is, h := range map[string]holder{"wrong": p.wrong, "moved": p.moved, "stale": p.stale} {
		lock, refused := acquireAgain(t, h, p.strategy.Name+"/"+is)

		t.Logf("%s: the lock after %d answers of ErrReadOnly", lock.Name(), refused)

		if refused > staleConnections {
			t.Errorf("%s: %d answers of ErrReadOnly, want at most one for each connection the pool had, %d",
				lock.Name(), refused, staleConnections)
		}
	}

	if !p.stale.Features().ConnectionHeld {
		p.stale.wantRenewed(t, p.kept)
		wantHeld(t, rival, p.kept.Name(), p.kept.Token())

		if err := p.stale.guard(t, p.kept); err != nil {
			t.Errorf("Guard() of the holder = %v, want nil", err)
		}

		return
	}

	// The session that has the lock is on a server that does not count any more.
	next := mustAcquire(t, rival, p.kept.Name())
	if next.Token() <= p.kept.Token() {
		t.Errorf("token after the fail-over = %d, want more than %d", next.Token(), p.kept.Token())
	}

	p.end.wantTold(t, time.Now(), sqllock.ReasonSessionGone, sqllock.ReasonTakenOver)
}

// acquireAgain tries until the pool has found the primary, and counts the answers
// of servers that are not.
func acquireAgain(t *testing.T, h holder, name string) (lock *sqllock.Lock, refused int) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		lock, err := h.Acquire(ctx, name)

		switch {
		case err == nil:
			return lock, refused
		case errors.Is(err, sqllock.ErrReadOnly):
			refused++
		}

		if ctx.Err() != nil {
			t.Fatalf("Acquire(%q) = %v after the fail-over, want the lock", name, err)
		}
	}
}

// wantReadOnly makes a try. One that waits goes on waiting, if its locker reached the
// primary before.
func wantReadOnly(t *testing.T, h holder, name string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	lock, err := h.TryAcquire(ctx, name)
	if !errors.Is(err, sqllock.ErrReadOnly) {
		t.Errorf("TryAcquire(%q) = %v, %v, want ErrReadOnly", name, lock, err)
	}
}
