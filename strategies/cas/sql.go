package cas

import (
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// statements are the compare-and-set: the row is taken if it is free, one or many
// at a time. What all strategies do with a row, as its renewal and its release, is
// in package grants.
var statements = grants.Table[grants.Own]{
	databases.Postgres: {
		// FOR UPDATE, and not the weaker lock that an UPDATE of these columns
		// takes by itself: it is what a guard's FOR KEY SHARE stops. SKIP
		// LOCKED: a try waits neither for a guard nor for another try. A row
		// that changed since the statement began is judged again as it is now,
		// with a fresh clock
		// (https://www.postgresql.org/docs/current/transaction-iso.html#XACT-READ-COMMITTED).
		//
		// owner = $2 makes an attempt repeatable whose answer was lost, and
		// one that arrives late harmless: the token stays, and the lease is
		// not shortened.
		//
		// strategy = $10 matches nothing here, as a lease has no session. The
		// strategies whose locks a session holds send the same text, from package
		// grants, and need it: see Instead there. Two texts could come to differ, and
		// would not exclude each other.
		Acquire: databases.Statement{
			Name: "cas.acquire",
			SQL: `WITH free AS (
    SELECT name FROM sqllock_locks
     WHERE name = $1 AND token <> 0
       AND (expires_at + lock_delay_us::float * interval '1 microsecond' <= ` + grants.PostgresNow + ` OR owner = $2
            OR strategy = $10 AND (token = $11::bigint OR $11::bigint < 0))
       AND (waiting = 0 OR $13::boolean OR owner = $2)
       FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l
   SET token = CASE WHEN l.owner = $2 THEN l.token ELSE greatest(l.token + $12::bigint, ` + grants.PostgresMicros + `) END,
       owner = $2, expires_at = greatest(CASE WHEN l.owner = $2 THEN l.expires_at END,
                                         ` + grants.PostgresNow + ` + $3::float * interval '1 microsecond'),
       lock_delay_us = $4, acquired_at = ` + grants.PostgresNow + `, host = $5, pid = $6, label = $7, metadata = $8, strategy = $9, ended = '',
       waiting = CASE WHEN l.waiting = $14::bigint THEN 0 ELSE l.waiting END
  FROM free
 WHERE l.name = free.name
RETURNING l.token`,
			Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "session", "seen", "tokens", "first", "line"},
		},
		Batch: &grants.PostgresBatch,
	},

	databases.MySQL: {
		// UPDATE has no SKIP LOCKED, but a derived table has. LIMIT keeps MySQL
		// from merging it into the outer query and STRAIGHT_JOIN from reading
		// the rows to update first, with a lock that waits (seen on 9.7
		// without them; MariaDB 11.8 needs neither).
		//
		// free.owner is the owner before: assignments in an UPDATE of two
		// tables come in no certain order.
		//
		// LAST_INSERT_ID(expr) brings the token back with the answer, so that
		// it is one round trip on servers without UPDATE ... RETURNING
		// (https://dev.mysql.com/doc/refman/9.7/en/information-functions.html#function_last-insert-id).
		Acquire: databases.Statement{
			Name: "cas.acquire",
			SQL: `UPDATE (
    SELECT l.name, e.owner FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(?) AND l.token <> 0 AND (e.expires_at + l.lock_delay_us <= ` + grants.MySQLNow + ` OR e.owner = UNHEX(?)
            OR l.strategy = UNHEX(?) AND (l.token = ? OR ? < 0))
       AND (e.waiting = 0 OR ? OR e.owner = UNHEX(?))
     LIMIT 1 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_locks l ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e ON e.name = free.name
   SET l.token = LAST_INSERT_ID(IF(free.owner = UNHEX(?), l.token, GREATEST(l.token + ?, ` + grants.MySQLNow + `))), l.owner = UNHEX(?), l.lock_delay_us = ?,
       l.acquired_at = ` + grants.MySQLNow + `, l.host = UNHEX(?), l.pid = ?, l.label = UNHEX(?), l.metadata = UNHEX(?), l.strategy = UNHEX(?),
       e.ended = '', e.owner = UNHEX(?), e.wait = UNHEX(?),
       e.waiting = IF(e.waiting = ? AND e.waiting < ` + grants.MySQLNow + ` - 5000000, 0, e.waiting), e.expires_at = GREATEST(IF(free.owner = UNHEX(?), e.expires_at, 0), ` + grants.MySQLNow + ` + ?)`,
			Args: []string{
				"name", "owner", "session", "seen", "seen", "first", "owner", "owner", "tokens", "owner", "delay", "host", "pid", "label", "metadata", "strategy", "owner", "wait",
				"line", "owner", "lease",
			},
		},
		Batch: &grants.MySQLBatch,
	},

	// That of package grants. Without JSON_TABLE there are no batches, and several names are taken one by one
	// in a transaction.
	databases.TiDB: {
		Acquire: databases.Statement{Name: "cas.acquire", SQL: grants.TiDB.Acquire.SQL, Args: grants.TiDB.Acquire.Args},
	},

	databases.SQLite: {
		// One writer at a time: nothing to skip, and the row is made on the way.
		Acquire: databases.Statement{
			Name: "cas.acquire",
			SQL: `INSERT INTO sqllock_locks AS l
       (name, token, owner, expires_at, lock_delay_us, acquired_at, host, pid, label, metadata, strategy)
VALUES (?1, ` + grants.SQLiteFirst + `, ?2, ` + grants.SQLiteNow + ` + ?3, ?4, ` + grants.SQLiteNow + `, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE max(l.token + ?10, excluded.token) END,
       owner = excluded.owner, expires_at = max(l.expires_at, excluded.expires_at),
       lock_delay_us = excluded.lock_delay_us, acquired_at = excluded.acquired_at, host = excluded.host,
       pid = excluded.pid, label = excluded.label, metadata = excluded.metadata, strategy = excluded.strategy, ended = '',
       wait = ?13, waiting = CASE WHEN l.waiting = ?12 AND l.waiting < ` + grants.SQLiteNow + ` - 5000000 THEN 0 ELSE l.waiting END
 WHERE l.expires_at + l.lock_delay_us <= ` + grants.SQLiteNow + ` AND (l.waiting = 0 OR ?11) OR l.owner = excluded.owner
RETURNING token`,
			Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "tokens", "first", "line", "wait"},
		},
		Batch: &grants.SQLiteBatch,
	},
}
