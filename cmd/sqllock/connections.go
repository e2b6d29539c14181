package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// connections is a database that remembers when the server refused a connection: a
// wait for a lock may be one for a connection.
type connections struct {
	databases.DB

	refused atomic.Pointer[refusal]
}

type refusal struct {
	at  time.Time
	err error
}

// Conn checks out a connection.
func (c *connections) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := c.DB.Conn(ctx)
	if err != nil && c.Classify(err) == databases.Full {
		c.refused.Store(&refusal{time.Now(), err})
	}

	return conn, err
}

// Validate is the database's.
func (c *connections) Validate() error {
	if v, ok := c.DB.(interface{ Validate() error }); ok {
		return v.Validate()
	}

	return nil
}

// lately is the error if an attempt was refused within the time of the latest ones;
// else nil. A connection that was had since says nothing: to look at the lock takes
// one, too.
func (c *connections) lately() error {
	last := c.refused.Load()
	if last == nil || time.Since(last.at) > 2*pollLater {
		return nil
	}

	return fmt.Errorf("%w: %w", sqllock.ErrTooManyConnections, last.err)
}
