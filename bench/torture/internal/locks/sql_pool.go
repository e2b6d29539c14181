package locks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// poolCloseLimit bounds the end of a pool, which waits for connections that may never answer again.
const poolCloseLimit = 2 * time.Second

// pgxShared is pgx's pool, shared with the application.
type pgxShared struct{ pool *pgxpool.Pool }

func openPgx(ctx context.Context, c Config) (pgxShared, error) {
	dsn, err := c.one()
	if err != nil {
		return pgxShared{}, err
	}

	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return pgxShared{}, err
	}

	maps.Copy(config.ConnConfig.RuntimeParams, c.session)

	if c.Pool > 0 {
		config.MaxConns = int32(c.Pool)
	}

	pool, err := pgxpool.NewWithConfig(ctx, config)

	return pgxShared{pool}, err
}

func (s pgxShared) Fill(ctx context.Context) (free func(), err error) {
	return fill(ctx, int(s.pool.Config().MaxConns), func(ctx context.Context) (func(), error) {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}

		return conn.Release, nil
	})
}

func (s pgxShared) Close() { atMost(poolCloseLimit, s.pool.Close) }

// stdShared is a pool of database/sql, shared with the application.
type stdShared struct{ db *sql.DB }

// openPgxStd is a pool over pgx's driver.
func openPgxStd(c Config) (stdShared, error) {
	dsn, err := c.one()
	if err != nil {
		return stdShared{}, err
	}

	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return stdShared{}, err
	}

	return limited(stdlib.OpenDB(*config), c), nil
}

func openMySQL(c Config) (stdShared, error) {
	dsn, err := c.one()
	if err != nil {
		return stdShared{}, err
	}

	config, err := driver.ParseDSN(dsn)
	if err != nil {
		return stdShared{}, err
	}

	config.ParseTime = true             // which goose, who makes the tables, needs
	config.Logger = &driver.NopLogger{} // it prints each connection that breaks

	if config.Params == nil {
		config.Params = make(map[string]string)
	}

	maps.Copy(config.Params, c.session)

	connector, err := driver.NewConnector(config)
	if err != nil {
		return stdShared{}, err
	}

	return limited(sql.OpenDB(connector), c), nil
}

func limited(db *sql.DB, c Config) stdShared {
	db.SetMaxOpenConns(c.Pool)
	db.SetMaxIdleConns(max(c.Pool, 2))

	return stdShared{db}
}

func (s stdShared) Fill(ctx context.Context) (free func(), err error) {
	return fill(ctx, s.db.Stats().MaxOpenConnections, func(ctx context.Context) (func(), error) {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return nil, err
		}

		return func() { _ = conn.Close() }, nil
	})
}

func (s stdShared) Close() { atMost(poolCloseLimit, func() { _ = s.db.Close() }) }

// one is the data source name of a lock on one server.
func (c Config) one() (string, error) {
	if len(c.Servers) != 1 {
		return "", fmt.Errorf("this lock is on one server, and there are %d: give it one", len(c.Servers))
	}

	return c.Servers[0], nil
}

// fillPause is how long fill waits until it asks again for a connection that it was refused, and fillGrace how long it
// waits for those that are in use.
const (
	fillPause = 50 * time.Millisecond
	fillGrace = 500 * time.Millisecond
)

// fill takes n connections, each with take. It returns when it has them, or some time later with those that are free. The others
// it takes as they come free, until what it returned is called.
func fill(ctx context.Context, n int, take func(context.Context) (giveBack func(), err error)) (free func(), err error) {
	if n <= 0 {
		return nil, errors.New("the pool has no limit, and cannot be filled: give the lock one")
	}

	taking, end := context.WithCancel(context.WithoutCancel(ctx))
	taken := make(chan struct{}, n)

	var running sync.WaitGroup

	for range n {
		running.Go(func() {
			for taking.Err() == nil {
				giveBack, err := take(taking)
				if err == nil {
					taken <- struct{}{}

					<-taking.Done()
					giveBack()

					return
				}

				pause(taking, fillPause)
			}
		})
	}

	free = sync.OnceFunc(func() {
		end()
		running.Wait()
	})

	grace := time.NewTimer(fillGrace)
	defer grace.Stop()

	for range n {
		select {
		case <-taken:
			continue
		case <-grace.C:
		case <-ctx.Done():
		}

		break
	}

	if err := ctx.Err(); err != nil {
		free()

		return nil, err
	}

	return free, nil
}

// pause waits for d or until ctx ends, and says whether it was d.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// atMost calls f and waits for its end, for so long at most.
func atMost(limit time.Duration, f func()) {
	ended := make(chan struct{})

	go func() {
		defer close(ended)

		f()
	}()

	select {
	case <-ended:
	case <-time.After(limit):
	}
}
