package record

import "github.com/sqllock/sqllock/databases"

// asked is what MySQL and MariaDB read of the JSON array of calls. Names and
// owners are bytes in the tables. It is a query of its own, with a LIMIT that
// keeps it so: beside JSON_TABLE itself MySQL 9.7 refuses FOR UPDATE (error 3569).
//
// Below it FORCE INDEX keeps a small table from being scanned, as MariaDB 11.8
// does: that would lock the rows of others.
const asked = `(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (
        name VARCHAR(255) PATH '$.name', owner VARCHAR(64) PATH '$.owner', lease BIGINT PATH '$.lease', delay BIGINT PATH '$.delay',
        host VARCHAR(255) PATH '$.host', pid BIGINT PATH '$.pid', label VARCHAR(255) PATH '$.label', metadata VARCHAR(4096) PATH '$.metadata',
        tokens BIGINT PATH '$.tokens'
    )) calls LIMIT 1000) a`

// ours are the leases of the calls' owners that nobody has locked, to be updated.
const ours = `(
    SELECT e.name FROM ` + asked + ` STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = CAST(a.name AS BINARY)
     WHERE e.owner = CAST(a.owner AS BINARY)
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = ours.name`

// The statements about many grants, as they run. Each does to a row what the
// statement for one does, which has the reasons. Rows are locked in the order of
// their names, and those that somebody has locked are skipped.
var batches = map[databases.Dialect]*Batch{
	databases.Postgres: {
		Create: []databases.Statement{{
			Name: "record.create-all",
			SQL:  `INSERT INTO sqllock_locks (name) SELECT n FROM unnest($1::text[]) n ORDER BY n COLLATE "C" ON CONFLICT DO NOTHING`,
			Args: []string{"names"},
		}},
		// Of two requests for one name at most one is granted: the row changes
		// once, and only what RETURNING says is a grant.
		Acquire: databases.Statement{
			Name: "record.acquire-all",
			SQL: `WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::bigint[])
               AS a (name, owner, lease, delay, host, pid, label, metadata, tokens)
), free AS MATERIALIZED (
    SELECT l.name, a.owner FROM asked a JOIN sqllock_locks l ON l.name = a.name COLLATE "C"
     WHERE l.expires_at + l.lock_delay_us * interval '1 microsecond' <= clock_timestamp() OR l.owner = a.owner
     ORDER BY l.name
       FOR UPDATE OF l SKIP LOCKED
)
UPDATE sqllock_locks l
   SET token = CASE WHEN l.owner = a.owner THEN l.token ELSE greatest(l.token + a.tokens, ` + PostgresMicros + `) END,
       owner = a.owner, expires_at = greatest(CASE WHEN l.owner = a.owner THEN l.expires_at END,
                                              clock_timestamp() + a.lease * interval '1 microsecond'),
       lock_delay_us = a.delay, acquired_at = clock_timestamp(), host = a.host, pid = a.pid, label = a.label, metadata = a.metadata,
       strategy = $10, ended = ''
  FROM free JOIN asked a ON a.owner = free.owner
 WHERE l.name = free.name
RETURNING l.owner, l.token`,
			Args: []string{"names", "owners", "leases", "delays", "hosts", "pids", "labels", "metadatas", "tokens", "strategy"},
		},
		State: databases.Statement{
			Name: "record.state-all",
			SQL: `SELECT name, owner, token, ended, (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint,
       lock_delay_us, host, pid, label, metadata
  FROM sqllock_locks WHERE name = ANY ($1::text[])`,
			Args: []string{"names"},
		},
		Renew: databases.Statement{
			Name: "record.renew-all",
			SQL: `WITH ours AS MATERIALIZED (
    SELECT l.name FROM unnest($1::text[], $2::text[]) AS a (name, owner)
      JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE sqllock_locks l
   SET expires_at = greatest(expires_at, clock_timestamp() + $3::bigint * interval '1 microsecond')
  FROM ours WHERE l.name = ours.name
RETURNING l.owner, false`,
			Args: []string{"names", "owners", "lease"},
		},
		Release: databases.Statement{
			Name: "record.release-all",
			SQL: `WITH ours AS MATERIALIZED (
    SELECT l.name, l.owner FROM unnest($1::text[], $2::text[]) AS a (name, owner)
      JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
     WHERE ` + PostgresAsync("$3") + `
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
  FROM ours WHERE l.name = ours.name
RETURNING ours.owner, ` + postgresTell,
			Args: []string{"names", "owners", "durable"},
		},
	},

	databases.MySQL: {
		Create: []databases.Statement{
			{
				Name: "record.create-all",
				SQL: `INSERT INTO sqllock_locks (name) SELECT a.name FROM ` + asked + ` ORDER BY CAST(a.name AS BINARY)
    ON DUPLICATE KEY UPDATE name = sqllock_locks.name`,
				Args: []string{"calls"},
			},
			{
				Name: "record.create-all-leases",
				SQL: `INSERT INTO sqllock_leases (name) SELECT a.name FROM ` + asked + ` ORDER BY CAST(a.name AS BINARY)
    ON DUPLICATE KEY UPDATE name = sqllock_leases.name`,
				Args: []string{"calls"},
			},
		},
		Acquire: databases.Statement{
			Name: "record.acquire-all",
			SQL: `UPDATE (
    SELECT l.name, e.owner AS before_owner, a.owner, a.lease, a.delay, a.host, a.pid, a.label, a.metadata, a.tokens FROM ` + asked + `
    STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = CAST(a.name AS BINARY)
    STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name
     WHERE e.expires_at + l.lock_delay_us <= ` + MySQLNow + ` OR e.owner = CAST(a.owner AS BINARY)
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = free.name
   SET l.token = IF(free.before_owner = CAST(free.owner AS BINARY), l.token, GREATEST(l.token + free.tokens, ` + MySQLNow + `)), l.owner = free.owner,
       l.lock_delay_us = free.delay, l.acquired_at = ` + MySQLNow + `, l.host = free.host, l.pid = free.pid, l.label = free.label,
       l.metadata = free.metadata, l.strategy = ?, l.ended = '',
       e.owner = free.owner, e.expires_at = GREATEST(IF(free.before_owner = CAST(free.owner AS BINARY), e.expires_at, 0), ` + MySQLNow + ` + free.lease)`,
			Args: []string{"calls", "strategy"},
		},
		State: databases.Statement{
			Name: "record.state-all",
			SQL: `SELECT l.name, e.owner, l.token, l.ended, e.expires_at - ` + MySQLNow + `, l.lock_delay_us, l.host, l.pid, l.label, l.metadata
  FROM ` + asked + ` STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = CAST(a.name AS BINARY) STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name`,
			Args: []string{"calls"},
		},
		Renew: databases.Statement{
			Name: "record.renew-all",
			SQL: `UPDATE ` + ours + `
   SET e.expires_at = GREATEST(e.expires_at, ` + MySQLNow + ` + ?)`,
			Args: []string{"calls", "lease"},
		},
		Release: databases.Statement{
			Name: "record.release-all",
			SQL: `UPDATE ` + ours + `
   SET e.owner = '', e.expires_at = 0`,
			Args: []string{"calls"},
		},
	},

	databases.SQLite: {
		Acquire: databases.Statement{
			Name: "record.acquire-all",
			SQL: `INSERT INTO sqllock_locks AS l
       (name, token, owner, expires_at, lock_delay_us, acquired_at, host, pid, label, metadata, strategy)
SELECT a.value ->> 'name',
       max(` + SQLiteNow + `, coalesce((SELECT b.token FROM sqllock_locks b WHERE b.name = a.value ->> 'name'), 0) + (a.value ->> 'tokens')),
       a.value ->> 'owner', ` + SQLiteNow + ` + (a.value ->> 'lease'), a.value ->> 'delay', ` + SQLiteNow + `,
       a.value ->> 'host', a.value ->> 'pid', a.value ->> 'label', a.value ->> 'metadata', ?2
  FROM json_each(?1) a WHERE true
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE excluded.token END,
       owner = excluded.owner, expires_at = max(l.expires_at, excluded.expires_at),
       lock_delay_us = excluded.lock_delay_us, acquired_at = excluded.acquired_at, host = excluded.host,
       pid = excluded.pid, label = excluded.label, metadata = excluded.metadata, strategy = excluded.strategy, ended = ''
 WHERE l.expires_at + l.lock_delay_us <= ` + SQLiteNow + ` OR l.owner = excluded.owner
RETURNING owner, token`,
			Args: []string{"calls", "strategy"},
		},
		State: databases.Statement{
			Name: "record.state-all",
			SQL: `SELECT name, owner, token, ended, expires_at - ` + SQLiteNow + `, lock_delay_us, host, pid, label, metadata
  FROM sqllock_locks WHERE name IN (SELECT value ->> 'name' FROM json_each(?1))`,
			Args: []string{"calls"},
		},
		Renew: databases.Statement{
			Name: "record.renew-all",
			SQL: `UPDATE sqllock_locks SET expires_at = max(expires_at, ` + SQLiteNow + ` + ?2)
 WHERE (name, owner) IN (SELECT value ->> 'name', value ->> 'owner' FROM json_each(?1))
RETURNING owner, false`,
			Args: []string{"calls", "lease"},
		},
		// RETURNING sees the row as it is afterwards, so the owner is told from
		// what was asked.
		Release: databases.Statement{
			Name: "record.release-all",
			SQL: `UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0
 WHERE (name, owner) IN (SELECT value ->> 'name', value ->> 'owner' FROM json_each(?1))
RETURNING (SELECT a.value ->> 'owner' FROM json_each(?1) a WHERE a.value ->> 'name' = sqllock_locks.name), waiting_until > ` + SQLiteNow,
			Args: []string{"calls"},
		},
	},
}
