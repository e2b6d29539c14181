package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases"
)

var _ databases.Beside = (*DB)(nil)

// ConnBeside opens a connection beside pgx's pool, whose hooks run for it, too. With database/sql, which does not tell how it
// connects, it is one of the pool.
func (d *DB) ConnBeside(ctx context.Context) (databases.Conn, error) {
	if d.pool == nil {
		return d.Conn(ctx)
	}

	select {
	case d.beside <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}

	config := d.pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		<-d.beside

		return nil, err
	}

	conn, err := pool.Acquire(ctx)
	if err != nil {
		pool.Close()
		<-d.beside

		return nil, err
	}

	return &connBeside{pgxConn{pgxSession{conn}, conn}, pool, d.beside}, nil
}

// connBeside is the only connection of a pool of its own.
type connBeside struct {
	pgxConn

	pool *pgxpool.Pool
	done <-chan struct{}
}

// Release ends the connection.
func (c *connBeside) Release() {
	c.pgxConn.Release()
	c.end()
}

// Discard ends the connection, whatever state it is in.
func (c *connBeside) Discard() {
	c.pgxConn.Discard()
	c.end()
}

// end keeps nobody waiting: the pool waits for the end of its connection.
func (c *connBeside) end() {
	go func() {
		c.pool.Close()
		<-c.done
	}()
}
