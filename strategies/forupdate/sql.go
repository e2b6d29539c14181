package forupdate

import "github.com/sqllock/sqllock/databases"

// statements are what is sent on the connection that holds the lock, and about
// it. The lease is written down beside it by the statements of
// strategies/internal/record/sql.go, on another connection: a token drawn in
// the transaction that holds the lock would be rolled back by a crash, and
// given out again.
type statements struct {
	// create makes the row to lock, on another connection: FOR UPDATE of a
	// row that is not there locks nothing and is no error.
	exists, create databases.Statement
	// begin opens the transaction. lock takes the row, and returns its name,
	// or nothing if another session has it. limit lets the server end the
	// session when nothing was heard from it for so long: the lease, enforced
	// by the server; sending it again is the heartbeat.
	begin       []databases.Statement
	limit, lock databases.Statement
	// ping only asks.
	ping databases.Statement
	// end frees the row, and leaves the session as it was found.
	end []databases.Statement
	// sessions finds sessions of holders whose lease ran out, session that of
	// one owner, and kill ends one.
	sessions, session, kill databases.Statement
}

var dialects = map[databases.Dialect]statements{
	databases.Postgres: {
		exists: databases.Statement{
			Name: "forupdate.exists",
			SQL:  `SELECT 1 FROM sqllock_mutexes WHERE name = $1`,
			Args: []string{"name"},
		},
		create: databases.Statement{
			Name: "forupdate.create",
			SQL:  `INSERT INTO sqllock_mutexes (name) VALUES ($1) ON CONFLICT DO NOTHING`,
			Args: []string{"name"},
		},
		begin: []databases.Statement{{Name: "forupdate.begin", SQL: `BEGIN ISOLATION LEVEL READ COMMITTED`}},

		// Settings of the transaction, gone with it. application_name marks
		// the session with its owner, for the reaper and for people.
		// transaction_timeout, from version 17 on, would end a holder that is
		// alive. Milliseconds, as text.
		limit: databases.Statement{
			Name: "forupdate.renew",
			SQL: `SELECT set_config('idle_in_transaction_session_timeout', $1, true),
       set_config('application_name', $2, true),
       CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
            THEN set_config('transaction_timeout', '0', true) END`,
			Args: []string{"limit", "session"},
		},
		lock: databases.Statement{
			Name: "forupdate.lock",
			SQL:  `SELECT name FROM sqllock_mutexes WHERE name = $1 FOR UPDATE SKIP LOCKED`,
			Args: []string{"name"},
		},
		ping: databases.Statement{Name: "forupdate.check", SQL: `SELECT 1`},
		end:  []databases.Statement{{Name: "forupdate.release", SQL: `ROLLBACK`}},
		sessions: databases.Statement{
			Name: "forupdate.sessions",
			SQL: `SELECT a.pid
  FROM sqllock_locks l JOIN pg_stat_activity a ON a.application_name = 'sqllock:' || l.owner
 WHERE l.strategy = 'forupdate' AND l.owner <> '' AND l.expires_at <= clock_timestamp()
   AND a.datname = current_database()`,
		},
		session: databases.Statement{
			Name: "forupdate.session",
			SQL:  `SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`,
			Args: []string{"session"},
		},
		kill: databases.Statement{
			Name: "forupdate.kill",
			SQL:  `SELECT pg_terminate_backend($1::bigint::int)`,
			Args: []string{"id"},
		},
	},

	databases.MySQL: {
		exists: databases.Statement{
			Name: "forupdate.exists",
			SQL:  `SELECT 1 FROM sqllock_mutexes WHERE name = ?`,
			Args: []string{"name"},
		},
		create: databases.Statement{
			Name: "forupdate.create",
			SQL:  `INSERT INTO sqllock_mutexes (name) VALUES (?) ON DUPLICATE KEY UPDATE name = sqllock_mutexes.name`,
			Args: []string{"name"},
		},
		// For the next transaction alone. Under SERIALIZABLE the record that is
		// read in it would be locked by that, against being written beside it
		// (https://dev.mysql.com/doc/refman/9.7/en/set-transaction.html).
		begin: []databases.Statement{
			{Name: "forupdate.isolate", SQL: `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`},
			{Name: "forupdate.begin", SQL: `START TRANSACTION`},
		},

		// wait_timeout is in whole seconds. What it was before is kept once:
		// a renewal finds the variable set.
		limit: databases.Statement{
			Name: "forupdate.renew",
			SQL:  `SET @sqllock_wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@SESSION.wait_timeout) AS UNSIGNED), SESSION wait_timeout = ?`,
			Args: []string{"limit"},
		},

		// The named lock marks the session with its owner, for the reaper:
		// connection ids start again with the server.
		lock: databases.Statement{
			Name: "forupdate.lock",
			SQL: `SELECT name FROM sqllock_mutexes WHERE name = ? AND GET_LOCK(?, 0) IS NOT NULL
   FOR UPDATE SKIP LOCKED`,
			Args: []string{"name", "session"},
		},
		// The row lock is the transaction's: a deadlock or an implicit commit
		// would end it and not the session. Nothing else runs here, so the
		// session is what can go.
		ping: databases.Statement{Name: "forupdate.check", SQL: `SELECT 1`},
		end: []databases.Statement{
			{Name: "forupdate.release", SQL: `ROLLBACK`},
			{Name: "forupdate.unmark", SQL: `DO RELEASE_LOCK(?)`, Args: []string{"session"}},
			{
				Name: "forupdate.reset",
				SQL: `SET SESSION wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@GLOBAL.wait_timeout) AS UNSIGNED), ` +
					`@sqllock_wait_timeout = NULL`,
			},
		},
		sessions: databases.Statement{
			Name: "forupdate.sessions",
			SQL: `SELECT IS_USED_LOCK(CONCAT('sqllock:', CONVERT(e.owner USING utf8mb4)))
  FROM sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
 WHERE l.strategy = 'forupdate' AND e.owner <> ''
   AND e.expires_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
   AND IS_USED_LOCK(CONCAT('sqllock:', CONVERT(e.owner USING utf8mb4))) IS NOT NULL`,
		},
		session: databases.Statement{
			Name: "forupdate.session",
			SQL:  `SELECT id FROM (SELECT IS_USED_LOCK(?) AS id) used WHERE id IS NOT NULL`,
			Args: []string{"session"},
		},
		// KILL takes no parameter; see (*record.Store).Kill.
		kill: databases.Statement{Name: "forupdate.kill", SQL: `KILL `},
	},
}
