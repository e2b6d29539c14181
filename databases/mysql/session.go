package mysql

import (
	"context"
	"encoding/hex"

	"github.com/sqllock/sqllock/databases"
)

// Conn checks out a connection.
func (d *DB) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := d.StdPool.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return connection{session{conn}, conn}, nil
}

// session binds text as hexadecimal digits.
type session struct{ on databases.Session }

func (s session) Exec(ctx context.Context, stmt databases.Statement, v databases.Values) (databases.Result, error) {
	return s.on.Exec(ctx, stmt, digits(stmt, v))
}

func (s session) Query(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) error {
	return s.on.Query(ctx, stmt, digits(stmt, v), each)
}

// digits are the values that a statement binds. One that is missing stays so.
func digits(stmt databases.Statement, v databases.Values) databases.Values {
	bound := make(databases.Values, len(stmt.Args))

	for _, name := range stmt.Args {
		value, ok := v[name]
		if !ok {
			continue
		}

		if text, ok := value.(string); ok {
			value = hex.EncodeToString([]byte(text))
		}

		bound[name] = value
	}

	return bound
}

type connection struct {
	session
	conn databases.Conn
}

func (c connection) Release() { c.conn.Release() }
func (c connection) Discard() { c.conn.Discard() }

type transaction struct {
	session
	tx databases.Tx
}

func (t transaction) Database() string { return t.tx.Database() }
