package grants

import "github.com/sqllock/sqllock/databases"

// PostgresBatch are the statements about many grants on PostgreSQL, of a strategy whose lock is the record.
var PostgresBatch = Batch{
	Create: []databases.Statement{{
		Name: "grant.create-all",
		SQL: `INSERT INTO sqllock_locks (name, acquired_at) SELECT n, ` + PostgresNow + ` FROM pg_catalog.unnest($1::pg_catalog.text[]) n
 WHERE ` + PostgresBriefly + ` AND ` + PostgresAsync("false") + ` ORDER BY n COLLATE "C" ON CONFLICT DO NOTHING`,
		Args: []string{"names"},
	}, {
		// In order, as others do the same.
		Name: "grant.ready-all",
		SQL: `WITH made AS MATERIALIZED (
    SELECT name FROM sqllock_locks
     WHERE name = ANY ($1::pg_catalog.text[]) AND token = 0 AND ` + PostgresBriefly + ` AND ` + PostgresAsync("false") + `
     ORDER BY name
       FOR NO KEY UPDATE
)
UPDATE sqllock_locks l SET token = ` + PostgresFloor + ` FROM made WHERE l.name = made.name`,
		Args: []string{"names"},
	}},
	// Of two requests for one name at most one is granted: the row changes
	// once, and only what RETURNING says is a grant.
	Acquire: PostgresAcquireAll("grant.acquire-all", "", "free"),
	State: databases.Statement{
		Name: "grant.state-all",
		SQL: `SELECT name, owner, token, ended, (pg_catalog.date_part('epoch', expires_at - ` + PostgresNow + `) * 1000000::float)::bigint,
       lock_delay_us, host, pid, label, metadata, waiting
  FROM sqllock_locks WHERE name = ANY ($1::pg_catalog.text[])`,
		Args: []string{"names"},
	},
	Renew: databases.Statement{
		Name: "grant.renew-all",
		SQL: `WITH ours AS MATERIALIZED (
    SELECT l.name FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS a (name, owner)
      JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE sqllock_locks l
   SET expires_at = greatest(expires_at, ` + PostgresNow + ` + $3::float * interval '1 microsecond')
  FROM ours WHERE l.name = ours.name
RETURNING l.owner, false`,
		Args: []string{"names", "owners", "lease"},
	},
	Release: PostgresReleaseAll("grant.release-all", "", "", ""),
}

// PostgresReleaseAll frees names of their owners: those joined with other rows, which are locked too, and with more
// parts that read from ours.
func PostgresReleaseAll(name, join, lock, parts string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `WITH ours AS MATERIALIZED (
    SELECT l.name, l.owner FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS a (name, owner)
      JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner` + join + `
     WHERE ` + PostgresAsync("$3") + `
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED` + lock + `
)` + parts + `
UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
  FROM ours WHERE l.name = ours.name
RETURNING ours.owner, ` + PostgresTell,
		Args: []string{"names", "owners", "durable"},
	}
}

// PostgresAcquireAll grants the names that are in from, which is free itself or one of the parts that read from it.
func PostgresAcquireAll(name, parts, from string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::bigint[], $4::bigint[], $5::pg_catalog.text[], $6::bigint[], $7::pg_catalog.text[], $8::pg_catalog.text[], $9::bigint[],
                         $11::boolean[], $12::bigint[], $14::pg_catalog.text[])
               AS a (name, owner, lease, delay, host, pid, label, metadata, tokens, first, line, wait)
), free AS MATERIALIZED (
    SELECT l.name, a.owner, a.wait AS id FROM asked a JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.token <> 0
     WHERE l.expires_at + l.lock_delay_us::float * interval '1 microsecond' <= ` + PostgresNow + ` AND (l.waiting = 0 OR a.first)
        OR l.owner = a.owner
     ORDER BY l.name
       FOR UPDATE OF l SKIP LOCKED
)` + parts + `, queue AS (
    DELETE FROM sqllock_queue q USING ` + from + ` free WHERE $13::pg_catalog.text <> '' AND q.process = $13 AND q.id = free.id
)
UPDATE sqllock_locks l
   SET token = CASE WHEN l.owner = a.owner THEN l.token ELSE greatest(l.token + a.tokens, ` + PostgresMicros + `) END,
       owner = a.owner, expires_at = greatest(CASE WHEN l.owner = a.owner THEN l.expires_at END,
                                              ` + PostgresNow + ` + a.lease::float * interval '1 microsecond'),
       lock_delay_us = a.delay, acquired_at = ` + PostgresNow + `, host = a.host, pid = a.pid, label = a.label, metadata = a.metadata,
       strategy = $10, ended = '', waiting = CASE WHEN l.waiting = a.line THEN 0 ELSE l.waiting END
  FROM ` + from + ` free JOIN asked a ON a.owner = free.owner
 WHERE l.name = free.name
RETURNING l.owner, l.token`,
		Args: []string{"names", "owners", "leases", "delays", "hosts", "pids", "labels", "metadatas", "tokens", "strategy", "firsts", "lines", "process", "waits"},
	}
}
