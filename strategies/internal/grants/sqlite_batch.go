package grants

import "github.com/sqllock/sqllock/databases"

// SQLiteBatch are the statements about many grants on SQLite, of a strategy whose lock is the record.
var SQLiteBatch = Batch{
	Create: []databases.Statement{{
		Name: "grant.create-all",
		SQL: `INSERT INTO sqllock_locks (name, acquired_at) SELECT value ->> 'name', ` + SQLiteNow + ` FROM json_each(?1) WHERE true
    ON CONFLICT DO NOTHING`,
		Args: []string{"calls"},
	}},
	Acquire: sqliteAcquireAll,
	State: databases.Statement{
		Name: "grant.state-all",
		SQL: `SELECT name, owner, token, ended, expires_at - ` + SQLiteNow + `, lock_delay_us, host, pid, label, metadata, waiting
  FROM sqllock_locks WHERE name IN (SELECT value ->> 'name' FROM json_each(?1))`,
		Args: []string{"calls"},
	},
	Renew: databases.Statement{
		Name: "grant.renew-all",
		SQL: `UPDATE sqllock_locks SET expires_at = max(expires_at, ` + SQLiteNow + ` + ?2)
 WHERE (name, owner) IN (SELECT value ->> 'name', value ->> 'owner' FROM json_each(?1))
RETURNING owner, false`,
		Args: []string{"calls", "lease"},
	},
	// RETURNING sees the row as it is afterwards, so the owner is told from
	// what was asked.
	Release: databases.Statement{
		Name: "grant.release-all",
		SQL: `WITH ` + SQLiteAsked + `
UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0
 WHERE (name, owner) IN (SELECT a.name, a.owner FROM asked a)
RETURNING (SELECT a.owner FROM asked a WHERE a.name = sqllock_locks.name), waiting <> 0`,
		Args: []string{"calls"},
	},
}

// SQLiteAsked reads the JSON array of calls once: read anew for each row, that of 500 took a hundred times as long as
// the rest.
const SQLiteAsked = `asked AS MATERIALIZED (
    SELECT value ->> 'name' AS name, value ->> 'owner' AS owner, value ->> 'lease' AS lease, value ->> 'delay' AS delay, value ->> 'host' AS host,
           value ->> 'pid' AS pid, value ->> 'label' AS label, value ->> 'metadata' AS metadata, value ->> 'tokens' AS tokens,
           value ->> 'first' AS first, value ->> 'line' AS line, value ->> 'wait' AS wait
      FROM json_each(?1)
)`

// sqliteAcquireAll grants the names that are free.
var sqliteAcquireAll = databases.Statement{
	Name: "grant.acquire-all",
	SQL: `WITH ` + SQLiteAsked + `
INSERT INTO sqllock_locks AS l
       (name, token, owner, expires_at, lock_delay_us, acquired_at, host, pid, label, metadata, strategy)
SELECT a.name, max(` + SQLiteNow + `, max(coalesce((SELECT b.token FROM sqllock_locks b WHERE b.name = a.name), 0), ` + SQLiteFloor + `) + coalesce(a.tokens, ?4)),
       a.owner, ` + SQLiteNow + ` + coalesce(a.lease, ?5), coalesce(a.delay, ?6), ` + SQLiteNow + `, coalesce(a.host, ?7), coalesce(a.pid, ?8),
       coalesce(a.label, ?9), coalesce(a.metadata, ?10), ?2
  FROM asked a WHERE true
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE excluded.token END,
       owner = excluded.owner, expires_at = max(l.expires_at, excluded.expires_at),
       lock_delay_us = excluded.lock_delay_us, acquired_at = excluded.acquired_at, host = excluded.host,
       pid = excluded.pid, label = excluded.label, metadata = excluded.metadata, strategy = excluded.strategy, ended = '',
       wait = (SELECT coalesce(a.wait, ?11) FROM asked a WHERE a.owner = excluded.owner),
       waiting = CASE WHEN l.waiting = (SELECT coalesce(a.line, ?12) FROM asked a WHERE a.owner = excluded.owner)
                           AND l.waiting < ` + SQLiteNow + ` - 5000000 THEN 0 ELSE l.waiting END
 WHERE l.expires_at + l.lock_delay_us <= ` + SQLiteNow + `
       AND (l.waiting = 0 OR (SELECT coalesce(a.first, ?3) FROM asked a WHERE a.owner = excluded.owner))
    OR l.owner = excluded.owner
RETURNING owner, token`,
	Args: []string{"calls", "strategy", "first", "tokens", "lease", "delay", "host", "pid", "label", "metadata", "wait", "line"},
}
