package insert

import (
	"context"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
	"github.com/sqllock/sqllock/strategies/internal/leftovers"
)

// statements take the place of those of the name's record, whose lease decides. On
// PostgreSQL the record is taken and the row made in one. On MySQL a release deletes
// the row before the record is freed, so that the row of a name that is free is left
// over only by a crash. What reapers do with those is in
// strategies/internal/leftovers/insert.go.
var statements = grants.Table[grants.Own]{
	databases.Postgres: {Acquire: acquire, Row: leftovers.Insert[databases.Postgres], Batch: postgresBatch},
	databases.MySQL:    {Row: leftovers.Insert[databases.MySQL], Batch: mysqlBatch},
	databases.TiDB:     {Row: leftovers.Insert[databases.TiDB]},
	databases.SQLite:   {Row: leftovers.Insert[databases.SQLite], Batch: sqliteBatch},
}

// acquire locks the name's record as that of package cas does, which has the
// reasons, and what a dead holder left in sqllock_inserts. Each part runs after the
// one that it reads from, so that the token is drawn last, while both rows are held.
//
// It waits for nobody: what is left over is skipped if somebody has it locked, and
// then the row is there for the INSERT not to be tried, as it would wait for a
// transaction that deletes it. For one that makes it, and is none of sqllock's, it waits briefly.
var acquire = databases.Statement{
	Name: "insert.acquire",
	SQL: `WITH free AS (
    SELECT l.name FROM sqllock_locks l
     WHERE l.name = $1 AND l.token <> 0
       AND (l.expires_at + l.lock_delay_us::float * interval '1 microsecond' <= ` + grants.PostgresNow + `
            OR l.owner = $2)
       AND (l.waiting = 0 OR $11::boolean OR l.owner = $2)
       FOR UPDATE SKIP LOCKED
), left_over AS (
    SELECT i.name FROM free JOIN sqllock_inserts i ON i.name = free.name FOR UPDATE OF i SKIP LOCKED
), replaced AS (
    UPDATE sqllock_inserts i SET owner = $2 FROM left_over WHERE i.name = left_over.name RETURNING i.name
), added AS (
    INSERT INTO sqllock_inserts (name, owner)
    SELECT free.name, $2 FROM free WHERE ` + grants.PostgresBriefly + ` AND NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = free.name)
        ON CONFLICT DO NOTHING
    RETURNING name
), present AS MATERIALIZED (
    SELECT name FROM replaced UNION ALL SELECT name FROM added
)` + postgresReleasable + `
UPDATE sqllock_locks l
   SET token = CASE WHEN l.owner = $2 THEN l.token ELSE greatest(l.token + $10::bigint, ` + grants.PostgresMicros + `) END, owner = $2,
       expires_at = greatest(CASE WHEN l.owner = $2 THEN l.expires_at END,
                             ` + grants.PostgresNow + ` + $3::float * interval '1 microsecond'),
       lock_delay_us = $4, acquired_at = ` + grants.PostgresNow + `, host = $5, pid = $6, label = $7, metadata = $8, strategy = $9,
       ended = '', waiting = CASE WHEN l.waiting = $12::bigint THEN 0 ELSE l.waiting END
  FROM present
 WHERE l.name = present.name
RETURNING l.token`,
	Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "tokens", "first", "line"},
}

// postgresReleasable deletes nothing. Who may not delete could acquire, and not release: PostgreSQL refuses that at once.
const postgresReleasable = `, releasable AS (
    DELETE FROM sqllock_inserts WHERE false
)`

// steps are how an acquisition goes, and what it sends besides that of the record.
type steps struct {
	acquire func(s *Strategy, ctx context.Context, conn databases.Conn, r strategies.Request) (int64, error)
	// look reads the owner of the name's row, empty if there is none, and its
	// state. clear deletes a row whose owner no longer has the name. make makes the
	// row for the owner of the record.
	look, clear, make databases.Statement
	// begin, commit and rollback are of SQLite's transaction.
	begin, commit, rollback databases.Statement
}

// look reads the owner of the name's row on MySQL.
var look = databases.Statement{
	Name: "insert.look",
	SQL: `SELECT COALESCE(i.owner, ''), e.owner, l.token, e.ended, e.expires_at - ` + grants.MySQLNow + `, l.lock_delay_us,
       l.host, l.pid, l.label, l.metadata, e.waiting
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name LEFT JOIN sqllock_inserts i ON i.name = l.name WHERE l.name = UNHEX(?)`,
	Args: []string{"name"},
}

// On MySQL the record comes first: a crash after it leaves a name that is held
// until its lease ends. Nothing is read from the number of rows that make changed,
// which clientFoundRows changes, but that it was not zero.
var dialects = grants.Table[steps]{
	databases.Postgres: {acquire: (*Strategy).inOne},

	databases.MySQL: {
		acquire: (*Strategy).oneByOne,

		look: look,
		clear: databases.Statement{
			Name: "insert.clear",
			SQL: `DELETE i FROM (
    SELECT i.name FROM sqllock_locks l STRAIGHT_JOIN sqllock_leases e ON e.name = l.name STRAIGHT_JOIN sqllock_inserts i ON i.name = l.name
     WHERE l.name = UNHEX(?) AND (e.expires_at + l.lock_delay_us <= ` + grants.MySQLNow + ` OR e.owner <> i.owner)
     LIMIT 1 FOR UPDATE SKIP LOCKED
) gone
STRAIGHT_JOIN sqllock_inserts i ON i.name = gone.name`,
			Args: []string{"name"},
		},
		make: databases.Statement{
			Name: "insert.insert",
			SQL: `INSERT INTO sqllock_inserts (name, owner)
SELECT ours.name, ours.owner
  FROM (SELECT name, owner FROM sqllock_leases WHERE name = UNHEX(?) AND owner = UNHEX(?) LIMIT 1 FOR UPDATE SKIP LOCKED) ours
    ON DUPLICATE KEY UPDATE owner = ours.owner`,
			Args: []string{"name", "owner"},
		},
	},

	// As on MySQL, each of them in a transaction.
	databases.TiDB: {
		acquire: (*Strategy).oneByOne,

		look: grants.OnTiDB(look),
		clear: databases.Statement{
			Name: "insert.clear",
			SQL: `SELECT i.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name JOIN sqllock_inserts i ON i.name = l.name
 WHERE l.name = UNHEX(?) AND (e.expires_at + l.lock_delay_us <= ` + grants.TiDBNow + ` OR e.owner <> i.owner)
   FOR UPDATE NOWAIT;
DELETE FROM sqllock_inserts WHERE name = UNHEX(?)`,
			Args: []string{"name", "name"},
		},
		// Both rows are locked, as far as they are there.
		make: databases.Statement{
			Name: "insert.insert",
			SQL: `SELECT e.name FROM sqllock_leases e LEFT JOIN sqllock_inserts i ON i.name = e.name
 WHERE e.name = UNHEX(?) AND e.owner = UNHEX(?)
   FOR UPDATE NOWAIT;
INSERT INTO sqllock_inserts (name, owner) VALUES (UNHEX(?), UNHEX(?)) ON DUPLICATE KEY UPDATE owner = VALUES(owner)`,
			Args: []string{"name", "owner", "name", "owner"},
		},
	},

	databases.SQLite: {
		acquire: (*Strategy).inTransaction,

		begin: databases.Statement{Name: "insert.begin", SQL: `BEGIN IMMEDIATE`},
		make: databases.Statement{
			Name: "insert.insert",
			SQL: `INSERT INTO sqllock_inserts (name, owner) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner`,
			Args: []string{"name", "owner"},
		},
		commit:   databases.Statement{Name: "insert.commit", SQL: `COMMIT`},
		rollback: databases.Statement{Name: "insert.rollback", SQL: `ROLLBACK`},
	},
}
