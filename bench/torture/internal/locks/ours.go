package locks

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
	"github.com/sqllock/sqllock/test/schema"
)

const (
	oursModule = "github.com/sqllock/sqllock"
	oursSource = "../../docs/guarantees.md#when-things-fail"
	oursToken  = "Lock.Token"

	ourPromise = "a renewal needs a connection of the pool; a pgx pool has one beside it"
)

// ourStrategy is one of this library's.
type ourStrategy struct {
	name, settings string
	make           func(databases.DB) strategies.Strategy
	options        []sqllock.LockerOption
}

func ourStrategies() []ourStrategy {
	return []ourStrategy{
		{
			name: "sqllock cas",
			make: func(db databases.DB) strategies.Strategy { return cas.New(db) },
		},
		{
			name: "sqllock insert",
			make: func(db databases.DB) strategies.Strategy { return insert.New(db) },
		},
		{
			name: "sqllock forupdate", settings: "a connection for each lock",
			make: func(db databases.DB) strategies.Strategy { return forupdate.New(db) },
		},
		{
			name: "sqllock advisory", settings: "a connection for all locks",
			make: func(db databases.DB) strategies.Strategy { return advisory.New(db) },
		},
	}
}

// ours are the locks of this library.
func ours() []Lock {
	var all []Lock

	asynchronous := ourStrategies()[0]
	asynchronous.name, asynchronous.settings = "sqllock cas, asynchronous commit", "Tuning.AsynchronousCommit"
	asynchronous.options = []sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{AsynchronousCommit: true})}

	for _, s := range append(ourStrategies(), asynchronous) {
		all = append(all, s.lock("postgres", "pgxpool", prepareOursOnPostgres, s.openOnPostgres))
	}

	for _, s := range ourStrategies() {
		all = append(all, s.lock("mysql", "database/sql", prepareOursOnMySQL, s.openOnMySQL))
	}

	return all
}

func (s ourStrategy) lock(
	on, pool string, prepare func(context.Context, Config) error, open func(context.Context, Config) (Locker, error),
) Lock {
	settings := pool
	if s.settings != "" {
		settings += "; " + s.settings
	}

	return Lock{
		Name: s.name, Server: on, Ours: true, Settings: settings, Module: oursModule,
		Promise: ourPromise, Source: oursSource, Token: oursToken, Prepare: prepare, Open: open,
	}
}

func prepareOursOnPostgres(ctx context.Context, c Config) error {
	shared, err := openPgxStd(Config{Servers: c.Servers})
	if err != nil {
		return err
	}
	defer shared.Close()

	return prepareOurs(ctx, shared, databases.Postgres)
}

func prepareOursOnMySQL(ctx context.Context, c Config) error {
	shared, err := openMySQL(Config{Servers: c.Servers})
	if err != nil {
		return err
	}
	defer shared.Close()

	return prepareOurs(ctx, shared, databases.MySQL)
}

func prepareOurs(ctx context.Context, shared stdShared, dialect databases.Dialect) error {
	if err := schema.Up(ctx, shared.db, dialect); err != nil {
		return err
	}

	// A row for each lock. The first write makes it.
	_, err := shared.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS document (name VARCHAR(255) PRIMARY KEY, n BIGINT NOT NULL)`)

	return err
}

// The server ends a guarded transaction when it has heard nothing of it for a lease, as docs/operations.md advises.

func (s ourStrategy) openOnPostgres(ctx context.Context, c Config) (Locker, error) {
	c.session = map[string]string{"idle_in_transaction_session_timeout": strconv.FormatInt(c.Lease.Milliseconds(), 10)}

	shared, err := openPgx(ctx, c)
	if err != nil {
		return nil, err
	}

	return s.open(postgres.New(shared.pool), c, shared, func(ctx context.Context, lock *sqllock.Lock) (n int64, err error) {
		err = pgx.BeginFunc(ctx, shared.pool, func(tx pgx.Tx) error {
			if err := lock.Guard(ctx, postgres.Tx(tx)); err != nil {
				return err
			}

			return tx.QueryRow(ctx, `INSERT INTO document (name, n) VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)
				ON CONFLICT (name) DO UPDATE SET n = greatest(document.n + 1, excluded.n) RETURNING n`, lock.Name()).Scan(&n)
		})

		return n, err
	})
}

func (s ourStrategy) openOnMySQL(_ context.Context, c Config) (Locker, error) {
	c.session = map[string]string{"wait_timeout": strconv.Itoa(int(c.Lease.Seconds()))}

	shared, err := openMySQL(c)
	if err != nil {
		return nil, err
	}

	return s.open(mysql.New(shared.db), c, shared, func(ctx context.Context, lock *sqllock.Lock) (n int64, err error) {
		tx, err := shared.db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}

		err = lock.Guard(ctx, mysql.Tx(tx))
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO document (name, n)
				VALUES (?, CAST(unix_timestamp(sysdate(6)) * 1000000 AS SIGNED))
				ON DUPLICATE KEY UPDATE n = greatest(n + 1, VALUES(n))`, lock.Name())
		}

		if err == nil {
			err = tx.QueryRowContext(ctx, `SELECT n FROM document WHERE name = ?`, lock.Name()).Scan(&n)
		}

		if err != nil {
			return 0, errors.Join(err, tx.Rollback())
		}

		return n, tx.Commit()
	})
}

// sharedPool is a pool that the lock shares with the application.
type sharedPool interface {
	Pooled
	Close()
}

// guardedWrite counts up under a guard.
type guardedWrite func(ctx context.Context, lock *sqllock.Lock) (int64, error)

func (s ourStrategy) open(db databases.DB, c Config, pool sharedPool, guarded guardedWrite) (Locker, error) {
	locker, err := sqllock.New(s.make(db), append(s.options, sqllock.WithLease(c.Lease))...)
	if err != nil {
		pool.Close()

		return nil, err
	}

	return ourLocker{sharedPool: pool, locker: locker, guarded: guarded}, nil
}

type ourLocker struct {
	sharedPool

	locker  *sqllock.Locker
	guarded guardedWrite
}

func (l ourLocker) Acquire(ctx context.Context, name string) (Held, error) {
	lock, err := l.locker.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}

	return ourHeld{lock, l.guarded}, nil
}

// Close gives the locker a moment to release what is held, as a program that ends does.
func (l ourLocker) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	_ = l.locker.Close(ctx)

	l.sharedPool.Close()
}

type ourHeld struct {
	lock    *sqllock.Lock
	guarded guardedWrite
}

func (h ourHeld) Check() error                             { return h.lock.Err() }
func (h ourHeld) Token() int64                             { return h.lock.Token() }
func (h ourHeld) Release(ctx context.Context) error        { return h.lock.Release(ctx) }
func (h ourHeld) Write(ctx context.Context) (int64, error) { return h.guarded(ctx, h.lock) }
