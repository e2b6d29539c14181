package conformance_test

import (
	"context"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/test/edited"
)

// watched is a database whose statements are looked at before they are sent.
type watched struct {
	databases.DB

	look func(databases.Statement, databases.Values)
}

func (w watched) Conn(ctx context.Context) (databases.Conn, error) {
	return edited.DB(w.DB, w.change).Conn(ctx)
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
func (w watched) Tx(tx databases.Tx) databases.Tx { return edited.Tx(tx, w.change) }

func (w watched) change(stmt databases.Statement, v databases.Values) (databases.Statement, databases.Values) {
	w.look(stmt, v)

	return stmt, v
}
