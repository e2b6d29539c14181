package forupdate

import (
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// statements are what is sent on the connection that holds the lock, and about
// it. The lease is written down beside it by the statements of
// strategies/internal/grants, on another connection: a token drawn in
// the transaction that holds the lock would be rolled back by a crash, and
// given out again.
type statements struct {
	// refused says on what the strategy does not work, and why; empty where it does.
	refused string
	// create makes the row to lock, on another connection: FOR UPDATE of a
	// row that is not there locks nothing and is no error.
	exists, create databases.Statement
	// begin opens the transaction, which uses sqllock_mutexes and no other table:
	// until it ends it keeps others from changing what it has used. lock takes the
	// row, and returns what the server knows the lock by, or nothing if another session has it; lockShared beside others
	// who do so. limit lets
	// the server end the session when nothing was heard from it for so long: the
	// lease, enforced by the server; sending it again is the heartbeat. Either begin or lock does so, too. If it binds
	// nothing, the limit goes behind its text.
	begin                   []databases.Statement
	limit, lock, lockShared databases.Statement
	// quiet has limit sent behind lock, too.
	quiet bool
	// end frees the row, and leaves the session as it was found.
	end []databases.Statement
	// sessions finds sessions of holders whose lease expired, session that of
	// one owner, and kill ends one.
	sessions, session, kill databases.Statement
}

// postgresLimit is a condition, always true, that has settings of the transaction, gone with it. application_name marks
// the session with its owner, for the reaper and for people. transaction_timeout, from version 17 on, would end a
// holder that is alive. Milliseconds, as text.
const postgresLimit = `pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true) IS NOT NULL
   AND pg_catalog.set_config('application_name', $2, true) IS NOT NULL
   AND CASE WHEN pg_catalog.current_setting('transaction_timeout', true) IS NULL THEN true
            ELSE pg_catalog.set_config('transaction_timeout', '0', true) IS NOT NULL END`

// postgresRenew is a SET, which reads nothing. What the driver has read last stays open in the transaction, with its
// snapshot, until the next statement takes its place
// (https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY): a SELECT would show in
// pg_stat_activity.backend_xmin, and every CREATE INDEX CONCURRENTLY in the database would wait for the lock's release.
// pgpool-II sends a SET to all servers. It takes no parameter.
var postgresRenew = databases.Statement{Name: "forupdate.renew", SQL: `SET LOCAL idle_in_transaction_session_timeout = `}

// postgresLock takes the row, and only then sets the limit: what is selected is computed before rows are locked
// (https://www.postgresql.org/docs/current/sql-select.html#SQL-FOR-UPDATE-SHARE). The transaction's number says whether
// it goes on.
func postgresLock(name, strength string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `SELECT CASE WHEN ` + postgresLimit + `
            THEN pg_catalog.pg_current_xact_id()::pg_catalog.text END
  FROM (SELECT name FROM sqllock_mutexes WHERE name = $3 ` + strength + ` SKIP LOCKED) locked`,
		Args: []string{"limit", "session", "name"},
	}
}

// mysqlLimit: wait_timeout is in whole seconds. What it was before is kept once: a
// renewal finds the variable set.
var mysqlLimit = databases.Statement{
	Name: "forupdate.renew",
	SQL:  `SET @sqllock_wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@SESSION.wait_timeout) AS UNSIGNED), SESSION wait_timeout = ?`,
	Args: []string{"limit"},
}

// own are the statements about the record that are not those of all strategies.
var own = grants.Table[grants.Own]{
	databases.Postgres: {Acquire: grants.PostgresHeld(grants.Postgres.Acquire)},
	databases.MySQL:    {Acquire: grants.MySQLHeld},
	databases.SQLite:   {}, // refused below
}

var dialects = grants.Table[statements]{
	databases.SQLite: {refused: "on SQLite, which locks the whole file and no rows"},
	// max-txn-ttl, an hour by default: https://docs.pingcap.com/tidb/stable/tidb-configuration-file/#max-txn-ttl
	databases.TiDB: {refused: "on TiDB, whose row locks end without a word when their transaction is an hour old"},

	databases.Postgres: {
		exists: databases.Statement{
			Name: "forupdate.exists",
			SQL:  `SELECT 1 FROM sqllock_mutexes WHERE name = $1 AND ` + grants.PostgresAtPrimary,
			Args: []string{"name"},
		},
		create: databases.Statement{
			Name: "forupdate.create",
			SQL:  `INSERT INTO sqllock_mutexes (name) SELECT $1::pg_catalog.text WHERE ` + grants.PostgresBriefly + ` ON CONFLICT DO NOTHING`,
			Args: []string{"name"},
		},
		begin: []databases.Statement{{Name: "forupdate.begin", SQL: `BEGIN ISOLATION LEVEL READ COMMITTED`}},

		limit:      postgresRenew,
		quiet:      true,
		lock:       postgresLock("forupdate.lock", "FOR UPDATE"),
		lockShared: postgresLock("forupdate.lock-shared", "FOR SHARE"),

		end: []databases.Statement{{Name: "forupdate.release", SQL: `ROLLBACK`}},
		sessions: databases.Statement{
			Name: "forupdate.sessions",
			SQL: `SELECT a.pid
  FROM sqllock_locks l JOIN pg_catalog.pg_stat_activity a ON a.application_name = 'sqllock:' || l.owner
 WHERE l.strategy = 'forupdate' AND l.owner <> '' AND l.expires_at <= ` + grants.PostgresNow + `
   AND a.datname = pg_catalog.current_database()
 UNION
SELECT a.pid
  FROM sqllock_shares s JOIN pg_catalog.pg_stat_activity a ON a.application_name = 'sqllock:' || s.owner
 WHERE s.expires_at <= ` + grants.PostgresNow + ` AND a.datname = pg_catalog.current_database()`,
		},
		session: databases.Statement{
			Name: "forupdate.session",
			SQL: `SELECT pid FROM pg_catalog.pg_stat_activity
 WHERE application_name = $1 AND datname = pg_catalog.current_database() AND ` + grants.PostgresAtPrimary,
			Args: []string{"session"},
		},
		kill: databases.Statement{
			Name: "forupdate.kill",
			SQL:  `SELECT pg_catalog.pg_terminate_backend($1::bigint::int)`,
			Args: []string{"id"},
		},
	},

	databases.MySQL: {
		exists: databases.Statement{
			Name: "forupdate.exists",
			SQL:  `SELECT 1 FROM sqllock_mutexes WHERE name = UNHEX(?)`,
			Args: []string{"name"},
		},
		create: databases.Statement{
			Name: "forupdate.create",
			SQL:  `INSERT INTO sqllock_mutexes (name) VALUES (UNHEX(?)) ON DUPLICATE KEY UPDATE name = sqllock_mutexes.name`,
			Args: []string{"name"},
		},
		// For the next transaction alone. Under REPEATABLE READ it would lock the
		// gap of a name that has no row, against the making of rows beside it
		// (https://dev.mysql.com/doc/refman/9.7/en/innodb-locks-set.html).
		begin: []databases.Statement{
			{Name: "forupdate.isolate", SQL: `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`},
			{Name: "forupdate.begin", SQL: `START TRANSACTION`},
			mysqlLimit,
		},
		// The row lock is the transaction's: a deadlock or an implicit commit
		// would end it and not the session. Nothing else runs here, so the
		// session is what can go.
		limit: mysqlLimit,

		// The named lock marks the session with its owner, for the reaper:
		// connection ids start again with the server.
		lock: databases.Statement{
			Name: "forupdate.lock",
			SQL: `SELECT UNHEX(?) FROM sqllock_mutexes WHERE name = UNHEX(?) AND GET_LOCK(UNHEX(?), 0) IS NOT NULL
   FOR UPDATE SKIP LOCKED`,
			Args: []string{"session", "name", "session"},
		},
		// MySQL's form, and MariaDB's, which takes what is for MySQL from 5.7 on for a comment
		// (https://mariadb.com/docs/server/reference/sql-statements/comment-syntax).
		lockShared: databases.Statement{
			Name: "forupdate.lock-shared",
			SQL: `SELECT UNHEX(?) FROM sqllock_mutexes WHERE name = UNHEX(?) AND GET_LOCK(UNHEX(?), 0) IS NOT NULL
   /*!80000 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */`,
			Args: []string{"session", "name", "session"},
		},
		end: []databases.Statement{
			{Name: "forupdate.release", SQL: `ROLLBACK`},
			{Name: "forupdate.unmark", SQL: `DO RELEASE_LOCK(UNHEX(?))`, Args: []string{"session"}},
			{
				Name: "forupdate.reset",
				SQL: `SET SESSION wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@GLOBAL.wait_timeout) AS UNSIGNED), ` +
					`@sqllock_wait_timeout = NULL`,
			},
		},
		// A phase has no session of its own, and is longer than the name of a lock may be (error 4163).
		sessions: databases.Statement{
			Name: "forupdate.sessions",
			SQL: `SELECT IS_USED_LOCK(CONCAT('sqllock:', CONVERT(e.owner USING utf8mb4)))
  FROM sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
 WHERE l.strategy = 'forupdate' AND e.owner <> ''
   AND e.expires_at <= ` + grants.MySQLNow + `
   AND IF(LENGTH(e.owner) > 56, NULL, IS_USED_LOCK(CONCAT('sqllock:', CONVERT(e.owner USING utf8mb4)))) IS NOT NULL
 UNION
SELECT IS_USED_LOCK(CONCAT('sqllock:', CONVERT(s.owner USING utf8mb4))) FROM sqllock_shares s
 WHERE s.expires_at <= ` + grants.MySQLNow + ` AND IS_USED_LOCK(CONCAT('sqllock:', CONVERT(s.owner USING utf8mb4))) IS NOT NULL`,
		},
		session: databases.Statement{
			Name: "forupdate.session",
			SQL:  `SELECT id FROM (SELECT IS_USED_LOCK(UNHEX(?)) AS id) used WHERE id IS NOT NULL`,
			Args: []string{"session"},
		},
		// KILL takes no parameter: the id goes behind it, see Kill in grants.MySQL.
		kill: databases.Statement{Name: "forupdate.kill", SQL: `KILL `},
	},
}
