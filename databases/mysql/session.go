package mysql

import (
	"context"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// Conn checks out a connection.
func (d *DB) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := d.StdPool.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return connection{session{conn, true}, conn}, nil
}

// session sends text as hexadecimal digits.
type session struct {
	on    databases.Session
	owned bool // it is a connection of ours, and no transaction of the caller's
}

func (s session) Run(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	stmt, v = s.sent(ctx, stmt, v)

	return s.on.Run(ctx, stmt, v, each)
}

// sent is what the driver is given of a statement: its values are in its text, or else bound.
func (s session) sent(ctx context.Context, stmt databases.Statement, v databases.Values) (databases.Statement, databases.Values) {
	if s.owned {
		stmt = limited(ctx, stmt)
	}

	if len(stmt.Args) == 0 {
		return stmt, nil
	}

	text, ok := written(stmt, v)
	if !ok {
		return stmt, digits(v)
	}

	stmt.SQL, stmt.Args = text, nil

	return stmt, nil
}

// digits are the values with text as digits.
func digits(v databases.Values) databases.Values {
	bound := make(databases.Values, len(v))

	for name, value := range v {
		if text, ok := value.(string); ok {
			value = hex.EncodeToString([]byte(text))
		}

		bound[name] = value
	}

	return bound
}

// verb is what a hint follows, after a comment that MariaDB executes.
var verb = regexp.MustCompile(`^(/\*.*?\*/ )?(SELECT|INSERT|UPDATE|DELETE) `)

// limited has the server wait for a table that somebody has locked until just after ctx ends. A client that gives up
// closes its connection, which MySQL does not notice while it waits: by default for a year, and whoever tries again
// fills it with such sessions (seen on 9.7). MariaDB notices, and takes the hint for a comment.
func limited(ctx context.Context, stmt databases.Statement) databases.Statement {
	deadline, ok := ctx.Deadline()
	if at := verb.FindStringIndex(stmt.SQL); ok && at != nil {
		seconds := max(0, time.Until(deadline)/time.Second) + 1
		stmt.SQL = fmt.Sprintf("%s/*+ SET_VAR(lock_wait_timeout=%d) */ %s", stmt.SQL[:at[1]], seconds, stmt.SQL[at[1]:])
	}

	return stmt
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
