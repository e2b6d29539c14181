package advisory

import "github.com/sqllock/sqllock/databases"

// statements are what is sent on the session that holds advisory locks. The
// lease is written down beside them, on the same session, by the statements of
// strategies/internal/record/sql.go; each commits by itself.
type statements struct {
	// identity tells the server's session, to see through a proxy that gives
	// one session to many clients.
	identity databases.Statement
	// namespace tells the database, or the table, that names belong to:
	// advisory locks know neither.
	namespace databases.Statement
	// limit lets the server end the session when nothing was heard from it for
	// so long: the lease, enforced by the server; sending it again is the
	// heartbeat. reset takes it back.
	limit, reset databases.Statement
	// try returns whether the session got the lock, and whether the server is
	// read-only: a replica grants too, and that is no lock.
	try databases.Statement
	// unlock returns whether the session had the lock.
	unlock databases.Statement
	// ping only asks.
	ping databases.Statement
	// session finds the session that has a lock, and kill ends it.
	session, kill databases.Statement
}

var dialects = map[databases.Dialect]statements{
	databases.Postgres: {
		identity: databases.Statement{Name: "advisory.identity", SQL: `SELECT pg_backend_pid()::text`},
		// Keys are the database's; its sqllock_locks may be one of several,
		// in several schemas.
		namespace: databases.Statement{
			Name: "advisory.namespace",
			SQL:  `SELECT 'sqllock_locks'::regclass::oid::text`,
		},
		// idle_session_timeout is there from version 14 on. On 13 a client
		// that is frozen, and not dead, keeps its locks.
		limit: databases.Statement{
			Name: "advisory.renew",
			SQL: `SELECT CASE WHEN current_setting('idle_session_timeout', true) IS NOT NULL
            THEN set_config('idle_session_timeout', $1, false) END,
       set_config('application_name', 'sqllock advisory', false)`,
			Args: []string{"limit"},
		},
		reset: databases.Statement{
			Name: "advisory.reset",
			SQL: `SELECT set_config(name, reset_val, false) FROM pg_settings
 WHERE name IN ('idle_session_timeout', 'application_name')`,
		},
		try: databases.Statement{
			Name: "advisory.try",
			SQL:  `SELECT pg_try_advisory_lock($1), pg_is_in_recovery()`,
			Args: []string{"key"},
		},
		unlock: databases.Statement{
			Name: "advisory.release",
			SQL:  `SELECT pg_advisory_unlock($1)`,
			Args: []string{"key"},
		},
		ping: databases.Statement{Name: "advisory.check", SQL: `SELECT 1`},
		// A 64-bit key is shown as two halves
		// (https://www.postgresql.org/docs/current/view-pg-locks.html).
		session: databases.Statement{
			Name: "advisory.session",
			SQL: `SELECT pid FROM pg_locks
 WHERE locktype = 'advisory' AND granted AND objsubid = 1
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND (classid::bigint << 32) | objid::bigint = $1::bigint`,
			Args: []string{"key"},
		},
		kill: databases.Statement{
			Name: "advisory.kill",
			SQL:  `SELECT pg_terminate_backend($1::bigint::int)`,
			Args: []string{"id"},
		},
	},

	databases.MySQL: {
		identity: databases.Statement{
			Name: "advisory.identity",
			SQL:  `SELECT CAST(CONNECTION_ID() AS CHAR)`,
		},
		// Named locks are the server's.
		namespace: databases.Statement{
			Name: "advisory.namespace",
			SQL:  `SELECT COALESCE(DATABASE(), '')`,
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
			SQL:  `SELECT COALESCE(GET_LOCK(?, 0), 0) = 1, @@global.read_only`,
			Args: []string{"key"},
		},
		unlock: databases.Statement{
			Name: "advisory.release",
			SQL:  `SELECT COALESCE(RELEASE_LOCK(?), 0) = 1`,
			Args: []string{"key"},
		},
		ping: databases.Statement{Name: "advisory.check", SQL: `SELECT 1`},
		session: databases.Statement{
			Name: "advisory.session",
			SQL:  `SELECT id FROM (SELECT IS_USED_LOCK(?) AS id) used WHERE id IS NOT NULL`,
			Args: []string{"key"},
		},
		// KILL takes no parameter; see (*record.Store).Kill.
		kill: databases.Statement{Name: "advisory.kill", SQL: `KILL `},
	},
}
