package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases"
)

var _ databases.Renewer = (*DB)(nil)

// ConnToRenew is Conn. But if pgx's pool has given none for half of the time that there is, it is a connection beside the pool, for
// which its hooks run, too; one at a time. database/sql does not tell how it connects.
func (d *DB) ConnToRenew(ctx context.Context) (databases.Conn, error) {
	deadline, limited := ctx.Deadline()
	if d.pool == nil || !limited {
		return d.Conn(ctx)
	}

	wait, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()

	conn, err := d.Conn(wait)
	if err == nil || wait.Err() == nil || ctx.Err() != nil {
		return conn, err
	}

	if conn, err := d.connBeside(ctx); err == nil {
		return conn, nil
	}

	return d.Conn(ctx) // the server may have no connection more, and the pool one again
}

func (d *DB) connBeside(ctx context.Context) (databases.Conn, error) {
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

	return &loneConn{pgxConn{pgxSession{conn}, conn}, pool, d.beside}, nil
}

// loneConn is the only connection of a pool of its own.
type loneConn struct {
	pgxConn

	pool *pgxpool.Pool
	done <-chan struct{}
}

// Release ends the connection.
func (c *loneConn) Release() {
	c.pgxConn.Release()
	c.end()
}

// Discard ends the connection, whatever state it is in.
func (c *loneConn) Discard() {
	c.pgxConn.Discard()
	c.end()
}

// end keeps nobody waiting: the pool waits for the end of its connection.
func (c *loneConn) end() {
	go func() {
		c.pool.Close()
		<-c.done
	}()
}
