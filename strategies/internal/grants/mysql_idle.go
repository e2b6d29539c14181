package grants

import "github.com/sqllock/sqllock/databases"

// What rows may be removed that are not in use: those that tell nothing, or those whose tick was long ago.
const (
	mysqlUnnoted   = `e.tick = 0 AND e.ended = ''`
	mysqlForgotten = `e.tick < ` + MySQLNow + ` - ` + tickKept
)

// mysqlIdle is true of rows that are not in use, for an age that is bound twice, or whose maker died before it made the
// row of the lease.
func mysqlIdle(which string) string {
	return `l.acquired_at < ` + MySQLNow + ` - ? AND (e.name IS NULL OR e.owner = '' AND e.expires_at + l.lock_delay_us <= ` + MySQLNow + `
   AND e.waiting <= ` + MySQLNow + ` - ? AND ` + which + `)`
}

// mysqlFind lists names without a lock: one that looks through the table would keep others from its rows.
func mysqlFind(name, which string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `SELECT l.name FROM sqllock_locks l LEFT JOIN sqllock_leases e ON e.name = l.name
 WHERE ` + mysqlIdle(which) + `
   AND NOT EXISTS (SELECT 1 FROM sqllock_queue q WHERE q.name = SUBSTRING_INDEX(l.name, CHAR(31), 1) AND q.expires_at > ` + MySQLNow + `)
   AND NOT EXISTS (SELECT 1 FROM sqllock_shares s WHERE s.name = l.name)
 LIMIT ?`,
		Args: []string{"age", "age", "limit"},
	}
}

// mysqlLock locks what is still idle. By the primary key: others would be locked, too. A row of a lease that somebody has
// locked is skipped, as if it were missing; the subquery locks nothing, and finds it.
func mysqlLock(name, which string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `SELECT l.name, l.token FROM sqllock_locks l FORCE INDEX (PRIMARY) LEFT JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name
 WHERE l.name IN (UNHEX(?)...) AND ` + mysqlIdle(which) + `
   AND (e.name IS NOT NULL OR NOT EXISTS (SELECT 1 FROM sqllock_leases x WHERE x.name = l.name))
   FOR UPDATE SKIP LOCKED`,
		Args: []string{"age", "age"},
	}
}

// mysqlRemove removes rows. Under READ COMMITTED no gaps between them are locked, in which others make theirs.
var mysqlRemove = Removal{
	Begin: []databases.Statement{
		{Name: "grant.remove-isolate", SQL: `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`},
		{Name: "grant.remove-begin", SQL: `START TRANSACTION`},
	},
	Lock:          mysqlLock("grant.lock-idle", mysqlUnnoted),
	LockForgotten: mysqlLock("grant.lock-forgotten", mysqlForgotten),
	Leftovers:     [][2]databases.Statement{mysqlLeftover("sqllock_inserts"), mysqlLeftover("sqllock_mutexes")},
	Floor: databases.Statement{
		Name: "grant.floor",
		SQL:  `INSERT INTO sqllock_floor (id, token) VALUES (1, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`,
		Args: []string{"token"},
	},
	Delete: []databases.Statement{
		{
			Name: "grant.remove",
			SQL:  `DELETE l FROM sqllock_locks l FORCE INDEX (PRIMARY) WHERE l.name IN (UNHEX(?)...)`,
		},
		{
			Name: "grant.remove-leases",
			SQL:  `DELETE e FROM sqllock_leases e FORCE INDEX (PRIMARY) WHERE e.name IN (UNHEX(?)...)`,
		},
	},
}

// mysqlLeftover are the rows of a table that belong to names.
func mysqlLeftover(table string) [2]databases.Statement {
	return [2]databases.Statement{
		{Name: "grant.lock-leftover", SQL: `SELECT t.name FROM ` + table + ` t FORCE INDEX (PRIMARY) WHERE t.name IN (UNHEX(?)...) FOR UPDATE SKIP LOCKED`},
		{Name: "grant.remove-leftover", SQL: `DELETE t FROM ` + table + ` t FORCE INDEX (PRIMARY) WHERE t.name IN (UNHEX(?)...)`},
	}
}
