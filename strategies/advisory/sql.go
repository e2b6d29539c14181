package advisory

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// statements are what is sent on the session that holds advisory locks. The
// lease is written down beside them, on the same session, by the statements of
// strategies/internal/grants; each commits by itself.
type statements struct {
	// refused says on what the strategy does not work, and why; empty where it does.
	refused string
	// key is what a name is called in the server's lock table, from its SHA-256, and keys are several as they are bound.
	key  func(sum [32]byte) any
	keys func(keys []any) any
	// identity tells the server's session, to see through a proxy that gives
	// one session to many clients.
	identity databases.Statement
	// namespace tells the database, or the table, that names belong to: advisory
	// locks know neither. It also returns the session's id, as session has it.
	namespace databases.Statement
	// limit lets the server end the session when nothing was heard from it for
	// so long: the lease, enforced by the server. Whatever is sent on the session is
	// the heartbeat. reset takes it back.
	limit, reset databases.Statement
	// tryShared takes the lock beside others who do so, and returns whether the session got it, and whether the server is
	// read-only: a replica grants too, and that is no lock. It is empty where there is no such lock.
	tryShared databases.Statement
	// unlock returns whether the session had the lock.
	unlock, unlockShared databases.Statement
	// acquire takes the lock and grants the name in one, and release ends the grant and frees the lock. They are about one
	// request, the -All about many, and look asks what became of those: see KeyedCall of package grants.
	acquire, acquireAll, release, releaseAll, look databases.Statement
	// unlockLeft unlocks those of some keys that the session has, if any, and returns for each whether it has it no more.
	unlockLeft databases.Statement
	// state reads the name's rows, behind whether the server is read-only; empty where acquire has refused that.
	state databases.Statement
	// acquireFromLine is made of that for who is in line.
	acquireFromLine databases.Statement
	// ping only asks.
	ping databases.Statement
	// session finds the session that has a lock, and kill ends it.
	session, kill databases.Statement
}

// postgresFree is true of a name's row, l, that an owner may have who has the key, as the compare-and-set of package grants has
// it. That of a session which has ended need not run out: whoever has the key replaces it, see Instead there.
//
// The key is tried if the row seems free, so that a try of a name that is held, or others wait for, does not keep its
// holder's next waiter from it for a moment. What then counts is the row as it is when it is locked, behind the key: the
// snapshot is older than that.
func postgresFree(owner, first string) string {
	return `
       AND (l.expires_at + l.lock_delay_us::float * interval '1 microsecond' <= ` + grants.PostgresNow + ` OR l.owner = ` + owner + ` OR l.strategy = '` + name + `')
       AND (l.waiting = 0 OR ` + first + `::boolean OR l.owner = ` + owner + `) AND l.token <> 0`
}

// postgresQuickly lets the commit of grants not wait for the disk, unless the largest token has to be there.
var postgresQuickly = `(SELECT ` + grants.PostgresAsyncGrant(`coalesce(pg_catalog.max(token), 0::bigint)`) + ` FROM granted)`

// own are the statements about many leases.
var own = grants.Table[grants.Own]{
	databases.Postgres: {Batch: &grants.PostgresBatch},
	databases.MySQL:    {Batch: &grants.MySQLBatch},
	databases.SQLite:   {},
}

var dialects = grants.Table[statements]{
	databases.SQLite: {refused: "on SQLite, which has no advisory locks"},
	// Named locks are row locks of a transaction of the server's own. With max-txn-ttl set to ten seconds a second session was
	// given a lock by 8.5, while IS_USED_LOCK told the first one that it had it:
	// https://docs.pingcap.com/tidb/stable/tidb-configuration-file/#max-txn-ttl
	databases.TiDB: {refused: "on TiDB, whose named locks end without a word after an hour"},

	databases.Postgres: {
		key: func(sum [32]byte) any {
			return int64(binary.BigEndian.Uint64(sum[:8])) // any 64 bits will do
		},
		keys:     func(keys []any) any { return grants.Array(keys) },
		identity: databases.Statement{Name: "advisory.identity", SQL: `SELECT pg_catalog.pg_backend_pid()::pg_catalog.text WHERE ` + grants.PostgresAtPrimary},
		// Keys are the database's; its sqllock_locks may be one of several,
		// in several schemas.
		namespace: databases.Statement{
			Name: "advisory.namespace",
			SQL: `SELECT 'sqllock_locks'::pg_catalog.regclass::pg_catalog.oid::pg_catalog.text, pg_catalog.pg_backend_pid()::bigint
 WHERE ` + grants.PostgresAtPrimary,
		},
		// idle_session_timeout is there from version 14 on. On 13 a client
		// that is frozen, and not dead, keeps its locks.
		limit: databases.Statement{
			Name: "advisory.limit",
			SQL: `SELECT CASE WHEN pg_catalog.current_setting('idle_session_timeout', true) IS NOT NULL
            THEN pg_catalog.set_config('idle_session_timeout', $1, false) END,
       pg_catalog.set_config('application_name', 'sqllock advisory', false)`,
			Args: []string{"limit"},
		},
		reset: databases.Statement{
			Name: "advisory.reset",
			SQL: `SELECT pg_catalog.set_config(name, reset_val, false) FROM pg_catalog.pg_settings
 WHERE name IN ('idle_session_timeout', 'application_name')`,
		},
		unlock: databases.Statement{
			Name: "advisory.release",
			SQL:  `SELECT pg_catalog.pg_advisory_unlock($1)`,
			Args: []string{"key"},
		},
		tryShared: databases.Statement{
			Name: "advisory.try-shared",
			SQL:  `SELECT pg_catalog.pg_try_advisory_lock_shared($1), pg_catalog.pg_is_in_recovery()`,
			Args: []string{"key"},
		},
		unlockShared: databases.Statement{
			Name: "advisory.release-shared",
			SQL:  `SELECT pg_catalog.pg_advisory_unlock_shared($1)`,
			Args: []string{"key"},
		},
		acquire: databases.Statement{
			Name: "advisory.acquire",
			SQL: `WITH seen AS MATERIALIZED (SELECT l.name, pg_catalog.pg_try_advisory_lock($13) AS ok FROM sqllock_locks l WHERE l.name = $1` + postgresFree("$2", "$10") + `), free AS (
    SELECT l.name FROM seen JOIN sqllock_locks l ON l.name = seen.name
     WHERE seen.ok` + postgresFree("$2", "$10") + `
       FOR UPDATE OF l SKIP LOCKED
), granted AS (
    UPDATE sqllock_locks l
       SET token = CASE WHEN l.owner = $2 THEN l.token ELSE greatest(l.token + $12::bigint, ` + grants.PostgresMicros + `) END,
           owner = $2, expires_at = greatest(CASE WHEN l.owner = $2 THEN l.expires_at END,
                                             ` + grants.PostgresNow + ` + $3::float * interval '1 microsecond'),
           lock_delay_us = $4, acquired_at = ` + grants.PostgresNow + `, host = $5, pid = $6, label = $7, metadata = $8, strategy = $9, ended = '',
           waiting = CASE WHEN l.waiting = $11::bigint THEN 0 ELSE l.waiting END
      FROM free WHERE l.name = free.name
    RETURNING l.token
)
SELECT $2::pg_catalog.text, seen.ok, coalesce((SELECT token FROM granted), 0::bigint), ` + postgresQuickly + ` FROM seen`,
			Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "first", "line", "tokens", "key"},
		},
		acquireAll: databases.Statement{
			Name: "advisory.acquire-all",
			SQL: `WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::bigint[], $4::bigint[], $5::pg_catalog.text[], $6::bigint[], $7::pg_catalog.text[], $8::pg_catalog.text[], $9::bigint[],
                         $11::boolean[], $12::bigint[], $14::pg_catalog.text[], $15::bigint[])
               AS a (name, owner, lease, delay, host, pid, label, metadata, tokens, first, line, wait, key)
), seen AS MATERIALIZED (
    SELECT a.*, pg_catalog.pg_try_advisory_lock(a.key) AS ok FROM asked a JOIN sqllock_locks l ON l.name = a.name COLLATE "C"
     WHERE true` + postgresFree("a.owner", "a.first") + `
), free AS MATERIALIZED (
    SELECT l.name, a.owner, a.wait FROM seen a JOIN sqllock_locks l ON l.name = a.name COLLATE "C"
     WHERE a.ok` + postgresFree("a.owner", "a.first") + `
     ORDER BY l.name
       FOR UPDATE OF l SKIP LOCKED
), queue AS (
    DELETE FROM sqllock_queue q USING free WHERE $13::pg_catalog.text <> '' AND q.process = $13 AND q.id = free.wait
), granted AS (
    UPDATE sqllock_locks l
       SET token = CASE WHEN l.owner = a.owner THEN l.token ELSE greatest(l.token + a.tokens, ` + grants.PostgresMicros + `) END,
           owner = a.owner, expires_at = greatest(CASE WHEN l.owner = a.owner THEN l.expires_at END,
                                                  ` + grants.PostgresNow + ` + a.lease::float * interval '1 microsecond'),
           lock_delay_us = a.delay, acquired_at = ` + grants.PostgresNow + `, host = a.host, pid = a.pid, label = a.label, metadata = a.metadata,
           strategy = $10, ended = '', waiting = CASE WHEN l.waiting = a.line THEN 0 ELSE l.waiting END
      FROM free JOIN seen a ON a.owner = free.owner
     WHERE l.name = free.name
    RETURNING l.owner, l.token
)
SELECT a.owner, a.ok, coalesce(g.token, 0::bigint), ` + postgresQuickly + `
  FROM seen a LEFT JOIN granted g ON g.owner = a.owner`,
			Args: []string{"names", "owners", "leases", "delays", "hosts", "pids", "labels", "metadatas", "tokens", "strategy", "firsts", "lines", "process", "waits", "keys"},
		},
		// The record first, while the key keeps others out, and the key of a record only that was ended: until the first part has
		// returned it there is no row here. The key is free a moment before the commit. Whoever takes it by then cannot take the record
		// before, because the row is locked, and skips it: the name is not free yet. Once it is committed they have the row as it is then,
		// whatever their snapshot shows. If the commit fails, they replace what it says, as of a session that
		// has ended, and the caller finds that out. So it notifies nobody: that can make the commit fail.
		release: databases.Statement{
			Name: "advisory.release",
			SQL: `WITH ended AS (
    UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
     WHERE name = $1 AND owner = $2 AND ` + grants.PostgresAsync("$3") + `
    RETURNING l.waiting <> 0 AS contended
)
SELECT $2::pg_catalog.text, e.contended, pg_catalog.pg_advisory_unlock($4) FROM ended e`,
			Args: []string{"name", "owner", "durable", "key"},
		},
		// A name whose row somebody has locked keeps its key, as it keeps its record.
		releaseAll: databases.Statement{
			Name: "advisory.release-all",
			SQL: `WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $4::bigint[]) AS a (name, owner, key)
), ours AS MATERIALIZED (
    SELECT l.name, l.owner FROM asked a JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
     WHERE ` + grants.PostgresAsync("$3") + `
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
), ended AS (
    UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
      FROM ours WHERE l.name = ours.name
    RETURNING ours.owner, l.waiting <> 0 AS contended
)
SELECT e.owner, e.contended, pg_catalog.pg_advisory_unlock(a.key) FROM ended e JOIN asked a ON a.owner = e.owner`,
			Args: []string{"names", "owners", "durable", "keys"},
		},
		// An error takes no key back. That the session has none of them is no fault, but a warning in the server's log, so it
		// is asked first which it has.
		unlockLeft: databases.Statement{
			Name: "advisory.release-left",
			SQL: `SELECT pg_catalog.pg_advisory_unlock(k.key) FROM pg_catalog.unnest($1::bigint[]) AS k (key) WHERE k.key IN (
    SELECT (classid::bigint << 32) | objid::bigint FROM pg_catalog.pg_locks
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND mode = 'ExclusiveLock' AND pid = pg_catalog.pg_backend_pid())`,
			Args: []string{"keys"},
		},
		ping: databases.Statement{Name: "advisory.check", SQL: `SELECT 1 WHERE ` + grants.PostgresAtPrimary},
		// A 64-bit key is shown as two halves
		// (https://www.postgresql.org/docs/current/view-pg-locks.html).
		session: databases.Statement{
			Name: "advisory.session",
			SQL: `SELECT pid FROM pg_catalog.pg_locks
 WHERE locktype = 'advisory' AND granted AND objsubid = 1
   AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
   AND (classid::bigint << 32) | objid::bigint = $1::bigint AND ` + grants.PostgresAtPrimary,
			Args: []string{"key"},
		},
		kill: databases.Statement{
			Name: "advisory.kill",
			SQL:  `SELECT pg_catalog.pg_terminate_backend($1::bigint::int)`,
			Args: []string{"id"},
		},
	},

	databases.MySQL: {
		// At most 64 characters, and MySQL does not tell case: hexadecimal.
		key:  func(sum [32]byte) any { return "sqllock:" + hex.EncodeToString(sum[:20]) },
		keys: func(keys []any) any { return grants.JSON(keys) },
		identity: databases.Statement{
			Name: "advisory.identity",
			SQL:  `SELECT CAST(CONNECTION_ID() AS CHAR)`,
		},
		// Named locks are the server's. The name's bytes, and not what they
		// become in the character set of the connection.
		namespace: databases.Statement{
			Name: "advisory.namespace",
			SQL:  `SELECT COALESCE(CAST(DATABASE() AS BINARY), ''), CONNECTION_ID()`,
		},
		limit: databases.Statement{
			Name: "advisory.limit",
			SQL: `SET @sqllock_wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@SESSION.wait_timeout) AS UNSIGNED), ` +
				`SESSION wait_timeout = ?`,
			Args: []string{"limit"},
		},
		reset: databases.Statement{
			Name: "advisory.reset",
			SQL: `SET SESSION wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@GLOBAL.wait_timeout) AS UNSIGNED), ` +
				`@sqllock_wait_timeout = NULL`,
		},
		unlock: databases.Statement{
			Name: "advisory.release",
			SQL:  `SELECT ` + grants.MySQLUnlocked("UNHEX(?)"),
			Args: []string{"key", "key"},
		},
		acquire:    grants.MySQLKeyed.Acquire,
		acquireAll: grants.MySQLKeyed.AcquireAll,
		state:      grants.MySQLKeyed.State,
		release:    grants.MySQLKeyed.Release,
		releaseAll: grants.MySQLKeyed.ReleaseAll,
		look:       grants.MySQLKeyed.Look,
		unlockLeft: grants.MySQLKeyed.UnlockLeft,
		ping:       databases.Statement{Name: "advisory.check", SQL: `SELECT 1`},
		session: databases.Statement{
			Name: "advisory.session",
			SQL:  `SELECT id FROM (SELECT IS_USED_LOCK(UNHEX(?)) AS id) used WHERE id IS NOT NULL`,
			Args: []string{"key"},
		},
		// KILL takes no parameter: the id goes behind it, see Kill in grants.MySQL.
		kill: databases.Statement{Name: "advisory.kill", SQL: `KILL `},
	},
}
