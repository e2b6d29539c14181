// Package edited is a database whose statements are changed on their way to it, for locks that are known to be broken.
package edited

import (
	"context"

	"github.com/sqllock/sqllock/databases"
)

// Change returns what is sent in a statement's place. It leaves the values as they are that it was given.
type Change func(databases.Statement, databases.Values) (databases.Statement, databases.Values)

// DB is the database with the change.
func DB(inner databases.DB, change Change) databases.DB { return db{inner, change} }

// Tx is the transaction with the change.
func Tx(inner databases.Tx, change Change) databases.Tx { return tx{session{inner, change}, inner} }

type db struct {
	databases.DB

	change Change
}

func (d db) Conn(ctx context.Context) (databases.Conn, error) {
	inner, err := d.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return conn{session{inner, d.change}, inner}, nil
}

type session struct {
	databases.Session

	change Change
}

func (s session) Run(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	stmt, v = s.change(stmt, v)

	return s.Session.Run(ctx, stmt, v, each)
}

type conn struct {
	session

	inner databases.Conn
}

func (c conn) Release() { c.inner.Release() }
func (c conn) Discard() { c.inner.Discard() }

type tx struct {
	session

	inner databases.Tx
}

func (t tx) Database() string { return t.inner.Database() }
