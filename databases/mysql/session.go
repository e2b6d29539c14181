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

	return connection{conn}, nil
}

// connection is one of ours.
type connection struct{ databases.Conn }

func (c connection) Run(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	stmt, v = sent(limited(ctx, stmt), v)

	return c.Conn.Run(ctx, stmt, v, each)
}

// transaction is the caller's, whose statements wait as he has set it.
type transaction struct{ databases.Tx }

func (t transaction) Run(
	ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	stmt, v = sent(stmt, v)

	return t.Tx.Run(ctx, stmt, v, each)
}

// sent is what the driver is given of a statement, with text as hexadecimal digits: its values are in its text, or else bound.
func sent(stmt databases.Statement, v databases.Values) (databases.Statement, databases.Values) {
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
