package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const backend = `SELECT pg_catalog.pg_backend_pid()`

// postgresPooler looks for a proxy that gives a server session to many clients.
func postgresPooler(ctx context.Context, e *exam) ([]Finding, error) {
	pooled, err := e.pooled(ctx)

	switch {
	case statementsOnly(err):
		e.shares = true

		return e.statementPooler(), nil
	case err != nil:
		return nil, err
	case pooled:
		e.shares = true

		return e.transactionPooler(), nil
	default:
		return fine("each connection has a server session of its own"), nil
	}
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
		if e.db.Driver != pgx.QueryExecModeCacheStatement {
			return found(Note, pools, "", "")
		}

		return found(Note, pools, "programs with this URL prepare statements, and fail with SQLSTATE 42P05 or 26000 if those do not pass the proxy",
			"default_query_exec_mode=exec in the URL, or max_prepared_statements in PgBouncer 1.21 or later")
	}
}
