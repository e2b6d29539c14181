package doctor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const backend = `SELECT pg_catalog.pg_backend_pid()`

// postgresPooler looks for a proxy that gives a server session to many clients.
func postgresPooler(ctx context.Context, e *exam) ([]Finding, error) {
	var findings []Finding

	pooled, err := e.pooled(ctx)

	switch {
	case statementsOnly(err):
		e.shares, findings = true, e.statementPooler()
	case err != nil:
		return nil, err
	case pooled:
		e.shares, findings = true, e.transactionPooler()
	default:
		return fine("each connection has a server session of its own"), nil
	}

	if e.db.Driver != pgx.QueryExecModeCacheStatement {
		return findings, nil
	}

	passes, err := e.statementsPass(ctx)
	if err != nil || passes {
		return findings, err
	}

	return append(findings, found(Error, "prepared statements do not pass the proxy, and the URL asks for them",
		"programs with this URL cannot acquire or renew locks: statements fail with SQLSTATE 42P05 or 26000; this command does without them",
		"default_query_exec_mode=exec in the URL, or max_prepared_statements in PgBouncer 1.21 or later")...), nil
}

// pooled looks whether a session keeps its server process while others work.
// A proxy that pools transactions hands it on: the latest one first, or by turns.
func (e *exam) pooled(ctx context.Context) (bool, error) {
	var first, others, again int

	if err := e.one(ctx, backend, &first); err != nil {
		return false, err
	}

	for range 2 {
		other, err := e.db.SQL.Conn(ctx)
		if err != nil {
			return false, err
		}
		defer other.Close()

		tx, err := other.BeginTx(ctx, nil)
		if err != nil {
			return false, err
		}
		defer func() { _ = tx.Rollback() }()

		if err := tx.QueryRowContext(ctx, e.asked(backend), e.mode()...).Scan(&others); err != nil {
			return false, err
		}

		if others == first {
			// To ask again might wait for the end of the transaction.
			return true, nil
		}

		if err := e.one(ctx, backend, &again); err != nil {
			return false, err
		}

		if again != first {
			return true, nil
		}
	}

	return false, nil
}

// statementsOnly says whether a proxy refused a transaction because it pools
// statements (https://www.pgbouncer.org/features.html).
func statementsOnly(err error) bool {
	var refused *pgconn.PgError

	return errors.As(err, &refused) && strings.Contains(refused.Message, "statement pooling")
}

func (e *exam) statementPooler() []Finding {
	const pools = "a proxy between here and the server pools statements"

	if e.connectionHeld() {
		return found(Error, pools+", and strategy "+e.Strategy+" needs sessions of its own", "no lock can be acquired",
			"connect past the proxy, or use strategy cas")
	}

	return found(Warning, pools, "there are no transactions: Guard and ReleaseTx cannot be used", "let it pool transactions or sessions, or connect past it")
}

func (e *exam) transactionPooler() []Finding {
	const pools = "a proxy between here and the server pools transactions"

	switch e.Strategy {
	case "advisory":
		return found(Error, pools+", and strategy advisory needs sessions of its own",
			"sqllock refuses it: two clients can share a session, and so a lock", "connect past the proxy, or use strategy cas")
	case "forupdate":
		return found(Warning, pools,
			fmt.Sprintf("each lock of forupdate keeps one of the proxy's connections to the server: with %d holders and a smaller pool "+
				"nobody else gets through; an idle_transaction_timeout of the proxy ends locks", e.Holders),
			"make the proxy's pool larger than that, connect past it, or use strategy cas")
	default:
		return found(Note, pools, "", "")
	}
}

// statementsPass looks whether a statement that was prepared under a name is
// there at the next call, and no other client's.
func (e *exam) statementsPass(ctx context.Context) (bool, error) {
	name := "sqllock_doctor_" + rand.Text()

	other, err := e.db.SQL.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer other.Close()

	err = raw(e.conn, func(conn *pgconn.PgConn) error {
		if _, err := conn.Prepare(ctx, name, backend, nil); err != nil {
			return err
		}

		for range 2 {
			if err := conn.ExecPrepared(ctx, name, nil, nil, nil).Read().Err; err != nil {
				return err
			}
		}

		return raw(other, func(conn *pgconn.PgConn) error {
			_, err := conn.Prepare(ctx, name, backend, nil)

			return err
		})
	})

	// A session of the server that has it by now goes to other clients.
	for _, conn := range []*sql.Conn{other, e.conn} {
		_ = raw(conn, func(conn *pgconn.PgConn) error { return conn.Deallocate(ctx, name) })
	}

	var refused *pgconn.PgError
	if errors.As(err, &refused) && (refused.Code == "42P05" || refused.Code == "26000") {
		return false, nil
	}

	return err == nil, err
}

// raw calls f with the connection below database/sql.
func raw(conn *sql.Conn, f func(*pgconn.PgConn) error) error {
	return conn.Raw(func(c any) error {
		below, ok := c.(*stdlib.Conn)
		if !ok {
			return errors.ErrUnsupported
		}

		return f(below.Conn().PgConn())
	})
}
