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
		// What insert sends, too.
		Acquire: grants.MySQLAcquire("cas.acquire"),
		Batch:   &grants.MySQLBatch,
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
