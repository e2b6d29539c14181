package insert

import (
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies/internal/record"
)

// steps are the statements of an acquisition. On PostgreSQL it is the first
// alone, which returns the token.
type steps struct {
	begin, insert, token, commit, rollback databases.Statement
}

// acquire: the row of sqllock_inserts is the lock; the name's row in
// sqllock_locks has the token, which must not start again when a row is gone,
// and is what a guard pins.
//
// The token is drawn while the inserted row is held. One that is drawn before,
// as a default or a sequence in VALUES is, can be older than a successor's:
// the insert may wait for another's transaction after it was drawn.
var acquire = map[databases.Dialect]steps{
	databases.Postgres: {
		// The name's row first, skipping if a guard or another try has it. It
		// is not taken at all while the name is held, so a failed try writes
		// nothing. Each part runs after the one that it reads from.
		insert: databases.Statement{
			Name: "insert.acquire",
			SQL: `WITH free AS (
    SELECT l.name FROM sqllock_locks l
     WHERE l.name = $1 AND NOT EXISTS (
           SELECT 1 FROM sqllock_inserts i
            WHERE i.name = $1 AND i.owner <> $2
              AND i.expires_at + i.lock_delay_us * interval '1 microsecond' > clock_timestamp())
       FOR UPDATE SKIP LOCKED
), won AS (
    INSERT INTO sqllock_inserts AS i (name, owner, expires_at, lock_delay_us)
    SELECT free.name, $2, clock_timestamp() + $3::bigint * interval '1 microsecond', $4 FROM free
        ON CONFLICT (name) DO UPDATE
       SET owner = excluded.owner,
           expires_at = greatest(i.expires_at, clock_timestamp() + $3::bigint * interval '1 microsecond'),
           lock_delay_us = excluded.lock_delay_us
     WHERE i.owner = excluded.owner
        OR i.expires_at + i.lock_delay_us * interval '1 microsecond' <= clock_timestamp()
    RETURNING name
)
UPDATE sqllock_locks l
   SET token = CASE WHEN l.owner = $2 THEN l.token ELSE greatest(l.token + $10::bigint, ` + record.PostgresMicros + `) END, owner = $2,
       acquired_at = clock_timestamp(), host = $5, pid = $6, label = $7, metadata = $8, strategy = $9, ended = ''
  FROM won
 WHERE l.name = won.name
RETURNING l.token`,
			Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "tokens"},
		},
	},

	databases.MySQL: {
		// Two statements, each committed: a crash between them leaves a row
		// that expires. The name's row is locked first, so that one try at a
		// time inserts: INSERT and DELETE of one key by many deadlock. The
		// condition stands in every assignment, and holds after any of them
		// was made, because MySQL assigns from left to right and MariaDB may
		// not (sql_mode SIMULTANEOUS_ASSIGNMENT). Nothing is read from the
		// number of affected rows, which clientFoundRows changes; the next
		// statement tells whose the row is.
		insert: databases.Statement{
			Name: "insert.insert",
			SQL: `INSERT INTO sqllock_inserts (name, owner, expires_at, lock_delay_us)
SELECT free.name, ?, ` + record.MySQLNow + ` + ?, ?
  FROM (SELECT name FROM sqllock_locks WHERE name = ? LIMIT 1 FOR UPDATE SKIP LOCKED) free
    ON DUPLICATE KEY UPDATE
       owner = IF(expires_at + lock_delay_us <= ` + record.MySQLNow + ` OR owner = ?, ?, owner),
       expires_at = IF(expires_at + lock_delay_us <= ` + record.MySQLNow + ` OR owner = ?, GREATEST(expires_at, ` + record.MySQLNow + ` + ?), expires_at),
       lock_delay_us = IF(expires_at + lock_delay_us <= ` + record.MySQLNow + ` OR owner = ?, ?, lock_delay_us)`,
			Args: []string{
				"owner", "lease", "delay", "name", "owner", "owner", "owner", "lease", "owner", "delay",
			},
		},
		token: databases.Statement{
			Name: "insert.token",
			SQL: `UPDATE (SELECT name, owner FROM sqllock_locks WHERE name = ? LIMIT 1 FOR UPDATE SKIP LOCKED) free
STRAIGHT_JOIN sqllock_locks l ON l.name = free.name
STRAIGHT_JOIN sqllock_inserts i ON i.name = free.name
   SET l.token = LAST_INSERT_ID(IF(free.owner = ?, l.token, GREATEST(l.token + ?, ` + record.MySQLNow + `))), l.owner = ?, l.lock_delay_us = 0,
       l.acquired_at = ` + record.MySQLNow + `, l.host = ?, l.pid = ?, l.label = ?, l.metadata = ?, l.strategy = ?, l.ended = ''
 WHERE i.owner = ?`,
			Args: []string{"name", "owner", "tokens", "owner", "host", "pid", "label", "metadata", "strategy", "owner"},
		},
	},

	databases.SQLite: {
		begin: databases.Statement{Name: "insert.begin", SQL: `BEGIN IMMEDIATE`},
		insert: databases.Statement{
			Name: "insert.insert",
			SQL: `INSERT INTO sqllock_inserts AS i (name, owner, expires_at, lock_delay_us)
VALUES (?1, ?2, ` + record.SQLiteNow + ` + ?3, ?4)
    ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, expires_at = max(i.expires_at, excluded.expires_at), lock_delay_us = excluded.lock_delay_us
 WHERE i.owner = excluded.owner OR i.expires_at + i.lock_delay_us <= ` + record.SQLiteNow + `
RETURNING 1`,
			Args: []string{"name", "owner", "lease", "delay"},
		},
		token: databases.Statement{
			Name: "insert.token",
			SQL: `INSERT INTO sqllock_locks AS l (name, token, owner, acquired_at, host, pid, label, metadata, strategy)
VALUES (?1, ` + record.SQLiteNow + `, ?2, ` + record.SQLiteNow + `, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE max(l.token + ?8, excluded.token) END,
       owner = excluded.owner, acquired_at = excluded.acquired_at,
       host = excluded.host, pid = excluded.pid, label = excluded.label, metadata = excluded.metadata,
       strategy = excluded.strategy, ended = ''
RETURNING token`,
			Args: []string{"name", "owner", "host", "pid", "label", "metadata", "strategy", "tokens"},
		},
		commit:   databases.Statement{Name: "insert.commit", SQL: `COMMIT`},
		rollback: databases.Statement{Name: "insert.rollback", SQL: `ROLLBACK`},
	},
}

// statements are the rest: what happens to a grant that was made.
func statements(d databases.Dialect) (record.Statements, bool) {
	s, ok := grants[d]

	return s, ok
}

var grants = map[databases.Dialect]record.Statements{
	databases.Postgres: {
		Create: []databases.Statement{{
			Name: "insert.create",
			SQL:  `INSERT INTO sqllock_locks (name, strategy) VALUES ($1, 'insert') ON CONFLICT DO NOTHING`,
			Args: []string{"name"},
		}},
		State: databases.Statement{
			Name: "insert.state",
			SQL: `SELECT coalesce(i.owner, ''), l.token, l.ended,
       coalesce((extract(epoch FROM i.expires_at - clock_timestamp()) * 1000000)::bigint, 0),
       coalesce(i.lock_delay_us, 0), l.host, l.pid, l.label, l.metadata
  FROM sqllock_locks l LEFT JOIN sqllock_inserts i ON i.name = l.name WHERE l.name = $1`,
			Args: []string{"name"},
		},
		Renew: databases.Statement{
			Name: "insert.renew",
			SQL: `UPDATE sqllock_inserts
   SET expires_at = greatest(expires_at, clock_timestamp() + $3::bigint * interval '1 microsecond')
 WHERE name = $1 AND owner = $2`,
			Args: []string{"name", "owner", "lease"},
		},
		Release: databases.Statement{
			Name: "insert.release",
			SQL:  `DELETE FROM sqllock_inserts WHERE name = $1 AND owner = $2 AND ` + record.PostgresAsync("$3"),
			Args: []string{"name", "owner", "durable"},
		},
		ReleaseLater: databases.Statement{
			Name: "insert.release-later",
			SQL: `UPDATE sqllock_inserts i
   SET owner = '', expires_at = l.acquired_at + $3::bigint * interval '1 microsecond', lock_delay_us = 0
  FROM sqllock_locks l
 WHERE i.name = $1 AND i.owner = $2 AND l.name = i.name`,
			Args: []string{"name", "owner", "min_hold"},
		},
		// The name's row too, so that a try skips it and does not wait for the
		// transaction.
		ReleaseTx: databases.Statement{
			Name: "insert.release",
			SQL:  `DELETE FROM sqllock_inserts WHERE name = $1 AND owner = $2`,
			Args: []string{"name", "owner"},
		},
		BeforeReleaseTx: []databases.Statement{{
			Name: "insert.release-tx",
			SQL:  `UPDATE sqllock_locks SET owner = '' WHERE name = $1 AND owner = $2`,
			Args: []string{"name", "owner"},
		}},
		Force: []databases.Statement{
			{
				Name: "insert.force-guard",
				SQL:  `UPDATE sqllock_locks SET owner = '', ended = $3 WHERE name = $1 AND owner = $2`,
				Args: []string{"name", "owner", "ended"},
			},
			{
				Name: "insert.force",
				SQL:  `DELETE FROM sqllock_inserts WHERE name = $1 AND owner = $2`,
				Args: []string{"name", "owner"},
			},
		},
	},

	databases.MySQL: {
		Create: []databases.Statement{{
			Name: "insert.create",
			SQL: `INSERT INTO sqllock_locks (name, strategy) VALUES (?, 'insert')
    ON DUPLICATE KEY UPDATE name = sqllock_locks.name`,
			Args: []string{"name"},
		}},
		State: databases.Statement{
			Name: "insert.state",
			SQL: `SELECT COALESCE(i.owner, ''), l.token, l.ended, COALESCE(i.expires_at - ` + record.MySQLNow + `, 0),
       COALESCE(i.lock_delay_us, 0), l.host, l.pid, l.label, l.metadata
  FROM sqllock_locks l LEFT JOIN sqllock_inserts i ON i.name = l.name WHERE l.name = ?`,
			Args: []string{"name"},
		},
		Renew: databases.Statement{
			Name: "insert.renew",
			SQL:  `UPDATE sqllock_inserts SET expires_at = GREATEST(expires_at, ` + record.MySQLLate + ` + ?) WHERE name = ? AND owner = ?`,
			Args: []string{"lease", "name", "owner"},
		},
		Release: databases.Statement{
			Name: "insert.release",
			SQL:  `DELETE FROM sqllock_inserts WHERE name = ? AND owner = ?`,
			Args: []string{"name", "owner"},
		},
		ReleaseLater: databases.Statement{
			Name: "insert.release-later",
			// In the order of an acquisition, which would deadlock with another.
			SQL: `UPDATE sqllock_locks l STRAIGHT_JOIN sqllock_inserts i ON i.name = l.name
   SET i.owner = '', i.expires_at = l.acquired_at + ?, i.lock_delay_us = 0
 WHERE l.name = ? AND i.owner = ?`,
			Args: []string{"min_hold", "name", "owner"},
		},
		ReleaseTx: databases.Statement{
			Name: "insert.release",
			SQL:  `DELETE FROM sqllock_inserts WHERE name = ? AND owner = ?`,
			Args: []string{"name", "owner"},
		},
		BeforeReleaseTx: []databases.Statement{{
			Name: "insert.release-tx",
			SQL:  `UPDATE sqllock_locks SET owner = '' WHERE name = ? AND owner = ?`,
			Args: []string{"name", "owner"},
		}},
		// The note only if no guard has the row: an operator does not wait for
		// it, the next holder does.
		Force: []databases.Statement{
			{
				Name: "insert.force-guard",
				SQL: `UPDATE (SELECT name FROM sqllock_locks WHERE name = ? LIMIT 1 FOR UPDATE SKIP LOCKED) held
STRAIGHT_JOIN sqllock_locks l ON l.name = held.name
   SET l.owner = '', l.ended = ?
 WHERE l.owner = ?`,
				Args: []string{"name", "ended", "owner"},
			},
			{
				Name: "insert.force",
				SQL:  `DELETE FROM sqllock_inserts WHERE name = ? AND owner = ?`,
				Args: []string{"name", "owner"},
			},
		},
	},

	databases.SQLite: {
		State: databases.Statement{
			Name: "insert.state",
			SQL: `SELECT coalesce(i.owner, ''), l.token, l.ended, coalesce(i.expires_at - ` + record.SQLiteNow + `, 0),
       coalesce(i.lock_delay_us, 0), l.host, l.pid, l.label, l.metadata
  FROM sqllock_locks l LEFT JOIN sqllock_inserts i ON i.name = l.name WHERE l.name = ?1`,
			Args: []string{"name"},
		},
		Renew: databases.Statement{
			Name: "insert.renew",
			SQL:  `UPDATE sqllock_inserts SET expires_at = max(expires_at, ` + record.SQLiteNow + ` + ?3) WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner", "lease"},
		},
		Release: databases.Statement{
			Name: "insert.release",
			SQL:  `DELETE FROM sqllock_inserts WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner"},
		},
		ReleaseTx: databases.Statement{
			Name: "insert.release",
			SQL:  `DELETE FROM sqllock_inserts WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner"},
		},
		ReleaseLater: databases.Statement{
			Name: "insert.release-later",
			SQL: `UPDATE sqllock_inserts
   SET owner = '', lock_delay_us = 0,
       expires_at = (SELECT l.acquired_at FROM sqllock_locks l WHERE l.name = sqllock_inserts.name) + ?3
 WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner", "min_hold"},
		},
		Force: []databases.Statement{
			{
				Name: "insert.force-guard",
				SQL:  `UPDATE sqllock_locks SET owner = '', ended = ?3 WHERE name = ?1 AND owner = ?2`,
				Args: []string{"name", "owner", "ended"},
			},
			{
				Name: "insert.force",
				SQL:  `DELETE FROM sqllock_inserts WHERE name = ?1 AND owner = ?2`,
				Args: []string{"name", "owner"},
			},
		},
	},
}
