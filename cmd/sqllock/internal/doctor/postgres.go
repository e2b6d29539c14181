package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases"
)

// mode are arguments before a statement's own: with the simple protocol the
// doctor also works behind a proxy that prepared statements do not pass.
func (e *exam) mode() []any {
	if e.db.Target.Dialect == databases.Postgres {
		return []any{pgx.QueryExecModeSimpleProtocol}
	}

	return nil
}

func postgresChecks() []check {
	return []check{
		{"server", postgresServer},
		{"writable", postgresWritable},
		{"pooler", postgresPooler},
		{"replication", postgresReplication},
		{"durability", postgresDurability},
		{"isolation", postgresIsolation},
		{"timeouts", postgresTimeouts},
		{"connections", postgresConnections},
		clock(`SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`),
	}
}

func postgresServer(ctx context.Context, e *exam) ([]Finding, error) {
	var (
		number  int
		version string
	)

	if err := e.one(ctx, `SELECT current_setting('server_version_num')::int, version()`, &number, &version); err != nil {
		return nil, err
	}

	version, _, _ = strings.Cut(version, " on ")

	if number < 130000 {
		return found(Error, version+" is too old", "locks were never tried on it", "use PostgreSQL 13 or later"), nil
	}

	return fine("%s", version), nil
}

func postgresWritable(ctx context.Context, e *exam) ([]Finding, error) {
	var standby, readOnly bool

	err := e.one(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool`, &standby, &readOnly)

	switch {
	case err != nil:
		return nil, err
	case standby:
		return found(Error, "the server is a standby", "no lock can be acquired or renewed",
			"connect to the primary: target_session_attrs=read-write with several hosts in the URL"), nil
	case readOnly:
		return found(Error, "transactions are read-only", "no lock can be acquired or renewed",
			"take default_transaction_read_only off the user or the database"), nil
	default:
		return fine("the primary, and it takes writes"), nil
	}
}

func postgresReplication(ctx context.Context, e *exam) ([]Finding, error) {
	var standbys, synchronous int

	err := e.one(ctx, `SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))
  FROM pg_stat_replication WHERE coalesce(application_name, '') <> 'pg_basebackup'`, &standbys, &synchronous)

	switch {
	case err != nil:
		return nil, err
	case standbys == 0:
		return fine("no standby follows"), nil
	case synchronous == 0:
		return found(Warning, fmt.Sprintf("%d standbys follow, none synchronously", standbys),
			"a fail-over can forget grants that were just made, so that two hold a lock until the first one's renewal is refused",
			"set synchronous_standby_names for the one that will take over, or have Guard or tokens checked"), nil
	default:
		return fine("%d of %d standbys follow synchronously", synchronous, standbys), nil
	}
}

func postgresDurability(ctx context.Context, e *exam) ([]Finding, error) {
	var fsync, commit string

	err := e.one(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit')`, &fsync, &commit)

	switch {
	case err != nil:
		return nil, err
	case fsync == "off":
		return found(Warning, "fsync is off", "a crash of the machine can damage the tables and forget grants", "set fsync = on"), nil
	case commit == "off":
		return found(Warning, "synchronous_commit is off",
			"a crash of the server forgets grants that were just made, so that two can hold a lock for a lease",
			"ALTER ROLE ... SET synchronous_commit = on, or in the URL options=-csynchronous_commit%3Don"), nil
	default:
		return fine("commits wait for the disk (synchronous_commit = %s)", commit), nil
	}
}

func postgresIsolation(ctx context.Context, e *exam) ([]Finding, error) {
	var level string

	if err := e.one(ctx, `SELECT current_setting('default_transaction_isolation')`, &level); err != nil {
		return nil, err
	}

	if level == "read committed" {
		return fine("read committed"), nil
	}

	return found(Note, "the default isolation is "+level,
		"locks stay right; attempts at the same moment are refused more often, and waiters ask again",
		"nothing, or ALTER ROLE ... SET default_transaction_isolation = 'read committed' for the locks' user"), nil
}

func postgresTimeouts(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := e.conn.QueryContext(ctx, `SELECT name, setting::bigint FROM pg_settings
 WHERE name IN ('idle_session_timeout', 'idle_in_transaction_session_timeout', 'statement_timeout', 'lock_timeout', 'transaction_timeout')
   AND setting::bigint > 0
 ORDER BY name`, e.mode()...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	var findings []Finding

	for rows.Next() {
		var (
			name  string
			milli int64
		)

		if err := rows.Scan(&name, &milli); err != nil {
			return findings, err
		}

		findings = append(findings, e.timeout(name, time.Duration(milli)*time.Millisecond)...)
	}

	if err := rows.Err(); err != nil || len(findings) > 0 {
		return findings, err
	}

	return fine("none that is shorter than the heartbeat of %s", e.heartbeat()), nil
}

// shortest is how long any statement may take.
const shortest = time.Second

// guarded judges a limit that only ends transactions with a guard.
func (e *exam) guarded(name string, limit time.Duration) []Finding {
	level := Note
	if limit < shortest {
		level = Warning
	}

	return found(level, fmt.Sprintf("%s is %s", name, limit),
		"it ends guarded transactions that say nothing for so long", "nothing, if none does")
}

// timeout judges a limit of the server's.
func (e *exam) timeout(name string, limit time.Duration) []Finding {
	switch {
	case name == "idle_in_transaction_session_timeout":
		// Strategy forupdate sets its own.
		return e.guarded(name, limit)
	case name == "idle_session_timeout" || name == "wait_timeout":
		if limit > e.heartbeat() {
			return nil
		}

		return found(Warning, fmt.Sprintf("%s is %s, and the heartbeat %s", name, limit, e.heartbeat()),
			"the server closes the pool's connections between renewals, so that each renewal connects anew and may fail",
			"raise "+name+" for the locks' user, or use a shorter lease")
	case name == "transaction_timeout":
		return found(Note, fmt.Sprintf("%s is %s", name, limit), "it ends guarded transactions that last longer", "nothing, if none does")
	case limit < shortest:
		return found(Warning, fmt.Sprintf("%s is %s", name, limit),
			"under load renewals are cut off; one is tried again, but with forupdate and advisory the lock is lost",
			"raise "+name+" for the locks' user")
	default:
		return nil
	}
}

func postgresConnections(ctx context.Context, e *exam) ([]Finding, error) {
	var most, used int

	err := e.one(ctx, `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`, &most, &used)
	if err != nil {
		return nil, err
	}

	return connections(e, most, used), nil
}

// Bloat: so many bytes for each name, in tables that are not small.
const (
	bloatBytes = 4 << 20
	bloatEach  = 20 << 10
)

// bloat is for PostgreSQL; that of the others is with the tables.
func bloat(ctx context.Context, e *exam) ([]Finding, error) {
	if !e.schema || e.db.Target.Dialect != databases.Postgres {
		return nil, nil
	}

	var (
		size, names int64
		oldest      sql.NullFloat64
	)

	err := e.one(ctx, `SELECT pg_total_relation_size('sqllock_locks'), (SELECT count(*) FROM sqllock_locks),
       (SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::float8 FROM pg_stat_activity WHERE pid <> pg_backend_pid())`,
		&size, &names, &oldest)
	if err != nil {
		return nil, err
	}

	open := time.Duration(oldest.Float64 * float64(time.Second)).Round(time.Second)

	if size < bloatBytes || size/max(names, 1) < bloatEach {
		if open > time.Hour {
			return found(Note, fmt.Sprintf("a transaction has been open for %s", open),
				"row versions can not be removed while it is, so that the lock tables grow", "end it (pg_stat_activity says which)"), nil
		}

		return fine("sqllock_locks has %d names in %d KiB", names, size>>10), nil
	}

	return found(Warning, fmt.Sprintf("sqllock_locks is bloated: %d names in %d KiB; the oldest open transaction is %s old",
		names, size>>10, open), "statements about locks get slower",
		"end transactions that are open for long, then VACUUM (FULL) sqllock_locks, at a quiet moment: it stops locks while it runs"), nil
}
