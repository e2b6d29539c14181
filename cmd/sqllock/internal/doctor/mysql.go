package doctor

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shown reads variables or the status of the server; those that it does not know are empty, for which only SHOW
// is no error.
func (e *exam) shown(ctx context.Context, kind string, names ...string) (map[string]string, error) {
	return e.pairs(ctx, "SHOW "+kind+" WHERE Variable_name IN ('"+strings.Join(names, "', '")+"')")
}

func mysqlServer(_ *exam, version string) []Finding {
	if strings.Contains(version, "MariaDB") {
		return fine("MariaDB %s", version)
	}

	return fine("MySQL %s", version)
}

func mysqlWritable(ctx context.Context, e *exam) ([]Finding, error) {
	var readOnly, innodb, autocommit bool

	err := e.one(ctx, `SELECT @@global.read_only, @@global.innodb_read_only, @@autocommit`, &readOnly, &innodb, &autocommit)
	if err != nil {
		return nil, err
	}

	// MySQL has the first name, MariaDB had the other for long.
	session, err := e.shown(ctx, "SESSION VARIABLES", "transaction_read_only", "tx_read_only")

	switch {
	case err != nil:
		return nil, err
	case readOnly || innodb:
		return found(Error, "the server is read-only", "no lock can be acquired or renewed", "connect to the primary"), nil
	case cmp.Or(session["transaction_read_only"], session["tx_read_only"]) == "ON":
		return found(Error, "transactions are read-only", "no lock can be acquired or renewed",
			"leave transaction_read_only out of the URL, of init_connect and of the server's options"), nil
	case !autocommit:
		return found(Error, "autocommit is off", "sqllock refuses such sessions: a lock would be nobody's before a commit",
			"leave autocommit=0 out of the DSN and of init_connect"), nil
	default:
		return fine("it takes writes"), nil
	}
}

func mysqlReplication(ctx context.Context, e *exam) ([]Finding, error) {
	replicas, err := e.replicas(ctx)
	if err != nil {
		return nil, err
	}

	synchronous, err := e.shown(ctx, "GLOBAL STATUS", "Rpl_semi_sync_source_status", "Rpl_semi_sync_master_status")

	switch {
	case err != nil:
		return nil, err
	case replicas == 0:
		return fine("no replica follows, as far as this user may see"), nil
	case cmp.Or(synchronous["rpl_semi_sync_source_status"], synchronous["rpl_semi_sync_master_status"]) == "ON":
		return fine("replicas that follow semi-synchronously: %d", replicas), nil
	default:
		return found(Note, fmt.Sprintf("replicas that follow asynchronously: %d", replicas),
			"a fail-over can lose grants that were just made, so nothing is granted after it for as long as the longest lease",
			`leave it so; or use semi-synchronous replication that never falls back, and run "sqllock recovery --lossless"`), nil
	}
}

// replicas counts the sessions that send the binary log to a replica. From information_schema.processlist MySQL (seen on
// 9.7.4) returns error 3854 while any session runs a statement with a character of four bytes, even for a count.
func (e *exam) replicas(ctx context.Context) (count int, err error) {
	err = e.each(ctx, `SHOW PROCESSLIST`, func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}

		command, row := sql.RawBytes{}, make([]any, len(columns))
		for i := range row {
			row[i] = new(sql.RawBytes)

			if columns[i] == "Command" {
				row[i] = &command
			}
		}

		err = rows.Scan(row...)

		if bytes.HasPrefix(command, []byte("Binlog Dump")) {
			count++
		}

		return err
	})

	return count, err
}

func mysqlDurability(ctx context.Context, e *exam) ([]Finding, error) {
	var flush int

	err := e.one(ctx, `SELECT @@global.innodb_flush_log_at_trx_commit`, &flush)

	switch {
	case err != nil:
		return nil, err
	case flush != 1:
		return found(Warning, fmt.Sprintf("innodb_flush_log_at_trx_commit is %d", flush),
			"a crash forgets grants that were just made, so that two can hold a lock for a lease",
			"set innodb_flush_log_at_trx_commit = 1"), nil
	default:
		return fine("commits wait for the disk"), nil
	}
}

// longGuard is how long a stopped process may keep a name by a guard without a word of the doctor's.
const longGuard = time.Hour

func mysqlTimeouts(ctx context.Context, e *exam) ([]Finding, error) {
	idle := []string{readingTimeout, idleTimeout, writingTimeout, tidbIdleTimeout}
	names := append([]string{"wait_timeout", "max_statement_time", executionTime}, idle...)

	// Those of the session: a parameter of the URL sets them.
	set, err := e.shown(ctx, "SESSION VARIABLES", names...)
	if err != nil {
		return nil, err
	}

	limits := map[string]time.Duration{} // zero if the server has none, or it is off

	for name, value := range set {
		if count, err := strconv.ParseFloat(value, 64); err == nil {
			limits[name] = time.Duration(count * float64(time.Second))
		}
	}

	limits[executionTime] /= 1000

	session := idleTimeout
	if limits[readingTimeout] > 0 {
		session = readingTimeout
	}

	var findings []Finding

	for _, name := range names {
		switch limit := limits[name]; {
		case limit <= 0:
		case name == session && e.Strategy == "forupdate":
			findings = append(findings, e.session(name, limit)...)
		case slices.Contains(idle, name):
			findings = append(findings, e.guarded(name, limit)...)
		default:
			findings = append(findings, e.timeout(name, limit)...)
		}
	}

	waits := limits["wait_timeout"]

	if waits > longGuard && !slices.ContainsFunc(idle, func(name string) bool { return limits[name] > 0 }) {
		limit := "wait_timeout=600"
		if set[idleTimeout] != "" { // MariaDB's, which is off
			limit = idleTimeout + "=300"
		}

		findings = append(findings, unending(fmt.Sprintf("wait_timeout is %s, and no other limit ends a transaction that says nothing", waits),
			limit+" in the URL of those who guard transactions")...)
	}

	if len(findings) > 0 {
		return findings, nil
	}

	return fine("none that is shorter than the heartbeat of %s", e.heartbeat()), nil
}

// MariaDB's limits on a session that says nothing in a transaction: in one that
// has not written, in one that has, and in both where those are off. They stand
// in for wait_timeout, which forupdate sets to the lease; its transaction does
// not write (https://mariadb.com/docs/server/reference/system-variables).
const (
	readingTimeout = "idle_readonly_transaction_timeout"
	writingTimeout = "idle_write_transaction_timeout"
	idleTimeout    = "idle_transaction_timeout"
)

const (
	// tidbIdleTimeout is TiDB's on a session that says nothing in a transaction.
	tidbIdleTimeout = "tidb_idle_transaction_timeout"
	// executionTime is in milliseconds, and the others in seconds.
	executionTime = "max_execution_time"
)

// session judges the limit on the session of a lock of forupdate.
func (e *exam) session(name string, limit time.Duration) []Finding {
	switch {
	case limit <= e.heartbeat():
		return found(Error, fmt.Sprintf("%s is %s, and the heartbeat %s", name, limit, e.heartbeat()),
			"the server ends the session of a lock of forupdate before its first renewal: each lock is lost", name+"=0 in the URL")
	case limit > e.Lease:
		return found(Warning, fmt.Sprintf("%s is %s, and the lease %s", name, limit, e.Lease),
			"it stands in for the lease: a lock of a holder that was cut off is taken for so long", name+"=0 in the URL")
	default:
		return e.guarded(name, limit)
	}
}

func mysqlConnections(ctx context.Context, e *exam) (most, used int, err error) {
	if err = e.one(ctx, `SELECT @@global.max_connections`, &most); err != nil || most == 0 {
		return 0, 0, err
	}

	status, err := e.shown(ctx, "GLOBAL STATUS", "Threads_connected")
	if err != nil {
		return 0, 0, err
	}

	if used, err = strconv.Atoi(status["threads_connected"]); err != nil {
		err = fmt.Errorf("the status Threads_connected: %w", err)
	}

	return most, used, err
}

// tidbClock asks the clock that leases are counted by, which is one for all servers of a cluster.
func tidbClock(ctx context.Context, e *exam) (micros int64, err error) {
	tx, err := e.conn.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return 0, err
	}

	err = tx.QueryRowContext(ctx, `SELECT CAST(@@tidb_current_ts AS SIGNED) DIV 262144 * 1000`).Scan(&micros)

	return micros, errors.Join(err, tx.Rollback())
}

func mysqlCluster(ctx context.Context, e *exam) ([]Finding, error) {
	const (
		galera = "wsrep_on"
		single = "group_replication_single_primary_mode"
		group  = "group_replication_group_name"
		// https://dev.mysql.com/doc/refman/9.7/en/group-replication-configuring-consistency-guarantees.html
		consistency = "group_replication_consistency"
	)

	set, err := e.shown(ctx, "GLOBAL VARIABLES", galera, single, group, consistency)

	switch {
	case err != nil:
		return nil, err
	case set[galera] == "ON":
		return e.manyPrimaries("Galera, where each node takes writes"), nil
	case set[single] == "OFF":
		return e.manyPrimaries("a replication group with several primaries"), nil
	case set[group] == "":
		return fine("one server"), nil
	case set[consistency] == "EVENTUAL":
		return found(Warning, "a replication group whose group_replication_consistency is EVENTUAL",
			"the next primary begins before it has caught up: until then it shows locks as they were, and may let the guard of an "+
				"earlier holder pass",
			"set group_replication_consistency = BEFORE_ON_PRIMARY_FAILOVER, the default from MySQL 8.4 on"), nil
	default:
		return fine("a replication group"), nil
	}
}

// manyPrimaries is about a cluster in which each node takes writes.
func (e *exam) manyPrimaries(cluster string) []Finding {
	if e.connectionHeld() {
		return found(Error, cluster+", and strategy "+e.Strategy,
			"sqllock refuses it: row locks and GET_LOCK hold on one node only, so that two could hold a lock",
			"use strategy cas or insert, and send its statements to one node")
	}

	return found(Note, cluster, "attempts on two nodes meet at their commit, where one of them fails and begins again; a node that lags "+
		"shows locks as they were", "send sqllock's statements to one node, for speed")
}
