package grants

import "github.com/sqllock/sqllock/databases"

// PostgresFloor is the first token of a row, which no grant has: at least that of every row of its name that was removed.
const PostgresFloor = `greatest(1::bigint, (SELECT f.token FROM sqllock_floor f WHERE f.id = 1::bigint))`

// What rows may be removed that are not in use: those that tell nothing, or those whose tick was long ago.
const (
	postgresUnnoted   = `l.tick = 0 AND l.ended = ''`
	postgresForgotten = `l.tick < ` + PostgresMicros + ` - ` + tickKept
)

// postgresRemove removes rows that nobody uses, and notes the largest of their tokens. They are found by their places in the table: by
// name all of the table was read once more. A row that somebody has locked is skipped. One that has changed since the
// snapshot is at another place, where the DELETE does not see it.
//
// A crash that undoes this undoes all that came later, too, so that it need not wait for the disk.
func postgresRemove(name, which string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `WITH gone AS (
    DELETE FROM sqllock_locks WHERE ctid = ANY (ARRAY(
        SELECT l.ctid FROM sqllock_locks l
         WHERE l.owner = '' AND l.expires_at <= ` + PostgresNow + ` AND l.acquired_at < ` + PostgresNow + ` - $1::float * interval '1 microsecond'
           AND ` + which + ` AND l.waiting <= ` + PostgresMicros + ` - $1::bigint
           AND NOT EXISTS (SELECT 1 FROM sqllock_queue q WHERE q.name = ` + postgresLine + ` AND q.expires_at > ` + PostgresNow + `)
           AND NOT EXISTS (SELECT 1 FROM sqllock_shares s WHERE s.name = l.name) AND ` + PostgresAsync("false") + `
         LIMIT $2::bigint
           FOR UPDATE OF l SKIP LOCKED
    ))
    RETURNING name, token
), inserts AS (
    DELETE FROM sqllock_inserts WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM gone JOIN sqllock_inserts i ON i.name = gone.name FOR UPDATE OF i SKIP LOCKED))
), mutexes AS (
    DELETE FROM sqllock_mutexes WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM gone JOIN sqllock_mutexes m ON m.name = gone.name FOR UPDATE OF m SKIP LOCKED))
)
INSERT INTO sqllock_floor AS f (id, token) SELECT 1::bigint, pg_catalog.max(gone.token) FROM gone HAVING pg_catalog.count(*) > 0
    ON CONFLICT (id) DO UPDATE SET token = greatest(f.token, excluded.token)
RETURNING (SELECT pg_catalog.count(*) FROM gone)`,
		Args: []string{"age", "limit"},
	}
}
