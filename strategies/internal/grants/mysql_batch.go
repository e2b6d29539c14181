package grants

import (
	"github.com/sqllock/sqllock/databases"
)

// MySQLBatch are the statements about many grants on MySQL and MariaDB, of a strategy whose lock is the record.
var MySQLBatch = Batch{
	Create: []databases.Statement{
		{
			Name: "grant.create-all",
			SQL: `INSERT INTO sqllock_locks (name, acquired_at) SELECT a.name, ` + MySQLNow + ` FROM ` + MySQLOwners + ` ORDER BY a.name
    ON DUPLICATE KEY UPDATE name = sqllock_locks.name`,
			Args: []string{"calls"},
		},
		{
			Name: "grant.create-all-leases",
			SQL: `INSERT INTO sqllock_leases (name) SELECT a.name FROM ` + MySQLOwners + ` ORDER BY a.name
    ON DUPLICATE KEY UPDATE name = sqllock_leases.name`,
			Args: []string{"calls"},
		},
		{
			Name: "grant.ready-all",
			SQL: `UPDATE (
    SELECT l.name FROM ` + MySQLOwners + ` STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
     WHERE l.token = 0
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) made
STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = made.name
  LEFT JOIN sqllock_floor f ON true
   SET l.token = GREATEST(1, COALESCE(f.token, 0))`,
			Args: []string{"calls"},
		},
	},
	Acquire: mysqlAcquireAll("grant.acquire-all", mysqlFree, []string{"calls", "first"}, MySQLNow),
	State: databases.Statement{
		Name: "grant.state-all",
		SQL: `SELECT l.name, e.owner, l.token, e.ended, e.expires_at - ` + MySQLNow + `, l.lock_delay_us, l.host, l.pid, l.label, l.metadata, e.waiting
  FROM ` + MySQLOwners + ` STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name`,
		Args: []string{"calls"},
	},
	Renew: databases.Statement{
		Name: "grant.renew-all",
		SQL: `UPDATE ` + mysqlOurs + `
   SET e.expires_at = GREATEST(e.expires_at, LAST_INSERT_ID(` + MySQLNow + `) + ?)`,
		Args: []string{"calls", "lease"},
	},
	Release: databases.Statement{
		Name: "grant.release-all",
		SQL: `UPDATE ` + mysqlOurs + `
   SET e.owner = '', e.expires_at = IF(e.waiting <> 0, 0 * LAST_INSERT_ID(1), 0)`,
		Args: []string{"calls"},
	},
	Leases: databases.Statement{
		Name: "grant.leases-all",
		SQL: `SELECT e.name, e.owner, e.expires_at FROM ` + MySQLOwners + `
    STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.owner = a.owner`,
		Args: []string{"calls"},
	},
}

// mysqlCalls is what MySQL and MariaDB read of the JSON array of calls, names and owners and more, in whatever
// character set the connection has: the text comes as hexadecimal digits, and
// paths are said to be UTF-8, without which MySQL 9.7 takes them for binary where
// the connection is (error 3144). Names and owners are bytes in the tables, and here:
// CONVERT, not CAST, for which MariaDB 11.8 makes a table on disk, several times slower. It is a
// query of its own, with a LIMIT that keeps it so: beside JSON_TABLE itself
// MySQL 9.7 refuses FOR UPDATE (error 3569).
//
// Below it FORCE INDEX keeps a small table from being scanned, as MariaDB 11.8
// does: that would lock the rows of others.
func mysqlCalls(columns, paths string) string {
	return `(SELECT CONVERT(name USING binary) AS name, CONVERT(owner USING binary) AS owner` + columns + `
          FROM JSON_TABLE(CONVERT(UNHEX(?) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (
        name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name', owner VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.owner'` + paths + `
    )) calls LIMIT 1000) a`
}

// What an acquisition reads of a call besides, and the named lock that goes with it.
const (
	mysqlWanted      = `, lease, delay, host, pid, label, metadata, tokens, first, line, CONVERT(wait USING binary) AS wait`
	mysqlWantedPaths = `,
        lease BIGINT PATH _utf8mb4'$.lease', delay BIGINT PATH _utf8mb4'$.delay', host VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.host',
        pid BIGINT PATH _utf8mb4'$.pid', label VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.label',
        metadata VARCHAR(4096) CHARACTER SET utf8mb4 PATH _utf8mb4'$.metadata', tokens BIGINT PATH _utf8mb4'$.tokens',
        first BOOLEAN PATH _utf8mb4'$.first', line BIGINT PATH _utf8mb4'$.line',
        wait VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.wait'`

	mysqlKey     = `, lock_key`
	mysqlKeyPath = `, lock_key VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.key'`
)

// MySQLOwners are the names and owners of the calls.
var MySQLOwners = mysqlCalls("", "")

// mysqlOurs are the leases of the calls' owners that nobody has locked, to be updated.
var mysqlOurs = `(
    SELECT e.name FROM ` + MySQLOwners + ` STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.owner = a.owner
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = ours.name`

// mysqlFree are the names that are, locked unless somebody else has them so, with what is asked for.
var mysqlFree = mysqlLocked(mysqlCalls(mysqlWanted, mysqlWantedPaths), `l.token <> 0
       AND (e.expires_at + l.lock_delay_us <= `+MySQLNow+` AND (e.waiting = 0 OR COALESCE(a.first, ?)) OR e.owner = a.owner)`)

// mysqlLocked are the calls whose rows are as where says, locked.
func mysqlLocked(calls, where string) string {
	return `(
    SELECT l.name, e.owner AS before_owner, a.owner, a.lease, a.delay, a.host, a.pid, a.label, a.metadata, a.tokens, a.line, a.wait FROM ` + calls + `
    STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
    STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name
     WHERE ` + where + `
     LIMIT 1000 FOR UPDATE SKIP LOCKED
)`
}

// mysqlAcquireAll grants names that are free, which binds args, at a moment.
func mysqlAcquireAll(name, free string, args []string, moment string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `UPDATE ` + free + ` free
STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = free.name
   SET l.token = IF(free.before_owner = free.owner, l.token, GREATEST(l.token + COALESCE(free.tokens, ?), ` + MySQLNow + `)), l.owner = free.owner,
       l.lock_delay_us = COALESCE(free.delay, ?), l.acquired_at = ` + moment + `, l.host = COALESCE(free.host, UNHEX(?)),
       l.pid = COALESCE(free.pid, ?), l.label = COALESCE(free.label, UNHEX(?)), l.metadata = COALESCE(free.metadata, UNHEX(?)), l.strategy = UNHEX(?),
       e.ended = '', e.owner = free.owner, e.wait = COALESCE(free.wait, UNHEX(?)),
       e.waiting = IF(e.waiting = COALESCE(free.line, ?) AND e.waiting < ` + MySQLNow + ` - 5000000, 0, e.waiting),
       e.expires_at = GREATEST(IF(free.before_owner = free.owner, e.expires_at, 0), ` + MySQLNow + ` + COALESCE(free.lease, ?))`,
		Args: append(args, "tokens", "delay", "host", "pid", "label", "metadata", "strategy", "wait", "line", "lease"),
	}
}
