package conformance_test

import (
	"context"

	"github.com/sqllock/sqllock/databases"
)

// watched is a database whose statements are looked at before they are sent.
type watched struct {
	databases.DB

	look func(databases.Statement, databases.Values)
}

func (w watched) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := w.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return watchedConn{watchedSession{conn, w.look}, conn}, nil
}

func (w watched) Wakes() bool {
	waker, ok := w.DB.(databases.Waker)

	return ok && waker.Wakes()
}

func (w watched) Listen(ctx context.Context, channels []string, ready func(), notified func(channel, payload string)) error {
	listener, ok := w.DB.(databases.Listener)
	if !ok {
		return databases.ErrNoNotifications
	}

	return listener.Listen(ctx, channels, ready, notified)
}

// Tx is a transaction whose statements are looked at as those of the database.
func (w watched) Tx(tx databases.Tx) databases.Tx { return watchedTx{watchedSession{tx, w.look}, tx} }

type watchedSession struct {
	databases.Session

	look func(databases.Statement, databases.Values)
}

func (s watchedSession) Exec(
	ctx context.Context, stmt databases.Statement, v databases.Values,
) (databases.Result, error) {
	s.look(stmt, v)

	return s.Session.Exec(ctx, stmt, v)
}

func (s watchedSession) Query(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) error {
	s.look(stmt, v)

	return s.Session.Query(ctx, stmt, v, each)
}

type watchedConn struct {
	watchedSession

	conn databases.Conn
}

func (c watchedConn) Release() { c.conn.Release() }
func (c watchedConn) Discard() { c.conn.Discard() }

type watchedTx struct {
	watchedSession

	tx databases.Tx
}

func (t watchedTx) Database() string { return t.tx.Database() }
