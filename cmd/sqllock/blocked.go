package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

const (
	// blockedTime bounds the search for who has a row locked. Meanwhile this command stands in line for it.
	blockedTime = 5 * time.Second
	// blockedLook, and at random up to twice that, passes between two looks. MySQL and MariaDB answer from a copy, which they
	// make anew only once nobody has read it for 0.1 s: whoever looks more often keeps seeing what was there at the first look.
	// (InnoDB's trx0i_s, CACHE_MIN_IDLE_TIME; seen on MySQL 9.7 and MariaDB 11.8.)
	blockedLook = 150 * time.Millisecond
)

// inTheRow says, in lines, which sessions have the row of a name locked. A server tells it only of a row that somebody waits for. So
// this does, for a moment; nobody comes after it who would not wait for the same sessions.
func inTheRow(ctx context.Context, db *dsn.Database, name string, slot int) string {
	ctx, cancel := context.WithTimeout(ctx, blockedTime)
	defer cancel()

	var sessions []string

	waits, mode, err := waitsOf(ctx, db)
	if err == nil && waits.self != "" {
		sessions, err = rowSessions(ctx, db, waits, mode, sqllock.SlotName(name, slot))
	}

	switch {
	case err == nil && len(sessions) > 0:
		return "by " + strings.Join(sessions, "\nand by ")
	case err != nil && waits.needs != "":
		return "by a session that this user may not see without\n" + waits.needs
	default:
		return "by a session that could not be found"
	}
}

// rowWaits are the statements that find who has a row locked.
type rowWaits struct {
	limit, self, lock, who, end string
	needs                       string // what not everybody may do
}

func postgresWaits() rowWaits {
	return rowWaits{
		self: "SELECT pg_catalog.pg_backend_pid()",
		lock: "SELECT name FROM sqllock_locks WHERE name = $1 FOR UPDATE",
		// Others may stand in line before this one. Who is ahead of whom is asked of those in line only: the server stops all of its
		// locks to answer that.
		who: `WITH RECURSIVE ahead(pid, of) AS (
    SELECT pid, pg_catalog.pg_blocking_pids(pid) FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids($1::int)) pid
    UNION SELECT next.pid, pg_catalog.pg_blocking_pids(next.pid) FROM ahead, pg_catalog.unnest(ahead.of) next(pid)
)
SELECT DISTINCT pid, coalesce(usename::text, ''), coalesce(application_name, ''),
       coalesce(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - xact_start), -1)::float
  FROM ahead JOIN pg_catalog.pg_stat_activity USING (pid) WHERE pg_catalog.cardinality(ahead.of) = 0`,
		end: "SELECT pg_terminate_backend(%d)",
	}
}

// mysqlWaits gets the table of waits, which MySQL and MariaDB call differently.
func mysqlWaits(table string) rowWaits {
	return rowWaits{
		limit: "SET SESSION innodb_lock_wait_timeout = 4",
		self:  "SELECT CONNECTION_ID()",
		lock:  "SELECT name FROM sqllock_locks WHERE name = ? FOR UPDATE",
		who: fmt.Sprintf(`SELECT DISTINCT b.trx_mysql_thread_id, COALESCE(p.user, ''), COALESCE(p.host, ''),
       TIMESTAMPDIFF(SECOND, b.trx_started, NOW()) + 0e0
  FROM information_schema.innodb_trx r
  JOIN %s
  JOIN information_schema.innodb_trx b ON b.trx_id = w.ahead AND b.trx_state <> 'LOCK WAIT'
  LEFT JOIN information_schema.processlist p ON p.id = b.trx_mysql_thread_id
 WHERE r.trx_mysql_thread_id = ?`, table),
		end:   "KILL %d",
		needs: "GRANT PROCESS ON *.*",
	}
}

const (
	waitsMySQL = `(SELECT REQUESTING_ENGINE_TRANSACTION_ID AS waits, BLOCKING_ENGINE_TRANSACTION_ID AS ahead
          FROM performance_schema.data_lock_waits) w ON w.waits = r.trx_id`
	waitsMariaDB = `(SELECT requesting_trx_id AS waits, blocking_trx_id AS ahead
          FROM information_schema.innodb_lock_waits) w ON w.waits = r.trx_id`
)

// rowSessions waits for a row until the server says whose it is.
func rowSessions(ctx context.Context, db *dsn.Database, waits rowWaits, mode []any, row string) (sessions []string, err error) {
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return nil, err
	}
	// Its setting is for nobody else of the pool.
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()

	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()

	if waits.limit != "" {
		if _, err := tx.ExecContext(ctx, waits.limit); err != nil {
			return nil, err
		}
	}

	var self int64
	if err := tx.QueryRowContext(ctx, waits.self, mode...).Scan(&self); err != nil {
		return nil, err
	}

	waiting, stop := context.WithCancel(ctx)
	got := make(chan error, 1)

	go func() {
		_, err := tx.ExecContext(waiting, waits.lock, slices.Concat(mode, []any{row})...)
		got <- err
	}()

	defer func() {
		stop()
		<-got
	}()

	for {
		select {
		case err := <-got:
			got <- err

			return nil, nil // whoever had it has let go
		case <-time.After(blockedLook + rand.N(blockedLook)):
		}

		if sessions, err = readSessions(ctx, db.SQL, waits, slices.Concat(mode, []any{self})); err != nil || len(sessions) > 0 {
			return sessions, err
		}
	}
}

// waitsOf are the statements for a server, with what pgx is told of them.
func waitsOf(ctx context.Context, db *dsn.Database) (waits rowWaits, mode []any, err error) {
	switch db.Target.Dialect {
	case databases.Postgres:
		return postgresWaits(), []any{pgx.QueryExecModeSimpleProtocol}, nil
	case databases.MySQL:
		var version string

		err := db.SQL.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
		if strings.Contains(version, "MariaDB") {
			return mysqlWaits(waitsMariaDB), nil, err
		}

		waits = mysqlWaits(waitsMySQL)
		waits.needs += " and\nGRANT SELECT ON performance_schema.data_lock_waits"

		return waits, nil, err
	case databases.SQLite, databases.TiDB:
	}

	return rowWaits{}, nil, nil
}

func readSessions(ctx context.Context, db *sql.DB, waits rowWaits, args []any) (sessions []string, err error) {
	err = dsn.Each(ctx, db, func(rows *sql.Rows) error {
		var (
			id                int64
			user, application string
			open              float64
		)

		err := rows.Scan(&id, &user, &application, &open)

		said := fmt.Sprintf("session %d of user %s", id, plain.Text(user))
		if application != "" {
			said += " (" + plain.Text(application) + ")"
		}

		if open >= 0 {
			said += ",\nwhose transaction is open for " + text.Duration(time.Duration(open*float64(time.Second)))
		}

		sessions = append(sessions, said+fmt.Sprintf("\n("+waits.end+" ends it)", id))

		return err
	}, waits.who, args...)

	return sessions, err
}
