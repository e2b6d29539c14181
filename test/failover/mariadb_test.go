package failover_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/servers"
)

// TestMariaDB has a replica that lags, in the server's default format of the
// binary log. What it had heard of holds; what it had not is lost, as with
// PostgreSQL.
func TestMariaDB(t *testing.T) {
	t.Parallel()

	c := startReplicated(t, "mariadb", servers.Asynchronous)

	primary, standby := mariadbConfig(t, c.PrimaryDSN()), mariadbConfig(t, c.StandbyDSN())
	migrate(t, mariadbPool(t, primary), databases.MySQL)

	// An account that read_only holds for: the administrator's may write all the same.
	admin := mariadbPool(t, primary)
	withoutPause(t, admin)
	exec(t, admin, "CREATE USER app IDENTIFIED BY 'app'")
	exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON sqllock.* TO app")

	var begun []*mariadbLocks

	for _, s := range all {
		begun = append(begun, beginMariaDB(t, s, primary.Addr))
	}

	do(t, "catch up", c.CaughtUp)
	do(t, "cut the link", c.Cut)

	for _, b := range begun {
		b.lost = mustAcquire(t, b.first.Locker, b.strategy.Name+"/lost", sqllock.WithoutRenewal(), sqllock.WithLease(outlastsAll))
		b.guarded = mustAcquire(t, b.first.Locker, b.strategy.Name+"/guarded", sqllock.WithoutRenewal(), sqllock.WithLease(outlastsAll))
	}

	for _, b := range begun {
		b.wantReadOnly(t, primary.Addr, standby.Addr)
	}

	crashed := c.failOver(t)

	for _, b := range begun {
		b.name.move(standby.Addr)
	}

	for _, b := range begun {
		t.Run(b.strategy.Name, func(t *testing.T) {
			t.Parallel()
			b.check(t, crashed)
		})
	}
}

// mariadbLocks are a strategy's locks, and the processes that have or want them.
type mariadbLocks struct {
	strategy strategy
	name     *mover
	first    mariadbHolder
	rival    *sqllock.Locker

	kept          *sqllock.Lock // heard of by the replica
	end           ending        // of kept
	lost, guarded *sqllock.Lock // not heard of
}

type mariadbHolder struct {
	*sqllock.Locker
	pool *sql.DB
}

func beginMariaDB(t *testing.T, s strategy, primary string) *mariadbLocks {
	t.Helper()

	b := &mariadbLocks{strategy: s, name: newMover(primary)}

	config := mysqldriver.NewConfig()
	config.Net, config.Addr, config.DBName, config.User, config.Passwd = "tcp", primary, "sqllock", "app", "app"
	config.DialFunc = b.name.dial

	pool := mariadbPool(t, config)
	b.first = mariadbHolder{newLocker(t, s, mysql.New(pool)), pool}
	b.rival = newLocker(t, s, mysql.New(mariadbPool(t, config)))

	b.kept = mustAcquire(t, b.first.Locker, s.Name+"/kept")
	b.end = watch(b.kept)

	return b
}

// wantReadOnly has a process that knew the primary come to the replica.
func (b *mariadbLocks) wantReadOnly(t *testing.T, primary, standby string) {
	t.Helper()

	config := mysqldriver.NewConfig()
	config.Net, config.Addr, config.DBName, config.User, config.Passwd = "tcp", primary, "sqllock", "app", "app"

	name := newMover(primary)
	config.DialFunc = name.dial

	pool := mariadbPool(t, config)
	locker := newLocker(t, b.strategy, mysql.New(pool))

	lock := mustAcquire(t, locker, b.strategy.Name+"/before")
	if err := lock.Release(t.Context()); err != nil {
		t.Fatalf("Release() = %v, want nil", err)
	}

	name.move(standby)
	name.hangUp()

	for _, what := range []string{"found fit before", "asked before"} {
		// One that waits goes on waiting, since it reached the primary before.
		lock, err := locker.TryAcquire(t.Context(), b.strategy.Name+"/"+what)
		if !errors.Is(err, sqllock.ErrReadOnly) {
			t.Errorf("TryAcquire() with %s on a replica, %s = %v, %v, want ErrReadOnly", b.strategy.Name, what, lock, err)
		}
	}
}

// check is after the fail-over.
func (b *mariadbLocks) check(t *testing.T, crashed time.Time) {
	t.Helper()

	if b.first.Features().ConnectionHeld {
		next := mustAcquire(t, b.rival, b.kept.Name())
		if next.Token() <= b.kept.Token() {
			t.Errorf("token after the fail-over = %d, want more than %d", next.Token(), b.kept.Token())
		}

		b.end.wantTold(t, crashed, sqllock.ReasonSessionGone)
	} else {
		wantHeld(t, b.rival, b.kept.Name(), b.kept.Token())

		if err := b.extend(t); err != nil {
			t.Errorf("Extend() of a grant that the replica had heard of = %v, want nil", err)
		}

		if err := b.first.guard(t, b.kept); err != nil {
			t.Errorf("Guard() of a grant that the replica had heard of = %v, want nil", err)
		}

		wantHeld(t, b.rival, b.kept.Name(), b.kept.Token())
	}

	wantLost(t, "Guard() of a grant that the server does not know", b.first.guard(t, b.lost))

	next := mustAcquire(t, b.rival, b.guarded.Name())
	if next.Token() <= b.guarded.Token() {
		t.Errorf("token after the fail-over = %d, want more than that of the lost grant, %d", next.Token(), b.guarded.Token())
	}

	wantLost(t, "Guard() of the lost grant", b.first.guard(t, b.guarded))
}

// extend renews until the pool has found a server that answers.
func (b *mariadbLocks) extend(t *testing.T) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		err := b.kept.Extend(ctx, lease)
		if err == nil || errors.Is(err, sqllock.ErrLost) || ctx.Err() != nil {
			return err
		}
	}
}

// guard has the lock guard a transaction on the holder's own pool.
func (h mariadbHolder) guard(t *testing.T, lock *sqllock.Lock) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		tx, err := h.pool.BeginTx(ctx, nil)

		switch {
		case err == nil:
			defer func() { _ = tx.Rollback() }()

			return lock.Guard(ctx, mysql.Tx(tx))
		case ctx.Err() != nil:
			t.Fatalf("BeginTx() = %v, want a transaction", err)
		}
	}
}

func mariadbConfig(t *testing.T, dsn string) *mysqldriver.Config {
	t.Helper()

	config, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}

	return config
}

func mariadbPool(t *testing.T, config *mysqldriver.Config) *sql.DB {
	t.Helper()

	config = config.Clone()
	config.Logger = &mysqldriver.NopLogger{} // it prints each connection that broke

	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}

	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(poolSize)
	t.Cleanup(func() { _ = db.Close() })

	return db
}
