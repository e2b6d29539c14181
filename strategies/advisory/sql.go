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
	// key is what a name is called in the server's lock table, from its SHA-256.
	key func(sum [32]byte) any
	// identity tells the server's session, to see through a proxy that gives
	// one session to many clients.
	identity databases.Statement
	// namespace tells the database, or the table, that names belong to: advisory
	// locks know neither. It also returns the session's id, as session has it.
	namespace databases.Statement
	// limit lets the server end the session when nothing was heard from it for
	// so long: the lease, enforced by the server; sending it again is the
	// heartbeat. reset takes it back.
	limit, reset databases.Statement
	// try returns whether the session got the lock, and whether the server is
	// read-only: a replica grants too, and that is no lock.
	// The shared ones take it beside others who do so; they are empty where there is no such lock.
	try, tryShared databases.Statement
	// unlock returns whether the session had the lock.
	unlock, unlockShared databases.Statement
	// ping only asks.
	ping databases.Statement
	// session finds the session that has a lock, and kill ends it.
	session, kill databases.Statement
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
			Name: "advisory.renew",
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
		try: databases.Statement{
			Name: "advisory.try",
			SQL:  `SELECT pg_catalog.pg_try_advisory_lock($1), pg_catalog.pg_is_in_recovery()`,
			Args: []string{"key"},
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
		key: func(sum [32]byte) any { return "sqllock:" + hex.EncodeToString(sum[:20]) },
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
			Name: "advisory.renew",
			SQL: `SET @sqllock_wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@SESSION.wait_timeout) AS UNSIGNED), ` +
				`SESSION wait_timeout = ?`,
			Args: []string{"limit"},
		},
		reset: databases.Statement{
			Name: "advisory.reset",
			SQL: `SET SESSION wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@GLOBAL.wait_timeout) AS UNSIGNED), ` +
				`@sqllock_wait_timeout = NULL`,
		},
		// Only 1 is a lock: 0 is somebody else's, NULL an error.
		try: databases.Statement{
			Name: "advisory.try",
			SQL:  `SELECT COALESCE(GET_LOCK(UNHEX(?), 0), 0) = 1, @@global.read_only`,
			Args: []string{"key"},
		},
		unlock: databases.Statement{
			Name: "advisory.release",
			SQL:  `SELECT COALESCE(RELEASE_LOCK(UNHEX(?)), 0) = 1`,
			Args: []string{"key"},
		},
		ping: databases.Statement{Name: "advisory.check", SQL: `SELECT 1`},
		session: databases.Statement{
			Name: "advisory.session",
			SQL:  `SELECT id FROM (SELECT IS_USED_LOCK(UNHEX(?)) AS id) used WHERE id IS NOT NULL`,
			Args: []string{"key"},
		},
		// KILL takes no parameter: the id goes behind it, see Kill in grants.MySQL.
		kill: databases.Statement{Name: "advisory.kill", SQL: `KILL `},
	},
}
