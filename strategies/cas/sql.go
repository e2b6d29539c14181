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
		Batch: &grants.Batch{
			Create: []databases.Statement{{
				Name: "cas.create-all",
				SQL: `INSERT INTO sqllock_locks (name, acquired_at) SELECT n, ` + grants.PostgresNow + ` FROM pg_catalog.unnest($1::pg_catalog.text[]) n
 WHERE ` + grants.PostgresBriefly + ` AND ` + grants.PostgresAsync("false") + ` ORDER BY n COLLATE "C" ON CONFLICT DO NOTHING`,
				Args: []string{"names"},
			}, {
				// In order, as others do the same.
				Name: "cas.ready-all",
				SQL: `WITH made AS MATERIALIZED (
    SELECT name FROM sqllock_locks
     WHERE name = ANY ($1::pg_catalog.text[]) AND token = 0 AND ` + grants.PostgresBriefly + ` AND ` + grants.PostgresAsync("false") + `
     ORDER BY name
       FOR NO KEY UPDATE
)
UPDATE sqllock_locks l SET token = ` + grants.PostgresFloor + ` FROM made WHERE l.name = made.name`,
				Args: []string{"names"},
			}},
			// Of two requests for one name at most one is granted: the row changes
			// once, and only what RETURNING says is a grant.
			Acquire: postgresAcquireAll("cas.acquire-all", ""),
			Group: postgresAcquireAll("cas.acquire-group", `
   AND (SELECT pg_catalog.count(*) FROM free) = (SELECT pg_catalog.count(*) FROM asked)`),
			State: databases.Statement{
				Name: "cas.state-all",
				SQL: `SELECT name, owner, token, ended, (pg_catalog.date_part('epoch', expires_at - ` + grants.PostgresNow + `) * 1000000::float)::bigint,
       lock_delay_us, host, pid, label, metadata, waiting
  FROM sqllock_locks WHERE name = ANY ($1::pg_catalog.text[])`,
				Args: []string{"names"},
			},
			Renew: databases.Statement{
				Name: "cas.renew-all",
				SQL: `WITH ours AS MATERIALIZED (
    SELECT l.name FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS a (name, owner)
      JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE sqllock_locks l
   SET expires_at = greatest(expires_at, ` + grants.PostgresNow + ` + $3::float * interval '1 microsecond')
  FROM ours WHERE l.name = ours.name
RETURNING l.owner, false`,
				Args: []string{"names", "owners", "lease"},
			},
			Release: databases.Statement{
				Name: "cas.release-all",
				SQL: `WITH ours AS MATERIALIZED (
    SELECT l.name, l.owner FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS a (name, owner)
      JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
     WHERE ` + grants.PostgresAsync("$3") + `
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
  FROM ours WHERE l.name = ours.name
RETURNING ours.owner, ` + grants.PostgresTell,
				Args: []string{"names", "owners", "durable"},
			},
		},
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
		Batch: &grants.Batch{
			Create: []databases.Statement{
				{
					Name: "cas.create-all",
					SQL: `INSERT INTO sqllock_locks (name, acquired_at) SELECT a.name, ` + grants.MySQLNow + ` FROM ` + asked + ` ORDER BY a.name
    ON DUPLICATE KEY UPDATE name = sqllock_locks.name`,
					Args: []string{"calls"},
				},
				{
					Name: "cas.create-all-leases",
					SQL: `INSERT INTO sqllock_leases (name) SELECT a.name FROM ` + asked + ` ORDER BY a.name
    ON DUPLICATE KEY UPDATE name = sqllock_leases.name`,
					Args: []string{"calls"},
				},
				{
					Name: "cas.ready-all",
					SQL: `UPDATE (
    SELECT l.name FROM ` + asked + ` STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
     WHERE l.token = 0
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) made
STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = made.name
  LEFT JOIN sqllock_floor f ON true
   SET l.token = GREATEST(1, COALESCE(f.token, 0))`,
					Args: []string{"calls"},
				},
			},
			Acquire: mysqlAcquireAll("cas.acquire-all", free, ""),
			// How many are free is counted of the rows that were locked.
			Group: mysqlAcquireAll("cas.acquire-group", `(SELECT f.*, COUNT(*) OVER () AS n FROM `+free+` f LIMIT 1000)`, `
 WHERE free.n = ?`, "count"),
			State: databases.Statement{
				Name: "cas.state-all",
				SQL: `SELECT l.name, e.owner, l.token, e.ended, e.expires_at - ` + grants.MySQLNow + `, l.lock_delay_us, l.host, l.pid, l.label, l.metadata, e.waiting
  FROM ` + asked + ` STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name`,
				Args: []string{"calls"},
			},
			Renew: databases.Statement{
				Name: "cas.renew-all",
				SQL: `UPDATE ` + ours + `
   SET e.expires_at = GREATEST(e.expires_at, LAST_INSERT_ID(` + grants.MySQLNow + `) + ?)`,
				Args: []string{"calls", "lease"},
			},
			Release: databases.Statement{
				Name: "cas.release-all",
				SQL: `UPDATE ` + ours + `
   SET e.owner = '', e.expires_at = IF(e.waiting <> 0, 0 * LAST_INSERT_ID(1), 0)`,
				Args: []string{"calls"},
			},
			Leases: databases.Statement{
				Name: "cas.leases-all",
				SQL: `SELECT e.name, e.owner, e.expires_at FROM ` + asked + `
    STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.owner = a.owner`,
				Args: []string{"calls"},
			},
		},
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
		Batch: &grants.Batch{
			Create: []databases.Statement{{
				Name: "cas.create-all",
				SQL: `INSERT INTO sqllock_locks (name, acquired_at) SELECT value ->> 'name', ` + grants.SQLiteNow + ` FROM json_each(?1) WHERE true
    ON CONFLICT DO NOTHING`,
				Args: []string{"calls"},
			}},
			Acquire: sqliteAcquireAll("cas.acquire-all", "true"),
			Group: sqliteAcquireAll("cas.acquire-group", `NOT EXISTS (
    SELECT 1 FROM asked b JOIN sqllock_locks t ON t.name = b.name
     WHERE (t.expires_at + t.lock_delay_us > `+grants.SQLiteNow+` OR t.waiting <> 0 AND NOT b.first) AND t.owner <> b.owner
)`),
			State: databases.Statement{
				Name: "cas.state-all",
				SQL: `SELECT name, owner, token, ended, expires_at - ` + grants.SQLiteNow + `, lock_delay_us, host, pid, label, metadata, waiting
  FROM sqllock_locks WHERE name IN (SELECT value ->> 'name' FROM json_each(?1))`,
				Args: []string{"calls"},
			},
			Renew: databases.Statement{
				Name: "cas.renew-all",
				SQL: `UPDATE sqllock_locks SET expires_at = max(expires_at, ` + grants.SQLiteNow + ` + ?2)
 WHERE (name, owner) IN (SELECT value ->> 'name', value ->> 'owner' FROM json_each(?1))
RETURNING owner, false`,
				Args: []string{"calls", "lease"},
			},
			// RETURNING sees the row as it is afterwards, so the owner is told from
			// what was asked.
			Release: databases.Statement{
				Name: "cas.release-all",
				SQL: `WITH ` + sqliteAsked + `
UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0
 WHERE (name, owner) IN (SELECT a.name, a.owner FROM asked a)
RETURNING (SELECT a.owner FROM asked a WHERE a.name = sqllock_locks.name), waiting <> 0`,
				Args: []string{"calls"},
			},
		},
	},
}

// asked is what MySQL and MariaDB read of the JSON array of calls, in whatever
// character set the connection has: the text comes as hexadecimal digits, and
// paths are said to be UTF-8, without which MySQL 9.7 takes them for binary where
// the connection is (error 3144). Names and owners are bytes in the tables, and here:
// CONVERT, not CAST, for which MariaDB 11.8 makes a table on disk, several times slower. It is a
// query of its own, with a LIMIT that keeps it so: beside JSON_TABLE itself
// MySQL 9.7 refuses FOR UPDATE (error 3569).
//
// Below it FORCE INDEX keeps a small table from being scanned, as MariaDB 11.8
// does: that would lock the rows of others.
const asked = `(SELECT CONVERT(name USING binary) AS name, CONVERT(owner USING binary) AS owner, lease, delay, host, pid, label, metadata, tokens, first, line, CONVERT(wait USING binary) AS wait
          FROM JSON_TABLE(CONVERT(UNHEX(?) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (
        name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name', owner VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.owner',
        lease BIGINT PATH _utf8mb4'$.lease', delay BIGINT PATH _utf8mb4'$.delay', host VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.host',
        pid BIGINT PATH _utf8mb4'$.pid', label VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.label',
        metadata VARCHAR(4096) CHARACTER SET utf8mb4 PATH _utf8mb4'$.metadata', tokens BIGINT PATH _utf8mb4'$.tokens',
        first BOOLEAN PATH _utf8mb4'$.first', line BIGINT PATH _utf8mb4'$.line',
        wait VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.wait'
    )) calls LIMIT 1000) a`

// ours are the leases of the calls' owners that nobody has locked, to be updated.
const ours = `(
    SELECT e.name FROM ` + asked + ` STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.owner = a.owner
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = ours.name`

// postgresAcquireAll grants the names that are free, and as far as the condition says.
func postgresAcquireAll(name, and string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::bigint[], $4::bigint[], $5::pg_catalog.text[], $6::bigint[], $7::pg_catalog.text[], $8::pg_catalog.text[], $9::bigint[],
                         $11::boolean[], $12::bigint[], $14::pg_catalog.text[])
               AS a (name, owner, lease, delay, host, pid, label, metadata, tokens, first, line, wait)
), free AS MATERIALIZED (
    SELECT l.name, a.owner, a.wait AS id FROM asked a JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.token <> 0
     WHERE l.expires_at + l.lock_delay_us::float * interval '1 microsecond' <= ` + grants.PostgresNow + ` AND (l.waiting = 0 OR a.first)
        OR l.owner = a.owner
     ORDER BY l.name
       FOR UPDATE OF l SKIP LOCKED
), queue AS (
    DELETE FROM sqllock_queue q USING free WHERE $13::pg_catalog.text <> '' AND q.process = $13 AND q.id = free.id` + and + `
)
UPDATE sqllock_locks l
   SET token = CASE WHEN l.owner = a.owner THEN l.token ELSE greatest(l.token + a.tokens, ` + grants.PostgresMicros + `) END,
       owner = a.owner, expires_at = greatest(CASE WHEN l.owner = a.owner THEN l.expires_at END,
                                              ` + grants.PostgresNow + ` + a.lease::float * interval '1 microsecond'),
       lock_delay_us = a.delay, acquired_at = ` + grants.PostgresNow + `, host = a.host, pid = a.pid, label = a.label, metadata = a.metadata,
       strategy = $10, ended = '', waiting = CASE WHEN l.waiting = a.line THEN 0 ELSE l.waiting END
  FROM free JOIN asked a ON a.owner = free.owner
 WHERE l.name = free.name` + and + `
RETURNING l.owner, l.token`,
		Args: []string{"names", "owners", "leases", "delays", "hosts", "pids", "labels", "metadatas", "tokens", "strategy", "firsts", "lines", "process", "waits"},
	}
}

// free are the names that are, locked unless somebody else has them so, with what is asked for.
const free = `(
    SELECT l.name, e.owner AS before_owner, a.owner, a.lease, a.delay, a.host, a.pid, a.label, a.metadata, a.tokens, a.line, a.wait FROM ` + asked + `
    STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name AND l.token <> 0
    STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name
     WHERE e.expires_at + l.lock_delay_us <= ` + grants.MySQLNow + ` AND (e.waiting = 0 OR a.first) OR e.owner = a.owner
     LIMIT 1000 FOR UPDATE SKIP LOCKED
)`

// mysqlAcquireAll grants names that are free.
func mysqlAcquireAll(name, free, where string, args ...string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `UPDATE ` + free + ` free
STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = free.name
   SET l.token = IF(free.before_owner = free.owner, l.token, GREATEST(l.token + free.tokens, ` + grants.MySQLNow + `)), l.owner = free.owner,
       l.lock_delay_us = free.delay, l.acquired_at = ` + grants.MySQLNow + `, l.host = free.host, l.pid = free.pid, l.label = free.label,
       l.metadata = free.metadata, l.strategy = UNHEX(?),
       e.ended = '', e.owner = free.owner, e.wait = free.wait,
       e.waiting = IF(e.waiting = free.line AND e.waiting < ` + grants.MySQLNow + ` - 5000000, 0, e.waiting), e.expires_at = GREATEST(IF(free.before_owner = free.owner, e.expires_at, 0), ` + grants.MySQLNow + ` + free.lease)` + where,
		Args: append([]string{"calls", "strategy"}, args...),
	}
}

// sqliteAsked reads the JSON array of calls once: read anew for each row, that of 500 took a hundred times as long as
// the rest.
const sqliteAsked = `asked AS MATERIALIZED (
    SELECT value ->> 'name' AS name, value ->> 'owner' AS owner, value ->> 'lease' AS lease, value ->> 'delay' AS delay, value ->> 'host' AS host,
           value ->> 'pid' AS pid, value ->> 'label' AS label, value ->> 'metadata' AS metadata, value ->> 'tokens' AS tokens,
           value ->> 'first' AS first, value ->> 'line' AS line, value ->> 'wait' AS wait
      FROM json_each(?1)
)`

// sqliteAcquireAll grants the names that are free, or none.
func sqliteAcquireAll(name, where string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `WITH ` + sqliteAsked + `
INSERT INTO sqllock_locks AS l
       (name, token, owner, expires_at, lock_delay_us, acquired_at, host, pid, label, metadata, strategy)
SELECT a.name, max(` + grants.SQLiteNow + `, max(coalesce((SELECT b.token FROM sqllock_locks b WHERE b.name = a.name), 0), ` + grants.SQLiteFloor + `) + a.tokens),
       a.owner, ` + grants.SQLiteNow + ` + a.lease, a.delay, ` + grants.SQLiteNow + `, a.host, a.pid, a.label, a.metadata, ?2
  FROM asked a WHERE ` + where + `
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE excluded.token END,
       owner = excluded.owner, expires_at = max(l.expires_at, excluded.expires_at),
       lock_delay_us = excluded.lock_delay_us, acquired_at = excluded.acquired_at, host = excluded.host,
       pid = excluded.pid, label = excluded.label, metadata = excluded.metadata, strategy = excluded.strategy, ended = '',
       wait = (SELECT a.wait FROM asked a WHERE a.owner = excluded.owner),
       waiting = CASE WHEN l.waiting = (SELECT a.line FROM asked a WHERE a.owner = excluded.owner)
                           AND l.waiting < ` + grants.SQLiteNow + ` - 5000000 THEN 0 ELSE l.waiting END
 WHERE l.expires_at + l.lock_delay_us <= ` + grants.SQLiteNow + `
       AND (l.waiting = 0 OR (SELECT a.first FROM asked a WHERE a.owner = excluded.owner))
    OR l.owner = excluded.owner
RETURNING owner, token`,
		Args: []string{"calls", "strategy"},
	}
}
