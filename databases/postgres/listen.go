package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases"
)

var _ databases.Listener = (*DB)(nil)

const (
	// echoTime is how long the notification that tests the way may take.
	echoTime = 2 * time.Second
	// silence is how long nothing may come before the connection is tested, and
	// pingTime how long that may take.
	silence  = 10 * time.Second
	pingTime = 5 * time.Second
)

// Listen opens a connection of its own, beside the pool, with the pool's
// settings.
//
// A proxy that pools transactions accepts LISTEN, and nothing ever comes
// (https://www.pgbouncer.org/features.html). So the way is tested, with a
// notification from another connection.
func (d *DB) Listen(ctx context.Context, channels []string, ready func(), notified func(channel, payload string)) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}

	defer end(ctx, conn)

	for _, channel := range channels {
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}

	test := "\x01" + rand.Text() // no name of a lock that anybody waits for
	if err := d.notify(ctx, channels[0], test); err != nil {
		return err
	}

	for limit := echoTime; ; {
		wait, cancel := context.WithTimeout(ctx, limit)
		notification, err := conn.WaitForNotification(wait)

		cancel()

		switch {
		case err == nil && notification.Payload == test:
			limit = silence

			ready()
		case err == nil:
			notified(notification.Channel, notification.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case conn.IsClosed():
			return err
		case limit == echoTime:
			return fmt.Errorf("%w: one did not come in %s; a proxy that pools transactions swallows them: %w",
				databases.ErrNoNotifications, echoTime, err)
		default:
			if err := ping(ctx, conn); err != nil {
				return err
			}
		}
	}
}

// end closes a connection that is not the pool's.
func end(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()

	_ = conn.Close(ctx)
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()

	return conn.Ping(ctx)
}

// notify sends a notification over a second connection. Not over one of the pool, which the application may use up.
func (d *DB) notify(ctx context.Context, channel, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, echoTime)
	defer cancel()

	other, err := d.connect(ctx)
	if err != nil {
		return err
	}

	defer end(ctx, other)

	if _, err := other.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", channel, payload); err != nil {
		return fmt.Errorf("notify: %w", err)
	}

	return nil
}

// connect opens a connection as the pool does. Its notifications are its own: a
// pool, or the connection that the settings are taken from, may have a function
// for them, and then WaitForNotification returns neither one nor an error.
func (d *DB) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := d.connConfig(ctx)
	if err != nil {
		return nil, err
	}

	config.OnNotification = nil

	return pgx.ConnectConfig(ctx, config)
}

// connConfig is a copy of the pool's settings for connections.
func (d *DB) connConfig(ctx context.Context) (config *pgx.ConnConfig, err error) {
	if d.pool != nil {
		config := d.pool.Config()
		if config.BeforeConnect != nil {
			err = config.BeforeConnect(ctx, config.ConnConfig) // sets a password that changes, for example
		}

		return config.ConnConfig, err
	}

	// A connection of database/sql, if it is pgx's, knows how it was made.
	conn, err := d.std.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}

	defer func() { _ = conn.Close() }()

	err = withPgx(conn, func(on *pgx.Conn) error {
		config = on.Config()

		return nil
	})

	return config, err
}
