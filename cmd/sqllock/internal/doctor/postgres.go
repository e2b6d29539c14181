package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
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

func postgresServer(_ *exam, version string) []Finding {
	version, _, _ = strings.Cut(version, " on ")

	return fine("%s", version)
}

// postgresPath looks who can put functions and operators where the statements of
// this user look for theirs. Whoever owns the database, the schema or the tables
// can do as he likes anyway.
func postgresPath(ctx context.Context, e *exam) ([]Finding, error) {
	schemas, err := migrate.SchemasOf(ctx, e.db)

	switch {
	case errors.Is(err, migrate.ErrNoSchema):
		return found(Error, err.Error(), "the tables seem to be missing, and every acquisition fails",
			"ALTER ROLE ... SET search_path, or search_path in the URL; or create the schema"), nil
	case err != nil:
		return nil, err
	}

	findings := sets(schemas)

	err = e.each(ctx, `SELECT pg_catalog.quote_ident(n.nspname::text), coalesce(pg_catalog.quote_ident(r.rolname::text), 'PUBLIC'), g.grantee = n.nspowner
  FROM pg_catalog.pg_namespace n
 CROSS JOIN LATERAL (SELECT n.nspowner AS grantee
                      UNION
                     SELECT a.grantee FROM pg_catalog.aclexplode(n.nspacl) a WHERE a.privilege_type = 'CREATE') g
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = g.grantee
 WHERE n.nspname = ANY (pg_catalog.current_schemas(false))
   AND NOT coalesce(r.rolsuper, false) AND coalesce(r.rolname, '') <> current_user AND coalesce(r.rolname, '') <> 'pg_database_owner'
   AND g.grantee <> (SELECT d.datdba FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_class c
                    WHERE c.oid = pg_catalog.to_regclass('sqllock_locks')::pg_catalog.oid AND c.relowner = g.grantee)
 ORDER BY 1, 2`, func(rows *sql.Rows) error {
		var (
			schema, role string
			owns         bool
		)

		if err := rows.Scan(&schema, &role, &owns); err != nil {
			return err
		}

		said, fix := role+" may create objects in schema "+schema, "REVOKE CREATE ON SCHEMA "+schema+" FROM "+role+";"
		if owns {
			said, fix = role+" owns schema "+schema, "ALTER SCHEMA "+schema+" OWNER TO ..., or leave it out of the search_path"
		}

		findings = append(findings, found(Warning, said+", which is in the search_path",
			"a function or an operator there can be called in place of PostgreSQL's own, as the user who asked", fix)...)

		return nil
	})
	if err != nil || len(findings) > 0 {
		return findings, err
	}

	return fine("nobody else may create objects in its schemas"), nil
}

// sets tells of tables by which others are not excluded.
func sets(schemas migrate.Schemas) (findings []Finding) {
	if err := schemas.Mixed(); err != nil {
		said, fix, _ := strings.Cut(err.Error(), "; drop ")

		return found(Error, said, "whoever has another search_path uses other tables, and does not exclude you", "drop "+fix)
	}

	for _, other := range schemas.Others {
		findings = append(findings, found(Warning, "schema "+other+" has sqllock's tables too", "whoever uses those does not exclude you",
			"name the schema of the tables in the URL of everybody, search_path=...; drop the tables that nobody uses")...)
	}

	return findings
}

func postgresWritable(ctx context.Context, e *exam) ([]Finding, error) {
	var standby, readOnly bool

	err := e.one(ctx, `SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only')::bool`, &standby, &readOnly)

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

	err := e.one(ctx, `SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))
  FROM pg_catalog.pg_stat_replication WHERE coalesce(application_name, '') <> 'pg_basebackup'`, &standbys, &synchronous)

	switch {
	case err != nil:
		return nil, err
	case standbys == 0:
		return fine("no standby follows"), nil
	case synchronous == 0:
		return found(Note, fmt.Sprintf("standbys: %d, none of them synchronous", standbys),
			"a fail-over can lose grants that were just made, so nothing is granted after it for as long as the longest lease",
			`leave it so; or set synchronous_standby_names for the one that will take over, and run "sqllock recovery --lossless"`), nil
	default:
		return fine("standbys: %d, synchronous: %d", standbys, synchronous), nil
	}
}

func postgresDurability(ctx context.Context, e *exam) ([]Finding, error) {
	var fsync, commit string

	err := e.one(ctx, `SELECT pg_catalog.current_setting('fsync'), pg_catalog.current_setting('synchronous_commit')`, &fsync, &commit)
	if err != nil {
		return nil, err
	}

	var findings []Finding

	if fsync == "off" {
		findings = append(findings, found(Warning, "fsync is off",
			"a crash of the machine can damage the tables and forget grants", "set fsync = on")...)
	}

	if commit == "off" {
		findings = append(findings, found(Warning, "synchronous_commit is off",
			"a crash of the server forgets grants that were just made, so that two can hold a lock for a lease",
			"ALTER ROLE ... SET synchronous_commit = on, or in the URL options=-csynchronous_commit%3Don")...)
	}

	if findings != nil {
		return findings, nil
	}

	var asynchronous bool

	// Without tables there are no grants.
	if _ = e.one(ctx, `SELECT run <> '' FROM sqllock_recovery WHERE id = 1`, &asynchronous); asynchronous {
		commit += ", but not for grants"
	}

	return fine("commits wait for the disk: synchronous_commit is %s", commit), nil
}

func postgresTimeouts(ctx context.Context, e *exam) ([]Finding, error) {
	var findings []Finding

	err := e.each(ctx, `SELECT name, setting::bigint FROM pg_catalog.pg_settings
 WHERE name IN ('idle_session_timeout', 'idle_in_transaction_session_timeout', 'statement_timeout', 'lock_timeout', 'transaction_timeout')
   AND (setting::bigint > 0 OR name = 'idle_in_transaction_session_timeout')
 ORDER BY name`, func(rows *sql.Rows) error {
		var (
			name  string
			milli int64
		)

		if err := rows.Scan(&name, &milli); err != nil {
			return err
		}

		if milli == 0 {
			findings = append(findings, unending(name+" is 0", "ALTER ROLE ... SET "+name+" = '5min' for those who guard transactions")...)
		} else {
			findings = append(findings, e.timeout(name, time.Duration(milli)*time.Millisecond)...)
		}

		return nil
	})
	if err != nil || len(findings) > 0 {
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
		"it ends guarded transactions that say nothing for so long",
		"nothing, if no guarded transaction says nothing for so long")
}

// unending is that no limit ends a transaction whose process has stopped.
func unending(what, fix string) []Finding {
	return found(Warning, what, "a process that stops within a guarded transaction keeps the name from everybody, "+
		"however short its lease was, until its connection ends", fix)
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
		return found(Note, fmt.Sprintf("%s is %s", name, limit), "it ends guarded transactions that last longer",
			"nothing, if no guarded transaction lasts longer")
	case limit < shortest:
		return found(Warning, fmt.Sprintf("%s is %s", name, limit),
			"under load renewals are cut off; one is tried again, but with forupdate and advisory the lock is lost",
			"raise "+name+" for the locks' user")
	default:
		return nil
	}
}

func postgresConnections(ctx context.Context, e *exam) (most, used int, err error) {
	err = e.one(ctx, `SELECT pg_catalog.current_setting('max_connections')::int - pg_catalog.current_setting('superuser_reserved_connections')::int,
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend')`, &most, &used)

	return most, used, err
}
